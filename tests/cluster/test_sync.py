"""Trainings on rows that stay at their shards: three servers have the bits of one, or an error that names the shard."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dana import rules
from dana.cli.entry import main
from dana.client.connection import Connection
from dana.cluster.relay import _Peer
from dana.cluster.shards import ShardError, opened
from dana.cluster.train import _Rows
from dana.errors import UsageError
from dana.session.notices import ServerWarning
from tests.cluster.conftest import everywhere
from tests.cluster.test_bad_moments import MERGES, Trickle, proxy, send, server_of
from tests.cluster.test_gather import fetched
from tests.postgres.cluster import children
from tests.scale import scaled

# labels of the first shard alone are all the same
ROWS = """
DROP TABLE IF EXISTS rows CASCADE;
CREATE TABLE rows (id int PRIMARY KEY, x float4, z float8, n numeric, y text);
INSERT INTO rows SELECT i * 3 + {shard}, (i * 37 % 101)::float4 / 7, i * 41 % 97 + {shard}, (i * 43 % 89) / 3.0,
    CASE WHEN {shard} > 1 AND i * 31 % 53 > 20 + i * 37 % 11 THEN 'yes' ELSE 'no' END
FROM generate_series(1, {rows}) AS i
"""
BLOCK = 64


def filled(shards: list[str], *sizes: int, more: Sequence[str] = ()) -> None:
    """The table `rows` on each shard, and `whole` on the first: rows of all in turns of a block."""
    for number, (dsn, size) in enumerate(zip(shards, sizes, strict=True), 1):
        made = (ROWS, *more)
        everywhere([dsn], *(each.replace("{shard}", str(number)).replace("{rows}", str(size)) for each in made))
    found = [(row[0] // BLOCK, number, row[1:]) for number, dsn in enumerate(shards) for row in fetched(dsn, NUMBERED)]
    with psycopg.connect(shards[0], autocommit=True) as session:
        session.execute("CREATE TABLE whole (LIKE rows INCLUDING INDEXES)")
        with session.cursor().copy("COPY whole FROM STDIN") as copy:
            for *_, row in sorted(found, key=lambda each: each[:2]):
                copy.write_row(row)


NUMBERED = "SELECT row_number() OVER (ORDER BY ctid) - 1, rows.* FROM rows ORDER BY ctid"


def parameters(db: Connection, model: str) -> dict[str, bytes]:
    return {name: values.tobytes() for name, values in db.parameters(model).items()}


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("logistic", {"label": "y"}),
        ("softmax", {"label": "y", "epochs": 9}),
        ("linear", {"label": "z", "features": ["x", "n"]}),
        ("linear_svm", {"label": "y", "epochs": 3, "shuffle": False, "class_weight": "balanced"}),
        ("mlp", {"label": "y", "epochs": 2, "shuffle": False, "hyper": {"h": 4}}),
    ],
    ids=["logistic", "softmax", "linear", "linear_svm", "mlp"],
)
def test_batches_over_three_servers_have_the_bits_of_one(
    db: Connection, shards: list[str], rule: str, options: dict[str, Any]
) -> None:
    db.create_rules(rule)
    # each a power of two: a batch of all rows is a tree of each shard's
    filled(shards, 256, 256, 256)
    solves = rule in ("logistic", "softmax", "linear")
    hyper = options.get("hyper", {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = db.train(rule, "rows", shards=shards, sync="batch", model="here", **options)
    if solves:
        everywhere(shards[:1], "TRUNCATE whole", *(f"INSERT INTO whole VALUES {at(dsn)}" for dsn in shards))
    there = db.train(rule, "whole", model="there", **options | {"hyper": hyper | ({} if solves else {"batch": 192})})
    assert parameters(db, "here") == parameters(db, "there")
    assert (here.tuples, here.epochs, here.kept, here.converged) == (768, there.epochs, there.kept, there.converged)
    metadata = db.session.execute("SELECT metadata FROM dana.model WHERE name = 'here'").fetchall()[0][0]
    assert (metadata["sync"], metadata["shards"]) == ("batch", 3)
    predicted = "SELECT count(*) FROM rows WHERE dana_predict('here', rows) IS NOT NULL"
    assert db.session.execute(predicted).fetchall() == [(256,)]


@pytest.mark.exhaustive
def test_shards_train_on_the_generated_hardware(db: Connection, shards: list[str]) -> None:
    """Each on a machine of its own, which pauses until the sums of a batch are joined."""
    filled(shards, 128, 128, 100)
    options: dict[str, Any] = {"label": "y", "epochs": 2, "shuffle": False, "design": {"threads": 1, "clusters": 1}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [
            db.train("linear_svm", "rows", shards=shards, sync="batch", machine=machine, model=machine, **options)
            for machine in ("sim", "rtl")
        ]
    assert parameters(db, "rtl") == parameters(db, "sim")
    assert found[0].loss == found[1].loss


def at(dsn: str) -> str:
    return ", ".join(str(row) for row in fetched(dsn, "SELECT id, x, z, n::float8, y FROM rows ORDER BY ctid"))


def test_models_are_averaged_after_each_epoch(db: Connection, shards: list[str]) -> None:
    filled(shards, 1024, 512, 0)
    options: dict[str, Any] = {"label": "y", "epochs": 10}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        losses = [
            db.train("linear_svm", "rows", shards=shards, sync=sync, model=sync, **options).loss
            for sync in ("batch", "epoch")
        ]
    assert losses[0] is not None
    assert losses[1] is not None
    assert losses[1] <= 1.01 * losses[0]
    metadata = db.session.execute("SELECT metadata FROM dana.model WHERE name = 'epoch'").fetchall()[0][0]
    assert (metadata["sync"], metadata["shards"]) == ("epoch", 3)


def test_columns_that_need_centres_lose_no_digits(db: Connection, shards: list[str]) -> None:
    filled(shards, 200, 100, 300)
    everywhere(shards, "ALTER TABLE rows ALTER n TYPE float8; UPDATE rows SET n = n + 1e9")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        db.train("linear", "rows", shards=shards, sync="batch", label="z", features=["x", "n"], model="far")
    centres = db.session.execute("SELECT metadata -> 'centres' FROM dana.model WHERE name = 'far'").fetchall()[0][0]
    assert centres["features"][1] == pytest.approx(1e9, rel=1e-6)


def test_the_rule_says_how_long_arrays_are(db: Connection, shards: list[str]) -> None:
    """The leader has no row to look at."""
    db.create_rules("logistic")
    for number, dsn in enumerate(shards):
        everywhere(
            [dsn],
            "CREATE TABLE arrays (a float4[], y bool)",
            f"INSERT INTO arrays SELECT ARRAY[i * 37 % 101, i % 7 + {number}], i * 31 % 53 > 20 + i % 7"
            " FROM generate_series(1, 256) AS i",
        )
    with pytest.raises(psycopg.Error, match="length is unknown") as raised:
        db.train("logistic", "arrays", shards=shards, sync="batch", label="y")
    assert str(raised.value.diag.message_hint).endswith("x = dana.input([54]).")
    db.create_rule("pairs", rules.text("logistic").replace("n = dana.dim()", "n = 2"))
    db.train("pairs", "arrays", shards=shards, sync="batch", label="y", model="apart")
    db.train("logistic", "arrays", shards=shards, label="y", model="together")
    apart, together = (db.parameters(model) for model in ("apart", "together"))
    for name, values in together.items():
        np.testing.assert_allclose(apart[name], values, rtol=1e-4, atol=1e-6, err_msg=name)


def test_nulls_become_the_mean_over_all_shards(db: Connection, shards: list[str]) -> None:
    filled(shards, 64, 32, 0)
    everywhere(shards, "UPDATE rows SET x = NULL WHERE id % 5 = 0; UPDATE rows SET y = NULL WHERE id % 7 = 0")
    chosen = "id % 2 = 0 OR id % 3 = 0 -- or"
    rows = [row for dsn in shards for row in fetched(dsn, f"SELECT x, y FROM rows WHERE {chosen}")]
    values = [x for x, y in rows if y is not None]
    known = [x for x in values if x is not None]
    # of rows that are left out
    everywhere(shards, f"UPDATE rows SET y = 'other' WHERE ({chosen}\n) IS FALSE")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {"shards": shards, "sync": "batch", "label": "y", "features": ["x", "z"]}
        result = db.train("logistic", "rows", nulls="mean", filter=chosen, model="filled", **options)
    assert (result.tuples, result.skipped) == (len(values), len(rows) - len(values))
    found = db.session.execute("SELECT metadata -> 'preprocess' FROM dana.model WHERE name = 'filled'").fetchall()[0][0]
    assert [one["column"] for one in found if "impute" in one] == ["x", "z"]
    assert found[0]["impute"] == [pytest.approx(sum(known) / len(known))]


# no city has the rows of a category on a shard alone; hours are in one shard's times; mails identify rows
CITIES = (
    "ALTER TABLE rows ADD city varchar(20), ADD place name, ADD note text, ADD mail text",
    "ALTER TABLE rows ADD since timestamptz, ADD day date",
    """UPDATE rows SET city = CASE WHEN id % 4 > 0 THEN 'city ' || (id / 7 % 17 + id % 5 * (id % 2)) END,
        place = (ARRAY['north', 'Süd', 'o''st'])[id % 13 % 4],
        note = CASE WHEN id % 3 = 0 THEN repeat('x', 300) || id % 2 WHEN id % 5 > 0 THEN ' 7' END,
        since = timestamptz '2020-01-01 UTC' + interval '1 hour' * (24 * id + CASE {shard} WHEN 2 THEN 7 ELSE 0 END),
        day = CASE WHEN id % 11 > 0 THEN date '2021-05-05' - id END, z = nullif(z, 20 + {shard}),
        n = round(n)  -- means of whole numbers are exact
""",
    # rows of one size are in `whole` in the order of their COPY
    "UPDATE rows SET mail = rpad(id || '@', 700 - coalesce(length(city), 0) - coalesce(length(note), 0))",
)
KNOWN = {"city": "''", "place": "'north'", "note": "' 7'", "day": "'2020-02-02'", "z": "1"}
ENCODED = ("features", "encoded", "preprocess", "classes", "types", "scale")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("nulls", ["skip", "mean", "indicator", "7"])
def test_texts_and_dates_are_encoded_as_on_one_server(db: Connection, shards: list[str], nulls: str) -> None:
    # rows that are left out would move the others to other batches
    none = f"UPDATE rows SET {', '.join(f'{name} = coalesce({name}, {value})' for name, value in KNOWN.items())}"
    filled(shards, 256, 256, 256, more=[*CITIES, none] if nulls == "skip" else CITIES)
    options: dict[str, Any] = {"label": "y", "epochs": 2, "shuffle": False, "nulls": nulls}
    db.train("linear_svm", "rows", shards=shards, sync="batch", model="here", **options)
    db.train("linear_svm", "whole", model="there", hyper={"batch": 192}, **options)
    kept = "SELECT metadata FROM dana.model WHERE name = %s"
    [[here], [there]] = [db.session.execute(kept, (name,)).fetchall()[0] for name in ("here", "there")]
    assert {key: here.get(key) for key in ENCODED} == {key: there.get(key) for key in ENCODED}
    assert parameters(db, "here") == parameters(db, "there")
    assert {"city=city 3", "city=other", "place=Süd", "note= 7", "since.hour", "day.dow"} <= {*here["encoded"]}
    assert "mail" not in here["features"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("linear", {"label": "z", "test_size": 0.25, "seed": 7}),
        ("linear_svm", {"label": "y", "test_size": 0.3, "epochs": 2}),
        ("linear_svm", {"label": "y", "test_size": 0.5, "test_by": "x", "epochs": 2}),
        ("linear_svm", {"label": "y", "test_after": {"x": 10}, "epochs": 2}),
    ],
    ids=["key", "classes", "by", "after"],
)
def test_rows_for_a_test_are_those_of_one_server(
    db: Connection, shards: list[str], rule: str, options: dict[str, Any]
) -> None:
    options |= {"features": ["x", "n"], "filter": "id % 10 > 0"}
    filled(shards, 300, 280, 240)
    test = "id % 10 > 0 AND dana_holdout(id::bigint, 0.25, 7)"
    held_out = sum(count for dsn in shards for (count,) in fetched(dsn, f"SELECT count(*) FROM rows WHERE {test}"))
    # as many to train on at each shard, a power of two
    surplus = f"SELECT id FROM rows WHERE ({test}) IS FALSE AND id % 10 > 0 ORDER BY ctid OFFSET 128"
    everywhere(shards, f"DELETE FROM rows WHERE id IN ({surplus})")
    everywhere(shards[:1], "TRUNCATE whole", *(f"INSERT INTO whole VALUES {at(dsn)}" for dsn in shards))
    here = db.train(rule, "rows", shards=shards, sync="batch", model="here", **options)
    there = db.train(rule, "whole", model="there", **options)
    assert (here.tuples, here.skipped) == (there.tuples, there.skipped)
    kept = "SELECT metadata FROM dana.model WHERE name = %s"
    [[mine], [its]] = [db.session.execute(kept, (name,)).fetchall()[0] for name in ("here", "there")]
    chosen = ("test_parts", "test_key", "test_classes", "test_after", "test_size", "seed")
    assert {key: mine.get(key) for key in chosen} == {key: its.get(key) for key in chosen}
    found, expected = (db.evaluate(model, "whole", part="test", filter="id % 10 > 0") for model in ("here", "there"))
    assert found["rows"] == expected["rows"]
    if rule == "linear":
        assert (here.tuples, found["rows"]) == (3 * 128, held_out)
        assert parameters(db, "here") == parameters(db, "there")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sync", ["batch", "epoch"])
def test_rows_for_validation_choose_the_epoch(db: Connection, shards: list[str], sync: str) -> None:
    """They are those of one server; of shards, one has none for it and one has none at all."""
    filled(shards, 700, 2, 0)
    options: dict[str, Any] = {"label": "y", "features": ["x", "z"], "epochs": 30, "patience": 3, "seed": 5}
    options |= {"test_size": 0.2, "validation_size": 0.3, "early_stopping": True, "shuffle": False}
    here = db.train("linear_svm", "rows", shards=shards, sync=sync, model="here", **options)
    there = db.train("linear_svm", "whole", model="there", **options)
    assert (here.tuples, here.skipped) == (there.tuples, there.skipped)
    assert here.validation_loss is not None
    if sync == "batch":  # that shard's rows are one batch of their own on one server
        assert here.validation_loss == pytest.approx(there.validation_loss, rel=0.05)
    kept = "SELECT metadata FROM dana.model WHERE name = %s"
    [[mine], [its]] = [db.session.execute(kept, (name,)).fetchall()[0] for name in ("here", "there")]
    chosen = ("test_parts", "validation_size", "seed")
    assert {key: mine.get(key) for key in chosen} == {key: its.get(key) for key in chosen}


def test_the_validation_loss_is_that_of_all_held_out_rows(db: Connection, shards: list[str]) -> None:
    filled(shards, 128, 128, 128)
    everywhere(shards[:1], "TRUNCATE whole", *(f"INSERT INTO whole VALUES {at(dsn)}" for dsn in shards))
    options: dict[str, Any] = {"label": "z", "features": ["x", "n"], "validation_size": 0.25, "epochs": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = db.train("linear", "rows", shards=shards, sync="batch", model="here", **options)
        there = db.train("linear", "whole", model="there", **options)
    assert (here.tuples, here.epochs) == (there.tuples, there.epochs)
    assert here.validation_loss == pytest.approx(there.validation_loss, rel=1e-5)


@pytest.mark.parametrize("sync", ["batch", "epoch"])
def test_a_shard_without_a_usable_row_is_one_without_rows(db: Connection, shards: list[str], sync: str) -> None:
    """What is reported about its rows names the shard."""
    filled(shards, 64, 32, 40)
    options: dict[str, Any] = {"label": "y", "features": ["x", "z"], "epochs": 2, "shards": shards, "sync": sync}
    everywhere(shards[2:], "UPDATE rows SET x = NULL")
    with pytest.warns(ServerWarning, match=r'^shard 3 \(.*\): 40 of 40 rows of public\.rows are left out: "x" is null'):
        found = db.train("linear_svm", "rows", model="nulls", **options)
    everywhere(shards[2:], "DELETE FROM rows")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        without = db.train("linear_svm", "rows", model="without", **options)
    assert (found.tuples, found.skipped, without.skipped) == (96, 40, 0)
    assert parameters(db, "nulls") == parameters(db, "without")


def test_a_time_and_a_filter_reach_the_shards_as_they_were_written(db: Connection, shards: list[str]) -> None:
    """In the leader's order of day and month, whatever braces are in the filter, and without a shard's type in it."""
    filled(shards, 64, 64, 0)
    everywhere(shards, "ALTER TABLE rows ADD day date", "UPDATE rows SET day = date '2020-01-01' + id, y = '{}'")
    db.session.execute("SET datestyle = 'SQL, DMY'")
    options: dict[str, Any] = {
        "label": "z",
        "features": ["x"],
        "filter": "y = '{}'",
        "test_after": {"day": "02/03/2020"},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained = db.train("linear", "rows", shards=shards, sync="batch", **options)
    db.session.execute("RESET datestyle")
    earlier = "SELECT count(*) FROM rows WHERE day <= '2020-03-02'"
    assert trained.tuples == sum(fetched(dsn, earlier)[0][0] for dsn in shards) > 0

    with opened(shards[:2], "rows", 5) as parts:
        rows = _Rows(db.session, parts, ("id",), {"day": "date"}, {"test_after": {"day": "2020-03-02"}}, None)
        condition, _ = rows.for_test("true")
    assert condition == "COALESCE(\"day\" OPERATOR(pg_catalog.>) '2020-03-02', false)"


def test_what_cannot_stay_at_the_shards_is_said(db: Connection, shards: list[str]) -> None:
    filled(shards, 64, 64, 64)
    everywhere(shards, "ALTER TABLE rows ADD city json; UPDATE rows SET city = '1'")

    def rejected(message: str, rule: str = "logistic", **options: Any) -> None:
        given: dict[str, Any] = {"shards": shards, "sync": "batch", "label": "y", "features": ["x", "z"]}
        with pytest.raises((UsageError, psycopg.Error), match=message):
            db.train(rule, "rows", **given | options)

    rejected("column city is json: with sync='batch' features are numbers, texts or dates", features=["x", "city"])
    rejected("calibrate cannot be given with sync='batch': it needs rows for validation", calibrate="platt")
    rejected('argument "test_size" must be a part of the rows between 0 and 1, not "2"', test_size=2)
    rejected("test_size leaves no row for a test", test_size=0.001)
    rejected("test_after leaves no row for a test", test_after={"x": 1000})
    rejected("the shards have no column 'q', which test_after names", test_after={"q": 1})
    rejected('argument "test_by" chooses the rows of a part, and there is none', test_by="x")
    rejected("nulls='median' cannot be given", nulls="median")
    rejected("has no shards: no rows in dana.shard, and no partitions", shards=None)
    rejected("sync must be gather, batch or epoch, not 'all'", sync="all")
    rejected("timeout must be at least 3 s", timeout=0.5)
    rejected("the shards have no column 'q' for a feature", features=["q"])
    rejected("the shards have no column 'q' for the label", label="q")
    rejected("rule 'nothing' does not exist", rule="nothing")
    rejected("cannot be trained with sync => 'batch': it has no merge", rule="bpr", features=["id", "x"], label=None)
    rejected("it takes one step for all rows", sync="epoch")
    rejected('all labels in column "y" of .* are "no"', filter="y = 'no'")
    rejected("has no row|no row", rule="linear", label="z", features=["x"], filter="x > 1e9")
    everywhere(shards, "ALTER TABLE rows DROP CONSTRAINT rows_pkey")
    rejected("the shards have no primary key, by which rows for a test or validation are chosen", test_size=0.2)
    assert db.session.execute("SELECT pg_catalog.to_regclass('pg_temp.rows')").fetchall() == [(None,)]
    assert db.session.info.transaction_status.name == "IDLE"
    # and from the shell
    arguments = ["--sync", "batch", "--label", "y", "--features", "x,city"]
    assert main(["train", "logistic", "rows", "--dsn", shards[0], *named(shards), *arguments]) == 2


def named(shards: list[str]) -> list[str]:
    return [word for dsn in shards for word in ("--shard", dsn)]


def test_the_shell_trains_where_the_rows_are(
    db: Connection, shards: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    filled(shards, 128, 64, 0)
    arguments = ["--sync", "batch", "--label", "y", "--model", "shell"]
    assert main(["train", "logistic", "rows", "--dsn", shards[0], *named(shards), *arguments]) == 0
    assert "192, 0 skipped" in capsys.readouterr().out
    assert db.evaluate("shell", "rows")["accuracy"] > 0.5


def training_backends(dsn: str) -> list[tuple[Any, ...]]:
    return fetched(dsn, "SELECT pid FROM pg_stat_activity WHERE query LIKE 'CALL dana.%' AND state = 'active'")


def terminate(dsn: str, _: int) -> None:
    fetched(dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL dana.%'")


def cancel(dsn: str, _: int) -> None:
    fetched(dsn, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL dana.%'")


def stop(dsn: str, _: int) -> None:
    for (pid,) in training_backends(dsn):
        send(pid, signal.SIGSTOP)


def sessions(dsn: str) -> list[int]:
    """The processes of the worker's sessions."""
    worker = server_of(dsn).worker_pid
    assert worker is not None
    return children(worker)


def stop_worker(dsn: str, _: int) -> None:
    for pid in sessions(dsn):
        send(pid, signal.SIGSTOP)


def wake(dsn: str) -> None:
    for pid in sessions(dsn):
        send(pid, signal.SIGCONT)
    for (pid,) in fetched(dsn, "SELECT pid FROM pg_stat_activity WHERE query LIKE 'CALL dana.%'"):
        send(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("harm", "message", "sqlstate"),
    [
        (terminate, "terminating connection", "57P01"),
        (cancel, "canceling statement", "57014"),
        (stop, "no message within 3 s", "08006"),
    ],
    ids=["killed", "cancelled", "stopped"],
)
def test_a_shard_that_fails_in_a_training_is_named(
    db: Connection, shards: list[str], harm: Callable[[str, int], None], message: str, sqlstate: str
) -> None:
    filled(shards, 512, 512, 512)

    def later() -> None:
        while not training_backends(shards[1]):
            time.sleep(0.01)
        time.sleep(0.5)
        harm(shards[1], 2)

    thread = threading.Thread(target=later)
    thread.start()
    try:
        with pytest.raises(ShardError, match=rf"shard 2 \(host=.*\): .*{message}") as failed:
            # thousands of rounds
            db.train("linear_svm", "rows", shards=shards, sync="batch", label="y", epochs=100000, patience=0, timeout=3)
    finally:
        thread.join()
        wake(shards[1])
    assert (failed.value.shard, failed.value.sqlstate) == (2, sqlstate)
    assert db.session.execute("SELECT pg_catalog.to_regclass('pg_temp.rows')").fetchall() == [(None,)]
    for dsn in shards:
        while training_backends(dsn):  # a cancel is not waited for
            time.sleep(0.01)


def test_a_shard_that_sends_a_byte_at_a_time_is_named(db: Connection, shards: list[str]) -> None:
    filled(shards, 64, 64, 64)
    with proxy(shards[1], Trickle(MERGES)) as (host, port):
        parts = [shards[0], make_conninfo(shards[1], host=host, port=port), shards[2]]
        with pytest.raises(ShardError, match=r"shard 2 \(host=127.*\): no message within 3 s"):
            db.train("linear_svm", "rows", shards=parts, sync="batch", label="y", timeout=3)


def test_a_shard_that_was_stopped_takes_no_long_message(db: Connection, shards: list[str]) -> None:
    """Of more bytes than the buffers on the way hold."""
    filled(shards, 8, 8, 8)
    part = json.dumps({"mode": "batch", "number": 1, "count": 1})
    text = rules.text("linear").replace("'", "''")
    call = f"CALL dana.dana_train_part('linear', 'rows', '{{\"label\": \"z\"}}', '{part}', '{text}', NULL)"
    with opened(shards[1:2], "rows", 0.5) as [shard]:
        shard.take_user_path()
        peer = _Peer(session=shard.session, shard=shard)
        peer.pgconn.nonblocking = 1
        peer.begin(call)
        os.kill(peer.pgconn.backend_pid, signal.SIGSTOP)
        try:
            with pytest.raises(ShardError, match=r"^shard 1 \(host=.*\): no message within 0\.5 s$"):
                peer.send(bytes(1 << 26))
        finally:
            os.kill(peer.pgconn.backend_pid, signal.SIGCONT)


def test_nothing_that_others_made_at_a_shard_is_called(db: Connection, shards: list[str]) -> None:
    """No operator on the search_path, and no cast: it would run as the role that the connection string names."""
    filled(shards, 64, 64, 0)
    everywhere(shards, "CREATE TYPE answer AS ENUM ('no', 'yes')")
    everywhere(shards, "ALTER TABLE rows ALTER y TYPE answer USING y::answer", "UPDATE rows SET x = NULL WHERE id < 9")
    called = ("oid, regclass", "float8, numeric", "answer")
    for types in called:
        result = "text" if types == "answer" else "boolean"
        body = "LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$"
        everywhere(shards[1:], f"CREATE FUNCTION called({types}) RETURNS {result} {body}")
    everywhere(
        shards[1:],
        "CREATE OPERATOR = (FUNCTION = called, LEFTARG = oid, RIGHTARG = regclass)",
        "CREATE OPERATOR <= (FUNCTION = called, LEFTARG = float8, RIGHTARG = numeric)",
        "CREATE CAST (answer AS text) WITH FUNCTION called(answer)",
    )
    options: dict[str, Any] = {"shards": shards, "label": "y", "features": ["x", "z"], "nulls": "mean"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trained = db.train("logistic", "rows", sync="batch", filter="id > 0", **options)
            assert trained.tuples == 128
            assert db.train("logistic", "rows", sync="gather", **options).tuples == 128
            # a filter is the user's: what it calls is looked up where the user looks
            everywhere(shards, "CREATE FUNCTION own(int) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN $1 > 9")
            assert db.train("logistic", "rows", sync="batch", filter="own(id)", **options).tuples < 128
    finally:
        everywhere(shards[1:], *(f"DROP FUNCTION called({types}) CASCADE" for types in called))
        everywhere(shards, "DROP TYPE answer CASCADE", "DROP FUNCTION IF EXISTS own(int)")


def test_kills_at_any_moment_end_in_the_same_bits_or_a_named_error(db: Connection, shards: list[str]) -> None:
    filled(shards, 512, 256, 128)
    options: dict[str, Any] = {"shards": shards, "sync": "batch", "label": "y", "epochs": 40, "patience": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        db.train("linear_svm", "rows", model="calm", **options)
        undisturbed = parameters(db, "calm")
        generator = random.Random(38)
        for _ in range(scaled(12)):
            number = generator.randrange(3)
            with Connection(psycopg.connect(shards[0], autocommit=True)) as other:
                # at the first server the leader's too
                pid = other.session.info.backend_pid
                victims = f"pid NOT IN ({pid}, pg_backend_pid()) AND query LIKE 'CALL dana.%'"
                query = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {victims}"
                killer = threading.Timer(generator.random(), fetched, (shards[number], query))
                killer.start()
                failed: ShardError | None = None
                try:
                    other.train("linear_svm", "rows", model="stormy", **options)
                    assert parameters(other, "stormy") == undisturbed
                except ShardError as error:
                    failed = error
                finally:
                    killer.join()
                assert failed is None or str(failed).startswith(f"shard {number + 1} (")
    for dsn in shards:
        while training_backends(dsn):
            time.sleep(0.01)


def test_a_part_needs_the_right_to_train(db: Connection, shards: list[str]) -> None:
    filled(shards, 8, 8, 8)
    part = json.dumps({"mode": "batch", "number": 1, "count": 1})
    call = f"CALL dana.dana_train_part('linear', 'rows', '{{}}', '{part}', NULL, NULL)"
    with psycopg.connect(shards[1]) as session:
        session.execute("CREATE ROLE nobody_here; GRANT SELECT ON rows TO nobody_here; SET ROLE nobody_here")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="dana_train"):
            session.execute(call)
        session.rollback()
        for argument in ("'linear'", "'rows'", "'{}'", f"'{part}'"):
            with pytest.raises(psycopg.Error) as failed:
                session.execute(call.replace(argument, "NULL", 1))
            assert failed.value.sqlstate in ("22004", "42601", "22023"), argument
            session.rollback()
        # a parallel worker has no client
        session.execute("SET debug_parallel_query = on; SET max_parallel_workers_per_gather = 1")
        session.execute(
            "CREATE FUNCTION in_worker() RETURNS json LANGUAGE plpgsql PARALLEL SAFE AS "
            f"$$ DECLARE r json; BEGIN {call.replace('NULL, NULL)', 'NULL, r)')}; RETURN r; END $$"
        )
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="is for the Python client"):
            session.execute("SELECT in_worker()")


def test_a_leader_that_is_cancelled_ends_all_parts(db: Connection, shards: list[str]) -> None:
    filled(shards, 512, 512, 512)
    cancel_it = f"SELECT pg_cancel_backend({db.session.info.backend_pid})"

    def later() -> None:
        while not training_backends(shards[2]):
            time.sleep(0.01)
        time.sleep(0.3)
        fetched(shards[0], cancel_it)

    thread = threading.Thread(target=later)
    thread.start()
    try:
        with pytest.raises(psycopg.errors.QueryCanceled):
            db.train("linear_svm", "rows", shards=shards, sync="batch", label="y", epochs=100000, patience=0)
    finally:
        thread.join()
    assert db.session.execute("SELECT pg_catalog.to_regclass('pg_temp.rows')").fetchall() == [(None,)]
    for dsn in shards:
        while training_backends(dsn):
            time.sleep(0.01)


def test_a_part_does_not_begin_within_a_training(db: Connection, shards: list[str]) -> None:
    """It would be relayed to a client that does not expect it."""
    filled(shards, 8, 8, 8)
    part = json.dumps({"mode": "batch", "number": 1, "count": 1})
    call = f"CALL dana.dana_train_part('linear', 'rows', '{{}}', '{part}', NULL, NULL)"
    with db.session.transaction(force_rollback=True):
        db.session.execute(
            "CREATE FUNCTION nested(call text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN EXECUTE call; END $$"
        )
        query = "SELECT x, z FROM rows WHERE nested($call$" + call + "$call$)"
        with pytest.raises(psycopg.errors.ObjectInUse, match="cannot train while this session is training"):
            db.session.execute("SELECT dana_train('linear', query => %s)", (query,))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("far", [0, 1e9], ids=["near", "far"])
def test_a_model_to_start_from_is_the_leader_s(db: Connection, shards: list[str], far: float) -> None:
    """As one server starts from it, and with its centres."""
    filled(shards, 128, 128, 128)
    everywhere(shards, f"ALTER TABLE rows ALTER n TYPE float8 USING n + {far}")
    everywhere(shards[:1], f"ALTER TABLE whole ALTER n TYPE float8 USING n + {far}")
    options: dict[str, Any] = {"label": "y", "features": ["x", "n"], "epochs": 2, "shuffle": False}
    db.train("linear_svm", "whole", model="start", **options)
    options["warm_start_from"] = "start"
    db.train("linear_svm", "rows", shards=shards, sync="batch", model="here", **options)
    db.train("linear_svm", "whole", model="there", hyper={"batch": 192}, **options)
    assert parameters(db, "here") == parameters(db, "there")
    kept = "SELECT metadata ->> 'warm_start_from', metadata ? 'centres' FROM dana.model WHERE name = 'here'"
    assert db.session.execute(kept).fetchall() == [("start", far > 0)]
