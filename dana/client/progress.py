"""A training's progress: a spinner in a terminal, a line below a notebook's cell.

In: a session. Out: the epochs that the server reports. Elsewhere, as in a script with redirected output, it is silent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from dana.printable import printable
from dana.session.notices import is_progress

Show = Callable[[str], None]


@contextmanager
def shown_progress(session: psycopg.Connection, what: str, wanted: bool | None) -> Iterator[None]:
    """Show each epoch of a training in the block.

    Parameters
    ----------
    wanted
        True: in a notebook or a terminal; None: only in a notebook; False: nowhere.
    """
    # names of rules and tables come from the user and go to a terminal
    what = printable(what)
    with _place(what, wanted) as show:
        if show is None:
            yield
            return
        with _heard(session, lambda text: show(f"{what}: {printable(text)}")), _reporting_epochs(session):
            yield


@contextmanager
def _place(what: str, wanted: bool | None) -> Iterator[Show | None]:
    if wanted is False:
        yield None
    elif in_notebook():
        from IPython.display import display

        line = display({"text/plain": f"{what} …"}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        yield lambda text: line.update({"text/plain": text}, raw=True)
    elif not wanted:
        yield None
    else:
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True)
        if not console.is_terminal:
            yield None
            return
        with console.status(Text(f"{what} …")) as status:  # Text: names of users are not markup
            yield lambda text: status.update(Text(text))


def in_notebook() -> bool:
    """Whether this runs in a kernel of Jupyter, which shows displays."""
    ipython = sys.modules.get("IPython")  # a kernel has loaded it
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def _heard(session: psycopg.Connection, show: Show) -> Iterator[None]:
    def handle(said: psycopg.errors.Diagnostic) -> None:
        if is_progress(said):
            show(said.message_primary or "")

    session.add_notice_handler(handle)
    try:
        yield
    finally:
        session.remove_notice_handler(handle)


@contextmanager
def _reporting_epochs(session: psycopg.Connection) -> Iterator[None]:
    """Have the server report each completed epoch.

    The setting is local to the transaction: behind a pooler, the session's next transaction may run in another server
    process, and that process's next transaction may belong to another client.
    """
    setting = "SELECT set_config('dana.notices', %s, true)"
    # without autocommit this begins the transaction, and the block below is a savepoint
    before = session.execute("SELECT coalesce(nullif(current_setting('dana.notices', true), ''), 'none')")
    former = before.fetchall()[0]
    with session.transaction():
        session.execute(setting, ("epoch",))
        yield
        session.execute(setting, former)  # releasing a savepoint does not restore it
