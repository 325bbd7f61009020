"""Embedded PostgreSQL: a server for everybody who has none, from a Python package.

`EmbeddedServer.start` is the entry. Nothing here knows what a rule is; it must import light, for the supervisor
imports this package too.
"""
