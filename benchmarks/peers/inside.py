"""Peers inside of the database: NumPy in PL/Python, and MADlib, where the server has them.

In: a session, a staged `Case`. Out: what a training gives, and the loss; else `NotHere`. Functions and tables that they
need are the session's own, and nothing is installed: an extension that a server has is not created here.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from benchmarks.peers import learners
from benchmarks.peers.cases import JUDGED, Case
from benchmarks.peers.peer import NotHere, Peer
from benchmarks.peers.stage import TABLE
from dana.client.connection import Connection

Session = psycopg.Connection[Any]


# --- PL/Python -------------------------------------------------------------------------------------------------------

IN_PYTHON = "PL/Python"
PYTHON = {
    "linear": "linear_in_numpy(x, y, 'squared')",
    "logistic": "linear_in_numpy(x, y, 'logistic')",
    "linear_svm": "linear_in_numpy(x, y, 'hinge')",
    "softmax": "softmax(x, y)",
    "mlp": "perceptron(x, y)",
}
"""What of `benchmarks.peers.learners` a rule is there, where it is NumPy alone."""

FUNCTION = """
CREATE FUNCTION pg_temp.dana_bench_numpy(asked text, source text, learner text, passes integer, judged integer)
RETURNS bytea LANGUAGE plpython3u AS $python$
import os
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
import numpy as np
blocks, rows = [], plpy.cursor(asked)
while block := rows.fetch(10000):
    blocks += [row["sent"] for row in block]
header, each = 20, 8  # array_send: axes, flags, type, length, first; then bytes and value of each
width = (len(blocks[0]) - header) // each
cells = np.dtype([("header", "V20"), ("cells", [("bytes", ">i4"), ("value", ">f4")], (width,))])
values = np.frombuffer(b"".join(blocks), cells)["cells"]["value"].astype(np.float32)
x, y = values[:, :-1], np.ascontiguousarray(values[:, -1])
mean, deviation = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
x = np.asarray((x - mean) / np.where(deviation > 0, deviation, 1), dtype=np.float32, order="C")
names = {"__name__": "__main__"}
exec(source, names)
made = eval(learner, names, {"x": x, "y": y})
for _ in range(passes):
    made.train()
return np.asarray(made.score(x[:judged]), "<f4").tobytes()
$python$
"""
VERSION = """
CREATE FUNCTION pg_temp.dana_bench_python() RETURNS text LANGUAGE plpython3u AS $python$
import sys, numpy
return f"Python {sys.version.split()[0]}, NumPy {numpy.__version__}"
$python$
"""


def python(db: Connection, case: Case, passes: int, made: ExitStack) -> Peer:
    """NumPy in a function of PL/Python: each training reads the rows, standardises them, and goes over them.

    Parameters
    ----------
    made
        Drops in the end what this makes.

    Raises
    ------
    NotHere
        The server has no PL/Python, no NumPy in it, or does not let this role write functions in it.
    """
    session = db.session
    if session.execute("SELECT FROM pg_language WHERE lanname = 'plpython3u'").rowcount == 0:
        there = session.execute("SELECT FROM pg_available_extensions WHERE name = 'plpython3u'").rowcount
        raise NotHere("not in this database; run: CREATE EXTENSION plpython3u" if there else "the server has none")
    try:
        session.execute(VERSION)
        made.callback(session.execute, "DROP FUNCTION pg_temp.dana_bench_python")
        ((version,),) = session.execute("SELECT pg_temp.dana_bench_python()").fetchall()
        session.execute(FUNCTION)
        made.callback(session.execute, "DROP FUNCTION pg_temp.dana_bench_numpy")
    except psycopg.Error as error:  # no right, no library of Python, no NumPy
        raise NotHere(str(error.diag.message_primary or error)) from None
    array = case.columns[case.features[0]].ndim == 2
    row = sql.SQL("{} || {}" if array else "ARRAY[{}, {}]::real[]").format(
        sql.SQL(", ").join(map(sql.Identifier, case.features)), sql.Identifier("y")
    )
    asked = sql.SQL("SELECT pg_catalog.array_send({}) AS sent FROM {}").format(row, sql.Identifier(TABLE))
    source = inspect.getsource(learners)
    statement = "SELECT pg_temp.dana_bench_numpy(%s, %s, %s, %s, %s)"

    def trained(judged: int) -> bytes:
        with session.cursor(binary=True) as cursor:
            values = (asked.as_string(session), source, PYTHON[case.rule], passes, judged)
            ((scores,),) = cursor.execute(statement, values).fetchall()
        return bytes(scores)

    def run() -> float:
        trained(1)
        return passes

    def loss() -> float:
        judged = min(JUDGED, case.rows)
        scores = np.frombuffer(trained(judged), "<f4").reshape(judged, -1)
        return case.judge(scores[:, 0] if scores.shape[1] == 1 else scores)

    how = f"{version}: each training reads the rows first, batches of 64"
    return Peer(name=IN_PYTHON, how=how, trains=True, run=run, loss=loss)
