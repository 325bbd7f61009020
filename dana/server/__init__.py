"""Embedded PostgreSQL: a server from a Python package, for users without one.

`EmbeddedServer.start` is the entry. Nothing here depends on rules. Imports must stay light: the supervisor imports
this package too.
"""
