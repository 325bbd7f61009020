"""dana_profile and dana_drift: the index is NumPy's, a profile belongs to a version, and who asks is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest

from dana.client.connection import Connection

ROWS = 1000


def columns(shift: float, plans: int, seed: int) -> dict[str, Any]:
    """A number of any value, one of few, and a text."""
    random = np.random.default_rng(seed)
    plan = np.array(["free", "basic", "gold", "team"])[random.integers(0, plans, ROWS)]
    x = random.standard_normal(ROWS) + shift
    few = random.integers(0, 3, ROWS).astype(float)
    return {"size": x, "few": few, "plan": plan, "y": x + few}


def create(session: psycopg.Connection, name: str, made: dict[str, Any]) -> None:
    session.execute(f"CREATE TABLE {name} (size real, few real, plan text, y real)".encode())
    with session.cursor() as cursor, cursor.copy(f"COPY {name} FROM STDIN".encode()) as copy:
        for row in zip(*(one.tolist() for one in made.values()), strict=True):
            copy.write_row(row)


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    with psycopg.connect(pg_uri) as session:
        client = Connection(session)
        client.create_rules("linear")
        create(session, "before", columns(0, 3, 1))
        create(session, "after", columns(0.5, 4, 2))
        client.train("linear", "before", label="y", epochs=2)
        yield client
        session.rollback()


def drift(db: Connection, table: str, model: str = "linear") -> dict[str, Any]:
    found = db.session.execute("SELECT * FROM dana_drift(%s, %s)", (model, table)).fetchall()
    assert [row[2] for row in found] == sorted((row[2] for row in found), reverse=True)
    return {row[0]: row for row in found}


def index(before: list[int], after: list[int]) -> float:
    """Population stability index of two counts, half a row added to each bin that either has."""
    old, new = np.array(before), np.array(after)
    old, new = (one[(old + new) > 0] + 0.5 for one in (old, new))
    old, new = old / old.sum(), new / new.sum()
    return float(np.sum((new - old) * np.log(new / old)))


def test_nothing_has_moved_in_the_table_itself(db: Connection) -> None:
    db.session.execute("SELECT dana_profile('linear')")
    found = drift(db, "before")
    assert set(found) == {"size", "few", "plan"}
    assert [row[2] for row in found.values()] == [0, 0, 0]
    assert [row[3:] for row in found.values()] == [(ROWS, ROWS)] * 3


def test_the_index_is_numpy_s(db: Connection) -> None:
    db.session.execute("INSERT INTO after SELECT NULL, 1, NULL, 2 FROM generate_series(1, 70)")
    db.session.execute("SELECT dana_profile('linear')")
    found = drift(db, "after")
    old, new = (columns(0, 3, 1), columns(0.5, 4, 2))
    assert found["size"][4] == ROWS + 70
    x, moved = (one["size"].astype(np.float32) for one in (old, new))
    cuts = [np.sort(x)[ROWS * k // 10 - 1] for k in range(1, 10)]
    counts = [np.bincount(np.searchsorted(cuts, one, side="right"), minlength=10).tolist() for one in (x, moved)]
    assert found["size"][2] == pytest.approx(index([0, *counts[0]], [70, *counts[1]]), rel=1e-9)
    few = [np.bincount(one["few"].astype(int)) for one in (old, new)]
    assert found["few"][2] == pytest.approx(index(few[0].tolist(), (few[1] + [0, 70, 0]).tolist()), rel=1e-9)
    plans = [[int((one["plan"] == name).sum()) for name in ("free", "basic", "gold", "team")] for one in (old, new)]
    assert found["plan"][2] == pytest.approx(index([0, *plans[0]], [70, *plans[1]]), rel=1e-9)
    assert found["plan"][2] > 0.25 > 0.1 > drift(db, "before")["plan"][2]


def test_no_rows_are_not_alike(db: Connection) -> None:
    """A load that failed must not look like one that changed nothing."""
    db.session.execute("SELECT dana_profile('linear')")
    db.session.execute("CREATE VIEW nobody AS SELECT * FROM before WHERE false")
    with pytest.raises(psycopg.errors.NoDataFound, match="nobody has no rows to compare with"):
        drift(db, "nobody")


def test_a_profile_is_of_a_version(db: Connection) -> None:
    db.session.execute("SELECT dana_profile('linear')")
    db.train("linear", "after", label="y", epochs=2)
    with pytest.raises(psycopg.Error, match="has no profile of its rows"), db.session.transaction():
        drift(db, "after")
    db.session.execute("SELECT dana_profile('linear')")
    assert drift(db, "after")["size"][2] == 0
    assert drift(db, "after", "linear@1")["size"][2] > 0.1
    assert drift(db, "before", "linear@1")["size"][2] == 0


def test_what_is_wrong_is_said(db: Connection) -> None:
    db.session.execute("SELECT dana_profile('linear')")
    db.session.execute("CREATE TABLE other AS SELECT few, plan FROM before")
    with pytest.raises(psycopg.Error, match='column "size" of model "linear" is not in'), db.session.transaction():
        drift(db, "other")
    db.train("linear", "before", label="y", epochs=2, filter="few > 0")
    with pytest.raises(psycopg.Error, match="Make a view of these rows"), db.session.transaction():
        db.session.execute("SELECT dana_profile('linear')")
    db.session.execute("CREATE VIEW positive AS SELECT * FROM before WHERE few > 0")
    db.session.execute("SELECT dana_profile('linear', 'positive')")
    assert drift(db, "positive")["few"][2] == 0
    assert drift(db, "before")["few"][2] > 0.1
