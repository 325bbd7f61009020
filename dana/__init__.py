"""Train machine-learning rules on PostgreSQL pages with a generated accelerator.

In: nothing. Out: the names of the rule language, typed and documented for editors; and `connect`, `connect_async`,
`load`, `UsageError` and the warnings' classes, which are looked up when they are used. Must not: load NumPy, the front
end or any hardware library when imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dana import ours

ours.check_places()  # before the first import of them

from dana.language import elementwise, names
from dana.language.elementwise import *
from dana.language.names import *

if TYPE_CHECKING:
    from dana import functions as functions
    from dana import optimizers as optimizers
    from dana import rules as rules
    from dana.client.asynchronous import connect_async as connect_async
    from dana.client.connection import connect as connect
    from dana.errors import UsageError as UsageError
    from dana.language.rulefile import load as load
    from dana.session.notices import ServerNotice as ServerNotice
    from dana.session.notices import ServerWarning as ServerWarning

_WHEN_USED = {
    "ServerNotice": "dana.session.notices",
    "ServerWarning": "dana.session.notices",
    "UsageError": "dana.errors",
    "connect": "dana.client.connection",
    "connect_async": "dana.client.asynchronous",
    "load": "dana.language.rulefile",
}
"""Names from modules that need a database driver or the front end."""

_MODULES = ("functions", "optimizers", "rules")
"""Modules that need no import statement of their own."""


if not TYPE_CHECKING:
    # mypy does not evaluate the list
    __all__ = [*_WHEN_USED, *names.__all__, *elementwise.__all__]

    # hidden from type checkers, for which every misspelt name would exist
    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"dana.{name}")
        if name not in _WHEN_USED:
            raise AttributeError(f"module 'dana' has no attribute {name!r}")
        return getattr(import_module(_WHEN_USED[name]), name)
