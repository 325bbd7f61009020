"""The order in which a table's rows are trained: as they lie, or shuffled."""

from __future__ import annotations

import psycopg
import pytest

from dana import rules
from tests.sources.conftest import Session

LINEAR = "features => '{a,b}', label => 'z', epochs => 2, patience => 0, backend => 'interp'"


@pytest.fixture
def rows(session: Session) -> Session:
    """A table that lies in the order of its label, and one of partitions with the same rows."""
    for rule in ("linear", "lrmf"):
        session.execute("SELECT dana_create_udf(%s, %s)", (rule, rules.text(rule)))
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
    assert told.message_primary == f'argument "shuffle" needs a table, whose rows have a place{said}'
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
