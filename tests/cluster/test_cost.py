"""What a training over shards would cost: the model's arithmetic, and that it is told the sizes of real messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_type_hints

import pytest

from dana.client.connection import Connection
from dana.cluster import relay
from dana.cluster.shards import ShardError
from dana.errors import UsageError
from dana.records import ShardCost
from dana.trainer.shard_costs import Cost, Work, costs
from dana.worker.link import MERGES
from tests.cluster.conftest import everywhere

# the fourth server of docs/cluster.md, on one machine, with nothing between the servers
FOUR = Work(
    shards=4,
    rows=80_000,
    pages=2_500,
    columns=55,
    batch=64,
    epochs=3,
    merged=452,
    models=900,
    hosts=1,
    round_trip=0.0,
    rate=3e9,
)


def test_the_plan_has_the_members_of_a_cost() -> None:
    assert get_type_hints(ShardCost) == get_type_hints(Cost)


def test_a_fourth_server_takes_what_was_measured() -> None:
    gather, batch, epoch = costs(FOUR)
    # without the three epochs, which read 0.02 µs a row
    assert gather.seconds == pytest.approx(0.130, rel=0.1)
    assert batch.seconds == pytest.approx(0.662, rel=0.15)
    assert costs(replace(FOUR, epochs=22))[2].seconds == pytest.approx(0.479, rel=0.15)
    assert costs(replace(FOUR, epochs=22, rows=240_000))[2].seconds == pytest.approx(0.776, rel=0.15)
    assert (gather.rounds, batch.rounds, epoch.rounds) == (0, 3 * (313 + 1), 3)


def test_bytes_are_those_that_pass_the_relay() -> None:
    gather, batch, epoch = costs(FOUR)
    assert gather.bytes == 2 * 2_500 * 8192
    assert batch.bytes == 3 * 313 * 452 * (4 + 4 * 4)
    assert epoch.bytes == 3 * 2 * 4 * 900


def test_most_waiting_is_warned_of() -> None:
    small, large = (costs(replace(FOUR, hosts=4, rows=8e7, batch=batch))[1] for batch in (64, 65_536))
    assert small.waiting > 0.9
    assert small.warning is not None
    assert f"{small.waiting:.0%} of an epoch" in small.warning
    assert large.waiting < 0.5
    assert large.warning is None


def test_more_servers_are_better_where_rows_are_dear() -> None:
    many = replace(FOUR, shards=1000, hosts=1000, rows=1e9, pages=3e7, epochs=100, batch=None)
    assert [one.servers for one in costs(many)] == [1, 256, 256]
    assert [one.servers for one in costs(replace(many, rows=1e4, pages=3e2))] == [1, 1, 1]


def test_sizes_come_from_the_shards(db: Connection, shards: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere(
        shards,
        "CREATE TABLE rows (id int PRIMARY KEY, a float4, b float4, y int)",
        "INSERT INTO rows SELECT i * 3 + {shard}, i % 7, i % 5, (i % 7 > 3)::int FROM generate_series(1, 1000) AS i",
        "ANALYZE rows",
    )
    options = {"label": "y", "epochs": 2}
    found = {one.sync: one for one in db.explain_shards("linear_svm", "rows", shards, **options)}
    assert db.session.execute("SELECT to_regclass('pg_temp.dana_shards')").fetchall() == [(None,)]
    assert found["batch"].rounds == 2 * (16 + 1)

    sent: list[int] = []
    collect = relay._Relay._collect

    def collected(self: relay._Relay, peers: Sequence[relay._Peer]) -> dict[relay._Peer, bytes | None]:
        messages = collect(self, peers)
        sent.extend(len(one) - 1 for one in messages.values() if one is not None and one[:1] == MERGES)
        return messages

    monkeypatch.setattr(relay._Relay, "_collect", collected)
    db.train("linear_svm", "rows", shards=shards, sync="batch", shuffle=False, **options)
    assert found["batch"].bytes == sum(sent) * (1 + len(shards))

    everywhere(shards[1:], "ALTER TABLE rows RENAME TO counted", "CREATE VIEW rows AS SELECT * FROM counted")
    with pytest.raises(UsageError, match="the primary key"):
        db.explain_shards("linear_svm", "rows", shards)
    with pytest.raises(UsageError, match=r"shard 1 .*rows of rows have not been counted"):
        db.explain_shards("linear_svm", "rows", shards[1:])
    everywhere(shards[1:], "DROP TABLE counted CASCADE")
    with pytest.raises(ShardError, match=r'shard 1 .*relation "nowhere" does not exist'):
        db.explain_shards("linear_svm", "nowhere", shards)


def test_the_table_may_have_texts_and_nulls(db: Connection, shards: list[str]) -> None:
    """Classes, categories and means are found in rows of the shards."""
    everywhere(
        shards,
        "CREATE TABLE rows (id int PRIMARY KEY, a float4, city text, y text)",
        "INSERT INTO rows SELECT i * 3 + {shard}, nullif(i % 7, 0), 'c' || i % 3, "
        "CASE WHEN i * 31 % 53 > 20 THEN 'yes' ELSE 'no' END FROM generate_series(1, 300) AS i",
        "ANALYZE rows",
    )
    for options in ({}, {"nulls": "mean"}, {"features": ["a"], "label": "y"}):
        gather, batch, epoch = db.explain_shards("logistic", "rows", shards, **options)
        assert (gather.error, batch.error) == (None, None)
        assert "cannot be trained with sync => 'epoch': it takes one step for all rows" in str(epoch.error)
        assert epoch.warning is None


def test_an_array_is_as_many_columns(db: Connection, shards: list[str]) -> None:
    """The same numbers as columns take as long; the key is none of them."""
    columns = ", ".join(f"i % {k + 3} AS c{k}" for k in range(9))
    found = []
    for select in (columns, "(SELECT array_agg((i % k)::float4) FROM generate_series(3, 11) AS k) AS c"):
        everywhere(
            shards,
            "DROP TABLE IF EXISTS rows",
            f"CREATE TABLE rows AS SELECT i * 3 + {{shard}} AS id, {select}, i % 2 AS y "
            "FROM generate_series(1, 500) AS i",
            "ALTER TABLE rows ADD PRIMARY KEY (id)",
            "ANALYZE rows",
        )
        found.append(db.explain_shards("linear_svm", "rows", shards, label="y", hyper={"batch": 64}))
    assert [one.seconds for one in found[0][1:]] == [one.seconds for one in found[1][1:]]
