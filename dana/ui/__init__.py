"""The window: pages about the trainings and models of a database, served to browsers on this machine.

In: a connection string. Out: HTML over loopback or a unix socket. The pages can do what the database's role can do, and
nothing else.
"""
