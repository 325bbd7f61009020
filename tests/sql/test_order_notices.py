"""The order in which a table's rows are trained: as they lie, or shuffled."""

from __future__ import annotations

import psycopg
import pytest

from benchmarks import stochastic
from tests.sql.conftest import Session

LINEAR = "features => '{a,b}', label => 'z', epochs => 2, patience => 0, machine => 'interp'"


@pytest.fixture
def rows(session: Session) -> Session:
    """A table that lies in the order of its label, and one of partitions with the same rows."""
    for rule in ("linear", "lrmf", "logistic"):
        session.execute("SELECT dana_create_udf(%s, %s)", (rule, stochastic.text(rule)))
    session.execute(
        "CREATE TABLE t AS SELECT sin(i)::real AS a, cos(i)::real AS b, i::real AS z FROM generate_series(1, 400) i"
    )
    session.execute("CREATE TABLE p (LIKE t) PARTITION BY RANGE (z)")
    session.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (200)")
    session.execute("CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (200) TO (500)")
    session.execute("INSERT INTO p TABLE t")
    session.execute("CREATE VIEW v AS TABLE t")
    return session


def trained(session: Session, arguments: str) -> tuple[list[float], dict[str, object]]:
    """The model's weights, and what its metadata say."""
    done = session.execute(
        f"SELECT model, version FROM dana_train('linear', {arguments}, {LINEAR})".encode()
    ).fetchone()
    found = session.execute(
        "SELECT weights, metadata FROM dana.model WHERE name = %s AND version = %s", done
    ).fetchone()
    assert found is not None
    return found[0], found[1]


def of_query(condition: str, seed: int, table: str = "t") -> str:
    order = f"hashtidextended(ctid, {seed}), tableoid, ctid"
    return f"query => 'SELECT a, b, z FROM {table} WHERE {condition} ORDER BY {order}'"


def test_a_shuffled_table_is_one_in_another_order(rows: Session) -> None:
    shuffled, metadata = trained(rows, "'t', shuffle => true")
    assert (metadata["shuffle"], metadata["seed"]) == (True, 1)
    assert shuffled == trained(rows, of_query("true", 1))[0]
    straight, metadata = trained(rows, "'t'")
    assert "shuffle" not in metadata
    other, _ = trained(rows, "'t', shuffle => true, seed => 2")
    assert shuffled != straight != other != shuffled
    assert straight == trained(rows, "'t', shuffle => false")[0]


def test_with_other_options(rows: Session) -> None:
    filtered, _ = trained(rows, "'t', shuffle => true, seed => 3, filter => 'z > 50 -- all'")
    assert filtered == trained(rows, of_query("z > 50", 3))[0]
    tested, _ = trained(rows, "'t', shuffle => true, seed => 4, test_size => 0.25")
    assert tested == trained(rows, of_query("NOT dana_holdout(ctid, 0.25, 4)", 4))[0]
    parts, _ = trained(rows, "'p', shuffle => true")
    assert parts == trained(rows, of_query("true", 1, "p"))[0]


@pytest.mark.parametrize(
    ("source", "said", "hint"),
    [
        ("'v'", ", and test.v is a view", "Give query => 'SELECT ... ORDER BY hashint8(key)' with a column"),
        ("query => 'TABLE t'", "", "Put ORDER BY hashint8(key) behind the query."),
    ],
)
def test_rows_that_have_no_place(rows: Session, source: str, said: str, hint: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as raised:
        rows.execute(f"SELECT dana_train('linear', {source}, shuffle => true)".encode())
    told = raised.value.diag
    assert told.message_primary == f'argument "shuffle" needs a table with row addresses{said}'
    assert told.message_hint is not None
    assert told.message_hint.startswith(hint)


def test_ratings_in_the_order_of_their_users(rows: Session) -> None:
    rows.execute(
        "CREATE TABLE ratings AS SELECT k / 20 AS i, k * 7 % 90 AS j, (k % 5)::real AS y "
        "FROM generate_series(0, 1999) AS k"
    )
    told: list[str] = []
    rows.execute("SET client_min_messages = notice")
    rows.add_notice_handler(lambda said: told.append(f"{said.message_primary} {said.message_hint}"))
    rows.execute("SELECT dana_train('lrmf', 'ratings', epochs => 2)")
    assert [one for one in told if "the row before them" in one and one.endswith("shuffle => true.")] == told
    assert len(told) == 1
    rows.execute("SELECT dana_train('lrmf', 'ratings', epochs => 2, shuffle => true)")
    assert len(told) == 1


@pytest.fixture
def told(rows: Session) -> list[str]:
    """What is told of a table that lies by region, and of one whose rare class was written last."""
    rows.execute(
        "CREATE TABLE regions AS SELECT g AS id, 'r' || (g - 1) / 334 AS region, sin(g * 12.9898) * 1.4 AS a, "
        "sin(g * 12.9898) + (ARRAY[0.3, -0.2, 0.25])[1 + (g - 1) / 334] AS y FROM generate_series(1, 1000) g"
    )
    rows.execute("ALTER TABLE regions ADD PRIMARY KEY (id)")
    rows.execute(
        "CREATE TABLE fraud AS SELECT g AS id, sin(g * 12.9898) AS a, 'no' AS y FROM generate_series(1, 9000) g"
    )
    rows.execute("UPDATE fraud SET y = 'yes' WHERE id % 80 = 7")
    rows.execute("ALTER TABLE fraud ADD PRIMARY KEY (id)")
    heard: list[str] = []
    rows.execute("SET client_min_messages = notice")
    rows.add_notice_handler(lambda said: heard.append(f"{said.message_primary} {said.message_hint}"))
    return heard


REGIONS = "rows of test.regions that are alike in column region lie together, as in a sorted table"


@pytest.mark.parametrize(
    "call",
    [
        "dana_train('linear', 'regions', label => 'y', epochs => 2)",
        "dana_train('linear', 'regions', label => 'y', epochs => 2, test_size => 0.2)",
        "dana_train('linear', 'regions', label => 'y', epochs => 2, machine => 'interp')",
        "dana_cross_validate('linear', 'regions', training => '{\"label\": \"y\", \"epochs\": 2}')",
        "dana_search('linear', 'regions', '{\"lr\": [0.1, 0.5]}', training => '{\"label\": \"y\", \"epochs\": 2}')",
    ],
)
def test_categories_that_lie_together_are_told_once(rows: Session, told: list[str], call: str) -> None:
    rows.execute(f"SELECT * FROM {call}".encode())
    assert [one for one in told if "lie together" in one] == [
        f"{REGIONS} Rows are trained in order and the last ones have the greatest effect, so the model may be bad. "
        "Change the order: shuffle => true."
    ]


def test_categories_in_another_order_are_not_told(rows: Session, told: list[str]) -> None:
    rows.execute("SELECT dana_train('linear', 'regions', label => 'y', epochs => 2, shuffle => true)")
    rows.execute(
        "SELECT dana_train('linear', query => 'TABLE regions ORDER BY hashint4(id)', label => 'y', epochs => 2)"
    )
    assert not [one for one in told if "lie together" in one]
    rows.execute("SELECT dana_train('linear', query => 'TABLE regions', label => 'y', epochs => 2)")
    (one,) = (one for one in told if "lie together" in one)
    assert one.startswith("rows of the query that are alike in column region lie together")
    assert one.endswith("Change the order: ORDER BY hashint8(id) in the query.")


@pytest.mark.parametrize("more", ["", ", test_size => 0.2", """, class_weight => '"balanced"'"""])
def test_a_rare_class_that_was_written_last(rows: Session, told: list[str], more: str) -> None:
    rows.execute(f"SELECT dana_train('logistic', 'fraud', label => 'y', epochs => 3{more})".encode())
    assert len([one for one in told if "alike in column y lie together" in one]) == 1
    assert not [one for one in told if "no better than a constant" in one]
