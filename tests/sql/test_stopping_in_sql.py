"""Trainings in SQL that end when they no longer improve, by the loss of their epochs or on the rows left out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import psycopg
import pytest

from dana import rules
from dana.server.embedded import EmbeddedServer
from dana.server.installation import MAJORS
from tests.sql.conftest import Session
from tests.sql.test_backends import DESIGN, share_compiled_designs
from tests.trainer.test_stopping import PASSING


@pytest.fixture
def passing(session: Session) -> Session:
    session.execute("SELECT dana_create_udf('passing', %s)", (PASSING,))
    session.execute("CREATE TABLE t AS SELECT 1::real AS x, i % 2 AS y FROM generate_series(1, 400) i")
    return session


def one(session: Session, statement: str, *values: Any) -> Any:
    found = session.execute(statement, values).fetchone()  # type: ignore[arg-type]
    return found if found is None or len(found) > 1 else found[0]


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_the_best_model_is_kept(passing: Session, machine: str) -> None:
    call = f"SELECT epochs, converged, loss FROM dana_train('passing', 't', 'm', machine => '{machine}', {{}})"
    assert one(passing, call.format("patience => 3")) == (9, False, 1.0)
    assert one(passing, "SELECT \"values\" FROM dana_parameters('m') WHERE parameter = 'w'") == [6.0]
    assert one(passing, "SELECT metadata ->> 'epoch' FROM dana.model WHERE name = 'm'") == "6"
    assert one(passing, "SELECT kept FROM dana.run ORDER BY id DESC LIMIT 1") == 6
    assert one(passing, call.format("patience => 0"))[:2] == (60, False)
    assert one(passing, call.format("patience => 3, epochs => 8"))[:2] == (8, False)
    assert one(passing, call.format("patience => 3, warm_start_from => 'm@1'"))[:2] == (4, False)


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_rows_left_out_choose_the_model(passing: Session, machine: str) -> None:
    assert chosen(passing, machine, "patience => 4") == (9, False)


@pytest.mark.parametrize("server", MAJORS[-1:], indirect=True)
def test_rows_left_out_choose_the_model_of_hardware(passing: Session, server: EmbeddedServer) -> None:
    share_compiled_designs(server)
    assert chosen(passing, "rtl", f"epochs => 7, design => '{json.dumps(DESIGN)}'") == (7, False)


def chosen(session: Session, machine: str, more: str) -> tuple[int, bool]:
    """Epochs and whether they converged, of a training whose loss on the rows left out is (epoch - 5) ** 2."""
    call = f"dana_train('passing', 't', 'm', validation_size => 0.25, machine => '{machine}', {more})"
    epochs, converged, run = one(session, f"SELECT epochs, converged, run FROM {call}")
    assert one(session, "SELECT \"values\" FROM dana_parameters('m') WHERE parameter = 'w'") == [5.0]
    losses = session.execute("SELECT validation_loss FROM dana.curve WHERE run = %s ORDER BY epoch", (run,)).fetchall()
    assert losses == [(float((k - 5) ** 2),) for k in range(1, epochs + 1)]
    return epochs, converged


TABLES = {
    "pages": "CREATE TABLE t AS SELECT i, {} FROM generate_series(1, 3000) i",
    "numeric": "CREATE TABLE t AS SELECT i, a::numeric, b, y FROM (SELECT i, {} FROM generate_series(1, 3000) i) r",
    "partitions": """CREATE TABLE t (i int, a real, b real, y real) PARTITION BY RANGE (i);
        CREATE TABLE p1 PARTITION OF t FOR VALUES FROM (0) TO (1000);
        CREATE TABLE p2 PARTITION OF t FOR VALUES FROM (1000) TO (9000);
        INSERT INTO t SELECT i, {} FROM generate_series(1, 3000) i""",
}
COLUMNS = (
    "sin(i)::real * 10 AS a, CASE WHEN i % 50 > 0 THEN cos(i * 3)::real END AS b, (sin(i) + sin(i * 7.3))::real AS y"
)


@pytest.mark.parametrize("rule", ["linear", "lasso"])
@pytest.mark.parametrize("kind", TABLES)
def test_losses_are_those_of_predictions(session: Session, kind: str, rule: str) -> None:
    """Its filter, its NULLs and its columns are those of the training, and no row is in both."""
    for statement in TABLES[kind].format(COLUMNS).split(";"):
        session.execute(statement)  # type: ignore[arg-type]
    session.execute("SELECT dana_create_udf(%s, %s)", (rule, rules.text(rule)))
    call = f"dana_train('{rule}', 't', 'm', '{{a,b}}', 'y', validation_size => 0.3, filter => 'i > 100')"
    run, loss, tuples = one(session, f"SELECT run, loss, tuples FROM {call}")
    test = one(
        session,
        """SELECT avg((dana_predict('m', a, b) - y) ^ 2), count(*) FROM t
        WHERE i > 100 AND b IS NOT NULL AND dana_holdout(ctid, 0.3, 2)""",
    )
    kept = "SELECT metadata ->> 'epoch' FROM dana.model WHERE name = 'm'"
    found = one(session, f"SELECT validation_loss FROM dana.epoch WHERE run = %s AND epoch = ({kept})::int", run)
    assert found == pytest.approx(test[0], rel=1e-5)
    trained = "i > 100 AND b IS NOT NULL AND NOT dana_holdout(ctid, 0.3, 2)"
    measured = one(session, f"SELECT avg((dana_predict('m', a, b) - y) ^ 2) FROM t WHERE {trained}")
    assert loss == pytest.approx(measured, rel=1e-5)
    assert tuples + test[1] == one(session, "SELECT count(*) FROM t WHERE i > 100 AND b IS NOT NULL")


NOISY = """
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
noisy = dana.algo(w, x, y)
e = dana.sigma(w * x, 1) - y
noisy.setModel(w, w - 0.06 * noisy.merge(e * x, 8, "+") / 8)
noisy.setLoss(e * e)
noisy.setPrediction(dana.sigma(w * x, 1))
noisy.setEpochs(30)
"""
"""Long steps over few rows of many columns: the losses of its epochs on other rows differ by chance."""


def test_rows_that_choose_the_epoch_do_not_judge(session: Session) -> None:
    """Over 40 splits, the metric on the rows held out is that on fresh rows; that on the rows for validation is not."""
    session.execute("SELECT dana_create_udf('noisy', %s)", (NOISY,))
    random = np.random.default_rng(3)
    columns = [f"x{k}" for k in range(12)]
    session.execute(f"CREATE TABLE t (id serial PRIMARY KEY, {' real, '.join(columns)} real, y real)")

    def fill(rows: int) -> None:
        x = random.normal(size=(rows, 12)).astype(np.float32)
        y = x[:, 0] + random.normal(size=rows)
        session.execute("TRUNCATE t RESTART IDENTITY")
        with session.cursor().copy(f"COPY t ({', '.join(columns)}, y) FROM STDIN") as copy:
            for row in np.column_stack([x, y]).tolist():
                copy.write_row(row)

    judged, chose = [], []
    for seed in range(40):
        fill(120)
        call = f"'noisy', 't', 'm', test_size => 0.3, validation_size => 0.15, patience => 100, seed => {seed}"
        validation = one(session, f"SELECT validation_loss FROM dana_train({call}, label => 'y')")
        reported = one(session, "SELECT (dana_evaluate('m') ->> 'rmse')::float8 ^ 2")
        fill(2000)
        fresh = one(session, "SELECT (dana_evaluate('m', part => 'all') ->> 'rmse')::float8 ^ 2")
        judged.append(reported - fresh)
        chose.append(validation - fresh)

    def away(differences: list[float]) -> float:
        return float(np.mean(differences) / (np.std(differences, ddof=1) / np.sqrt(len(differences))))

    assert abs(away(judged)) < 2
    assert away(chose) < -2


def test_what_validation_reports(passing: Session) -> None:
    heard: list[str] = []
    passing.add_notice_handler(lambda notice: heard.append(f"{notice.severity}: {notice.message_primary}"))
    passing.execute("SET client_min_messages = notice")
    passing.execute("ALTER TABLE t ADD id serial PRIMARY KEY")
    sizes = []
    for options in ("early_stopping => true", "validation_size => 0.1", "validation_size => 0.1, test_size => 0.5"):
        heard.clear()
        sizes.append(one(passing, f"SELECT tuples FROM dana_train('passing', 't', 'm', '{{x}}', 'y', {options})"))
        kept = one(passing, "SELECT metadata FROM dana.model WHERE name = 'm' ORDER BY version DESC LIMIT 1")
        assert (kept["validation_size"], kept["seed"], kept["epoch"]) == (0.1, 1, 5)
        assert [each for each in heard if "validation" in each] == [
            "NOTICE: epoch 5 of 35 is kept: its loss on the rows for validation is the lowest, 0"
        ]
    assert sizes[:2] == [one(passing, "SELECT count(*) FROM t WHERE NOT dana_holdout(id, 0.1, 2)")] * 2
    both = "NOT dana_holdout(id, 0.5, 1) AND NOT dana_holdout(id, 0.1, 2)"
    assert sizes[2] == one(passing, f"SELECT count(*) FROM t WHERE {both}")
    call = "dana_train('passing', 't', 'm', '{x}', 'y', test_size => 0.25)"
    assert one(passing, f"SELECT validation_loss FROM {call}") is None, "these rows are for dana_evaluate alone"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("dana_train('passing', 't', validation_size => 1)", '"validation_size" must be a part of the rows between 0'),
        (
            "dana_train('passing', 't', validation_size => 0.1, early_stopping => false)",
            "early_stopping, which is false",
        ),
        ("dana_train_groups('passing', 't', '{y}', '{\"early_stopping\": true}')", "without rows for validation"),
    ],
)
def test_validation_that_cannot_be(passing: Session, call: str, message: str) -> None:
    with pytest.raises((psycopg.errors.InvalidParameterValue, psycopg.errors.FeatureNotSupported), match=message):
        passing.execute(f"SELECT {call}")  # type: ignore[arg-type]


def test_trials_validate_on_rows_of_their_own(passing: Session) -> None:
    passing.execute("ALTER TABLE t ADD id serial PRIMARY KEY")
    passing.execute("SELECT dana_create_udf('noisy', %s)", (NOISY,))
    options = json.dumps({"features": ["x"], "label": "y", "early_stopping": True})
    folds = passing.execute("SELECT trained, tested FROM dana_cross_validate('noisy', 't', 2, %s)", (options,))
    for fold, (trained, tested) in enumerate(folds.fetchall()[:2], start=1):
        of_fold = f"dana.dana_part('{{{{2,0.5}}}}', 1, NULL::int, id) + 1 = {fold}"
        assert tested == one(passing, f"SELECT count(*) FROM t WHERE {of_fold}")
        rest = f"NOT {of_fold} AND NOT dana_holdout(id, 0.1, 2)"
        assert trained == one(passing, f"SELECT count(*) FROM t WHERE {rest}")


def test_groups_and_trials_have_no_rows_left_out(passing: Session) -> None:
    passing.execute("CREATE TABLE g AS SELECT y AS k, * FROM t")
    options = '{"patience": 3, "test_size": 0.5, "features": ["x"], "label": "y"}'
    trained = passing.execute("SELECT epochs, converged FROM dana_train_groups('passing', 'g', '{k}', %s)", (options,))
    assert trained.fetchall() == [(9, False)] * 2


def test_streams_again_where_nothing_is_kept(passing: Session) -> None:
    """Two streams are too few to keep: the epoch asks once more after the survey, and the rows left out stay."""
    found = one(passing, "SELECT run, pages FROM dana_train('passing', 't', 'm', validation_size => 0.25, epochs => 1)")
    assert found[1] > 0
    assert one(passing, "SELECT validation_loss FROM dana.epoch WHERE run = %s", found[0]) == 16


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_no_row_that_is_left_out_counts(session: Session, machine: str) -> None:
    heard: list[str | None] = []
    session.add_notice_handler(lambda notice: heard.append(notice.message_primary))
    session.execute("SELECT dana_create_udf('linear', %s)", (rules.text("linear"),))
    session.execute("CREATE TABLE t AS SELECT sin(i)::real AS x, cos(i)::real AS y FROM generate_series(1, 400) i")
    table = "'linear', 't', 'm', '{{x}}', 'y'"
    call = f"SELECT dana_train({table}, machine => '{machine}', epochs => 2, validation_size => {{}})"
    said = "no row for validation is usable: the loss of the training rows chooses the epoch"
    session.execute(call.format(0.2))
    assert said not in heard
    session.execute(call.format(1e-9))
    assert heard.count(said) == 1


@pytest.mark.parametrize("option", ["patience => -1", "tolerance => -1", "tolerance => 'NaN'"])
def test_what_is_refused(passing: Session, option: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"must be (at least 0|a finite number)"):
        passing.execute(f"SELECT dana_train('passing', 't', {option})")  # type: ignore[arg-type]


def test_a_model_without_a_use_is_a_warning(session: Session) -> None:
    heard: list[str] = []
    session.add_notice_handler(lambda notice: heard.append(f"{notice.severity}: {notice.message_primary}"))
    session.execute("SELECT dana_create_udf('linear', %s)", (rules.text("linear"),))
    noise = np.random.default_rng(2).normal(size=(900, 2))
    session.execute("CREATE TABLE t (x real, y real)")
    with session.cursor().copy("COPY t FROM STDIN") as copy:
        for row in noise:
            copy.write_row([float(value) for value in row])
    session.execute("SELECT dana_train('linear', 't', label => 'y')")
    assert [one for one in heard if one.startswith("WARNING: the model is no better than a constant prediction")]
