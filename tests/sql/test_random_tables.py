"""Dropout and what counts, trained in SQL: judged, predicted and exported as if nothing were random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dana.client.models import encode_model, read_exported
from tests.oracles.uniform import uniform
from tests.sql.conftest import Session

NETWORK = """
import dana
from dana.functions import dropout
n = dana.dim()
A = dana.model([9, n], init=dana.normal(0, 0.5))
B = dana.model([5, 9], init=dana.normal(0, 0.5))
c = dana.model([5], init=dana.normal(0, 0.5))
x = dana.input([n])
y = dana.output(classes=2)
net = dana.algo(A, B, c, x, y)
one = dropout(dana.max(A @ x, 0), 0.3)
two = dropout(dana.max(B @ one, 0))
p = dana.sigmoid(c @ two)
net.setLoss(-(y * dana.log(p) + (1 - y) * dana.log(1 - p)))
net.minimize(dana.optimizers.adam, rate=0.01 / (1 + dana.epoch))
net.setPrediction(p)
net.setEpochs(3)
"""

COUNTING = """
import dana
counts = dana.model([3])
total = dana.model()
a = dana.input()
y = dana.output()
counting = dana.algo(counts, total, a, y)
u = dana.random()
counting.setModel(counts, [dana.epoch, dana.batch, dana.rows])
counting.setModel(total, counting.merge(u, 64, "+"))
counting.setLoss(u + 0 * (y + a))
counting.setPrediction(counts[2] + a)
counting.setEpochs(2)
"""


@pytest.fixture
def table(session: Session) -> Session:
    session.execute(
        "CREATE TABLE t AS SELECT i AS id, sin(i)::real AS a, cos(2 * i)::real AS b, nullif(i % 10, 0)::real AS c,"
        " (sin(i) * cos(2 * i) > 0)::int AS y FROM generate_series(1, 500) i"
    )
    session.execute("SELECT dana_create_udf('net', %s)", (NETWORK,))
    session.execute("SELECT dana_create_udf('counting', %s)", (COUNTING,))
    return session


def trained(session: Session, call: str) -> dict[str, Any]:
    """The run, its epochs, and the models by name."""
    row = session.execute(f"SELECT model, version, run, tuples FROM dana_train({call}, patience => 0)").fetchone()
    assert row is not None
    name, version, run, tuples = row
    epochs = session.execute(
        "SELECT loss, validation_loss FROM dana.epoch WHERE run = %s ORDER BY epoch", (run,)
    ).fetchall()
    values = session.execute('SELECT parameter, "values" FROM dana_parameters(%s, %s)', (name, version)).fetchall()
    return {"tuples": tuples, "epochs": epochs, "models": dict(values)}


def test_rows_left_out_are_judged_without_dropout(table: Session) -> None:
    found = trained(table, "'net', 't', 'm', '{a,b}', 'y', validation_size => 0.25")
    # rows for validation are those that the next seed chooses for a test
    trained(table, "'net', 't', 'split', '{a,b}', 'y', epochs => 1, test_size => 0.25, seed => 2")
    chosen = table.execute("SELECT dana_test_rows('split')").fetchall()[0][0]
    judged = "SELECT dana_evaluate('m', filter => %s) -> 'log_loss'"
    evaluated = table.execute(judged, (chosen,)).fetchone()
    assert evaluated is not None
    assert found["epochs"][-1][1] == pytest.approx(evaluated[0], rel=1e-5)
    training = table.execute(judged, (f"NOT {chosen}",)).fetchone()
    assert training is not None
    assert abs(found["epochs"][-1][0] - training[0]) > 0.01, "the training's loss is that of the units that are left"


def test_a_warm_start_goes_on(table: Session) -> None:
    whole = trained(table, "'net', 't', 'whole', '{a,b}', 'y'")
    trained(table, "'net', 't', 'half', '{a,b}', 'y', epochs => 2")
    rest = trained(table, "'net', 't', 'rest', '{a,b}', 'y', epochs => 1, warm_start_from => 'half'")
    assert rest["models"] == whole["models"]
    assert whole["models"]["dana.epoch"] == [3]


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_rows_that_train_are_counted(table: Session, machine: str) -> None:
    """A row with a NULL has no number; a second training has its own table's count."""
    found = trained(table, f"'counting', 't', 'm', '{{c}}', 'y', machine => '{machine}'")
    assert found["tuples"] == 450
    assert found["models"]["counts"] == [1, 7, 450]
    for epoch, (loss, _) in enumerate(found["epochs"]):
        assert loss == pytest.approx(np.mean([float(uniform(row, 0, epoch=epoch)) for row in range(450)]), rel=1e-6)
    again = "'counting', 't', 'other', '{c}', 'y', filter => 'id <= 100', warm_start_from => 'm', "
    found = trained(table, f"{again} machine => '{machine}'")
    assert found["models"]["counts"] == [3, 1, 90]
    assert table.execute("SELECT dana_predict('other', 5)").fetchone() == (95,)


def test_groups_count_their_own(table: Session) -> None:
    call = (
        "SELECT key, model FROM dana_train_groups('counting', 't', '{y}', '{\"label\": \"y\", \"features\": [\"a\"]}')"
    )
    for _, model in table.execute(call).fetchall():
        rows = table.execute(
            "SELECT \"values\" FROM dana_parameters(%s) WHERE parameter = 'counts'", (model,)
        ).fetchone()
        assert rows is not None
        assert 200 < rows[0][2] < 300


def test_the_exported_model_has_no_dropout(table: Session) -> None:
    runtime = pytest.importorskip("onnxruntime")
    trained(table, "'net', 't', 'm', '{a,b}', 'y'")
    made = encode_model(read_exported(table, "m"), "onnx")
    rows = table.execute("SELECT a, b, dana_predict('m', t) FROM t").fetchall()
    features, predicted = np.float32([row[:2] for row in rows]), [row[2] for row in rows]
    found = runtime.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, {"features": features})
    np.testing.assert_allclose(np.asarray(found[-1]).ravel(), predicted, rtol=1e-5)
