"""A network with batch norm and dropout, as an author writes it: on arrays and in SQL, judged by running statistics."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest

from dana.client.connection import Connection
from dana.language.trainable import TrainableRule
from dana.server.places import CHECKOUT
from dana.session.tables import create_table

SOURCE = (CHECKOUT / "examples" / "network.py").read_text(encoding="utf-8")
SMALL = {"h": 5}


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features of any scale, and three classes that no plane divides."""
    x = np.random.default_rng(seed).standard_normal((count, 4))
    label = np.where(np.abs(x[:, 0]) + x[:, 1] > 1, 2, np.where(x[:, 2] * x[:, 3] > 0, 1, 0))
    return (x * [1, 100, 0.01, 3] + [5, 0, 0, -2]).astype(np.float32), label


def test_it_is_short_and_has_no_derivative() -> None:
    assert len(SOURCE.splitlines()) <= 25
    assert "gradient" not in SOURCE


def test_models_are_the_interpreter_s_bit_for_bit() -> None:
    rule = TrainableRule(SOURCE)
    found = [rule.fit(*rows(150), epochs=2, hyper=SMALL, patience=0, machine=one) for one in ("interp", "sim")]
    assert found[0].losses == found[1].losses
    for name, values in found[0].models.items():
        assert values.tobytes() == found[1].models[name].tobytes(), name


def test_it_learns_and_predicts_rows_one_by_one() -> None:
    """Running statistics make a row's prediction its own, whatever rows are predicted beside it."""
    rule = TrainableRule(SOURCE)
    trained = rule.fit(*rows(1500), epochs=12, patience=0)
    assert trained.losses[-1] < 0.7 * trained.losses[0]
    x, label = rows(300, seed=1)
    predicted = rule.predict(x, models=trained.models)
    assert (predicted.argmax(axis=1) == label).mean() > 0.85
    np.testing.assert_array_equal(rule.predict(x[7:8], models=trained.models)[0], predicted[7])
    running = [name for name in trained.models if "running_variance" in name]
    assert len(running) == 2
    assert all((trained.models[name] > 0).all() and (trained.models[name] != 1).all() for name in running)


LAST_ALONE = """
import dana
from dana.functions import batch_norm
x = dana.input([3])
b = dana.model()
size = dana.meta(8)
rule = dana.algo(b, x)
v = batch_norm(rule, x, size, 2, 0.5)
rule.setModel(b, b + rule.merge(dana.sigma(v), size, "+"))
rule.setPrediction(dana.sigma(v))
"""


def test_a_last_batch_of_a_single_row_does_no_harm() -> None:
    """It becomes the shift, and no variance: of the running ones nothing is taken away."""
    x = np.random.default_rng(2).standard_normal((9, 3)) * 5
    found = [TrainableRule(LAST_ALONE).fit(x[:count], epochs=1, shuffle=False).models for count in (8, 9)]
    np.testing.assert_allclose(found[1]["b"] - found[0]["b"], 3 * 0.5, atol=1e-4)
    np.testing.assert_array_equal(*(one["x.running_variance"] for one in found))
    assert (found[0]["x.running_mean"] != found[1]["x.running_mean"]).all()
    assert (found[0]["x.running_variance"] > 1).any()


def test_in_sql(pg_uri: str) -> None:
    x, label = rows(1500)
    columns = {f"x{k}": column for k, column in enumerate(x.T)} | {"kind": label}
    with psycopg.connect(pg_uri) as session:
        db = Connection(session)
        db.create_rule("network", SOURCE)
        create_table(session, "points", columns)
        trained = db.train("network", "points", label="kind", test_size=0.2, epochs=12)
        assert trained.tuples is not None
        assert 1100 < trained.tuples < 1300
        (found,) = session.execute("SELECT dana_evaluate('network')").fetchone() or ()
        assert found["accuracy"] > 0.85
        query = "SELECT avg((dana_classify('network', p) = kind::text)::int) FROM points AS p"
        (share,) = session.execute(query).fetchone() or ()
        assert float(share) == pytest.approx(found["accuracy"], abs=0.1)
        session.rollback()
