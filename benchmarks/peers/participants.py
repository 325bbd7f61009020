"""Who takes part in a comparison: DAnA, bounds on it, and the peers, on arrays, in C on pages, and in the database.

In: a session, a staged `Case`. Out: for each a name and what makes a `Peer` of it, or raises `NotHere`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from psycopg import sql

from benchmarks import stochastic
from benchmarks.peers import inside, learners, madlib, scikit
from benchmarks.peers.cases import CENTRES, JUDGED, Case, prepared
from benchmarks.peers.compiled import compiled, how_compiled
from benchmarks.peers.export import export
from benchmarks.peers.factors import factors
from benchmarks.peers.learners import Floats, Learner
from benchmarks.peers.peer import Peer
from benchmarks.peers.stage import RULE, TABLE, train
from benchmarks.peers.vowpal import LOSSES, Vowpal
from dana import rules
from dana.client.connection import Connection
from dana.session.frames import columns_of
from dana.session.tables import create_table

DANA, ONE_PASS, LATER_PASS = "DAnA", "DAnA, one pass alone", "DAnA, each later pass"
DOUBLES = "DAnA, on float8[] as MADlib"
DOUBLES_TABLE = "dana_bench_doubles"
COMPILED, LIBLINEAR, SCIKIT, MADLIB = "C", "LIBLINEAR", "scikit-learn", madlib.MADLIB
VOWPAL = "Vowpal Wabbit"
COUNT, COPY, READ, EXPORT = "count(*)", "copying its pages", "reading as much memory", "exporting to NumPy"


def makers(
    db: Connection, case: Case, *, passes: int, pages: int, page_size: int, made: ExitStack
) -> Iterator[tuple[str, Callable[[], Peer]]]:
    """Names, and what makes them, which raises `NotHere`, or `ModuleNotFoundError` where a package is missing.

    Parameters
    ----------
    pages, page_size
        Of the staged table.
    made
        Drops in the end what they make on the server.
    """
    x, size = prepared(case), pages * page_size
    yield DANA, lambda: _dana(db, case, x, passes)
    yield ONE_PASS, lambda: _one_pass(db, case)
    if case.rule in madlib.METHODS:
        yield DOUBLES, lambda: _doubles(db, case, passes, made)
    yield COUNT, lambda: _count(db)
    yield COPY, lambda: _copying(size)
    yield READ, lambda: _reading(size)
    yield COMPILED, lambda: _learner(COMPILED, how_compiled(), compiled(case, x, page_size=page_size), case, x, passes)
    if case.rule in inside.PYTHON:
        yield inside.IN_PYTHON, lambda: inside.python(db, case, passes, made)
    for name, method in madlib.methods(db.session, case.rule).items():
        yield (
            name,
            lambda method=method: madlib.madlib(db.session, case, x, method, passes=passes, made=made),  # type: ignore[misc]
        )
    yield EXPORT, lambda: _exporting(db, case)
    for name, how, make in _learners(case, x):
        yield name, lambda name=name, how=how, make=make: _learner(name, how, make(), case, x, passes)  # type: ignore[misc]
    if case.rule in scikit.LIBLINEAR:
        yield LIBLINEAR, lambda: _liblinear(case, x, passes)
    if case.rule in LOSSES:
        yield VOWPAL, lambda: _vowpal(case, x, passes, made)


def _dana(db: Connection, case: Case, x: Floats, passes: int) -> Peer:
    def loss() -> float:
        train(db, case, passes)
        models = {name: np.asarray(one, np.float64) for name, one in db.parameters(RULE).items()}
        return case.judge(case.task.score(x[:JUDGED].astype(np.float64), models))

    def run() -> float:
        train(db, case, passes)
        return passes

    server = db.session.info.parameter_status("server_version")
    solved = stochastic.text(case.rule) != rules.text(case.rule)
    form = f"; {case.rule} by stochastic gradient descent, as the peers" if solved else ""
    return Peer(
        name=DANA,
        how=f"dana_train, {_version('dana-db')} on PostgreSQL {server}: two processes{form}",
        trains=True,
        run=run,
        loss=loss,
    )


def _one_pass(db: Connection, case: Case) -> Peer:
    def run() -> float:
        train(db, case, 1)
        return 1

    return Peer(name=ONE_PASS, how="dana_train with epochs => 1, all that it takes", trains=False, run=run)


def _doubles(db: Connection, case: Case, passes: int, made: ExitStack) -> Peer:
    """On a table whose features lie as those of MADlib's do: in an array of float8."""
    wide = replace(case, columns={"x": case.x.astype(np.float64), "y": case.y}, features=("x",))
    in_row = case.x.shape[1] < madlib.MAX_IN_ROW
    create_table(db.session, DOUBLES_TABLE, columns_of(wide.columns), in_row=in_row, replace=False)
    table = sql.Identifier(DOUBLES_TABLE)
    made.callback(db.session.execute, sql.SQL("DROP TABLE {}").format(table))
    db.session.execute(sql.SQL("VACUUM (FREEZE, ANALYZE) {}").format(table))

    def run() -> float:
        train(db, wide, passes, table=DOUBLES_TABLE)
        return passes

    run()  # compiles
    how = f"dana_train on a table with one array of float8{' in its rows' if in_row else ''}, as MADlib reads"
    return Peer(name=DOUBLES, how=how, trains=False, run=run)


def _count(db: Connection) -> Peer:
    query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(TABLE))

    def run() -> float:
        db.session.execute(query).fetchone()
        return 1

    return Peer(name=COUNT, how="one process, no parallel workers", trains=False, run=run)


def _copying(size: int) -> Peer:
    source, copy = np.ones(size, np.uint8), np.ones(size, np.uint8)

    def run() -> float:
        np.copyto(copy, source)
        return 1

    return Peer(name=COPY, how="memory to memory, nothing looked at", trains=False, run=run)


def _reading(size: int) -> Peer:
    memory = np.ones(size // 4, np.float32)

    def run() -> float:
        np.dot(memory, memory)
        return 1

    return Peer(name=READ, how="one core, once through", trains=False, run=run)


def _exporting(db: Connection, case: Case) -> Peer:
    widths = [None if column.ndim == 1 else column.shape[1] for column in case.columns.values()]
    query = sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ").join(map(sql.Identifier, case.columns)), sql.Identifier(TABLE)
    )

    def run() -> float:
        export(db.session, query, widths)
        return 1

    return Peer(name=EXPORT, how="COPY in binary: what all below need first, once", trains=False, run=run)


def _learner(name: str, how: str, made: Learner, case: Case, x: Floats, passes: int) -> Peer:
    def run() -> float:
        for _ in range(passes):
            made.train()
        return passes

    def loss() -> float:
        run()  # compiles, too
        return case.judge(made.score(x[:JUDGED]))

    return Peer(name=name, how=how, trains=True, run=run, loss=loss)


def _liblinear(case: Case, x: Floats, passes: int) -> Peer:
    """Trust region Newton; an outer iteration is taken for a pass."""
    made = scikit.LIBLINEAR[case.rule](passes)

    def run() -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it has not converged
            made.fit(x, case.y)
        return float(np.max(made.n_iter_))

    def loss() -> float:
        run()
        return case.judge(np.asarray(made.decision_function(x[:JUDGED])))

    how = f"scikit-learn {_version('scikit-learn')}: at most {passes} outer iterations, each of which counts as a pass"
    return Peer(name=LIBLINEAR, how=how, trains=True, run=run, loss=loss)


def _vowpal(case: Case, x: Floats, passes: int, made: ExitStack) -> Peer:
    trained = Vowpal(x, case.y, case.rule, passes=passes, made=made)

    def loss() -> float:
        trained.run()
        return case.judge(trained.score(x[:JUDGED]))

    how = f"vowpalwabbit {_version('vowpalwabbit')}: a row at a time, from its cache of a text file, made before"
    return Peer(name=VOWPAL, how=how, trains=True, run=trained.run, loss=loss)


def _learners(case: Case, x: Floats) -> list[tuple[str, str, Callable[[], Learner]]]:
    """Name, how, and what makes it."""
    rule, y = case.rule, case.y
    sklearn = f"scikit-learn {_version('scikit-learn')}"
    numba, numpy = f"numba {_version('numba')}, fastmath, batches of 64", f"NumPy {np.__version__}, BLAS, batches of 64"
    if rule in learners.ERROR_OF:
        return [
            ("numba", numba, lambda: learners.linear(x, y, learners.ERROR_OF[rule])),
            ("NumPy", numpy, lambda: learners.linear_in_numpy(x, y, learners.ERROR_OF[rule])),
            (SCIKIT, f"{sklearn}: SGD, a row at a time", lambda: scikit.sgd(x, y, rule)),
        ]
    found: dict[str, list[tuple[str, str, Callable[[], Learner]]]] = {
        "softmax": [
            ("NumPy", numpy, lambda: learners.softmax(x, y)),
            (SCIKIT, f"{sklearn}: SGD, a row at a time, ten times", lambda: scikit.classes_by_sgd(x, y)),
        ],
        "mlp": [
            ("NumPy", numpy, lambda: learners.perceptron(x, y)),
            (SCIKIT, f"{sklearn}: MLPClassifier, batches of 64", lambda: scikit.network(x, y)),
        ],
        "kmeans": [
            ("numba", numba, lambda: learners.means(x, CENTRES)),
            (SCIKIT, f"{sklearn}: MiniBatchKMeans, batches of its own", lambda: scikit.centres(x, CENTRES)),
        ],
        "lrmf": [
            (
                "numba",
                f"numba {_version('numba')}, fastmath, a rating at a time",
                lambda: factors(x.astype(np.int64), y, *x.max(axis=0).astype(int) + 1),
            )
        ],
    }
    return found[rule]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not here)"
