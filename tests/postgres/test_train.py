"""`dana_train` and the tables it writes: what a caller sees of a training that goes well."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session

RingCount = 64
"""dana.ring_pages of the tests' servers: fewer than by default, so that streams of few pages wait for room."""


def one(session: Session, query: str, arguments: Any = None) -> dict[str, Any]:
    cursor = session.execute(query, arguments)
    row = cursor.fetchone()
    assert row is not None
    assert cursor.description is not None
    return dict(zip([column.name for column in cursor.description], row, strict=True))


def pages_of(session: Session, table: str) -> int:
    return int(one(session, "SELECT pg_relation_size(%s::regclass) / 8192 AS n", (table,))["n"])


def test_result_and_history(session: Session, rule: Callable[..., str]) -> None:
    session.execute("CREATE TABLE t AS SELECT g AS id, g::real AS x FROM generate_series(1, 1000) g")
    name = rule(column="id", epochs=3)
    result = one(session, "SELECT * FROM dana_train(%s, 't')", (name,))
    pages = pages_of(session, "t")
    assert (result["model"], result["version"], result["epochs"], result["converged"]) == (name, 1, 3, False)
    assert (result["tuples"], result["skipped"], result["pages"]) == (1000, 0, 3 * pages)
    assert (result["cycles"], result["modelled_seconds"], result["loss"]) == (300 * pages, None, 1 / 3)
    assert result["wall_seconds"] > 0
    model = one(session, "SELECT * FROM dana.model")
    assert model["metadata"]["sum"] == sum(range(1001))
    assert model["weights"][:2] == [1.5, -2.25]
    assert model["owner"] == "postgres"
    run = one(session, "SELECT * FROM dana.run")
    shared = ("model", "epochs", "converged", "loss", "tuples", "skipped", "pages", "cycles", "wall_seconds")
    assert {key: run[key] for key in shared} == {key: result[key] for key in shared}
    assert (run["id"], run["source"], run["machine"], run["design"]) == (
        result["run"],
        "test.t",
        "sim",
        {"reader": "python"},
    )
    curve = session.execute("SELECT epoch, loss, tuples, cycles FROM dana.epoch ORDER BY epoch").fetchall()
    (total,) = one(session, "SELECT sum((counters ->> 'checksum')::int) FROM dana.epoch").values()
    assert run["counters"] == {"checksum": total}
    assert curve == [(e, 1 / e, 1000, 100 * pages) for e in (1, 2, 3)]


def test_papers_form_and_versions(session: Session, rule: Callable[..., str]) -> None:
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 10) g")
    name = rule(column="id")
    assert one(session, f"SELECT version FROM dana.{name}('t')")["version"] == 1
    again = f"SELECT version FROM dana.{name}('test.t', %s)"
    assert one(session, again, (json.dumps({"epochs": 2, "model": None}),))["version"] == 2
    assert one(session, "SELECT (dana_train(%s, 't')).version", (name,))["version"] == 3
    assert one(session, "SELECT version FROM dana_train(%s, 't', 'other')", (name,))["version"] == 1
    assert one(session, "SELECT dana_drop_model(%s, 2) AS n", (name,))["n"] == 1
    assert one(session, "SELECT version FROM dana_train(%s, 't')", (name,))["version"] == 4
    assert one(session, "SELECT dana_drop_model(%s) AS n", (name,))["n"] == 3


def test_a_version_is_found_without_looking_at_the_others(session: Session, rule: Callable[..., str]) -> None:
    """Where a table is trained on each night there are some hundred."""
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    session.execute("SELECT dana_train(%s, 't')", (name,))
    session.execute(
        "INSERT INTO dana.model (owner, name, version, rule, parameters, weights, predictor, metadata) "
        "SELECT owner, name, g, rule, parameters, weights, predictor, metadata "
        "FROM dana.model, generate_series(2, 300) AS g"
    )
    session.execute("ANALYZE dana.model")
    for call in ("dana_train(%s, 't')", "dana_parameters(%s)"):
        with session.transaction():
            session.execute(f"SELECT {call}", (name,))
            looked_at = one(
                session,
                "SELECT pg_stat_get_xact_tuples_returned(c) + pg_stat_get_xact_tuples_returned(i) AS n "
                "FROM (VALUES ('dana.model'::regclass, 'dana.model_pkey'::regclass)) AS v (c, i)",
            )
        assert looked_at["n"] < 30


def test_arguments_reach_the_trainer(session: Session, rule: Callable[..., str]) -> None:
    session.execute('CREATE TABLE "T ""1""" ("a b" real, "q\'" real[] NOT NULL, "ü☃" boolean, d date)')
    session.execute('ALTER TABLE "T ""1""" DROP COLUMN d, ADD COLUMN e int8 DEFAULT 5')
    session.execute('INSERT INTO "T ""1""" VALUES (1, ARRAY[1,2,3], true)')
    session.execute('ALTER TABLE "T ""1""" ADD COLUMN f int2 DEFAULT 7')
    result = session.execute(
        'SELECT * FROM dana_train(%s, \'"T ""1"""\', model => %s, features => %s, label => %s, hyper => %s,'
        " machine => %s, design => %s)",
        (
            rule(metas=["lr", "n"]),
            'm"\\🙂',
            ["a b", "q'", "ü☃"],
            "ü☃",
            '{"lr": 0.1, "n": [1, null]}',
            "rtl",
            '{"threads": 4}',
        ),
    ).fetchone()
    assert result is not None
    request = one(session, "SELECT metadata->'request' AS r FROM dana.model WHERE name = %s", ('m"\\🙂',))["r"]
    assert request["features"] == ["a b", "q'", "ü☃"]
    assert (request["label"], request["machine"], request["epochs"], request["nulls"]) == ("ü☃", "rtl", None, "skip")
    assert (request["hyper"], request["design"]) == ({"lr": 0.1, "n": [1, None]}, {"threads": 4})
    assert request["relation"]["name"] == 'test."T ""1"""'
    assert (request["relation"]["pages"], request["relation"]["page_size"]) == (1, 8192)
    keys = ("number", "name", "type_oid", "type_name", "length", "align", "by_value", "not_null", "dropped")
    assert [tuple(a[key] for key in keys) for a in request["relation"]["attributes"] if not a["dropped"]] == [
        (1, "a b", 700, "real", 4, "i", True, False, False),
        (2, "q'", 1021, "real[]", -1, "i", False, True, False),
        (3, "ü☃", 16, "boolean", 1, "c", True, False, False),
        (5, "e", 20, "bigint", 8, "d", True, False, False),
        (6, "f", 21, "smallint", 2, "s", True, False, False),
    ]
    dropped = request["relation"]["attributes"][3]
    assert (dropped["dropped"], dropped["length"], dropped["align"]) == (True, 4, "i")
    assert [a["has_missing"] for a in request["relation"]["attributes"]] == [False] * 4 + [True, True]
    assert [a["array_length"] for a in request["relation"]["attributes"]] == [None, 3, None, None, None, None]


def test_domains_and_generated_columns(cluster: Cluster, session: Session, rule: Callable[..., str]) -> None:
    session.execute("CREATE DOMAIN positive AS real CHECK (VALUE > 0)")
    virtual = ", c real GENERATED ALWAYS AS (1.5) VIRTUAL" if cluster.major >= 18 else ""
    session.execute(f"CREATE TABLE t (a positive, b real GENERATED ALWAYS AS (a * 2) STORED {virtual})")
    session.execute("SELECT * FROM dana_train(%s, 't')", (rule(),))
    attributes = one(session, "SELECT metadata->'request'->'relation'->'attributes' AS a FROM dana.model")["a"]
    assert (attributes[0]["type_oid"], attributes[0]["type_name"]) == (700, "real")
    assert [a["generated"] for a in attributes] == ["", "s", "v"][: len(attributes)]


@pytest.mark.parametrize(
    "rows", [300 * 226 - 1, 0, 1, 226, 227, 15 * 226, 16 * 226, RingCount * 226, RingCount * 226 + 1]
)
def test_every_page_once(session: Session, rule: Callable[..., str], rows: int) -> None:
    """Around the sizes at which the ring wakes, wraps and ends."""
    session.execute("CREATE TABLE t (id int)")
    session.execute("INSERT INTO t SELECT g FROM generate_series(1, %s) g", (rows,))
    name = rule(column="id")
    result = one(session, "SELECT * FROM dana_train(%s, 't')", (name,))
    found = one(session, "SELECT metadata FROM dana.model")["metadata"]
    assert result["tuples"] == found["count"] == rows
    assert found["sum"] == rows * (rows + 1) // 2
    assert found["pages"] == pages_of(session, "t")


@pytest.mark.parametrize("cache_limit", [0, 1 << 30], ids=["streamed", "kept"])
def test_every_epoch_has_the_same_pages(
    cluster: Cluster, session: Session, rule: Callable[..., str], cache_limit: int
) -> None:
    """Whether the worker keeps the pages or asks for them again, under one snapshot."""
    cluster.stop_worker()
    cluster.start_worker(cache_limit=cache_limit)
    session.execute("CREATE TABLE t AS SELECT g AS id, repeat('x', 200) AS filler FROM generate_series(1, 6000) g")
    session.execute("DELETE FROM t WHERE id % 3 = 0")
    assert pages_of(session, "t") > 2 * RingCount
    name = rule(column="id")
    for epochs in (1, 2, 3, 7):
        result = one(session, "SELECT * FROM dana_train(%s, 't', epochs => %s)", (name, epochs))
        assert result["pages"] == epochs * pages_of(session, "t")
        curve = session.execute("SELECT tuples FROM dana.epoch WHERE run = %s ORDER BY epoch", (result["run"],))
        assert curve.fetchall() == [(4000,)] * epochs
        model = "SELECT metadata->'sum' AS s FROM dana.model WHERE version = %s"
        assert one(session, model, (result["version"],))["s"] == sum(i for i in range(1, 6001) if i % 3 != 0)
    cluster.stop_worker()


def test_streaming_rows_again_takes_no_more_memory(
    cluster: Cluster, session: Session, rule: Callable[..., str]
) -> None:
    """What an epoch's frames take is given back before the next one."""
    cluster.stop_worker()
    cluster.start_worker(cache_limit=0)
    session.execute(
        "CREATE FUNCTION probe() RETURNS integer STABLE LANGUAGE plpgsql AS $$BEGIN"
        " RAISE NOTICE '%', (SELECT sum(used_bytes) FROM pg_backend_memory_contexts); RETURN 1; END$$"
    )
    notices: list[int] = []
    session.add_notice_handler(lambda notice: notices.append(int(notice.message_primary or 0)))
    epochs = 30
    query = "SELECT probe() AS id FROM generate_series(1, 1) AS g OFFSET 0"
    session.execute("SELECT dana_train(%s, query => %s, epochs => %s)", (rule(rows=True, column="id"), query, epochs))
    assert len(notices) >= epochs
    frame = 8192
    assert notices[-1] - notices[-epochs // 2] < epochs // 2 * frame / 4
    cluster.stop_worker()


def test_convergence_ends_it(session: Session, rule: Callable[..., str]) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    result = one(session, "SELECT * FROM dana_train(%s, 't', epochs => 100)", (rule(converge_at=5),))
    assert (result["epochs"], result["converged"]) == (5, True)


@pytest.mark.parametrize("kind", ["TEMPORARY TABLE", "UNLOGGED TABLE", "MATERIALIZED VIEW"])
def test_kinds_of_tables(session: Session, rule: Callable[..., str], kind: str) -> None:
    session.execute(f"CREATE {kind} t AS SELECT g AS id FROM generate_series(1, 5000) g")
    assert one(session, "SELECT * FROM dana_train(%s, 't')", (rule(column="id"),))["tuples"] == 5000


def test_ring_of_another_size(session: Session, rule: Callable[..., str]) -> None:
    session.execute("CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 30000) g")
    name = rule(column="id")
    for pages in (16, 17, 1000):
        session.execute(f"SET dana.ring_pages = {pages}")
        assert one(session, "SELECT * FROM dana_train(%s, 't')", (name,))["tuples"] == 30000


def test_parameters_apart(session: Session, rule: Callable[..., str]) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    session.execute("SELECT * FROM dana_train(%s, 't', 'm')", (rule(weights=[1, 2.5]),))
    session.execute("SELECT * FROM dana_train(%s, 't', 'm')", (rule(weights=[]),))
    first = session.execute("SELECT * FROM dana_parameters('m', 1)").fetchall()
    assert first[0] == ("w", [2], [1.0, 2.5])
    assert first[1][:2] == ("b", [])
    assert math.isnan(first[1][2][0])
    assert session.execute("SELECT * FROM dana_parameters('m')").fetchall()[0] == ("w", [0], [])
    again = session.execute("SELECT * FROM dana_parameters('m@1')").fetchall()
    assert str(again) == str(first), "a NaN is not itself"
    for call, error in (
        ("'none'", psycopg.errors.UndefinedObject),
        ("'m', 9", psycopg.errors.UndefinedObject),
        ("'m', 0", psycopg.errors.InvalidName),
        ("'m@1', 1", psycopg.errors.InvalidName),
    ):
        with pytest.raises(error):
            session.execute(f"SELECT * FROM dana_parameters({call})")


def test_notices_and_descriptions(session: Session) -> None:
    heard: list[str] = []
    session.add_notice_handler(lambda notice: heard.append(f"{notice.severity} {notice.message_primary}"))
    session.execute("SELECT dana_create_udf('r', %s)", (json.dumps({"notice": "look here: µ", "epochs": 9}),))
    assert heard == ["NOTICE look here: µ"]
    assert one(session, "SELECT description FROM dana.rule")["description"] == {"metas": {}, "epochs": 9}


@pytest.mark.parametrize(("name", "quoted"), [("linearR", '"linearR"'), ("select", '"select"'), ("linear_r", None)])
def test_a_name_that_needs_quotes_is_announced(session: Session, name: str, quoted: str | None) -> None:
    heard: list[str] = []
    session.add_notice_handler(lambda notice: heard.append(f"{notice.severity} {notice.message_primary}"))
    session.execute("SELECT dana_create_udf(%s, %s)", (name, json.dumps({})))
    assert heard == ([f"NOTICE the rule's function is dana.{quoted}(...), with the quotes"] if quoted else [])
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    assert one(session, f"SELECT version FROM dana.{quoted or name}('t')")["version"] == 1


def test_rules_are_replaced_and_dropped(session: Session) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = "Odd \"name'$1; --"
    quoted = '"' + name.replace('"', '""') + '"'
    for epochs in (1, 2):
        session.execute("SELECT dana_create_udf(%s, %s)", (name, json.dumps({"epochs": epochs})))
        assert one(session, f"SELECT epochs FROM dana.{quoted}('t')")["epochs"] == epochs
    comment = one(session, "SELECT obj_description(oid, 'pg_proc') AS c FROM pg_proc WHERE proname = %s", (name,))
    assert comment["c"] == f'Train rule "{name}" on a table; training: other arguments of dana_train()'
    session.execute("SELECT dana_drop_rule(%s)", (name,))
    assert session.execute("SELECT FROM pg_proc WHERE proname = %s", (name,)).fetchall() == []
    assert session.execute("SELECT FROM dana.model").rowcount == 2


def test_everything_has_a_comment(session: Session) -> None:
    """So that \\d+ in psql says what each table, column and function is for."""
    bare = session.execute(
        """
        SELECT pg_describe_object(d.classid, d.objid, a.attnum)
        FROM pg_depend d
        LEFT JOIN pg_attribute a ON d.classid = 'pg_class'::regclass AND a.attrelid = d.objid AND a.attnum > 0
            AND (SELECT relkind FROM pg_class c WHERE c.oid = d.objid) = 'r'
        WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
            AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dana')
            AND d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass, 'pg_namespace'::regclass)
            AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = d.objid AND c.relkind IN ('c', 'S'))
            AND CASE WHEN a.attnum IS NULL THEN obj_description(d.objid, d.classid::regclass::name)
                ELSE col_description(d.objid, a.attnum) END IS NULL
        """
    ).fetchall()
    assert bare == []
