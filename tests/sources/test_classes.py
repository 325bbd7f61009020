"""Labels that are none of a rule's classes are refused; a rule that numbers no classes takes any label."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from dana.runtime.arrays import train
from dana.runtime.classes import declared_classes
from dana.runtime.trainer import TrainingError
from dana.server.embedded import EmbeddedServer
from dsl import compile_rule
from tests.sources.conftest import Session

errors = psycopg.errors

HEAD = """
import dana
from dana.functions import one_hot
n = dana.dim()
k = dana.dim(3)
W = dana.model([k, n])
x = dana.input([n])
y = dana.output()
fit = dana.algo(W, x, y)
"""

SOFT = (
    HEAD
    + """
error = dana.sigmoid(dana.sigma(W * x, 2)) - one_hot(y, k)
fit.setModel(W, W - fit.merge(dana.expand(error, 2) * x, 8, "+") / 8)
fit.setPrediction(dana.sigma(dana.sigma(W * x, 2), 1))
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


@pytest.mark.parametrize("label", ["3", "-0.5", "NaN"])
@pytest.mark.parametrize("source", ["'t'", ROWS])
def test_labels_that_are_no_class(table: Session, source: str, label: str) -> None:
    """Whether pages are streamed or rows; wherever the row is, and whoever trains."""
    assert trained(table, source) == 1000
    table.execute("UPDATE t SET y = %s::real WHERE b = 700", (label,))
    for backend in ("sim", "interp"):
        with pytest.raises(
            errors.DataException, match='in column "y", which is none of the rule\'s classes 0 to 2'
        ) as raised:
            trained(table, f"{source}, backend => '{backend}'")
        place = table.execute("SELECT ctid FROM t WHERE b = 700").fetchone()
        assert place is not None
        message = str(raised.value.diag.message_primary)
        assert message.startswith(f"row {place[0]} of test.t has" if source == "'t'" else "row 1000 of the query has")
    left_out = "filter => 'y BETWEEN 0 AND 2 AND y = floor(y)'" if source == "'t'" else None
    if left_out is not None:
        assert trained(table, f"{source}, {left_out}") == 999
    table.execute("UPDATE t SET y = NULL WHERE b = 700")
    assert trained(table, source) == 999, "the row is skipped"
    table.execute("DELETE FROM t WHERE b = 700")
    table.execute("INSERT INTO t VALUES (1, 1, 9); DELETE FROM t WHERE y = 9")
    assert trained(table, source) == 999, "rows that the statement does not see are no matter"


def test_more_classes(table: Session) -> None:
    table.execute("UPDATE t SET y = 4 WHERE b = 5")
    with pytest.raises(errors.DataException, match="label 4 in column"):
        trained(table, "'t', hyper => '{\"k\": 4}'")
    assert trained(table, "'t', hyper => '{\"k\": 5}'") == 1000
    assert table.execute("SELECT design -> 'classes' FROM dana.run ORDER BY id DESC").fetchone() == (
        {"label": "y", "count": 5},
    )


def test_every_type_of_label(table: Session) -> None:
    for kind in ("bigint", "numeric"):
        table.execute(f"CREATE TABLE u AS SELECT a, b, y::{kind} AS y FROM t")
        assert trained(table, "'u'") == 1000
        table.execute("UPDATE u SET y = 3 WHERE b = 999")
        with pytest.raises(errors.DataException, match="has the label 3 in"):
            trained(table, "'u'")
        table.execute("DROP TABLE u")
    table.execute(
        "CREATE TABLE u AS SELECT a, b, (ARRAY['red', 'green', 'blue', 'grey'])[i % 4 + 1] AS y"
        " FROM t, LATERAL (SELECT b::int AS i) s"
    )
    with pytest.raises(errors.DataException, match="has the label 3 in"):
        trained(table, "'u', classes => '{red,green,blue,grey}'")
    assert trained(table, "'u', classes => '{red,green,blue,grey}', hyper => '{\"k\": 4}'") == 1000


@pytest.mark.parametrize("source", ["'t'", ROWS])
def test_rows_that_are_skipped_for_a_null(table: Session, source: str) -> None:
    """Nothing is trained to their labels, so these may be any."""
    table.execute("INSERT INTO t VALUES (NULL, 1, 9)")
    assert trained(table, source) == 1000
    table.execute("ALTER TABLE t ADD COLUMN unused real")
    named = f"{source}, features => '{{a,b}}', label => 'y'"
    assert trained(table, named) == 1000
    table.execute("INSERT INTO t VALUES (1, 1, 9)")
    with pytest.raises(errors.DataException, match="has the label 9 in"):
        trained(table, named)


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
        table.execute("UPDATE u SET y = 3 + b WHERE b = %s", (row,))
        with pytest.raises(errors.DataException, match=rf"has the label {3 + row} in column \"y\""):
            trained(table, call)
        table.execute("UPDATE u SET y = 0 WHERE b = %s", (row,))
    assert trained(table, call) == 1000


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
    table.execute("UPDATE t SET y = 'NaN' WHERE b = 5")
    assert trained(table, "'t', nonfinite => 'skip'") == 999


@pytest.mark.parametrize(
    ("body", "classes"),
    [
        ("one_hot(y, k)", 3),
        ("dana.arange(7) == y", 7),
        ("dana.sigma(dana.arange(2) == y, 1) + one_hot(y, k)", 3),
        ("dana.where(y == 1, W, 2 * W)", None),
        ("dana.arange(k) * y", None),
        ("dana.arange(k) == 2 * y", None),
        ("dana.arange(k) > y", None),
    ],
)
def test_what_a_rule_declares(body: str, classes: int | None) -> None:
    """It compares its label with 0, 1 … itself: any other use of a label may be one of numbers."""
    text = HEAD + f"fit.setModel(W, W - fit.merge(dana.sigma({body}, 1) * x, 8, '+'))\nfit.setEpochs(1)\n"
    graph = compile_rule(text, filename="r").hdfg
    assert declared_classes(graph.bind({"n": 2, "k": 3})) == classes


@pytest.mark.parametrize("label", [3, -1, 0.5, np.nan])
def test_arrays(label: float) -> None:
    columns = {"a": np.arange(9), "b": np.arange(9), "y": np.arange(9) % 3.0}
    assert train(SOFT, columns, label="y").models["W"].shape == (3, 2)
    columns["y"][7] = label
    with pytest.raises(TrainingError, match=f"row 8 has the label {label:g} in column 'y', which is none"):
        train(SOFT, columns, label="y")
