"""Every rule of the library through SQL: one call registers them, the simulator's model is the interpreter's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest

from dana import rules
from dana.cli import main
from dana.cli.entry import OK
from dana.client.connection import Connection
from dana.session.tables import create_table
from dana.trainer.arrays import train
from tests.rules.tables import EXTENTS, table
from tests.rules.test_optimizers import CASES, RULE, gradients

EPOCHS = {"mlp": 20}
"""As many as it takes to tell rows apart; the interpreter needs a second for a hundred batches."""


@pytest.fixture(scope="module")
def db(pg_uri: str) -> Iterator[Connection]:
    """A session with all rules registered; what it makes is rolled back."""
    with psycopg.connect(pg_uri) as session:
        client = Connection(session)
        assert client.create_rules() == list(rules.NAMES)
        yield client
        session.rollback()


@pytest.mark.parametrize("name", rules.NAMES)
def test_trains_and_predicts(db: Connection, name: str) -> None:
    columns = table(name)
    create_table(db.session, "rows", columns)
    models, losses = {}, set()
    for machine in ("sim", "interp"):
        result = db.train(
            name, "rows", model=f"by_{machine}", epochs=EPOCHS.get(name, 3), machine=machine, hyper=EXTENTS.get(name)
        )
        assert result.tuples == len(next(iter(columns.values())))
        assert result.loss is not None
        assert np.isfinite(result.loss)
        losses.add(result.loss)
        models[machine] = db.parameters(f"by_{machine}")
    assert len(losses) == 1, "equal models have the same loss"
    assert models["sim"].keys() == models["interp"].keys()
    for parameter, values in models["sim"].items():
        assert values.tobytes() == models["interp"][parameter].tobytes(), parameter
        assert np.isfinite(values).all(), parameter
    features = ", ".join(k for k in columns if k != "y")
    query = f"SELECT count(DISTINCT dana_predict('by_sim', {features})) FROM rows"
    ((distinct,),) = db.session.execute(query.encode()).fetchall()
    assert distinct > 1


@pytest.mark.parametrize(
    ("name", "features"),
    [
        *((name, features) for name in ("fm", "autoint") for features in (["site", "n"], None)),
        *(("lrmf", ["site", "n"]), ("lrmf", ["n", "site"]), ("bpr", ["site", "n"]), ("dlrm", ["n", "site", "y"])),
    ],
)
def test_texts_are_no_numbers_of_rows(db: Connection, name: str, features: list[str] | None) -> None:
    """One-hot, each category would be two more columns; k-means, which chooses a row by distances, takes them so."""
    db.session.execute(
        "CREATE TABLE visits AS SELECT chr(97 + i % 3) AS site, i * 7 % 9 AS n, i % 2 AS y, i % 2 AS other "
        "FROM generate_series(1, 60) AS i"
    )
    refused = "column .site. of public.visits has type text, and the rule wants a number from 0 for each category"
    label = None if name == "bpr" else "y" if name != "dlrm" else "other"
    with pytest.raises(psycopg.Error, match=refused) as caught, db.session.transaction():
        db.train(name, "visits", label=label, features=features, epochs=1)
    assert "as docs/recipes.md shows" in (caught.value.diag.message_hint or "")
    assert db.train("kmeans", "visits", features=["site", "n"], epochs=1).tuples == 60
    db.session.execute("DROP TABLE visits")


@pytest.mark.parametrize("machine", ["sim", "interp"])
@pytest.mark.parametrize("name", ["fm", "dlrm", "autoint"])
def test_a_category_that_no_row_had_is_unknown(db: Connection, name: str, machine: str) -> None:
    """Items go to 19, users to 99: both columns have the factors of 100, which are random where nobody learnt them."""
    db.session.execute(
        "CREATE TABLE seen AS SELECT i % 100 AS u, CASE i % 20 WHEN 7 THEN 8 ELSE i % 20 END AS item, i % 3 AS x, "
        "(i % 20 > 9)::int AS y, (i % 20 <> 5)::int AS w FROM generate_series(0, 399) AS i"
    )
    db.session.execute("INSERT INTO seen VALUES (NULL, 30, 1, 1, 1)")
    numbers = ["x"] if name == "dlrm" else []
    db.train(name, "seen", features=["u", "item", *numbers], label="y", weight="w", epochs=2, machine=machine)

    def predicted(item: str) -> float:
        x = ", 1" if numbers else ""
        query = f"SELECT dana_predict('{name}', 1, {item}{x})"
        ((found,),) = db.session.execute(query.encode()).fetchall()
        return float(found)

    unknown = predicted("-1")
    # never there; with weight 0 only; in a row that was left out; beyond the column's, and beyond the largest of all
    assert [predicted(item) for item in ("7", "5", "30", "50", "100", "4000000")] == [unknown] * 6
    assert unknown not in {predicted(item) for item in ("0", "8", "19")}
    with (
        pytest.raises(psycopg.errors.DataException, match=r"cannot predict where item is 1\.5: it"),
        db.session.transaction(),
    ):
        predicted("1.5")
    db.session.execute("DROP TABLE seen")


@pytest.mark.parametrize("name", CASES)
def test_optimisers_train(db: Connection, name: str) -> None:
    create_table(db.session, "gradients", {f"x{k + 1}": x for k, x in enumerate(gradients().T)})
    db.create_rule("optimiser", RULE.format(value=CASES[name][0]))
    found = []
    for machine in ("sim", "interp"):
        db.train("optimiser", "gradients", machine=machine)
        found.append(db.parameters("optimiser"))
    assert found[0].keys() == found[1].keys() > set()
    for parameter, values in found[0].items():
        assert values.tobytes() == found[1][parameter].tobytes(), parameter
    assert (found[0]["w"] != 0.5).any()


def test_the_command_registers(pg_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert main(["rules", "install", "lasso", "huber", "--dsn", pg_uri]) == OK
        assert capsys.readouterr().out == "registered: lasso, huber\n"
        with psycopg.connect(pg_uri) as session:
            found = session.execute("SELECT text FROM dana.rule WHERE name = 'lasso'").fetchone()
        assert found == (rules.text("lasso"),)
    finally:
        with psycopg.connect(pg_uri, autocommit=True) as session:
            session.execute("SELECT dana_drop_rule('lasso'), dana_drop_rule('huber')")


def test_clusters_of_a_table_a_query_and_arrays_are_the_same(db: Connection) -> None:
    """More rows than the sample: it depends on their order, not on their pages."""
    random = np.random.default_rng(4)
    columns = {f"x{k}": random.standard_normal(9000).astype(np.float32) * (k + 1) for k in range(3)}
    create_table(db.session, "spread", columns | {"number": np.arange(9000)})
    asked: dict[str, Any] = {"features": list(columns), "hyper": {"k": 5}, "epochs": 3, "seed": 7}
    found = [train(rules.text("kmeans"), columns, **asked).models["C"]]
    for model, source in {"of_table": {"source": "spread"}, "of_query": {"query": "SELECT * FROM spread"}}.items():
        db.train("kmeans", model=model, **source, **asked)
        found.append(db.parameters(model)["C"])
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    db.session.execute("DROP TABLE spread")
