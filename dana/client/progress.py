"""A training's progress: a spinner in a terminal; below a notebook's cell a line, and the curve of the losses.

In: a session. Out: the epochs that the server reports. Elsewhere, as in a script with redirected output, it is silent.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from dana.printable import printable
from dana.report.colours import EDGE, LINE
from dana.report.history import thinned
from dana.session.notices import is_progress
from dana.session.results import html_text

Show = Callable[[str], None]

LOSS = re.compile(r"^epoch (\d+) of (\d+), loss ([^, ]+)")
"""In the server's report of an epoch (train_notice_epoch in train.c)."""

PAUSE = 0.1
"""Seconds between two displays at least: a short training reports thousands of epochs a second."""

WIDTH, HEIGHT, MARGIN = 480, 120, 8


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
        with _heard(session, show), _reporting_epochs(session):
            yield


@contextmanager
def _place(what: str, wanted: bool | None) -> Iterator[Show | None]:
    if wanted is False:
        yield None
    elif in_notebook():
        from IPython.display import display

        begun = {"text/plain": f"{what} …"}
        curve = LiveCurve(what)
        line = display(begun, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        last = 0.0

        def update(text: str) -> None:
            nonlocal last
            curve.add(text)
            if time.monotonic() - last >= PAUSE:
                last = time.monotonic()
                line.update(curve.shown(), raw=True)

        try:
            yield update
        finally:
            if curve.text:
                line.update(curve.shown(), raw=True)
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
            yield lambda text: status.update(Text(f"{what}: {printable(text)}"))


class LiveCurve:
    """The losses that were reported so far, as a notebook shows them.

    Parameters
    ----------
    what
        What trains, in the line above the curve.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.text = ""
        self._losses: list[tuple[int, float]] = []

    def add(self, text: str) -> None:
        """Take the server's report of an epoch."""
        self.text = f"{self.what}: {printable(text)}"
        found = LOSS.match(text)
        if found is None:
            return
        if self._losses and int(found[1]) <= self._losses[-1][0]:  # it began again, with other columns or centres
            self._losses.clear()
        self._losses.append((int(found[1]), float(found[3])))

    def shown(self) -> dict[str, str]:
        """The line, and in HTML the curve below it from the second epoch on."""
        drawn = thinned([(epoch, loss) for epoch, loss in self._losses if math.isfinite(loss)])
        html = f"<div>{html_text(self.text)}</div>"
        if len(drawn) > 1:
            epochs, losses = zip(*drawn, strict=True)
            least, most = min(losses), max(losses)
            across, up = (WIDTH - 2 * MARGIN) / (epochs[-1] - epochs[0]), (HEIGHT - 2 * MARGIN) / (most - least or 1)
            points = " ".join(
                f"{MARGIN + across * (epoch - epochs[0]):.1f},{HEIGHT - MARGIN - up * (loss - least):.1f}"
                for epoch, loss in drawn
            )
            title = f"mean loss, from {losses[0]:.4g} in epoch {epochs[0]} to {losses[-1]:.4g} in epoch {epochs[-1]}"
            html += (
                f'<svg role="img" aria-label="{title}" viewBox="0 0 {WIDTH} {HEIGHT}" style="width: 100%; '
                f'max-width: {WIDTH}px"><title>{title}</title>'
                f'<polyline points="{points}" fill="none" stroke="{LINE}" stroke-width="2"/></svg>'
                f'<div style="color: {EDGE}">{title}</div>'
            )
        return {"text/plain": self.text, "text/html": html}


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
