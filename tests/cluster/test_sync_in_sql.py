"""`dana_train(sync => …)`: the server that trains reads its map, and carries the messages of the parts itself."""

from __future__ import annotations

import json
import re
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from dana.cli.entry import main
from dana.client.connection import Connection
from dana.cluster.gather import add_key
from dana.session.notices import ServerNotice, ServerWarning
from tests.cluster.conftest import everywhere, fetched, left
from tests.cluster.test_bad_moments import MERGES, Trickle, proxy
from tests.cluster.test_sync import (
    CITIES,
    cancel,
    filled,
    parameters,
    stop,
    stop_worker,
    terminate,
    training_backends,
    wake,
)

MAPPED = "SELECT dana_train('{rule}', 'rows', '{model}', {options})"


@pytest.fixture
def mapped(db: Connection, shards: list[str]) -> Iterator[Connection]:
    """The table `rows` has three shards; that of the server that trains is reached by a connection of its own."""
    for number, dsn in enumerate(shards, 1):
        db.session.execute("CREATE TABLE IF NOT EXISTS rows ()")
        db.session.execute("INSERT INTO dana.shard (source, shard, conninfo) VALUES ('rows', %s, %s)", (number, dsn))
    db.session.execute("DROP TABLE rows")
    yield db
    db.session.execute("DELETE FROM dana.shard")


def map_rows(db: Connection) -> None:
    """The map is that of the table as it is now."""
    db.session.execute("UPDATE dana.shard SET source = 'rows'")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("rule", "options", "named"),
    [
        ("logistic", {"label": "y"}, "label => 'y'"),
        pytest.param(
            *("linear", {"label": "z", "features": ["x", "n"]}, "label => 'z', features => '{x,n}'"),
            marks=pytest.mark.exhaustive,
        ),
        (
            "linear_svm",
            {"label": "y", "epochs": 100, "filter": "x > 2 AND id % 7 <> 0"},  # the result outlives what they fill
            "label => 'y', epochs => 100, filter => 'x > 2 AND id % 7 <> 0'",
        ),
        (
            "softmax",
            {"label": "y", "test_size": 0.3, "early_stopping": True, "epochs": 2},
            "label => 'y', test_size => 0.3, early_stopping => true, epochs => 2",
        ),
        (
            "linear",
            {"label": "z", "test_size": 0.4, "test_by": "x", "seed": 3},
            "label => 'z', test_size => 0.4, test_by => 'x', seed => 3",
        ),
        (
            "linear",
            {"label": "z", "test_after": {"since": "2020-09-09 12:00+02"}},
            "label => 'z', test_after => '{\"since\": \"2020-09-09 12:00+02\"}'",
        ),
    ],
    ids=["logistic", "linear", "linear_svm", "classes", "by", "after"],
)
def test_sql_has_the_bits_of_python(
    mapped: Connection, shards: list[str], rule: str, options: dict[str, Any], named: str
) -> None:
    filled(shards, 256, 200, 0, more=CITIES)
    map_rows(mapped)
    everywhere(shards, "UPDATE rows SET x = NULL WHERE id % 5 = 0")
    for sync in ("batch",) if rule != "linear_svm" else ("batch", "epoch"):
        here = mapped.train(rule, "rows", shards=shards, sync=sync, model="here", nulls="mean", **options)
        statement = MAPPED.format(rule=rule, model="there", options=f"{named}, nulls => 'mean', sync => '{sync}'")
        mapped.session.execute(statement)
        assert parameters(mapped, "here") == parameters(mapped, "there")
        kept = "SELECT metadata - 'gathered' FROM dana.model WHERE name = %s ORDER BY version"
        [[first], [second]] = [mapped.session.execute(kept, (name,)).fetchall()[-1] for name in ("here", "there")]
        assert first == second
        assert (second["sync"], second["shards"]) == (sync, 3)
        assert here.tuples > 0
    assert left(shards) == []


def test_the_map_is_one_more_argument(
    mapped: Connection, shards: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """From Python, the shell, a rule's own function, a job; and `gather` is `dana_gather()`."""
    filled(shards, 64, 64, 32)
    map_rows(mapped)
    options: dict[str, Any] = {"label": "y", "features": ["x", "z"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = mapped.train("logistic", "rows", shards=shards, sync="batch", model="listed", **options)
        bits = parameters(mapped, "listed")
        mapped.train("logistic", "rows", sync="batch", model="map", timeout=30, **options)
        mapped.train("logistic", "rows", sync="batch", model="sync", **options)
        mapped.train("logistic", "rows", sync="gather", model="gathered", **options)
        gathered = mapped.train("logistic", "rows", sync="gather", model="gathered_too", **options)
        own = Jsonb({**options, "model": "own", "sync": "batch"})
        mapped.session.execute("SELECT dana.logistic('rows', %s)", (own,))
    arguments = ["--sync", "batch", "--label", "y", "--features", "x,z"]
    assert main(["train", "logistic", "rows", "--dsn", shards[0], *arguments, "--model", "shell"]) == 0
    assert f"{expected.tuples}, 0 skipped" in capsys.readouterr().out
    assert main(["train", "logistic", "rows", "--dsn", shards[0], *arguments, "--model", "job", "--background"]) == 0
    mapped.session.execute("SELECT dana_wait(max(id)) FROM dana.job")
    for model in ("map", "sync", "own", "shell", "job"):
        assert parameters(mapped, model) == bits, model
    assert gathered.tuples == expected.tuples == 160
    assert parameters(mapped, "gathered") == parameters(mapped, "gathered_too")
    assert left(shards) == []
    found = mapped.session.execute(
        "SELECT metadata -> 'gathered' ->> 'source', metadata #>> '{gathered,shards,1,server}' FROM dana.model "
        "WHERE name = 'sync'"
    ).fetchall()
    assert found == [("public.rows", shards[1])]


def test_nothing_that_others_made_is_called(mapped: Connection, shards: list[str]) -> None:
    """No operator on the search_path; no check of a domain or cast, here or with the mapping's rights there."""
    filled(shards, 64, 64, 0)
    everywhere(
        shards, "CREATE DOMAIN own AS float4", "ALTER TABLE rows ADD kind own, ADD label own DEFAULT 1", "ANALYZE rows"
    )
    map_rows(mapped)
    options: dict[str, Any] = {"label": "z", "features": ["x"], "sync": "batch"}
    mapped.session.execute("""
        CREATE TABLE called (); CREATE TYPE single AS (a float4);
        CREATE FUNCTION eqoid(oid, int4) RETURNS boolean LANGUAGE plpgsql AS
            $$BEGIN INSERT INTO called DEFAULT VALUES; RETURN oideq($1, $2::oid); END$$;
        CREATE OPERATOR = (FUNCTION = eqoid, LEFTARG = oid, RIGHTARG = int4);
        CREATE FUNCTION check_it(float4) RETURNS boolean LANGUAGE plpgsql AS
            $$BEGIN INSERT INTO called DEFAULT VALUES; RETURN true; END$$;
        ALTER DOMAIN own ADD CHECK (check_it(VALUE));
        TRUNCATE called
    """)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mapped.explain("linear", "rows", **options)
        mapped.train("linear", "rows", model="m", **options, filter="kind IS NULL AND x <> ALL ('{1,2,3}')")
        mapped.train("logistic", "rows", model="n", **options | {"label": "y"})
        mapped.train("logistic", "rows", model="n", **options | {"label": "y"}, shards=shards)
        assert mapped.session.execute("SELECT count(*) FROM called").fetchall() == [(0,)]
        for text in (
            "x::own IS NOT NULL",
            "1::own > 0",
            "NULL::own IS NULL",
            "ROW(x)::single IS NOT NULL",
            "ROW(x, 1) < ROW(x, 1)",
            "(ARRAY[x]::own[])[1] > 0",
            "GREATEST(x::own, 1) > 0",
            "rows IS NOT NULL",
        ):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="immutable functions of PostgreSQL alone"):
                mapped.train("linear", "rows", **options, filter=text)
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="labels are of a type of PostgreSQL"):
            mapped.train("logistic", "rows", **options | {"label": "label"})
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="trained on the rows of shards"):
            mapped.refresh("m")
    mapped.session.execute("DROP FUNCTION eqoid, check_it CASCADE; DROP TABLE called; DROP TYPE single")
    everywhere(shards, "DROP DOMAIN own CASCADE")
    assert left(shards) == []


def test_a_date_means_the_same_everywhere(mapped: Connection, shards: list[str]) -> None:
    filled(shards, 128, 128, 0)
    everywhere(shards, "ALTER TABLE rows ADD d date", "UPDATE rows SET d = date '2020-01-01' + id")
    map_rows(mapped)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for style, date in (("ISO, MDY", "2020-03-02"), ("SQL, DMY", "02/03/2020")):
            mapped.session.execute("SELECT set_config('datestyle', %s, false)", (style,))
            options: dict[str, Any] = {"label": "y", "features": ["x", "z"], "filter": f"d >= date '{date}'"}
            found.append(mapped.train("logistic", "rows", sync="batch", model="m", **options).tuples)
    assert found[0] == found[1] > 0


def test_what_a_shard_says_of_its_rows_names_it(mapped: Connection, shards: list[str]) -> None:
    filled(shards, 64, 32, 40)
    map_rows(mapped)
    everywhere(shards[2:], "UPDATE rows SET x = NULL")
    said = r"^shard 3 \(public\.rows on .*\): 40 of 40 rows of public\.rows are left out"
    with pytest.warns(ServerWarning, match=said):
        found = mapped.train("linear_svm", "rows", sync="epoch", label="y", features=["x", "z"], epochs=2)
    assert (found.tuples, found.skipped) == (96, 40)


COPY_BOTH = b"W\0\0\0\7"


def report(text: str, times: int = 1) -> bytes:
    """A part's message, as the server sends it."""
    said = b"N" + json.dumps({"warns": True, "message": text}).encode()
    return (b"d" + (len(said) + 4).to_bytes(4, "big") + said) * times


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        (report("x", 1100), "it reports more than 1000 times"),
        (report("x" * 20000), ".*or more than 16384 bytes"),
        (report("\x1b[31mred\nERROR:  not ours") + b"c\0\0\0\4", None),
    ],
    ids=["many", "long", "controls"],
)
def test_what_a_shard_reports_has_an_end(
    mapped: Connection, shards: list[str], reports: bytes, message: str | None
) -> None:
    """However many there are, and whether anyone is to see them; and nothing in them commands a terminal."""
    filled(shards, 64, 64, 0)
    map_rows(mapped)
    said: list[str] = []
    mapped.session.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))

    def change(data: bytes, _: int) -> bytes:
        end = data.find(COPY_BOTH) + len(COPY_BOTH) + 3
        return data if COPY_BOTH not in data else data[:end] + reports + data[end:]

    with proxy(shards[1], change) as (host, port):
        mapped.session.execute(
            "UPDATE dana.shard SET conninfo = %s WHERE shard = 2",
            (f"host={host} port={port} user=postgres dbname=postgres",),
        )
        mapped.session.execute(f"SET client_min_messages = {'error' if message else 'warning'}")
        with pytest.raises(psycopg.Error, match=rf"^shard 2 \(.*\): {message or ''}") as failed:
            mapped.session.execute(LONG)
    assert failed.value.sqlstate is not None
    if message is None:
        assert any(line.endswith(":  [31mred ERROR:  not ours") for line in said)
    mapped.session.execute("RESET client_min_messages")
    assert left(shards) == []


def test_the_leader_s_table_has_no_domain(mapped: Connection, shards: list[str]) -> None:
    """Its rows are labels alone: what a domain of another column checks would run as the caller."""
    filled(shards, 8, 64, 64)
    everywhere(
        shards, "CREATE DOMAIN kind AS float4", "CREATE VIEW seen AS SELECT x, z::kind, y, x::kind AS other FROM rows"
    )
    mapped.session.execute("CREATE TABLE top (x float4, z kind, y text, other kind)")
    mapped.session.execute("DELETE FROM dana.shard WHERE shard = 1")
    mapped.session.execute("UPDATE dana.shard SET source = 'top', relation = 'public.seen'")
    mapped.session.execute(
        "CREATE FUNCTION checked(float4) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'ran'; END$$;"
        "ALTER DOMAIN kind ADD CHECK (checked(VALUE)) NOT VALID"
    )
    try:
        trained = mapped.train("logistic", "top", label="y", features=["x", "z"], sync="batch", epochs=2, model="m")
        assert trained.tuples == 128
    finally:
        mapped.session.execute("DELETE FROM dana.shard; DROP TABLE top")
        everywhere(shards, "DROP DOMAIN kind CASCADE", "DROP VIEW IF EXISTS seen")
        mapped.session.execute("DROP FUNCTION checked")


def test_the_time_of_a_training_begins_with_the_first_look(mapped: Connection, shards: list[str]) -> None:
    filled(shards, 64, 64, 0)
    map_rows(mapped)
    everywhere(shards, "CREATE VIEW slow AS SELECT rows.* FROM rows, pg_sleep(60)")
    mapped.session.execute("UPDATE dana.shard SET relation = 'public.slow'; SET dana.training_timeout = '1s'")
    try:
        with pytest.raises(psycopg.errors.QueryCanceled, match=r"dana\.training_timeout"):
            mapped.session.execute(LONG)
    finally:
        mapped.session.execute("RESET dana.training_timeout")
    assert left(shards) == []


REJECTED = {
    "mode": ("sync => 'all'", "22023", "argument \"sync\" must be 'gather', 'batch' or 'epoch', not \"all\""),
    "calibrate": (
        "sync => 'batch', calibrate => 'platt'",
        "0A000",
        'argument "calibrate" cannot be given with sync',
    ),
    "size": ("sync => 'batch', test_size => 2", "22023", 'argument "test_size" must be a part of the rows'),
    "few": ("sync => 'batch', test_size => 0.001", "22023", 'argument "test_size" leaves no row for a test'),
    "none": ("sync => 'batch', test_by => 'x'", "22023", 'argument "test_by" chooses the rows of a part'),
    "nulls": ("sync => 'batch', nulls => 'median'", "0A000", "nulls => 'median' cannot be given with sync => 'batch'"),
    "json": ("sync => 'batch', features => '{x,j}', label => 'z'", "0A000", "column j is json: with sync => 'batch'"),
    "feature": ("sync => 'batch', features => '{q}'", "42703", 'public.rows has no column "q" for a feature'),
    "label": ("sync => 'batch', label => 'q'", "42703", 'public.rows has no column "q" for the label'),
    "own": ("sync => 'batch', filter => 'own(x)'", "0A000", "must have immutable functions of PostgreSQL alone"),
    "now": ("sync => 'batch', filter => 'now() > ''2020-01-01'''", "0A000", "must have immutable functions of Postgre"),
    "subquery": ("sync => 'batch', filter => 'EXISTS (SELECT)'", "0A000", "must not contain a subquery"),
    "machine": ("sync => 'batch', machine => 'interp'", "22023", "trains on machine 'sim' or 'rtl', not 'interp'"),
}


@pytest.mark.parametrize(("options", "sqlstate", "message"), REJECTED.values(), ids=REJECTED)
def test_what_cannot_be_asked_is_an_error(
    mapped: Connection, shards: list[str], options: str, sqlstate: str, message: str
) -> None:
    filled(shards, 16, 16, 16)
    everywhere(shards, "ALTER TABLE rows ADD j json")
    map_rows(mapped)
    mapped.session.execute(
        "CREATE OR REPLACE FUNCTION own(x float4) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT x > 1'"
    )
    if "features" not in options and "label" not in options:
        options += ", features => '{x,z}'"
    with pytest.raises(psycopg.Error, match=message) as failed:
        mapped.session.execute(f"SELECT dana_train('logistic', 'rows', {options})")  # type: ignore[arg-type]
    assert failed.value.sqlstate == sqlstate
    assert left(shards) == []


def test_other_functions_train_on_this_server(mapped: Connection, shards: list[str]) -> None:
    filled(shards, 16, 16, 16)
    map_rows(mapped)
    for call in ("dana_train_groups('linear', 'rows', '{y}', %s)", "dana_cross_validate('linear', 'rows', 2, %s)"):
        with pytest.raises(psycopg.errors.FeatureNotSupported, match=r'argument "sync" is for dana_train\(\)'):
            mapped.session.execute(f"SELECT * FROM {call}", (Jsonb({"sync": "batch", "label": "z"}),))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match='argument "sync" goes with a table'):
        mapped.session.execute("SELECT dana_train('linear', query => 'SELECT 1.0 AS x, 2.0 AS y', sync => 'batch')")


def test_a_shard_that_cannot_train_is_named(mapped: Connection, shards: list[str]) -> None:
    filled(shards, 16, 16, 16)
    map_rows(mapped)
    call = "SELECT dana_train('linear', 'rows', label => 'z', features => '{x}', sync => 'batch')"

    def fails(sqlstate: str, message: str) -> None:
        with pytest.raises(psycopg.Error, match=message) as failed:
            mapped.session.execute(call)
        assert failed.value.sqlstate == sqlstate

    everywhere(shards[1:2], "UPDATE pg_extension SET extversion = '0.0' WHERE extname = 'dana'")
    [[release]] = fetched(shards[0], "SELECT extversion FROM pg_extension WHERE extname = 'dana'")
    try:
        fails("55000", rf"shard 2 \(public\.rows on .*\) has release 0\.0, and this server release {release}")
    finally:
        everywhere(shards[1:2], f"UPDATE pg_extension SET extversion = '{release}' WHERE extname = 'dana'")
    mapped.session.execute("UPDATE dana.shard SET conninfo = NULL WHERE shard = 1")
    fails("0A000", r"shard 1 \(public\.rows on this server\): with sync => 'batch' this session leads")
    mapped.session.execute("DROP ROLE IF EXISTS analyst; CREATE ROLE analyst; GRANT SELECT ON rows TO analyst")
    mapped.session.execute("GRANT EXECUTE ON FUNCTION dana_train TO analyst; SET ROLE analyst")
    try:
        # the server's own account would log in
        fails("2F003", "only superusers may use a connection string of dana.shard")
        mapped.session.execute("RESET ROLE; REVOKE SELECT ON rows FROM analyst; SET ROLE analyst")
        fails("42501", "permission denied for table rows")
    finally:
        mapped.session.execute("RESET ROLE; DROP OWNED BY analyst; DROP ROLE analyst")


LONG = "SELECT dana_train('linear_svm', 'rows', 'long', label => 'y', epochs => 100000, patience => 0, sync => 'batch')"


@pytest.mark.parametrize(
    ("harm", "message", "sqlstate"),
    [
        pytest.param(terminate, "terminating connection", "08006", marks=pytest.mark.exhaustive),
        (cancel, "canceling statement", "38000"),
        (stop, "no message within 3 s", "08006"),
        (stop_worker, "no message within 3 s", "08006"),
    ],
    ids=["killed", "cancelled", "stopped", "worker-stopped"],
)
def test_a_shard_that_fails_is_named_and_nothing_remains(
    mapped: Connection, shards: list[str], harm: Callable[[str, int], None], message: str, sqlstate: str
) -> None:
    """The shard that was stopped is the one that dana.progress shows."""
    filled(shards, 512, 512, 512)
    map_rows(mapped)
    mapped.session.execute("SET dana.shard_timeout = '3s'")
    shown: list[tuple[Any, ...]] = []

    leader = mapped.session.info.backend_pid

    def progress() -> list[tuple[Any, ...]]:
        # a part runs on this server, too
        return fetched(shards[0], f"SELECT phase, shard FROM dana.progress WHERE pid = {leader}")

    def later() -> None:
        while not training_backends(shards[1]) or not any(phase == "training" for phase, _ in progress()):
            time.sleep(0.01)
        harm(shards[1], 2)
        while harm in (stop, stop_worker) and ("training", 2) not in shown and (now := progress()):
            shown.extend(now)

    thread = threading.Thread(target=later)
    thread.start()
    try:
        with pytest.raises(psycopg.Error, match=rf"shard 2 \(public\.rows on host=.*\): .*{message}") as failed:
            mapped.session.execute(LONG)
    finally:
        thread.join()
        wake(shards[1])
    assert failed.value.sqlstate == sqlstate
    if harm in (stop, stop_worker):
        assert ("training", 2) in shown
    assert left(shards) == []
    for dsn in shards:
        while training_backends(dsn):  # it ends with its next message
            time.sleep(0.01)


def test_a_shard_that_sends_a_byte_at_a_time_is_named(mapped: Connection, shards: list[str]) -> None:
    filled(shards, 64, 64, 64)
    map_rows(mapped)
    mapped.session.execute("SET dana.shard_timeout = '3s'")
    with proxy(shards[1], Trickle(MERGES)) as (host, port):
        through = make_conninfo(shards[1], host=host, port=port)
        mapped.session.execute("UPDATE dana.shard SET conninfo = %s WHERE shard = 2", (through,))
        with pytest.raises(psycopg.Error, match=r"shard 2 \(public\.rows on .*127.*\): no message within 3 s"):
            mapped.session.execute(LONG)


def test_a_shard_whose_answer_is_no_number_is_named(mapped: Connection, shards: list[str]) -> None:
    filled(shards, 512, 512, 512)
    map_rows(mapped)
    with proxy(shards[1], lambda data, _: data.replace(b"512", b"5;2")) as (host, port):
        through = make_conninfo(shards[1], host=host, port=port)
        mapped.session.execute("UPDATE dana.shard SET conninfo = %s WHERE shard = 2", (through,))
        with pytest.raises(psycopg.Error, match=r'type bigint: "\S*5;2.*\n.*shard 2 \(public\.rows on') as failed:
            mapped.session.execute(LONG)
    assert failed.value.sqlstate == "22P02"


def test_the_shard_that_is_out_of_step_is_named(mapped: Connection, shards: list[str]) -> None:
    """It is the first, and all others are alike."""
    filled(shards, 64, 64, 64)
    map_rows(mapped)

    def longer(found: re.Match[bytes]) -> bytes:
        return b"d" + struct.pack("!i", struct.unpack("!i", found[1])[0] + 4) + b"Mmore"

    for wrong, message in (
        (longer, r"its sums have \d+ bytes, those of shard 2 .* \d+"),
        (rb"d\1A", ".* it sent a message 'A', shard 2 .* 'M'"),
        (rb"d\0\0\0\006N{d\1M", "invalid input syntax for type json"),
    ):
        changed = partial(re.sub, MERGES, wrong, count=1)
        with proxy(shards[0], lambda data, _, changed=changed: changed(string=data)) as (host, port):
            through = make_conninfo(shards[0], host=host, port=port)
            mapped.session.execute("UPDATE dana.shard SET conninfo = %s WHERE shard = 1", (through,))
            with pytest.raises(psycopg.Error, match=message) as failed:
                mapped.session.execute(LONG)
        assert failed.value.sqlstate == "08P01"
        assert "shard 1 (public.rows on " in f"{failed.value.diag.message_primary} {failed.value.diag.context}"


@pytest.mark.parametrize("how", ["cancel", pytest.param("timeout", marks=pytest.mark.exhaustive)])
def test_a_training_that_is_cancelled_ends_all_parts(mapped: Connection, shards: list[str], how: str) -> None:
    filled(shards, 512, 512, 512)
    map_rows(mapped)
    if how == "timeout":
        mapped.session.execute("SET statement_timeout = '2s'")
    pid = mapped.session.info.backend_pid

    def later() -> None:
        while not training_backends(shards[2]):
            time.sleep(0.01)
        fetched(shards[0], f"SELECT pg_cancel_backend({pid})")

    thread = threading.Thread(target=later if how == "cancel" else lambda: None)
    thread.start()
    try:
        with pytest.raises(psycopg.errors.QueryCanceled):
            mapped.session.execute(LONG)
    finally:
        thread.join()
    mapped.session.execute("SET statement_timeout = 0")
    assert left(shards) == []
    for dsn in shards:
        while training_backends(dsn):
            time.sleep(0.01)


def test_explain_says_what_each_mode_costs(mapped: Connection, shards: list[str]) -> None:
    """As Python does of the same shards in a list; a part may be on this server, and types may be other roles'."""
    filled(shards, 640, 200, 0)
    everywhere(
        shards,
        "DROP TYPE IF EXISTS kind",
        "CREATE TYPE kind AS ENUM ('old', 'new')",
        "ALTER TABLE rows ADD k kind",
        "UPDATE rows SET k = CASE id % 2 WHEN 0 THEN 'old' ELSE 'new' END::kind, y = id % 2",
        "VACUUM FULL ANALYZE rows",
    )
    map_rows(mapped)
    mapped.session.execute("UPDATE dana.shard SET conninfo = NULL WHERE shard = 1")
    options: dict[str, Any] = {"label": "y", "hyper": {"batch": 32}, "epochs": 2}
    text = "SELECT string_agg(line, E'\n') FROM dana_explain('linear_svm', 'rows', %s, format => %s) AS e (line)"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        listed = mapped.explain_shards("linear_svm", "rows", shards, **options)
        assert mapped.explain_shards("linear_svm", "rows", **options) == listed
    for sync in ("gather", "batch", "epoch"):
        [[said]] = mapped.session.execute(text, (Jsonb(options | {"sync": sync}), "text")).fetchall()
        assert said.startswith(
            "Rule linear_svm on public.rows\n  5 columns as features, label y; batches of 32, 2 epochs"
        )
        [[found]] = mapped.session.execute(text, (Jsonb(options | {"sync": sync}), "json")).fetchall()
        shards_ = json.loads(found)["shards"]
        sizes = [fetched(dsn, "SELECT count(*), pg_relation_size('rows') / 8192 FROM rows")[0] for dsn in shards]
        rows, pages = (sum(each) for each in zip(*sizes, strict=True))
        costs = shards_.pop("costs")
        assert shards_ == {"count": 3, "hosts": 1, "rows": rows, "pages": pages}
        assert [dict(one) for one in costs] == [asdict(one) for one in listed]
        assert f"Shards: 3 on 1 machine, 840 rows on {pages} pages; " in said
        assert f"  batch: {listed[1].seconds:.2f} s, " in said
        assert f"{listed[1].rounds} rounds, waiting {listed[1].waiting:.0%} of an epoch; least time on" in said
        assert said.count("of an epoch is waiting: give larger batches, or gather the rows") == 2
    for wrong, message in (
        ({"sync": "sometimes"}, 'argument "sync" must be'),
        ({"features": ["x", "none"]}, r"column 'none' of public\.rows does not exist"),
        ({"filter": "x < 0"}, r'a sample of public\.rows has no row with a label in column "y"'),
        ({"test_size": 0.1, "test_by": "none"}, r'public\.rows has no column "none", which argument "test_by" names'),
    ):
        with pytest.raises(psycopg.Error, match=f"^{message}"):
            mapped.session.execute(text, (Jsonb(options | {"sync": "batch"} | wrong), "text"))
    assert left(shards) == []


def test_explain_of_shards_needs_the_rights_of_a_training(mapped: Connection, shards: list[str]) -> None:
    filled(shards, 16, 16, 16)
    everywhere(shards, "ANALYZE rows")
    map_rows(mapped)
    session = mapped.session
    options = '{"sync": "batch", "label": "z", "features": ["x"]}'
    asked = f"SELECT * FROM dana_explain('linear', 'rows', '{options}')"
    session.execute("DROP ROLE IF EXISTS asker; CREATE ROLE asker; GRANT EXECUTE ON FUNCTION dana_explain TO asker")
    session.execute("SELECT dana_grant_rule('linear', 'asker')")

    def fails(sqlstate: str, message: str) -> None:
        session.execute("SET ROLE asker")
        try:
            with pytest.raises(psycopg.Error, match=message) as failed:
                session.execute(asked)  # type: ignore[arg-type]
        finally:
            session.execute("RESET ROLE")
        assert failed.value.sqlstate == sqlstate
        assert "host=" not in str(failed.value).replace("on host=", "", 1 if sqlstate == "2F003" else 0)

    try:
        session.execute("REVOKE ALL ON rows FROM PUBLIC; GRANT SELECT (id) ON rows TO asker")
        fails("42501", "permission denied for function dana_train")
        session.execute("GRANT EXECUTE ON FUNCTION dana_train TO asker")
        fails("42501", "permission denied for table rows")
        session.execute("GRANT SELECT ON rows TO asker")
        fails("2F003", "only superusers may use a connection string of dana.shard")
        session.execute("ALTER TABLE rows ENABLE ROW LEVEL SECURITY")
        fails("0A000", "cannot read the shards of public.rows: it has row-level security")
    finally:
        session.execute("DROP OWNED BY asker; DROP ROLE asker")
    session.execute("ALTER TABLE rows DISABLE ROW LEVEL SECURITY")
    assert session.execute(asked).fetchall()  # type: ignore[arg-type]
    everywhere(shards[1:2], "ALTER TABLE rows RENAME TO counted; CREATE VIEW rows AS SELECT * FROM counted")
    try:
        # a view has no key, either
        session.execute("UPDATE dana.shard SET relation = 'none' WHERE shard = 1")
        with pytest.raises(psycopg.Error, match=r'shard 1 .*relation "public\.none" does not exist'):
            session.execute(asked)  # type: ignore[arg-type]
        session.execute("DELETE FROM dana.shard WHERE shard <> 2")
        with pytest.raises(psycopg.Error, match=r"shard 2 .*: its rows have not been counted"):
            session.execute(asked)  # type: ignore[arg-type]
    finally:
        everywhere(shards[1:2], "DROP TABLE counted CASCADE")
    assert left(shards) == []


def test_explain_runs_no_policy_of_a_shard_here(mapped: Connection, shards: list[str]) -> None:
    """The author of the map chose the table, and the function would run as the caller."""
    filled(shards[:1], 16)
    map_rows(mapped)
    session = mapped.session
    session.execute("""
        DELETE FROM dana.shard WHERE shard > 1;
        UPDATE dana.shard SET conninfo = NULL, relation = 'guarded';
        CREATE TABLE guarded (LIKE rows INCLUDING ALL);
        INSERT INTO guarded SELECT * FROM rows;
        CREATE FUNCTION shown(id int) RETURNS bool LANGUAGE plpgsql AS
            $$BEGIN RAISE 'run as %', current_user; END$$;
        CREATE POLICY few ON guarded USING (shown(id));
        ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
        DROP ROLE IF EXISTS asker;
        CREATE ROLE asker;
        GRANT EXECUTE ON FUNCTION dana_explain, dana_train TO asker;
        GRANT SELECT ON rows, guarded TO asker;
        SELECT dana_grant_rule('linear', 'asker')
    """)
    session.execute("ANALYZE guarded")
    session.execute("SET ROLE asker")
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match='row-level security policy for table "guarded"'):
            session.execute('SELECT * FROM dana_explain(\'linear\', \'rows\', \'{"sync": "gather", "label": "z"}\')')
    finally:
        session.execute("RESET ROLE")
        session.execute("DROP TABLE guarded; DROP FUNCTION shown; DROP OWNED BY asker; DROP ROLE asker")
    assert left(shards) == []


@pytest.mark.parametrize("memory", ["64MB", "64kB"])
def test_keys_of_gathered_rows_are_compared_without_an_index(
    mapped: Connection, shards: list[str], memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or with one, where their hashes need more memory than a sort has; the rows for a test are those of the list."""
    indexed: list[object] = []

    def add(*arguments: Any) -> None:
        indexed.append(arguments)
        add_key(*arguments)

    monkeypatch.setattr("dana.cluster.gather.add_key", add)
    filled(shards, 300, 66000, 16)
    map_rows(mapped)
    mapped.session.execute(f"SET maintenance_work_mem = '{memory}'")
    options: dict[str, Any] = {"label": "z", "test_size": 0.3, "nulls": "mean"}
    said = "column id: no feature, it is the primary key"
    with pytest.warns(ServerNotice, match=said):
        mapped.train("linear", "rows", sync="gather", model="there", **options)
    with pytest.warns(ServerNotice, match=said):
        mapped.train("linear", "rows", shards=shards, model="here", **options)
    assert parameters(mapped, "here") == parameters(mapped, "there")
    assert len(indexed) == (memory == "64kB")
    everywhere(shards[2:], "UPDATE rows SET id = 4 WHERE id = (SELECT max(id) FROM rows)")
    with pytest.warns(ServerWarning, match=r"the primary key \(id\) is not unique over the shards"):
        mapped.train("linear", "rows", sync="gather", model="twice", **options)
    with pytest.warns(ServerWarning, match=r"the primary key \(id\) is not unique over the shards"):
        mapped.train("linear", "rows", shards=shards, model="here", **options)
    assert parameters(mapped, "here") == parameters(mapped, "twice")
    columns = "SELECT metadata ->> 'features' FROM dana.model WHERE name = %s"
    [[first], [twice]] = [mapped.session.execute(columns, (name,)).fetchone() for name in ("there", "twice")]
    assert '"id"' not in first
    assert '"id"' in twice
    mapped.session.execute("RESET maintenance_work_mem")
    assert left(shards) == []


def test_keys_that_shards_share_are_a_warning(mapped: Connection, shards: list[str]) -> None:
    """In SQL and in Python, if it is one of many rows."""
    filled(shards, 5000, 16, 16)
    map_rows(mapped)
    options: dict[str, Any] = {"sync": "batch", "label": "z", "features": ["x"]}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*primary key")
        mapped.train("linear", "rows", **options)
    hashed = 'hashtextextended(ROW(id)::text COLLATE "C", 0)'
    [[key]] = fetched(shards[0], f"SELECT id FROM rows ORDER BY {hashed} OFFSET 4000 LIMIT 1")
    everywhere(shards[2:], f"UPDATE rows SET id = {key} WHERE id = (SELECT max(id) FROM rows)")
    for given, which in (({}, "public.rows on "), ({"shards": shards}, "")):
        with pytest.warns(
            UserWarning, match=rf"shard 1 \({which}.*\) and shard 3 \({which}.*\) have the same primary key"
        ):
            mapped.train("linear", "rows", **given, **options)
