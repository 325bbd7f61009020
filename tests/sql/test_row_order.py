"""The order in which rows are trained: a permutation that the seed chooses, the same for every stream of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dana.trainer.arrays import train
from tests.sql.conftest import SUMS, Session
from tests.storage.test_permuted import order_of

ROWS = 700
Floats = NDArray[np.float32]


@pytest.fixture
def rows(session: Session) -> Session:
    """The same rows as a table, a view, partitions, numerics, and with rows in between that no training reads."""
    for statement in (
        f"CREATE TABLE t AS SELECT i AS id, (i % 97)::real AS a, (i % 89)::real AS b, (i % 7)::real AS y "
        f"FROM generate_series(1, {ROWS}) AS i",
        "CREATE VIEW v AS TABLE t",
        "CREATE TABLE p (LIKE t) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (200)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (200) TO (1000)",
        "INSERT INTO p TABLE t",
        "CREATE TABLE n AS SELECT id, a::numeric, b, y FROM t",
        "CREATE TABLE w AS SELECT id, ARRAY[a, b] || array_fill(0::real, ARRAY[9000]) AS x, y FROM t WHERE id <= 50",
        "CREATE TABLE g AS SELECT id, CASE WHEN k = 1 THEN a END AS a, b, CASE WHEN k = 2 THEN 'NaN' ELSE y END AS y "
        "FROM t, generate_series(1, 3) AS k ORDER BY id, k",
        "DELETE FROM g WHERE y = 'NaN'",
        "CREATE TABLE e AS TABLE g",
        "INSERT INTO e SELECT 0, 1, 1, 'NaN'",
    ):
        session.execute(statement.encode())
    return session


def columns(where: str = "true") -> dict[str, Floats]:
    places = np.arange(1, ROWS + 1)
    found = {"a": places % 97, "b": places % 89, "y": places % 7}
    kept = np.array([eval(where, {"id": place}) for place in places]) if where != "true" else slice(None)
    return {name: values[kept].astype(np.float32) for name, values in found.items()}


def expected(arrays: dict[str, Floats], seed: int = 1, **options: Any) -> list[float]:
    """The model of arrays that were permuted before, as the contract says."""
    order = order_of(seed, len(arrays["y"]))
    done = train(SUMS, {name: values[order] for name, values in arrays.items()}, label="y", shuffle=False, **options)
    return done.models["w"].tolist()


def trained(session: Session, arguments: str) -> tuple[list[float], dict[str, Any]]:
    """The model's weights, and its metadata."""
    done = session.execute(
        f"SELECT model, version FROM dana_train('sums', {arguments}, label => 'y')".encode()
    ).fetchone()
    found = session.execute(
        "SELECT weights, metadata FROM dana.model WHERE name = %s AND version = %s", done
    ).fetchone()
    assert found is not None
    return np.float32(found[0]).tolist(), found[1]


@pytest.mark.parametrize(
    "source",
    ["'t'", "'v'", "'p'", "'n'", "query => 'TABLE t'", "'g'", "'e'", "'t', machine => 'interp'", "'t', nulls => '0'"],
)
def test_every_stream_has_the_same_order(rows: Session, source: str) -> None:
    found, metadata = trained(rows, f"{source}, features => '{{a,b}}', shuffle => true, seed => 5")
    assert found == expected(columns(), 5)
    assert (metadata["shuffle"], metadata["seed"]) == (True, 5)


def test_arrays_and_what_the_seed_changes(rows: Session) -> None:
    one, _ = trained(rows, "'t', features => '{a,b}', shuffle => true")
    other, _ = trained(rows, "'t', features => '{a,b}', shuffle => true, seed => -3")
    straight, metadata = trained(rows, "'t', features => '{a,b}', shuffle => false")
    assert one != other != straight != one
    assert "shuffle" not in metadata
    assert straight == train(SUMS, columns(), label="y", shuffle=False).models["w"].tolist()
    for seed, model in ((None, one), (-3, other)):
        assert model == train(SUMS, columns(), label="y", shuffle=True, seed=seed).models["w"].tolist()


def test_rows_in_parts(rows: Session) -> None:
    found, _ = trained(rows, "'w', features => '{x}', shuffle => true")
    assert found[:2] == expected({name: values[:50] for name, values in columns().items()})
    again, _ = trained(rows, "'w', features => '{x}', shuffle => true, machine => 'interp'")
    assert again == found


def test_the_rows_that_train_are_counted(rows: Session) -> None:
    filtered, _ = trained(rows, "'t', features => '{a,b}', shuffle => true, filter => 'id > 50 -- all'")
    assert filtered == expected(columns("id > 50"))
    tested, _ = trained(rows, "'t', features => '{a,b}', shuffle => true, seed => 4, test_size => 0.25")
    kept = {id for (id,) in rows.execute("SELECT id FROM t WHERE NOT dana_holdout(ctid, 0.25, 4)")}
    chosen = np.isin(np.arange(1, ROWS + 1), list(kept))
    assert tested == expected({name: values[chosen] for name, values in columns().items()}, 4)


def test_groups_have_orders_of_their_own(rows: Session) -> None:
    rows.execute("CREATE TABLE h AS SELECT *, id % 2 AS half FROM t")
    options = '{"features": ["a", "b"], "label": "y", "shuffle": true}'
    rows.execute("SELECT dana_train_groups('sums', 'h', '{half}', %s)", (options,))
    found = rows.execute(
        "SELECT weights FROM dana.model WHERE metadata ? 'group' ORDER BY metadata #>> '{group,key}'"
    ).fetchall()
    assert [np.float32(weights).tolist() for (weights,) in found] == [
        expected(columns(f"id % 2 == {half}")) for half in (0, 1)
    ]


def test_a_warm_start_begins_the_order_again(rows: Session) -> None:
    both, _ = trained(rows, "'t', features => '{a,b}', shuffle => true, epochs => 2, model => 'whole'")
    trained(rows, "'t', features => '{a,b}', shuffle => true, epochs => 1, model => 'first'")
    more = "shuffle => true, epochs => 1, warm_start_from => 'first', model => 'second'"
    assert trained(rows, f"'t', features => '{{a,b}}', {more}")[0] == both
