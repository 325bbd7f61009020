"""Labels that are none of a rule's classes are refused; a rule that numbers no classes takes any label."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from dana.server.embedded import EmbeddedServer
from dana.trainer.arrays import train
from dana.trainer.contract import TrainingError
from dana.trainer.data.survey_checks import NotFinite
from tests.sql.conftest import Session

errors = psycopg.errors

HEAD = """
import dana
from dana.functions import one_hot
n = dana.dim()
k = dana.dim(3)
W = dana.model([k, n])
x = dana.input([n])
y = dana.output(classes=k)
fit = dana.algo(W, x, y)
"""

SOFT = (
    HEAD
    + """
error = dana.sigmoid(dana.sigma(W * x, 2)) - one_hot(y, k)
fit.setModel(W, W - fit.merge(dana.expand(error, 2) * x, 8, "+") / 8)
fit.setPrediction(dana.sigma(W * x, 2))
fit.setEpochs(2)
"""
)


@pytest.fixture
def table(session: Session) -> Iterator[Session]:
    session.execute("SELECT dana_create_udf('soft', %s)", (SOFT,))
    session.execute(
        "CREATE TABLE t AS SELECT (i % 7)::real AS a, i::real AS b, (i % 3)::real AS y FROM generate_series(0, 999) i"
    )
    yield session
    session.execute("SELECT dana_drop_rule('soft')")


def trained(session: Session, arguments: str) -> int:
    row = session.execute(f"SELECT tuples FROM dana_train('soft', {arguments})").fetchone()
    assert row is not None
    return int(row[0])


ROWS = "query => 'SELECT a, b, y FROM t'"


@pytest.mark.parametrize("label", ["NaN", "Infinity"])
@pytest.mark.parametrize("source", ["'t'", ROWS])
def test_labels_that_are_no_class(table: Session, source: str, label: str) -> None:
    """Whether pages are streamed or rows; wherever the row is, and whoever trains."""
    assert trained(table, source) == 1000
    table.execute("UPDATE t SET y = %s::real WHERE b = 700", (label,))
    for machine in ("sim", "interp"):
        assert trained(table, f"{source}, machine => '{machine}'") == 999, "the row is skipped"
    table.execute("UPDATE t SET y = NULL WHERE b = 700")
    assert trained(table, source) == 999, "the row is skipped"
    table.execute("DELETE FROM t WHERE b = 700")
    table.execute("INSERT INTO t VALUES (1, 1, 9); DELETE FROM t WHERE y = 9")
    assert trained(table, source) == 999, "rows that the statement does not see are no matter"
    assert classes(table) == 3


def test_rows_that_change(table: Session) -> None:
    """A label that was another one when the classes were found; the rule would train on it without a word."""
    table.execute("CREATE SEQUENCE numbers")
    query = "SELECT a, b, CASE WHEN nextval(''numbers'') > 1500 THEN 9 ELSE y END AS y FROM t"
    for machine in ("sim", "interp"):
        table.execute("ALTER SEQUENCE numbers RESTART")
        with pytest.raises(errors.DataException, match='row 501 of the query has the label 9 in column "y"'):
            trained(table, f"query => '{query}', machine => '{machine}'")


def classes(session: Session) -> int:
    """Those of the last training's machine."""
    row = session.execute("SELECT design -> 'classes' ->> 'count' FROM dana.run ORDER BY id DESC").fetchone()
    assert row is not None
    return int(row[0])


def test_more_classes(table: Session) -> None:
    table.execute("UPDATE t SET y = 3 WHERE b = 5")
    assert trained(table, "'t'") == 1000
    assert classes(table) == 4
    assert trained(table, "'t', hyper => '{\"k\": 5}'") == 1000
    assert classes(table) == 5
    with pytest.raises(errors.InvalidParameterValue, match="labels have 4 classes, more than hyper gives"):
        trained(table, "'t', hyper => '{\"k\": 3}'")


def test_every_type_of_label(table: Session) -> None:
    for kind in ("bigint", "numeric"):
        table.execute(f"CREATE TABLE u AS SELECT a, b, y::{kind} AS y FROM t")
        assert trained(table, "'u'") == 1000
        assert classes(table) == 3
        table.execute("UPDATE u SET y = 3 WHERE b = 999")
        assert trained(table, "'u'") == 1000
        assert classes(table) == 4
        table.execute("DROP TABLE u")
    table.execute(
        "CREATE TABLE u AS SELECT a, b, (ARRAY['red', 'green', 'blue', 'grey'])[i % 4 + 1] AS y"
        " FROM t, LATERAL (SELECT b::int AS i) s"
    )
    with pytest.raises(errors.InvalidParameterValue, match="the labels have 4 classes, more than hyper gives"):
        trained(table, "'u', classes => '{red,green,blue,grey}', hyper => '{\"k\": 3}'")
    assert trained(table, "'u', classes => '{red,green,blue,grey}'") == 1000


EXACT = {
    "bigint": ["9007199254740992", "9007199254740993", "9007199254740996"],
    "numeric": ["0.1", "0.10000000000000000001", "0.2"],
    "numeric(30, 20)": ["0.00000000000000000000", "1.00000000000000000000", "1.00000000000000000001"],
}


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("source", ["'u'", "query => 'SELECT * FROM u'", "'parts'", "'u', filter => 'b >= 0'"])
def test_labels_that_double_precision_does_not_tell_apart(table: Session, kind: str, source: str) -> None:
    table.execute(f"CREATE TABLE u (a real, b real, y {kind}); CREATE TABLE parts (LIKE u) PARTITION BY RANGE (b)")
    table.execute("CREATE TABLE part PARTITION OF parts DEFAULT")
    table.execute(f"INSERT INTO u SELECT a, b, (%s::{kind}[])[1 + b::int %% 3] FROM t", (EXACT[kind],))
    table.execute("INSERT INTO parts SELECT * FROM u")
    for more in ("", ", hyper => '{\"k\": 3}'"):
        assert trained(table, source + more) == 1000
        assert table.execute(
            "SELECT metadata -> 'classes' FROM dana.model ORDER BY version DESC LIMIT 1"
        ).fetchone() == (EXACT[kind],)
    found = table.execute("SELECT dana_evaluate('soft') -> 'classes'").fetchall()[0][0]
    assert [(one["class"], one["rows"]) for one in found] == list(zip(EXACT[kind], (334, 333, 333), strict=True))
    with pytest.raises(errors.DataException, match=f'holds "{EXACT[kind][1]}", which is none of the classes'):
        trained(table, f"{source}, classes => '{{{EXACT[kind][0]},{EXACT[kind][2]},7}}'")
    table.execute("SELECT dana_create_udf('pair', %s)", (SOFT.replace("k = dana.dim(3)", "k = 2"),))
    with pytest.raises(errors.DataException, match="has 3 different labels"):
        table.execute(f"SELECT dana_train('pair', {source})")


def test_numbers_that_are_written_in_several_ways(table: Session) -> None:
    table.execute(
        "CREATE TABLE u AS SELECT a, b, CASE WHEN b < 500 THEN 2.50 + y::int ELSE 2.5 + y::int END AS y FROM t"
    )
    assert trained(table, "'u'") == 1000
    assert classes(table) == 3


def test_labels_behind_what_is_not_used(table: Session) -> None:
    """The label's place in a tuple depends on what stands before it: lengths, alignment, NULLs, dropped columns."""
    table.execute(
        "CREATE TABLE u AS SELECT a, b, repeat('x', (b::int * 37) % 300) AS text, b::numeric AS number,"
        " 'c'::\"char\" AS c, y::double precision AS y FROM t"
    )
    table.execute("ALTER TABLE u DROP COLUMN number; ALTER TABLE u ALTER text SET STORAGE EXTERNAL")
    table.execute(
        "UPDATE u SET text = NULL WHERE b::int % 5 = 0; UPDATE u SET text = repeat('y', 9000) WHERE b::int % 50 = 1"
    )
    call = "'u', features => '{a,b}', label => 'y'"
    assert trained(table, call) == 1000
    for row in (0, 1, 2, 3, 51, 999):
        table.execute("UPDATE u SET y = 3 WHERE b = %s", (row,))
        assert trained(table, call) == 1000
        assert classes(table) == 4, "it was seen"
        table.execute("UPDATE u SET y = 0 WHERE b = %s", (row,))
    assert trained(table, call) == 1000
    assert classes(table) == 3


def test_a_damaged_length_before_the_label(server: EmbeddedServer) -> None:
    """Read as PostgreSQL reads tuples, the label would be a gigabyte behind the page."""
    damaged = b"\xfc\xff\xff\xff"
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        for name in ("damaged", "whole"):
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        admin.execute("CREATE DATABASE whole TEMPLATE template0")
        with psycopg.connect(server.dsn, dbname="whole", autocommit=True) as session:
            session.execute("CREATE EXTENSION dana")
            session.execute("SELECT dana_create_udf('soft', %s)", (SOFT,))
            session.execute(
                "CREATE TABLE t AS SELECT 1::real AS a, 2::real AS b, repeat('needle', 40) AS text, i % 3 AS y"
                " FROM generate_series(1, 30) i"
            )
            row = session.execute("SELECT pg_relation_filepath('t')").fetchone()
            assert row is not None
        admin.execute("CHECKPOINT")
        data = Path(admin.execute("SHOW data_directory").fetchall()[0][0], row[0])
        page = data.read_bytes()
        at = page.index(b"needle", page.index(b"needle" * 40) + 240) - 4
        data.write_bytes(page[:at] + damaged + page[at + 4 :])
        # a copy, of which no page is in the buffer pool
        admin.execute("CREATE DATABASE damaged TEMPLATE whole STRATEGY file_copy")
        with psycopg.connect(server.dsn, dbname="damaged", autocommit=True) as session:
            session.execute("SET client_min_messages = error; SET ignore_checksum_failure = on")
            with pytest.raises(errors.DataCorrupted):
                session.execute("SELECT dana_train('soft', 't', features => '{a,b}', label => 'y')")
            assert session.execute("SELECT 1").fetchone() == (1,)
        admin.execute("DROP DATABASE damaged")
        admin.execute("DROP DATABASE whole")


def test_rows_that_are_skipped_for_what_is_not_finite(table: Session) -> None:
    table.execute("UPDATE t SET y = 'NaN' WHERE b = 5; UPDATE t SET y = '-Infinity' WHERE b = 6")
    for machine in ("sim", "interp"):
        assert trained(table, f"'t', machine => '{machine}'") == 998


def test_arrays() -> None:
    columns = {"a": np.arange(9), "b": np.arange(9), "y": np.arange(9) % 3.0}
    assert train(SOFT, columns, label="y").models["W"].shape == (3, 2)
    plain = train(SOFT, columns | {"y": np.arange(9) % 4.0}, label="y")
    assert plain.classes == ("0", "1", "2", "3")
    for names in ((-1, 0.5, 3, 7), (1, 2, 3, 4)):
        found = train(SOFT, columns | {"y": np.array(names)[np.arange(9) % 4]}, label="y")
        assert found.classes == tuple(f"{name:g}" for name in names)
        assert found.models["W"].tobytes() == plain.models["W"].tobytes()
    exact = 2**53 + np.array((0, 1, 4, 5))
    assert train(SOFT, columns | {"y": exact[np.arange(9) % 4]}, label="y").classes == tuple(map(str, exact))
    wide = train(SOFT, columns | {"y": 2.0 * (np.arange(9) % 3)}, label="y", hyper={"k": 5})
    assert wide.models["W"].shape == (5, 2), "they are numbers of classes, of which there are five"
    with pytest.raises(TrainingError, match="the labels have 3 classes, more than hyper gives to 'k': 2"):
        train(SOFT, columns, label="y", hyper={"k": 2})
    columns["y"][7] = np.nan
    with pytest.raises(NotFinite):
        train(SOFT, columns, label="y")
