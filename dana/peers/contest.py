"""One case: DAnA and everybody beside it, in turn, so that a busy moment of the machine falls on all.

In: a session, a `Case`. Out: a `Contest`: seconds of a pass of each, and the loss that it reached after the same
passes over the same rows. References get standardised arrays in memory, and one thread; what it takes to export the
rows to them is a line of its own. DAnA has two processes, the backend and its worker.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from dana import rules
from dana.client.connection import Connection
from dana.errors import InternalError, UsageError
from dana.peers import learners, scikit
from dana.peers.cases import CENTRES, JUDGED, Case, prepared
from dana.peers.export import export
from dana.peers.learners import Floats, Learner
from dana.session.frames import columns_of
from dana.session.notices import ServerWarning
from dana.session.tables import create_table

TABLE = "dana_bench_rows"
RULE = "dana_bench_rule"
DROP_MODELS = "SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model WHERE name = %s) AS m"
DANA, ONE_PASS, LATER_PASS = "DAnA", "DAnA, one pass alone", "DAnA, each later pass"
COUNT, COPY, READ, EXPORT = "count(*)", "copying its pages", "reading as much memory", "exporting to NumPy"
MAX_IN_ROW = 2000
"""Elements of an array that a page of 8 KB holds in its row."""
NAMES = {"sklearn": "scikit-learn"}
"""Packages whose modules have another name."""
ENERGY = Path("/sys/class/powercap/intel-rapl:0/energy_uj")
"""Microjoules of the first processor package (RAPL), where they may be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one of them takes.

    Attributes
    ----------
    peer
        Its name.
    how
        Its version, and what it does.
    trains
        Whether it trains; else it is a bound or a part.
    seconds
        Of a pass, the median; None: it is not here, and `how` says why.
    loss
        On the first rows, after the passes of the contest.
    joules
        Of a pass, of the whole processor package; None where they cannot be read.
    """

    peer: str
    how: str
    trains: bool
    seconds: float | None
    loss: float | None = None
    joules: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A case, measured.

    Attributes
    ----------
    left_out
        Rows of the user's table that had no numbers in all columns.
    pages, page_size
        The table's, page_size in bytes.
    passes, repeats
        Over the rows in one training; how often each was measured.
    loss
        Its name.
    lines
        DAnA's first.
    """

    case: str
    rule: str
    rows: int
    left_out: int
    columns: int
    pages: int
    page_size: int
    passes: int
    repeats: int
    loss: str
    lines: tuple[Line, ...] = ()

    def seconds(self, peer: str) -> float | None:
        """Of a pass of one of them."""
        return next((line.seconds for line in self.lines if line.peer == peer), None)

    def ratio(self, line: Line) -> float | None:
        """Its time, DAnA's being 1."""
        ours = self.seconds(DANA)
        return None if line.seconds is None or not ours else line.seconds / ours


@dataclass(slots=True, kw_only=True)
class _Peer:
    """One of them while it is measured.

    Attributes
    ----------
    run
        What is timed; returns over how many passes it went.
    loss
        Asked once, before anything is timed.
    """

    name: str
    how: str
    trains: bool
    run: Callable[[], float]
    loss: Callable[[], float] | None = None


def measure(db: Connection, case: Case, *, passes: int = 5, repeats: int = 3) -> Contest:
    """Make the case's table, let everybody train on its rows, drop it.

    Parameters
    ----------
    passes
        Over the rows, in each training.
    repeats
        How often each is measured, in turn with the others.

    Raises
    ------
    UsageError
        A table is there that has the name of the comparison's.
    psycopg.Error
        You may not create a table, or register a rule.
    """
    with staged(db, case) as (pages, page_size):
        present, absent = [], []
        for name, make in _makers(db, case, passes, pages * page_size):
            try:
                present.append(make())
            except ModuleNotFoundError as error:
                how = f"not here; run: pip install {NAMES.get(error.name or '', error.name)}"
                absent.append(Line(peer=name, how=how, trains=True, seconds=None))
        losses = {peer.name: peer.loss() for peer in present if peer.loss is not None}
        taken = _interleaved(present, repeats)
    lines = [
        Line(
            peer=peer.name, how=peer.how, trains=peer.trains, loss=losses.get(peer.name),
            seconds=statistics.median(one for one, _ in taken[peer.name]),
            joules=_median_joules([joules for _, joules in taken[peer.name]]),
        )
        for peer in present
    ]  # fmt: skip
    if passes > 1:
        all_, one = (statistics.median(seconds for seconds, _ in taken[peer]) for peer in (DANA, ONE_PASS))
        later = max(0.0, (passes * all_ - one) / (passes - 1))
        lines.insert(2, Line(peer=LATER_PASS, how=f"{passes} passes less one alone", trains=False, seconds=later))
    return Contest(
        case=case.name,
        rule=case.rule,
        rows=case.rows,
        left_out=case.left_out,
        columns=case.x.shape[1],
        pages=pages,
        page_size=page_size,
        passes=passes,
        repeats=repeats,
        loss=case.task.loss.name,
        lines=(*lines, *absent),
    )


@contextmanager
def staged(db: Connection, case: Case) -> Iterator[tuple[int, int]]:
    """The case's table and its rule, dropped in the end with the rule's models; gives its pages and their bytes.

    Raises
    ------
    UsageError
        A table is there that has the name of the comparison's.
    """
    session = db.session
    with ExitStack() as made:
        widest = max(values.shape[1] if values.ndim == 2 else 1 for values in case.columns.values())
        try:
            create_table(session, TABLE, columns_of(case.columns), in_row=widest <= MAX_IN_ROW, replace=False)
        except psycopg.errors.DuplicateTable:
            raise UsageError(
                f"there is a table {TABLE} already, perhaps of a comparison that was killed", hint=f"DROP TABLE {TABLE}"
            ) from None
        made.callback(session.execute, sql.SQL("DROP TABLE {}").format(sql.Identifier(TABLE)))
        session.execute(sql.SQL("VACUUM (FREEZE, ANALYZE) {}").format(sql.Identifier(TABLE)))
        db.create_rule(RULE, rules.text(case.rule))
        made.callback(db.drop_rule, RULE)
        made.callback(session.execute, DROP_MODELS, (RULE,))
        session.execute("SET max_parallel_workers_per_gather = 0")
        made.callback(session.execute, "RESET max_parallel_workers_per_gather")
        yield session.execute(
            "SELECT pg_relation_size(%s) / s, s FROM (SELECT current_setting('block_size')::int AS s) AS b", (TABLE,)
        ).fetchall()[0]


def _median_joules(joules: list[float | None]) -> float | None:
    known = [one for one in joules if one is not None]
    return statistics.median(known) if known else None


def _interleaved(peers: list[_Peer], repeats: int) -> Mapping[str, list[tuple[float, float | None]]]:
    """Seconds and joules of a pass of each, in turn."""
    taken: dict[str, list[tuple[float, float | None]]] = {peer.name: [] for peer in peers}
    for _ in range(repeats):
        for peer in peers:
            before, start = _joules(), time.perf_counter()
            passes = peer.run()
            seconds, after = time.perf_counter() - start, _joules()
            # the counter begins again at 0 now and then
            used = None if before is None or after is None or after < before else (after - before) / passes
            taken[peer.name].append((seconds / passes, used))
    return taken


def _joules() -> float | None:
    try:
        return int(ENERGY.read_text()) / 1e6
    except OSError:
        return None


# --- who takes part --------------------------------------------------------------------------------------------------


def _makers(db: Connection, case: Case, passes: int, size: int) -> Iterator[tuple[str, Callable[[], _Peer]]]:
    """Names, and what makes them, which raises where a package is missing."""
    x = prepared(case)
    yield DANA, lambda: _dana(db, case, x, passes)
    yield ONE_PASS, lambda: _one_pass(db, case)
    yield COUNT, lambda: _count(db)
    yield COPY, lambda: _copying(size)
    yield READ, lambda: _reading(size)
    yield EXPORT, lambda: _exporting(db, case)
    for name, how, make in _learners(case, x):
        yield name, lambda name=name, how=how, make=make: _learner(name, how, make(), case, x, passes)  # type: ignore[misc]
    if case.rule in scikit.LIBLINEAR:
        yield "LIBLINEAR", lambda: _liblinear(case, x, passes)


def _dana(db: Connection, case: Case, x: Floats, passes: int) -> _Peer:
    def loss() -> float:
        train(db, case, passes)
        models = {name: np.asarray(one, np.float64) for name, one in db.parameters(RULE).items()}
        return case.judge(case.task.score(x[:JUDGED].astype(np.float64), models))

    def run() -> float:
        train(db, case, passes)
        return passes

    server = db.session.info.parameter_status("server_version")
    return _Peer(
        name=DANA,
        how=f"dana_train, {_version('dana-db')} on PostgreSQL {server}: two processes",
        trains=True,
        run=run,
        loss=loss,
    )


def _one_pass(db: Connection, case: Case) -> _Peer:
    def run() -> float:
        train(db, case, 1)
        return 1

    return _Peer(name=ONE_PASS, how="dana_train with epochs => 1, all that it takes", trains=False, run=run)


def train(db: Connection, case: Case, passes: int) -> None:
    """Train on the staged table, from the start.

    Raises
    ------
    psycopg.Error
        The server refuses.
    """
    asked: dict[str, Any] = {"label": "y"} if "y" in case.columns else {}
    if case.hyper:
        asked["hyper"] = case.hyper
    # all passes, and the model of the last, as the others have it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ServerWarning)  # that so few rows, or passes, teach nothing
        result = db.train(RULE, TABLE, model=RULE, features=list(case.features), epochs=passes, patience=0, **asked)
    if result.epochs != passes or result.tuples != case.rows:
        raise InternalError(f"{result.epochs} epochs of {result.tuples} rows, not {passes} of {case.rows}")


def _count(db: Connection) -> _Peer:
    query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(TABLE))

    def run() -> float:
        db.session.execute(query).fetchone()
        return 1

    return _Peer(name=COUNT, how="one process, no parallel workers", trains=False, run=run)


def _copying(size: int) -> _Peer:
    source, copy = np.ones(size, np.uint8), np.ones(size, np.uint8)

    def run() -> float:
        np.copyto(copy, source)
        return 1

    return _Peer(name=COPY, how="memory to memory, nothing looked at", trains=False, run=run)


def _reading(size: int) -> _Peer:
    memory = np.ones(size // 4, np.float32)

    def run() -> float:
        np.dot(memory, memory)
        return 1

    return _Peer(name=READ, how="one core, once through", trains=False, run=run)


def _exporting(db: Connection, case: Case) -> _Peer:
    widths = [None if column.ndim == 1 else column.shape[1] for column in case.columns.values()]
    query = sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ").join(map(sql.Identifier, case.columns)), sql.Identifier(TABLE)
    )

    def run() -> float:
        export(db.session, query, widths)
        return 1

    return _Peer(name=EXPORT, how="COPY in binary: what all below need first, once", trains=False, run=run)


def _learner(name: str, how: str, made: Learner, case: Case, x: Floats, passes: int) -> _Peer:
    def run() -> float:
        for _ in range(passes):
            made.train()
        return passes

    def loss() -> float:
        run()  # compiles, too
        return case.judge(made.score(x[:JUDGED]))

    return _Peer(name=name, how=how, trains=True, run=run, loss=loss)


def _liblinear(case: Case, x: Floats, passes: int) -> _Peer:
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
    return _Peer(name="LIBLINEAR", how=how, trains=True, run=run, loss=loss)


def _learners(case: Case, x: Floats) -> list[tuple[str, str, Callable[[], Learner]]]:
    """Name, how, and what makes it."""
    rule, y = case.rule, case.y
    sklearn = f"scikit-learn {_version('scikit-learn')}"
    numba, numpy = f"numba {_version('numba')}, fastmath, batches of 64", f"NumPy {np.__version__}, BLAS, batches of 64"
    if rule in learners.ERROR_OF:
        return [
            ("numba", numba, lambda: learners.linear(x, y, learners.ERROR_OF[rule])),
            ("NumPy", numpy, lambda: learners.linear_in_numpy(x, y, learners.ERROR_OF[rule])),
            ("scikit-learn", f"{sklearn}: SGD, a row at a time", lambda: scikit.sgd(x, y, rule)),
        ]
    found: dict[str, list[tuple[str, str, Callable[[], Learner]]]] = {
        "softmax": [
            ("NumPy", numpy, lambda: learners.softmax(x, y)),
            ("scikit-learn", f"{sklearn}: SGD, a row at a time, ten times", lambda: scikit.classes_by_sgd(x, y)),
        ],
        "mlp": [
            ("NumPy", numpy, lambda: learners.perceptron(x, y)),
            ("scikit-learn", f"{sklearn}: MLPClassifier, batches of 64", lambda: scikit.network(x, y)),
        ],
        "kmeans": [
            ("numba", numba, lambda: learners.means(x, CENTRES)),
            ("scikit-learn", f"{sklearn}: MiniBatchKMeans, batches of its own", lambda: scikit.centres(x, CENTRES)),
        ],
        "lrmf": [
            (
                "numba",
                f"numba {_version('numba')}, fastmath, a rating at a time",
                lambda: learners.factors(x.astype(np.int64), y),
            )
        ],
    }
    return found[rule]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not here)"
