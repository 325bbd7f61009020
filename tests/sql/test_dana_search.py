"""`dana_cross_validate`, `dana_search`: what `dana_train` and `dana_evaluate` say of the same rows; nothing is kept."""

from __future__ import annotations

import json
import statistics
import threading
from typing import Any

import psycopg
import pytest
from psycopg import sql

from dana import rules
from tests.sql.conftest import Session, new_role

errors = psycopg.errors
Invalid = errors.InvalidParameterValue

LOGISTIC = """
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.1)
fit = dana.algo(w, x, y)
p = dana.sigmoid(dana.sigma(w * x, 1))
fit.setModel(w - lr * fit.merge((p - y) * x, 32, "+") / 32)
fit.setLoss((p - y) * (p - y))
fit.setPrediction(p)
fit.setEpochs(3)
"""
COLUMNS = "features => '{a,b}', label => 'ill'"
TRAINING = {"features": ["a", "b"], "label": "ill"}


@pytest.fixture
def table(session: Session) -> str:
    session.execute("SELECT setseed(0.25)")
    session.execute(
        "CREATE TABLE t AS SELECT i AS id, a::real, b::real, (a + b + random() > 0.6)::int AS ill"
        " FROM (SELECT i, random() - 0.5 AS a, random() - 0.5 AS b FROM generate_series(1, 1000) i) s"
    )
    session.execute("SELECT dana_create_udf('fit', %s)", (LOGISTIC,))
    return "t"


def rows(session: Session, call: str) -> list[tuple[Any, ...]]:
    return session.execute(f"SELECT * FROM {call}").fetchall()


def given(training: dict[str, Any] | None = None, /, **members: object) -> str:
    """Argument `training` in SQL: the columns, and these members."""
    members = (TRAINING if training is None else training) | members
    return f"training => {sql.Literal(json.dumps(members)).as_string()}"


def nothing_kept(session: Session) -> bool:
    kept = session.execute("SELECT FROM dana.model UNION ALL SELECT FROM dana.run WHERE model LIKE 'trial%'")
    return kept.fetchall() == []


def test_folds_divide_the_rows(session: Session, table: str) -> None:
    for place in ("ctid", "id::text"):
        counts = session.execute(f"SELECT dana_fold({place}, 4, 7), count(*) FROM t GROUP BY 1 ORDER BY 1").fetchall()
        assert [fold for fold, _ in counts] == [1, 2, 3, 4]
        assert all(200 < count < 300 for _, count in counts)
    held_out = "dana_fold(ctid, 4, 7) = 1 IS DISTINCT FROM dana_holdout(ctid, 0.25, 7)"
    assert session.execute(f"SELECT count(*) FROM t WHERE {held_out}").fetchone() == (0,)


@pytest.mark.parametrize(
    "source",
    [f"'t', {given(filter='id > 100 -- or so')}", given(query="TABLE t -- all")],
    ids=["table", "query"],
)
def test_each_fold_is_a_training_and_an_evaluation(session: Session, table: str, source: str) -> None:
    found = rows(session, f"dana_cross_validate('fit', {source}, folds => 4, seed => 7)")
    assert [row[0] for row in found] == ["1", "2", "3", "4", "mean", "deviation"]
    assert nothing_kept(session)
    key, condition = ("t.*", "true") if "query" in source else ("ctid", "id > 100")
    of_fold = f"dana.dana_part('{{{{2,0.25,0.5,0.75}}}}', 7, NULL::int, {key}) + 1"
    for fold, trained, tested, epochs, loss, metrics in found[:4]:
        others = f"NOT {of_fold} = {fold} AND {condition}"
        alone = session.execute(
            f"SELECT tuples, epochs, loss FROM dana_train('fit', 't', filter => $f${others}$f$, seed => 7, {COLUMNS})"
        )
        assert alone.fetchone() == (trained, epochs, loss)
        part = f"{of_fold} = {fold} AND {condition}"
        expected = session.execute(f"SELECT dana_evaluate('fit', filter => $f${part}$f$)").fetchone()
        assert expected is not None
        assert metrics == {
            name: expected[0][name] for name in expected[0].keys() - {"model", "version", "part", "rows"}
        }
        assert tested == expected[0]["rows"]
    for row, function in ((found[4], statistics.mean), (found[5], statistics.stdev)):
        assert set(row[5]) == set(found[0][5]) - {"calibration", "confusion"}
        for name, value in row[5].items():
            assert value == pytest.approx(function([fold[5][name] for fold in found[:4]]), rel=1e-6)
        assert row[4] == pytest.approx(function([fold[4] for fold in found[:4]]), rel=1e-6)
    again = rows(session, f"dana_cross_validate('fit', {source}, folds => 4, seed => 7, metrics => '{{auc}}')")
    assert [row[5]["auc"] for row in again] == [row[5]["auc"] for row in found]
    assert set(again[0][5]) == {"auc"}


def test_all_folds_see_the_same_rows(session: Session, table: str) -> None:
    """Beside a session that inserts and commits all the time."""
    done = threading.Event()
    started = threading.Event()

    def write() -> None:
        with psycopg.connect(session.info.dsn, autocommit=True) as other:
            while not done.is_set():
                other.execute("INSERT INTO test.t VALUES (1, 0.5, 0.5, 1)")
                started.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert started.wait(30)
        found = rows(session, f"dana_cross_validate('fit', 't', folds => 10, {given()})")
    finally:
        done.set()
        writer.join()
    assert len({row[1] + row[2] for row in found[:10]}) == 1


def test_search_ranks_the_grid(session: Session, table: str) -> None:
    call = f"'fit', 't', grid => '{{\"lr\": [0.01, 1, 1e30, \"much\"]}}', folds => 3, {given()}"
    found = rows(session, f"dana_search({call})")
    assert [row[0] for row in found[:3]] == [1, 2, 3]
    assert found[3] == (
        None,
        {"lr": "much"},
        None,
        None,
        None,
        "hyperparameter 'lr' must be a finite number, not \"much\"",
        1,
    )
    assert nothing_kept(session)
    for _, hyper, score, deviation, metrics, error, _ in found[:3]:
        alone = rows(session, f"dana_cross_validate('fit', 't', folds => 3, {given(hyper=hyper)})")
        assert metrics == pytest.approx(alone[3][5], rel=1e-9)
        assert (score, deviation, error) == (
            pytest.approx(alone[3][5]["rmse"]),
            pytest.approx(alone[4][5]["rmse"]),
            None,
        )
    assert [row[2] for row in found[:3]] == sorted(row[2] for row in found[:3])
    best = rows(session, f"dana_search({call}, metric => 'auc')")
    assert [row[2] for row in best[:3]] == sorted((row[2] for row in best[:3]), reverse=True)


@pytest.mark.parametrize("metric", ["rmse", "mae", "log_loss", "r2", "accuracy", "precision", "recall", "f1", "auc"])
def test_the_best_has_the_lowest_error_or_the_highest_score(session: Session, table: str, metric: str) -> None:
    grid = '{"lr": [-0.05, 0.05, 1]}'
    found = rows(session, f"dana_search('fit', 't', '{grid}', '{metric}', test_size => 0.3, {given()})")
    scores = [row[4][metric] for row in found]
    assert [row[2] for row in found] == scores
    assert scores == sorted(scores, reverse=metric not in ("rmse", "mae", "log_loss"))
    assert found[2][1] == {"lr": -0.05}
    assert scores[1] != scores[2]


@pytest.mark.parametrize("seed", ["", "seed => 7, "])
def test_search_keeps_the_best(session: Session, table: str, seed: str) -> None:
    grid = '[{"lr": 1}, {"lr": 1e-6}, {}]'
    call = f"dana_search('fit', 't', '{grid}', test_size => 0.3, {seed}keep => 'best', {given(hyper={'lr': 0.5})})"
    found = rows(session, call)
    assert {str(row[1]) for row in found} == {"{'lr': 1}", "{'lr': 1e-06}", "{'lr': 0.5}"}
    kept = session.execute("SELECT name, version, metadata -> 'hyper' ->> 'lr' FROM dana.model").fetchall()
    assert kept == [("best", 1, str(float(found[0][1]["lr"])))]
    score = session.execute("SELECT (dana_evaluate('best') ->> 'rmse')::float8").fetchone()
    assert score == (found[0][2],)
    for version, source in enumerate((given(query="TABLE t"), given(query="TABLE t", test_by="id")), start=2):
        searched = f"test_size => 0.3, keep => 'best', {source}"
        found = rows(session, f"dana_search('fit', grid => '{{\"lr\": [1]}}', {searched})")
        assert session.execute("SELECT max(version) FROM dana.model").fetchone() == (version,)
        score = session.execute("SELECT (dana_evaluate('best') ->> 'rmse')::float8").fetchone()
        assert score == (found[0][2],)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("dana_cross_validate('fit', 't', folds => 1)", Invalid, "from 2 to 1000, not 1"),
        ("dana_cross_validate('fit', 'few', folds => 100)", errors.DataException, "fold .* of 100: .*no row"),
        (f"dana_cross_validate('fit', {given(query='TABLE t', test_by='x) = 1; --')})", errors.UndefinedColumn, ""),
        (f"dana_cross_validate('fit', 't', {given(test_by='nowhere')})", errors.UndefinedColumn, "nowhere"),
        (f"dana_cross_validate('fit', 't', metrics => '{{auc,q}}', {given()})", Invalid, "metric 'q'"),
        (f"dana_cross_validate('fit', 't', {given(filter='true); DROP TABLE t; --')})", errors.SyntaxError, ""),
        ("dana_cross_validate('none', 't')", errors.UndefinedObject, 'rule "none" does not exist'),
        ("dana_search('fit', 't')", Invalid, '"grid" must name values'),
        *(
            (f"dana_search('fit', 't', '{grid}')", Invalid, '"grid" must name values')
            for grid in ("{}", "[]", '{"lr": []}', '{"lr": 1}', '{"lr": {"a": 1}}', "[1]", "[[]]", "7", '"lr"', "null")
        ),
        ("dana_search('fit', 't', '{\"q''\": [1], \"lr\": [1]}')", errors.DataException, "has no hyperparameter"),
        ("dana_search('fit', 't', '{\"lr\": [\"a\", null, [1]]}')", errors.DataException, "no point .*finite number"),
        ("dana_search('fit', 't', '{\"lr\": [1e400]}')", Invalid, "outside the range of double precision"),
        ("dana_search('fit', 't', '{\"lr\": [1]}', 'speed')", Invalid, 'no metric "speed"'),
        ("dana_search('fit', 't', '{\"lr\": [1]}', folds => 2, test_size => 0.5)", Invalid, "give one of"),
        ("dana_search('fit', 't', '{\"lr\": [1]}', test_size => 1)", Invalid, "between 0 and 1"),
        (f"dana_search('fit', 't', '{{\"lr\": [1]}}', {given(hyper=[])})", Invalid, "must be a JSON object"),
        *(
            (f"dana_{function}, {given({name: value})})", Invalid, f'must not have a member "{name}"')
            for function in ("cross_validate('fit', 't'", "search('fit', 't', '[{}]'")
            for name, value in (("model", "m"), ("test_size", 0.2), ("seed", 2))
        ),
        ("dana.dana_grid('{\"a\": [1, 2], \"b\": %s, \"c\": %s}')", errors.ProgramLimitExceeded, "20200 points"),
    ],
)  # fmt: skip
def test_refusals(session: Session, table: str, call: str, error: type[psycopg.Error], message: str) -> None:
    session.execute("CREATE TABLE few AS SELECT a, b, ill FROM t LIMIT 5")
    call = call.replace("%s", str(list(range(100))), 1).replace("%s", str(list(range(101))), 1)
    with pytest.raises(error, match=message or None):
        rows(session, call)
    assert nothing_kept(session)
    assert session.execute("SELECT count(*) FROM t").fetchone() == (1000,)


def test_one_class_only(session: Session, table: str) -> None:
    """No AUC; the other metrics are there."""
    session.execute("UPDATE t SET ill = 1")
    found = rows(session, f"dana_cross_validate('fit', 't', folds => 2, metrics => '{{auc,accuracy}}', {given()})")
    assert [row[5]["auc"] for row in found] == [None] * 4
    assert found[2][5]["accuracy"] > 0
    with pytest.raises(errors.DataException, match="there is no auc on these rows"):
        rows(session, f"dana_search('fit', 't', '{{\"lr\": [1]}}', 'auc', {given()})")


def test_cancelled_and_without_rights(session: Session, table: str) -> None:
    session.execute("SET statement_timeout = 300")
    with pytest.raises(errors.QueryCanceled):
        rows(session, f"dana_search('fit', 't', '{{\"lr\": [1, 2]}}', {given(epochs=50000, patience=0)})")
    session.execute("RESET statement_timeout")
    assert nothing_kept(session)
    with new_role(session, "searcher"):
        session.execute("GRANT SELECT ON t TO searcher")
        for function in ("dana_search", "dana_train"):
            session.execute("SET ROLE searcher")
            with pytest.raises(errors.InsufficientPrivilege, match=function):
                rows(session, f"dana_search('fit', 't', '{{\"lr\": [1]}}', {given()})")
            session.execute("RESET ROLE")
            session.execute(f"GRANT EXECUTE ON FUNCTION {function} TO searcher")
        session.execute("SET ROLE searcher")
        assert len(rows(session, f"dana_search('fit', 't', '{{\"lr\": [1]}}', {given()})")) == 1
        session.execute("RESET ROLE")
        session.execute("REVOKE SELECT ON t FROM searcher")
        session.execute("SET ROLE searcher")
        with pytest.raises(errors.InsufficientPrivilege, match="table"):
            rows(session, f"dana_search('fit', 't', '{{\"lr\": [1]}}', {given()})")


PAIRS = f"""
CREATE TABLE pairs AS SELECT DISTINCT i % 20 AS i, i * i % 30 AS j FROM generate_series(1, 400) AS i;
SELECT dana_create_udf('pairs', {sql.Literal(rules.text("bpr")).as_string()})
"""
OF_PAIRS = {"features": ["i", "j"], "epochs": 2}


@pytest.mark.parametrize("source", ["'pairs', ", ""])
def test_a_rule_without_a_label_has_its_loss(session: Session, source: str) -> None:
    session.execute(PAIRS)  # type: ignore[arg-type]
    query = {"query": "SELECT * FROM pairs"} if not source else {}
    found = rows(session, f"dana_cross_validate('pairs', {source} folds => 3, {given(OF_PAIRS, **query)})")
    assert [set(row[5]) for row in found] == [{"loss"}] * 5
    assert all(0 < row[5]["loss"] < 2 for row in found[:4])
    if not query:
        held_out = session.execute(
            "SELECT validation_loss FROM dana_train('pairs', 'pairs', 'm', '{i,j}', epochs => 2, patience => 0,"
            " validation_size => 0.25, shuffle => false, seed => 0)"
        ).fetchone()
        heap = given(OF_PAIRS, shuffle=False)
        alone = rows(session, f"dana_search('pairs', 'pairs', '[{{}}]', test_size => 0.25, {heap})")
        assert held_out == (alone[0][2],)
        validating = given(OF_PAIRS, validation_size=0.1)
        with pytest.raises(errors.InvalidParameterValue, match='"validation_size" is for rules with a label here'):
            rows(session, f"dana_cross_validate('pairs', 'pairs', {validating})")
    grid = '{"lr": [1e-6, 0.3]}'
    ranked = rows(session, f"dana_search('pairs', {source} grid => '{grid}', folds => 3, {given(OF_PAIRS, **query)})")
    assert [row[0] for row in ranked] == [1, 2]
    assert ranked[0][2] < ranked[1][2]


@pytest.mark.parametrize(
    ("rule", "metric", "message"),
    [
        ("pairs", "auc", 'there is no metric "auc" of rule "pairs", which has no label to compare with'),
        ("fit", "loss", 'there is no metric "loss" of rule "fit", which has a label'),
    ],
)
def test_metrics_of_another_rule_are_refused_at_once(
    session: Session, table: str, rule: str, metric: str, message: str
) -> None:
    session.execute(PAIRS)  # type: ignore[arg-type]
    last = session.execute("SELECT last_value FROM dana.run_id_seq").fetchone()
    calls = (
        f"search('{rule}', 't', '[{{}}]', '{metric}')",
        f"cross_validate('{rule}', 't', metrics => '{{{metric}}}')",
    )
    for call in calls:
        with pytest.raises(Invalid) as raised:
            rows(session, f"dana_{call}")
        assert raised.value.diag.message_primary == message
    assert session.execute("SELECT last_value FROM dana.run_id_seq").fetchone() == last, "nothing was trained"


def candidates(session: Session, grid: object, count: int | None, seed: int = 1) -> list[dict[str, float]]:
    arguments = (json.dumps(grid), count, seed)
    return [point for (point,) in session.execute("SELECT dana.dana_candidates(%s::jsonb, %s, %s)", arguments)]


def test_candidates_are_drawn(session: Session) -> None:
    grid = {"a": [1, 2, 3], "b": [4, 5]}
    points = candidates(session, grid, None)
    some = candidates(session, grid, 4)
    assert len(points) == 6
    assert [point for point in points if point in some] == some  # different ones, in the order of the grid
    assert len(some) == 4
    assert candidates(session, grid, 9) == points
    assert candidates(session, grid, 4, 2) != some
    ranges = {"a": {"low": 1e-6, "high": 1, "log": True}, "b": {"low": -1, "high": 3}, "c": [1, 2, 5]}
    drawn = candidates(session, ranges, 1000)
    assert drawn == candidates(session, ranges, 1000)
    assert drawn[:10] == candidates(session, ranges, 10)
    a, b, c = ([point[name] for point in drawn] for name in "abc")
    assert 1e-6 <= min(a) < 1e-5 < max(a) < 1
    assert statistics.median(a) == pytest.approx(1e-3, rel=0.6)
    assert -1 <= min(b) < max(b) < 3
    assert statistics.mean(b) == pytest.approx(1, abs=0.15)
    assert [c.count(value) for value in (1, 2, 5)] == pytest.approx([333] * 3, abs=80)


@pytest.mark.parametrize(
    ("grid", "count", "wrong"),
    [
        ({"a": [1]}, 0, "between 1 and 10000, not 0"),
        ({"a": {"low": 1, "high": 2}}, None, "must name values to try"),
        ({"a": {"low": 2, "high": 2}}, 3, 'a range for "a"'),
        ({"a": {"low": 0, "high": 2, "log": True}}, 3, 'a range for "a"'),
        ({"a": {"low": "0", "high": 2}}, 3, 'a range for "a"'),
        ({"a": {"low": 0, "hihg": 2}}, 3, 'a range for "a"'),
        ({"a": {"low": 1, "high": 2}, "b": []}, 3, 'a range for "b"'),
    ],
)
def test_candidates_that_cannot_be_drawn(session: Session, grid: object, count: int | None, wrong: str) -> None:
    with pytest.raises(Invalid, match=wrong):
        candidates(session, grid, count)


def test_a_random_search(session: Session, table: str) -> None:
    grid = json.dumps({"lr": {"low": 0.001, "high": 1, "log": True}})
    found = rows(session, f"dana_search('fit', '{table}', '{grid}', test_size => 0.3, candidates => 3, {given()})")
    drawn = candidates(session, json.loads(grid), 3)
    assert sorted(point[1]["lr"] for point in found) == sorted(point["lr"] for point in drawn)
    assert [point[0] for point in found] == [1, 2, 3]


def test_halving_trains_the_best_third_on_three_times_the_rows(session: Session, table: str) -> None:
    session.execute("INSERT INTO t SELECT id + 1000, a, b, ill FROM t")
    options = f"metric => 'log_loss', test_size => 0.25, seed => 2147483647, {given()}"
    grid = json.dumps({"lr": [0.0001 * 3**k for k in range(9)]})
    full = rows(session, f"dana_search('fit', '{table}', '{grid}', {options})")
    found = rows(session, f"dana_search('fit', '{table}', '{grid}', {options}, halving => true)")
    assert [point[6] for point in full] == [1] * 9
    assert [point[6] for point in found] == [3, *[2] * 2, *[1] * 6]
    assert [point[0] for point in found] == list(range(1, 10))
    # on all rows it is the training that a full search makes, with the same score
    assert found[0][:6] == full[0][:6]
    # the others were not trained on all rows
    scores = {json.dumps(point[1]): point[2] for point in full}
    assert all(scores[json.dumps(point[1])] != point[2] for point in found[1:])
    assert found == rows(session, f"dana_search('fit', '{table}', '{grid}', {options}, halving => true)")
    assert nothing_kept(session)


def test_halving_drops_nothing_on_a_hundred_rows(session: Session, table: str) -> None:
    """1,000 rows in two folds: a ninth of a fold is 56 rows, a third 167."""
    grid = json.dumps({"lr": [0.01 * k for k in range(1, 10)]})
    found = rows(session, f"dana_search('fit', '{table}', '{grid}', folds => 2, {given()}, halving => true)")
    assert [point[6] for point in found] == [*[3] * 3, *[2] * 6]
