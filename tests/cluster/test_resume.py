"""Trainings over shards that are interrupted, and go on from their checkpoint with the same bits."""

from __future__ import annotations

import random
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from dana.client.connection import Connection
from dana.session.notices import ServerWarning
from tests.cluster.conftest import everywhere, fetched, left
from tests.cluster.test_sync import filled, parameters, training_backends
from tests.cluster.test_sync_in_sql import map_rows, mapped
from tests.scale import scaled

__all__ = ["mapped"]

OPTIONS: dict[str, Any] = {"label": "y", "epochs": 300, "patience": 0}
WRITTEN = "SELECT epoch FROM dana.checkpoint WHERE model = 'm'"


def train(db: Connection, shards: list[str], way: str, model: str = "m", **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by = {"shards": shards} if way == "list" else {}
        db.train("linear_svm", "rows", model=model, **by, **OPTIONS | options)


@pytest.fixture(autouse=True)
def removed(shards: list[str]) -> Iterator[None]:
    yield
    everywhere(shards[:1], "DELETE FROM dana.checkpoint")


def wait_for_nothing(shards: list[str], pid: int) -> None:
    """No part trains, the process has ended, and no checkpoint is being written."""
    query = f"SELECT FROM pg_stat_activity WHERE pid = {pid} OR backend_type = 'dana checkpoint'"
    for dsn in shards:
        while training_backends(dsn) or fetched(dsn, query):
            time.sleep(0.01)


def interrupted(shards: list[str], way: str, after: int, **options: Any) -> int:
    """Kill a training after a checkpoint of a later epoch than ``after``; return the epoch of the last checkpoint."""
    session = psycopg.connect(shards[0], autocommit=True)
    pid = session.info.backend_pid

    def run() -> None:
        with suppress(psycopg.Error), Connection(session) as other:
            train(other, shards, way, **options)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive() and not any(epoch > after for (epoch,) in fetched(shards[0], WRITTEN)):
        time.sleep(0.005)
    assert thread.is_alive(), "it ended before a checkpoint"
    fetched(shards[0], f"SELECT pg_terminate_backend({pid})")
    thread.join()
    wait_for_nothing(shards, pid)
    [[epoch]] = fetched(shards[0], WRITTEN)
    return int(epoch)


def epochs(db: Connection, model: str) -> list[tuple[Any, ...]]:
    """Of the last run of a model."""
    last = "(SELECT max(id) FROM dana.run WHERE model = %s)"
    query = f"SELECT epoch, loss, validation_loss, tuples, cycles FROM dana.epoch WHERE run = {last} ORDER BY epoch"
    return db.session.execute(query, (model,)).fetchall()


HELD_OUT = {"test_size": 0.2, "validation_size": 0.25, "early_stopping": True, "seed": 3}


@pytest.mark.parametrize(
    ("way", "options"),
    [
        ("map", {"sync": "batch"}),
        ("list", {"sync": "epoch"}),
        ("map", {"sync": "batch"} | HELD_OUT),
        pytest.param("list", {"sync": "epoch"} | HELD_OUT, marks=pytest.mark.exhaustive),
    ],
    ids=["batch", "epoch", "batch-held-out", "epoch-held-out"],
)
def test_it_goes_on_with_the_bits_of_one_that_was_not_interrupted(
    mapped: Connection, shards: list[str], way: str, options: dict[str, Any]
) -> None:
    filled(shards, 512, 256, 128)
    map_rows(mapped)
    train(mapped, shards, way, "calm", **options)
    first = interrupted(shards, way, 0, **options, resume="unchanged")
    second = interrupted(shards, way, first, **options, resume="unchanged")
    assert second > first > 0
    train(mapped, shards, way, **options, resume="unchanged")
    assert parameters(mapped, "m") == parameters(mapped, "calm")
    assert epochs(mapped, "m") == epochs(mapped, "calm")
    [[same]] = mapped.session.execute(
        "SELECT count(DISTINCT (epochs, kept, converged, loss, tuples, cycles, modelled_seconds)) FROM dana.run "
        "WHERE id IN (SELECT max(id) FROM dana.run WHERE model IN ('m', 'calm') GROUP BY model)"
    ).fetchall()
    assert same == 1
    assert fetched(shards[0], "SELECT FROM dana.checkpoint") == []
    assert left(shards) == []


def resumed(**options: Any) -> str:
    given = OPTIONS | {"sync": "batch", "resume": "unchanged"} | options
    arguments = ", ".join(f"{name} => {psycopg.sql.Literal(value).as_string()}" for name, value in given.items())
    return f"SELECT dana_train('linear_svm', 'rows', 'm', {arguments})"


def test_rows_that_changed_and_other_trainings_end_it(mapped: Connection, shards: list[str]) -> None:
    filled(shards, 256, 64, 64)
    map_rows(mapped)
    interrupted(shards, "map", 0, sync="batch", resume="unchanged")
    with pytest.raises(psycopg.Error, match="belongs to a training with another hyper") as other:
        mapped.session.execute(resumed(hyper='{"lr": 0.2}'))
    assert other.value.sqlstate == "22023"
    # of the same sums
    everywhere(
        shards[1:2],
        "UPDATE rows SET x = (SELECT x FROM rows WHERE id = 16 - r.id) FROM rows AS r "
        "WHERE rows.id = r.id AND r.id IN (5, 11)",
    )
    with pytest.raises(psycopg.Error, match=r"rows of shard 2 of 3, .* have changed since epoch \d+") as changed:
        mapped.session.execute(resumed())
    assert changed.value.sqlstate == "40001"
    assert len(fetched(shards[0], WRITTEN)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.warns(
            ServerWarning, match="rows of shard 2 of 3, .*; the training continues with the current rows"
        ):
            mapped.train("linear_svm", "rows", model="m", sync="batch", resume="anyway", **OPTIONS)
    assert [epoch for epoch, *_ in epochs(mapped, "m")] == list(range(1, OPTIONS["epochs"] + 1))
    assert fetched(shards[0], WRITTEN) == []
    with pytest.raises(psycopg.Error, match="\"resume\" goes with sync => 'batch' or sync => 'epoch'"):
        mapped.session.execute(resumed(sync="gather"))


def test_one_training_has_a_checkpoint_and_its_role_sees_it(mapped: Connection, shards: list[str]) -> None:
    filled(shards, 512, 64, 64)
    map_rows(mapped)
    mapped.session.execute("SELECT dana_start('dana_train', %s)", (job(epochs=100000),))
    while not fetched(shards[0], WRITTEN):
        time.sleep(0.01)
    with pytest.raises(psycopg.errors.ObjectInUse, match='another training has the checkpoint of model "m"'):
        mapped.session.execute(resumed())
    mapped.session.execute("DROP ROLE IF EXISTS analyst; CREATE ROLE analyst; SET ROLE analyst")
    try:
        assert mapped.session.execute("SELECT * FROM dana.checkpoint").fetchall() == []
        for statement in (
            "DELETE FROM dana.checkpoint",
            "INSERT INTO dana.checkpoint VALUES ('postgres'::regrole, 'm', 1, now(), '')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                mapped.session.execute(statement)
    finally:
        mapped.session.execute("RESET ROLE; DROP ROLE analyst; SELECT dana_cancel(max(id)) FROM dana.job")
    mapped.session.execute("SELECT dana_wait(max(id)) FROM dana.job")
    assert len(fetched(shards[0], WRITTEN)) == 1
    prune = "SELECT checkpoints FROM dana_prune('1 day')"
    assert mapped.session.execute(prune).fetchall() == [(0,)]
    # and again as a job, from the beginning
    mapped.session.execute("SELECT dana_start('dana_train', %s)", (job(resume="never"),))
    assert mapped.session.execute("SELECT dana_wait(max(id)) FROM dana.job").fetchall() == [("done",)]
    assert fetched(shards[0], WRITTEN) == []
    mapped.session.execute(
        "INSERT INTO dana.checkpoint VALUES ('postgres'::regrole, 'm', 1, now() - interval '2 days', '')"
    )
    assert mapped.session.execute(prune).fetchall() == [(1,)]


def job(**options: Any) -> Jsonb:
    given = {"rule": "linear_svm", "source": "rows", "model": "m", "sync": "batch", "resume": "unchanged"}
    return Jsonb(given | OPTIONS | options)


def test_a_checkpoint_that_cannot_be_written_is_a_warning(mapped: Connection, shards: list[str]) -> None:
    """Another session has the row; and a transaction that sees nothing new removes what was written."""
    filled(shards, 512, 64, 64)
    map_rows(mapped)
    with psycopg.connect(shards[0]) as other:
        other.execute("INSERT INTO dana.checkpoint VALUES ('postgres'::regrole, 'm', 1, now(), '')")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.warns(ServerWarning, match=r"the checkpoint of epoch \d+ was not written: an error"):
                mapped.train("linear_svm", "rows", model="m", sync="batch", resume="unchanged", **OPTIONS)
        other.rollback()
    mapped.session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM dana.model")
    train(mapped, shards, "map", sync="batch", resume="unchanged")
    mapped.session.execute("COMMIT")
    assert fetched(shards[0], WRITTEN) == []


def test_kills_at_any_moment_delay_it(mapped: Connection, shards: list[str]) -> None:
    """Of any backend: the bits are those of a training that was not killed."""
    filled(shards, 512, 256, 128)
    map_rows(mapped)
    short = {"sync": "batch", "epochs": 100}
    train(mapped, shards, "map", "calm", **short)
    generator = random.Random(38)
    for _ in range(scaled(4)):
        with Connection(psycopg.connect(shards[0], autocommit=True)) as other:
            number, pid = generator.randrange(4), other.session.info.backend_pid
            victim = f"pid = {pid}" if number == 3 else f"pid <> {pid} AND query LIKE 'CALL dana.%'"
            kill = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {victim}"
            killer = threading.Timer(generator.random() * 3, fetched, (shards[number % 3], kill))
            killer.start()
            with suppress(psycopg.Error):
                train(other, shards, "map", resume="unchanged", **short)
            killer.join()
        wait_for_nothing(shards, pid)
    train(mapped, shards, "map", resume="unchanged", **short)
    assert parameters(mapped, "m") == parameters(mapped, "calm")
    assert fetched(shards[0], WRITTEN) == []
