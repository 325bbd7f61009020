"""MADlib as a peer, where a server has it: the methods that it has for a rule, on its own table.

In: a session, a `Case`. Out: `Peer`s, else `NotHere`. Its table holds what it is fastest on: standardised `float8[]` in
their rows, with a 1 for the intercept. It is made before the clock starts, and dropped in the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql

from benchmarks.peers.cases import JUDGED, Case
from benchmarks.peers.learners import Floats
from benchmarks.peers.peer import NotHere, Peer
from dana.session.frames import columns_of
from dana.session.tables import create_table

MADLIB = "MADlib"
ROWS, OUT = "dana_bench_madlib", "dana_bench_madlib_out"
MAX_IN_ROW = 1000
"""Elements of `float8[]` that a page of 8 KB holds in its row."""


@dataclass(frozen=True, slots=True)
class Method:
    """One way to train.

    Attributes
    ----------
    call
        The statement, with places for the table, the result's table and the passes.
    closed
        Whether it ends after one pass, regardless of the number requested.
    """

    call: str
    closed: bool = False


LOGISTIC = "SELECT madlib.logregr_train('{rows}', '{out}', 'y', 'x', NULL, {passes}, '%s', 0)"
METHODS: Mapping[str, Mapping[str, Method]] = {
    "logistic": {name: Method(LOGISTIC % name) for name in ("irls", "cg", "igd")},
    "linear": {"closed form": Method("SELECT madlib.linregr_train('{rows}', '{out}', 'y', 'x')", closed=True)},
    "linear_svm": {
        "igd": Method(
            "SELECT madlib.svm_classification('{rows}', '{out}', 'y', 'x', 'linear', '', NULL, "
            "'max_iter={passes}, tolerance=0, lambda=0')"
        )
    },
}
"""By rule, those of MADlib 2.1 that go over rows as the rule does. A tolerance of 0: all passes. Its factorisation has
not been seen to end."""


def methods(session: psycopg.Connection[Any], rule: str) -> dict[str, str]:
    """Those of a rule, by the names of their lines; one alone, MADlib's, where the server has none of them."""
    known = METHODS.get(rule, {})
    if known and not _is_here(session):
        return {MADLIB: next(iter(known))}
    return {f"{MADLIB}, {method}": method for method in known}


def madlib(
    session: psycopg.Connection[Any], case: Case, x: Floats, method: str, *, passes: int, made: ExitStack
) -> Peer:
    """One of `METHODS`.

    Raises
    ------
    NotHere
        The server has no MADlib in the schema madlib, or the statement fails.
    """
    build = _build(session)
    chosen = METHODS[case.rule][method]
    call = chosen.call.format(rows=ROWS, out=OUT, passes=passes)

    def drop() -> None:
        session.execute(f"DROP TABLE IF EXISTS {OUT}, {OUT}_summary")

    def run() -> float:
        drop()
        session.execute(call)
        return 1 if chosen.closed else passes

    try:
        if session.execute("SELECT to_regclass(%s)", (ROWS,)).fetchall() == [(None,)]:
            _make(session, case, x)
            made.callback(session.execute, sql.SQL("DROP TABLE {}").format(sql.Identifier(ROWS)))
            made.callback(drop)
        run()
        loss = case.judge(_scores(session, x[:JUDGED].astype(np.float64)))
    except psycopg.Error as error:
        raise NotHere(str(error.diag.message_primary or error)) from None
    how = f"{build}: float8[] in their rows, one process{', done after one pass' if chosen.closed else ''}"
    return Peer(name=f"{MADLIB}, {method}", how=how, trains=True, run=run, loss=lambda: loss)


def _is_here(session: psycopg.Connection[Any]) -> bool:
    return session.execute("SELECT to_regproc('madlib.version')").fetchall() != [(None,)]


def _build(session: psycopg.Connection[Any]) -> str:
    """Its version, and what it was compiled with."""
    if not _is_here(session):
        raise NotHere("this database has no function madlib.version()")
    ((text,),) = session.execute("SELECT madlib.version()").fetchall()
    found = re.search(r"MADlib version: ([^,]*).*?build type: ([^,]*).*?C\+\+ compiler: (.*)", text)
    return f"MADlib {', '.join(found.groups())}" if found else str(text)


def _make(session: psycopg.Connection[Any], case: Case, x: Floats) -> None:
    ones = np.ones((case.rows, 1))
    labels = case.y.astype(np.float64) if case.rule == "linear" else case.y > 0
    columns = {"x": np.hstack([ones, x.astype(np.float64)]), "y": labels}
    in_row = x.shape[1] < MAX_IN_ROW
    create_table(session, ROWS, columns_of(columns), in_row=in_row, replace=False)
    session.execute(sql.SQL("VACUUM (FREEZE, ANALYZE) {}").format(sql.Identifier(ROWS)))


def _scores(session: psycopg.Connection[Any], x: NDArray[np.float64]) -> NDArray[Any]:
    out = sql.Identifier(OUT)
    coefficients = np.asarray(session.execute(sql.SQL("SELECT coef FROM {}").format(out)).fetchall()[0][0], np.float64)
    return np.asarray(coefficients[0] + x @ coefficients[1:])
