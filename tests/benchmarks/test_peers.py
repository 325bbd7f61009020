"""`dana bench peers`: everybody trains on the same rows to about the same loss, and nothing of it stays."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from html import escape, unescape
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import sql

import dana
from benchmarks.commands.peers import quoted_madlib
from benchmarks.peers import factors, learners, stage
from benchmarks.peers.cases import CENTRES, SHAPES, TASKS, Case, numbers, prepared, shaped
from benchmarks.peers.compiled import compiled, compiler
from benchmarks.peers.contest import Contest, Line, measure
from benchmarks.peers.export import export
from benchmarks.peers.history import document, fastest, keep, read, trend
from benchmarks.peers.inside import IN_PYTHON as PYTHON
from benchmarks.peers.own import own
from benchmarks.peers.participants import COMPILED, COUNT, DANA, DOUBLES, EXPORT, LATER_PASS, MADLIB, ONE_PASS, SCIKIT
from benchmarks.peers.peer import NotHere
from benchmarks.peers.processors import watch_of
from benchmarks.peers.summary import summary
from dana.cli import main
from dana.cli.entry import OK, USAGE
from dana.client.connection import Connection
from dana.errors import UsageError
from dana.storage.columns import column_pages

pytestmark = pytest.mark.filterwarnings("ignore::dana.ServerWarning", "ignore::dana.ServerNotice")

Session = psycopg.Connection[Any]
TINY = 0.0
"""As few rows as a case may have."""


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    with psycopg.connect(pg_uri, autocommit=True) as session:
        session.execute("CREATE SCHEMA peers")
        session.execute("SET search_path = peers, public")
        yield Connection(session)
        session.execute("DROP SCHEMA peers CASCADE")


@pytest.mark.parametrize("name", SHAPES)
def test_all_learn(db: Connection, name: str) -> None:
    """After ten passes each loss is better than knowing nothing; nothing stays."""
    case = shaped(name, TINY)
    found = measure(db, case, passes=10, repeats=1)
    losses = {line.peer: line.loss for line in found.lines if line.trains and line.seconds is not None}
    elsewhere = {PYTHON, MADLIB}  # tests/benchmarks/test_peers_inside.py
    assert {DANA, *losses, *elsewhere} >= {line.peer for line in found.lines if line.trains}
    assert found.pages == len(column_pages(case.columns, page_size=found.page_size))  # C reads what the server has
    ignorant = case.judge(np.zeros((case.rows, 10) if case.rule in ("softmax", "mlp") else case.rows))
    if case.rule == "kmeans":
        ignorant = float((prepared(case) ** 2).sum(axis=1).mean())
    for peer, loss in losses.items():
        assert loss is not None
        assert loss < ignorant, (peer, loss, ignorant)
    assert (found.rows, found.columns) == (case.rows, prepared(case).shape[1])
    assert found.pages * found.page_size > 4 * found.rows * found.columns
    assert LATER_PASS in {line.peer for line in found.lines}  # its time may be less than the noise
    for line in (ONE_PASS, COUNT, EXPORT):
        assert found.seconds(line) is not None
    assert found.ratio(found.lines[0]) == 1
    left = """SELECT (SELECT count(*) FROM pg_tables WHERE schemaname = 'peers'),
        (SELECT count(*) FROM dana.model WHERE rule LIKE 'dana_bench%')"""
    assert db.session.execute(left).fetchone() == (0, 0)
    assert db.session.execute("SELECT FROM dana.rule WHERE name = %s", (stage.RULE,)).fetchone() is None


@pytest.mark.parametrize("name", TASKS)
def test_scores_are_what_the_rule_predicts(name: str) -> None:
    """Of a model's parameters and standardised rows, as of the rows as they are."""
    case = next(one for one in (shaped(shape, TINY) for shape in SHAPES) if one.rule == name)
    rule = getattr(dana.rules, name)
    labels = case.y if "y" in case.columns else None
    x = case.x if name == "lrmf" else case.x * 3 + 5
    inputs: Any = {"i": x[:, 0], "j": x[:, 1]} if name == "lrmf" else x
    trained = rule.fit(inputs, labels, epochs=2, hyper=case.hyper)
    predicted = rule.predict(inputs).astype(np.float64)
    rows = case.x.astype(np.float64) if name == "lrmf" else prepared(case).astype(np.float64)
    score = case.task.score(rows, {key: value.astype(np.float64) for key, value in trained.models.items()})
    if name == "logistic":
        score = 1 / (1 + np.exp(-score))
    elif name in ("softmax", "mlp"):
        score = np.exp(score) / np.exp(score).sum(axis=1, keepdims=True)
    elif name == "kmeans":
        away = rows[:, None, :] - trained.models["C"]
        predicted = (away**2).sum(axis=2)[np.arange(len(rows)), predicted.astype(int)]
    np.testing.assert_allclose(score, predicted, rtol=1e-3, atol=1e-4)


def test_nothing_of_anybody_s_is_touched(db: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that has the comparison's name stays; where a rule cannot be made, the comparison's table goes."""
    db.session.execute(f"CREATE TABLE {stage.TABLE} AS SELECT 1 AS mine")
    with pytest.raises(UsageError, match="there is a table dana_bench_rows already"):
        measure(db, shaped("Remote Sensing LR", TINY), passes=1, repeats=1)
    assert db.session.execute(f"SELECT mine FROM {stage.TABLE}").fetchone() == (1,)
    db.session.execute(f"DROP TABLE {stage.TABLE}")
    monkeypatch.setattr(stage.stochastic, "text", lambda name: "no rule")
    with pytest.raises(psycopg.errors.SyntaxError):
        measure(db, shaped("Remote Sensing LR", TINY), passes=1, repeats=1)
    assert db.session.execute("SELECT to_regclass(%s)", (stage.TABLE,)).fetchone() == (None,)


@pytest.mark.parametrize("name", SHAPES)
def test_c_learns_what_arrays_teach(name: str) -> None:
    """On pages, to the rounding of sums: of rows that leave a batch and a page unfinished."""
    case = shaped(name, TINY)
    x, y = prepared(case), case.y
    others: dict[str, Callable[[], learners.Learner]] = {
        "softmax": lambda: learners.softmax(x, y),
        "mlp": lambda: learners.perceptron(x, y),
        "kmeans": lambda: learners.means(x, CENTRES),
        "lrmf": lambda: factors.factors(x.astype(np.int64), y, *x.max(axis=0).astype(int) + 1),
    }
    other = others.get(case.rule, lambda: learners.linear(x, y, learners.ERROR_OF[case.rule]))()
    given = x.copy()
    made = compiled(case, x, page_size=8192)
    assert len(x) % learners.BATCH
    for _ in range(3):
        made.train()
        other.train()
    np.testing.assert_allclose(made.score(x), other.score(x), rtol=2e-3, atol=2e-4)
    np.testing.assert_array_equal(x, given)
    assert np.float64(1e-310) * np.float64(0.5) > 0, "of the process nothing is flushed"


@pytest.mark.parametrize("error", ["squared", "huber", "logistic", "poisson", "softmax"])
def test_conjugate_gradients_end_at_the_minimum(error: str) -> None:
    """Where the mean slope is 0, along each column."""
    random = np.random.default_rng(1)
    x = random.standard_normal((600, 5)).astype(np.float32)
    score = x @ np.arange(-2, 3, dtype=np.float32) / 4
    noisy = score + random.standard_normal(len(x))
    labels = {
        "logistic": noisy > 0,
        "poisson": random.poisson(np.exp(score)),
        "softmax": np.digitize(noisy, [-1, 0, 1]),
    }
    y = labels.get(error, noisy).astype(np.float32)
    made = learners.conjugate_softmax(x, y) if error == "softmax" else learners.conjugate(x, y, error)
    for _ in range(60):
        made.train()
    scores = made.score(x)
    if error == "softmax":
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        slopes = shares - np.eye(10)[y.astype(int)]
    else:
        judge = learners.ERRORS[error]
        slopes = np.array([judge(z, one)[0] for z, one in zip(scores, y, strict=True)])
    np.testing.assert_allclose(x.T @ slopes / len(x), 0, atol=2e-3)


def test_c_where_there_is_no_compiler(db: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or one that refuses; nobody else minds."""
    case = shaped("Remote Sensing LR", TINY)
    for path, named, how in (
        ("", "", re.escape("not here: there is no C compiler: cc, gcc, clang, or what $CC names")),
        (os.defpath, "false", "not here: .*false -O3 -march=native -ffast-math failed: .*"),
    ):
        compiler.cache_clear()
        monkeypatch.setenv("PATH", path)
        monkeypatch.setenv("CC", named)
        found = measure(db, case, passes=1, repeats=1)
        (line,) = (line for line in found.lines if line.peer == COMPILED)
        assert line.seconds is None
        assert re.fullmatch(how, line.how)
        assert found.seconds(DANA)
    compiler.cache_clear()


def test_c_reads_no_arrays_that_lie_elsewhere() -> None:
    case = numbers("linear", 10, 2100, array=True)
    with pytest.raises(NotHere, match=r"the rows do not lie in their pages: .* more than a page"):
        compiled(case, prepared(case), page_size=8192)


def test_where_a_pass_goes(db: Connection) -> None:
    """All parts, of a table that is cut to the ring; nothing of it stays."""
    found = measure(db, shaped("Remote Sensing LR", 0.01), passes=1, repeats=1, parts=True)
    assert {(part.process, part.name) for part in found.parts} == {
        ("backend", "copying"), ("backend", "visibility, hand-over"), ("both", "the statement itself"),
        ("worker", "computing"), ("worker", "unpacking"), ("worker", "waiting for pages, survey"),
    }  # fmt: skip
    assert all(part.seconds >= 0 for part in found.parts)
    assert sum(part.seconds for part in found.parts if part.process == "worker") > 0
    left = """SELECT (SELECT count(*) FROM pg_tables WHERE schemaname = 'peers'),
        (SELECT count(*) FROM dana.model WHERE rule LIKE 'dana_bench%'),
        (SELECT count(*) FROM dana.rule WHERE name LIKE 'dana_bench%')"""
    assert db.session.execute(left).fetchone() == (0, 0, 0)
    ((ring, usual),) = db.session.execute(
        "SELECT setting, boot_val FROM pg_settings WHERE name = 'dana.ring_pages'"
    ).fetchall()
    assert ring == usual


def test_processors_are_watched(db: Connection) -> None:
    """Work in this process and in the server counts, waiting does not."""
    begin = watch_of(db.session)
    if begin is None:
        pytest.skip("the server's processes cannot be seen from here")
    taken = begin()
    db.session.execute("SELECT pg_sleep(0.3)")
    waited = taken()
    taken = begin()
    db.session.execute("SELECT sum(sin(x)) FROM generate_series(1, 1000000) AS x")
    worked = taken()
    taken = begin()
    np.sort(np.random.default_rng(1).random(3_000_000))
    here = taken()
    assert waited < min(worked, here) / 2


def test_what_it_comes_to() -> None:
    """The geometric mean over measured and quoted times, of each case's largest size."""

    def contest(case: str, rows: int, *lines: tuple[str, float | None, float | None]) -> Contest:
        made = tuple(
            Line(peer=peer, how="", trains=True, seconds=seconds, processors=work) for peer, seconds, work in lines
        )
        return Contest(
            case=case, rule="linear", rows=rows, left_out=0, columns=1, pages=1, page_size=8192, passes=1, repeats=1,
            loss="l", lines=made,
        )  # fmt: skip

    found = summary(
        [
            contest("WLAN", 19_937, (DANA, 2.0, 4.0), ("MADlib, irls", 90.0, 80.0), ("MADlib, cg", 80.0, 80.0)),
            contest("WLAN", 10, (DANA, 1.0, 1.0), (SCIKIT, 9.0, 9.0)),
            contest("Patient", 26_750, (DANA, 1.0, 2.0), (SCIKIT, 0.5, 4.0), (MADLIB, None, None)),
            contest("mine", 5, (DANA, 1.0, None), (SCIKIT, 1.5, None)),
        ],
        {"WLAN": 1.0, "Patient": 20.0},
    )
    madlib, scikit = found.lines()
    assert madlib.startswith("MADlib's cheapest method takes 20.0 times")
    assert "WLAN 40.0, Patient 10.0 (quoted). Of processors' time: 10.0 times. Quoted: " in madlib
    assert "ahead of scikit-learn in memory on 1 of 2" in scikit
    assert scikit.endswith("by processors' time on 1.")
    assert found.document()["times_madlib"] == pytest.approx(20)
    assert list(summary([contest("mine", 5, (DANA, 1.0, None))], {}).lines()) == []


def test_a_peer_that_is_not_installed(db: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    found = measure(db, shaped("Remote Sensing LR", TINY), passes=1, repeats=1)
    (line,) = (line for line in found.lines if line.peer == "numba")
    assert (line.seconds, line.how) == (None, "not here; run: pip install numba")
    assert fastest(found) not in (None, line)


PATIENTS = """
CREATE TABLE patients AS
SELECT i AS id, 'p' || i AS name, sin(i)::numeric AS a, CASE WHEN i % 7 > 0 THEN cos(i) END AS b,
    CASE WHEN i = 5 THEN float8 'NaN' ELSE i END AS c, ARRAY[sin(i), i]::float8[] AS pair, 2 - i % 2 AS class,
    10000 * i AS large, CASE WHEN i <> 9 THEN (ARRAY['ill', 'well'])[i % 2 + 1] END AS "State"
FROM generate_series(1, 200) AS i
"""


def test_a_table_of_one_s_own(db: Connection) -> None:
    """Complete rows alone, classes numbered, and no column of text."""
    db.session.execute(PATIENTS)
    case = own(db, "patients", "logistic", label="class", features=["a", "b", "c"])
    kept = [i for i in range(1, 201) if i % 7 and i != 5]
    order = np.argsort(case.x[:, 2])
    assert (np.diff(order) < 0).any(), "the rows are in a random order"
    np.testing.assert_array_equal(case.x[order, 2], kept)
    np.testing.assert_allclose(case.x[order, 0], np.sin(kept), rtol=1e-6)
    np.testing.assert_array_equal(case.y[order], [1 - i % 2 for i in kept])
    assert case.left_out == 200 - len(kept)
    texts = own(db, "patients", "logistic", label="State", features=["a", "b", "c"])
    np.testing.assert_array_equal(texts.y[np.argsort(texts.x[:, 2])], [i % 2 for i in kept if i != 9])
    assert texts.left_out == case.left_out + 1
    arrays = own(db, "patients", "linear", label="a", features=["pair"])
    pairs = [(np.sin(i), i) for i in range(1, 201)]
    np.testing.assert_allclose(arrays.x[np.argsort(arrays.x[:, 1])], pairs, rtol=1e-6)
    found = measure(db, case, passes=1, repeats=1)
    losses = {line.peer: line.loss for line in found.lines}
    assert losses[COMPILED] == pytest.approx(losses["NumPy"], rel=1e-3)
    assert (found.case, found.rows, found.left_out, found.columns) == ("patients", len(kept), case.left_out, 3)
    assert db.session.execute("SELECT count(*) FROM patients").fetchone() == (200,)


def test_the_features_are_those_of_a_training(db: Connection) -> None:
    """No primary key, which would say the label of a table that is sorted by it, and no order either."""
    db.session.execute(
        "CREATE TABLE sorted AS SELECT row_number() OVER (ORDER BY y)::int AS id, * FROM (SELECT a, b, "
        "b > 0.5 AS high, a + random() > 1 AS y, date '2026-01-01' + (100 * b)::int AS seen, 'note ' || b AS note FROM "
        "(SELECT random()::real AS a, random()::real AS b FROM generate_series(1, 3000)) AS numbers) AS rows ORDER BY y"
    )
    db.session.execute("ALTER TABLE sorted ADD PRIMARY KEY (id)")
    case = own(db, "sorted", "logistic", label="y", features=None)
    db.create_rule("logistic_of_users", dana.rules.text("logistic"))
    with pytest.warns(dana.ServerNotice):
        model = db.train("logistic_of_users", "sorted", label="y", epochs=1)
    db.drop_rule("logistic_of_users")
    last = "SELECT design->'features' FROM dana.run WHERE model = %s ORDER BY id DESC LIMIT 1"
    used = db.session.execute(last, (model.model,)).fetchall()[0][0]
    assert [name for name in used if name not in case.unused] == ["a", "b", "high"]
    assert case.x.shape == (3000, 3)
    np.testing.assert_array_equal(case.x[:, 2], case.x[:, 1] > 0.5)
    assert case.unused == ("seen.year", "seen.month", "seen.dow")
    losses = {line.peer: line.loss for line in measure(db, case, passes=5, repeats=1, parts=True).lines if line.loss}
    assert min(losses.values()) == pytest.approx(max(losses.values()), rel=0.05)
    explicit = own(db, "sorted", "logistic", label="y", features=["id", "a"])
    assert explicit.x[:, 0].max() == 3000


def test_a_loss_that_is_far_behind_is_said() -> None:
    def found(ours: float) -> list[str]:
        lines = (
            Line(peer=DANA, how="", trains=True, seconds=1.0, loss=ours),
            Line(peer="NumPy", how="", trains=True, seconds=1.0, loss=0.47),
            Line(peer="numba", how="", trains=True, seconds=1.0, loss=0.5),
        )
        made = Contest(
            case="mine", rule="linear", rows=1, left_out=0, columns=1, pages=1, page_size=8192, passes=1, repeats=1,
            loss="log loss", lines=lines,
        )  # fmt: skip
        return list(summary([made], {}).lines())

    assert found(0.5) == []
    (line,) = found(1.4972)
    assert line.startswith("Warning: mine: DAnA's log loss is 1.497, NumPy's 0.47.")


@pytest.mark.parametrize(
    ("rule", "label", "features", "message"),
    [
        ("poisson", "a", None, "rule 'poisson' has no peers"),
        ("logistic", None, None, "rule 'logistic' takes a label: add --label COLUMN"),
        ("kmeans", "a", None, "rule 'kmeans' takes no label"),
        ("linear", "a", ["name"], "column 'name' of table patients holds no numbers"),
        ("linear", "nothing", None, "table patients has no column 'nothing'"),
        ("linear", "name", None, "column 'name' of table patients holds no numbers"),
        ("linear", "a", ["a", "b"], "column 'a' is the label, and no feature"),
        ("linear", "pair", ["a"], "column 'pair' of table patients is an array, and no label"),
        ("lrmf", "a", ["id", "large"], "at most 838,860 rows and columns .* up to 200 and 2,000,000"),
        ("linear", "a", ["pair", "b"], "or one column that is an array"),
        ("logistic", "id", ["a"], "needs a label of 2 classes, .* 'id' has 200\\nHint: .* --rule: linear, lrmf"),
        ("lrmf", "a", ["id", "b"], "takes two features, the numbers of a row and of a column"),
    ],
)
def test_a_table_that_does_not_fit(
    db: Connection, rule: str, label: str | None, features: list[str] | None, message: str
) -> None:
    db.session.execute(PATIENTS)
    with pytest.raises(UsageError, match=message):
        own(db, "patients", rule, label=label, features=features)


def test_an_export_has_the_rows_or_says_that_it_cannot(db: Connection) -> None:
    query = "SELECT x::real, ARRAY[x, -x]::real[] FROM generate_series(1, 3) AS x"
    numbers, pairs = export(db.session, sql.SQL(query), [None, 2])
    np.testing.assert_array_equal(numbers, [1, 2, 3])
    np.testing.assert_array_equal(pairs, [(1, -1), (2, -2), (3, -3)])
    for wrong in ("SELECT NULL::real", "SELECT 1::real UNION ALL SELECT NULL", "SELECT 1::float8"):
        with pytest.raises(UsageError, match="the rows must have no NULL"):
            export(db.session, sql.SQL(wrong), [None])


def test_the_command(pg_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables, a file of figures, a page, a history."""
    figures, page, history = tmp_path / "f.json", tmp_path / "f.html", tmp_path / "deep" / "h.jsonl"
    asked = ["bench", "peers", "Remote Sensing SVM", "--scale", "0.001,0.002", "--passes", "2", "--repeats", "1"]
    files = ["--json", str(figures), "--html", str(page), "--history", str(history)]
    for _ in range(2):
        assert main([*asked, *files, "--dsn", pg_uri]) == OK
    shown = capsys.readouterr().out
    assert "Remote Sensing SVM: linear_svm, 1,000 × 54, 2 passes" in shown
    assert "Remote Sensing SVM: linear_svm, 1,162 × 54, 2 passes" in shown
    assert "Where a pass goes, ns of a page: worker unpacking" in shown
    assert "MADlib's cheapest method takes" in shown
    run = json.loads(figures.read_text())
    assert [one["rows"] for one in run["contests"]] == [1000, 1162]
    assert [len(one["parts"]) for one in run["contests"]] == [0, 6]
    assert [one["quoted"] for one in run["summary"]["madlib"]] == [True]
    lines = run["contests"][0]["lines"]
    assert [line["peer"] for line in lines][:5] == [DANA, ONE_PASS, LATER_PASS, DOUBLES, COUNT]
    text = page.read_text()
    assert text.count("<svg") == 4  # all cases; the times, by rows, and where a pass goes
    assert all(line in unescape(text) for line in summary(read(history)[1]["contests"], quoted_madlib()).lines())
    assert all(line["peer"] in text and escape(line["how"]) in text for line in lines)
    assert len(read(history)) == 2
    assert main(["bench", "history", "--history", str(history)]) == OK
    shown = capsys.readouterr().out
    assert shown.count("Remote Sensing SVM") == 4
    assert main(["bench", "history", "Patient", "--history", str(history)]) == OK
    assert "Remote" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["bench", "peers", "--scale", "0.1,none"])
    for wrong in (
        ["bench", "peers", "Mars"],
        ["bench", "peers", "Patient", "--table", "t"],
        ["bench", "history", "--history", str(page)],
    ):
        assert main([*wrong]) == USAGE
    assert "there is no case 'Mars'" in capsys.readouterr().err


def test_a_history_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no history in"):
        read(tmp_path / "none")
    made = Contest(
        case="a", rule="linear", rows=1, left_out=0, columns=1, pages=1, page_size=8192, passes=1, repeats=1, loss="l"
    )
    keep(document([made]), tmp_path / "h")
    assert read(tmp_path / "h")[0]["contests"] == [made]
    (tmp_path / "h").write_text("{}\n")
    with pytest.raises(UsageError, match="line 1, is no run"):
        list(trend(read(tmp_path / "h")))


def test_cases_are_the_same_each_time() -> None:
    def both(name: str) -> tuple[Case, Case]:
        return shaped(name, TINY), shaped(name, TINY)

    for name in SHAPES:
        one, other = both(name)
        for column, values in one.columns.items():
            np.testing.assert_array_equal(values, other.columns[column])
