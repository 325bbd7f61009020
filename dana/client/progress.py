"""A training's progress, where somebody looks: a spinner in a terminal, a line below a notebook's cell.

In: a session. Out: the epochs that the server tells of. It must not say anything where nobody looks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from dana.printable import printable
from dana.session.notices import is_progress

Show = Callable[[str], None]


@contextmanager
def shown_progress(session: psycopg.Connection[Any], what: str, wanted: bool | None) -> Iterator[None]:
    """Show each epoch of a training in the block.

    Parameters
    ----------
    wanted
        None: in a notebook; True: in a terminal, too; False: nowhere.
    """
    what = printable(what)
    with _place(what, wanted) as show:
        if show is None:
            yield
            return
        with _heard(session, lambda text: show(f"{what}: {printable(text)}")), _telling_epochs(session):
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
        with console.status(Text(f"{what} …")) as status:  # Text: nothing that a user named is markup
            yield lambda text: status.update(Text(text))


def in_notebook() -> bool:
    """Whether displays reach a notebook: a kernel of Jupyter runs this, no shell."""
    ipython = sys.modules.get("IPython")  # not there: nothing of it runs
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def _heard(session: psycopg.Connection[Any], show: Show) -> Iterator[None]:
    def handle(said: psycopg.errors.Diagnostic) -> None:
        if is_progress(said):
            show(said.message_primary or "")

    session.add_notice_handler(handle)
    try:
        yield
    finally:
        session.remove_notice_handler(handle)


@contextmanager
def _telling_epochs(session: psycopg.Connection[Any]) -> Iterator[None]:
    """The server tells of each epoch that ends.

    The setting is a transaction's, not the session's: behind a pooler the next transaction of this session may be
    another server process's, and the next of that process another client's.
    """
    setting = "SELECT set_config('dana.notices', %s, true)"
    # without autocommit it begins the transaction, in which there is a savepoint then
    before = session.execute("SELECT coalesce(nullif(current_setting('dana.notices', true), ''), 'none')")
    former = before.fetchall()[0]
    with session.transaction():
        session.execute(setting, ("epoch",))
        yield
        session.execute(setting, former)  # a savepoint that is released leaves it as it is
