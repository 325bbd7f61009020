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
    assert set(found) == {"size", "few", "plan", "y"}
    assert [row[2] for row in found.values()] == [0, 0, 0, 0]
    assert [row[3:] for row in found.values()] == [(ROWS, ROWS)] * 4


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
    with pytest.raises(psycopg.errors.InvalidName, match="takes the name of a model, not"), db.session.transaction():
        db.session.execute("SELECT dana_profile('linear@1')")
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


@pytest.fixture
def rated(db: Connection) -> Connection:
    """Ratings of 500 users and 2,000 items, of which few are many people's; `lrmf` has a profile of them."""
    random = np.random.default_rng(3)
    users, items = random.integers(0, 500, 8000), np.floor(2000 * random.random(8000) ** 2).astype(int)
    stars = np.minimum(random.integers(1, 6, 8000) + random.integers(0, 3, 8000), 5)
    db.create_rules("lrmf")
    db.session.execute("CREATE TABLE rated (i int, j int, y real)")
    with db.session.cursor() as cursor, cursor.copy("COPY rated FROM STDIN") as copy:
        for row in zip(users.tolist(), items.tolist(), stars.tolist(), strict=True):
            copy.write_row(row)
    db.session.execute("SELECT dana_train('lrmf', 'rated', epochs => 1); SELECT dana_profile('lrmf')")
    return db


def drift_of(db: Connection, query: str) -> dict[str, Any]:
    db.session.execute(f"CREATE OR REPLACE VIEW now AS {query}")  # type: ignore[arg-type]
    return drift(db, "now", "lrmf")


def test_categories_are_compared_as_such(rated: Connection) -> None:
    found = rated.session.execute("SELECT metadata -> 'categories' FROM dana.model WHERE name = 'lrmf'").fetchone()
    assert found == (["i", "j"],)
    half = drift_of(rated, "SELECT * FROM rated WHERE hashint4(i * 2000 + j) % 2 = 0")
    assert all(row[2] < 0.1 for row in half.values())
    permuted = drift_of(rated, "SELECT i, (j * 7 + 13) % 2000 AS j, y FROM rated")
    assert permuted["j"][2] > 0.25 > 0.1 > permuted["i"][2]
    assert drift_of(rated, "SELECT i + 500 AS i, j, y FROM rated")["i"][2] > 0.25
    few = drift_of(rated, "SELECT * FROM rated UNION ALL SELECT i, (SELECT min(j) FROM rated), y FROM rated")
    assert few["j"][2] > 0.25, "one is everybody's now"


def test_the_label_is_compared_where_there_is_one(rated: Connection) -> None:
    assert drift_of(rated, "SELECT i, j, 6 - y AS y FROM rated")["y"][2] > 0.25
    rated.session.execute("DROP VIEW now")
    assert set(drift_of(rated, "SELECT i, j FROM rated")) == {"i", "j"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            "'u' || i AS i, j, y::real",
            'column "i" of .*now has type text, and model "lrmf" was trained on numbers: none of',
        ),
        ("i, j, y::text AS y", 'column "y" of .*now has type text, and model "lrmf" was trained on numbers: none of'),
    ],
)
def test_what_cannot_be_compared_is_not_alike(rated: Connection, columns: str, message: str) -> None:
    with pytest.raises(psycopg.errors.DatatypeMismatch, match=message):
        drift_of(rated, f"SELECT {columns} FROM rated")


def test_arrays_that_are_shorter_are_not_alike(rated: Connection) -> None:
    rated.create_rules("fm")
    rated.session.execute("CREATE TABLE pairs AS SELECT ARRAY[i, j] AS pair, y FROM rated")
    rated.session.execute("SELECT dana_train('fm', 'pairs', epochs => 1); SELECT dana_profile('fm')")
    rated.session.execute("CREATE VIEW halves AS SELECT ARRAY[i] AS pair, y FROM rated")
    found = rated.session.execute("SELECT element, psi, found FROM dana_drift('fm', 'halves')").fetchall()
    assert found[0] == (2, float("inf"), 0)


MALFORMED = {
    "of texts": '"x"',
    "without members": '[{"feature": "size"}]',
    "too large": '[{"feature": "size", "element": 1, "values": null, "bounds": [1e400], "rows": [0, 1, 1]}]',
    "no counts": '[{"feature": "size", "element": 1, "values": null, "bounds": [1], "rows": [0, "a", 1]}]',
    "null": None,
}


@pytest.mark.parametrize("profile", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_profile_is_an_error(db: Connection, profile: str | None) -> None:
    message = 'the profile of model "linear" is malformed'
    with pytest.raises(psycopg.errors.DataException, match=message), db.session.transaction():
        db.session.execute("SELECT dana.dana_store_profile('linear', %s, 1)", (profile,))
    if profile is not None:
        # a superuser stored it
        db.session.execute(
            "UPDATE dana.model SET metadata = metadata || jsonb_build_object('profile', %s::jsonb)", (profile,)
        )
        with pytest.raises(psycopg.errors.DataException, match=message):
            drift(db, "after")
