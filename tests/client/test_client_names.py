"""What one may write where a table or columns are named, and what is said where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import psycopg
import pytest

from dana.client.connection import Connection
from dana.errors import UsageError
from dana.session.sources import identifier, names_of

ODD = "Größe 2024"
pytestmark = [pytest.mark.filterwarnings("ignore::dana.ServerNotice", "ignore::dana.ServerWarning")]


def frame() -> pd.DataFrame:
    random = np.random.default_rng(3)
    made = pd.DataFrame({ODD: random.normal(170, 10, 90), "100%": random.normal(size=90)})
    return made.assign(**{"Ja/Nein": np.where(made[ODD] > 172, "ja", "nein")})


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    """A client with rules and a schema; all is rolled back."""
    with psycopg.connect(pg_uri) as session:
        client = Connection(session)
        client.create_rules("logistic", "linear")
        session.execute('CREATE SCHEMA "Mein Schema"')
        yield client
        session.rollback()


@pytest.mark.parametrize("name", [ODD, f'"{ODD}"', f'"Mein Schema"."{ODD}"', "plain", "Public . Plain", "order"])
def test_every_place_takes_every_name(db: Connection, name: str) -> None:
    table = db.load(frame(), name)
    options: Any = {"features": [ODD, "100%"], "label": "Ja/Nein", "epochs": 3}
    for source in (name, table, table.name):
        db.train("logistic", source, model="odd", test_size=0.2, **options)
        assert len(db.predict("odd", source, columns="100%")) == 90
        assert db.evaluate("odd", source)["rows"] < 90
    assert [one.fold for one in db.cross_validate("logistic", name, folds=2, **options)][:2] == ["1", "2"]
    assert db.search("logistic", name, grid={"penalty": [0.1]}, test_size=0.5, **options)[0].rank == 1
    assert len(db.train_groups("linear", name, group_by="Ja/Nein", label="100%", features=ODD, epochs=2)) == 2
    assert name.replace('"', "").split(".")[-1].strip().lower() in db.explain("logistic", name, **options).lower()


def test_a_table_that_does_not_exist(db: Connection) -> None:
    """The same everywhere, with the one that is meant; and the transaction goes on."""
    db.load(frame(), '"Mein Schema"."Customers"')
    db.load(frame(), ODD)
    calls: list[Callable[[str], Any]] = [
        lambda name: db.train("logistic", name),
        lambda name: db.train_groups("logistic", name, group_by=["x"]),
        lambda name: db.cross_validate("logistic", name),
        lambda name: db.search("logistic", name, grid={"penalty": [0.1]}),
        lambda name: db.explain("logistic", name),
        lambda name: db.start("train", "logistic", name),
        lambda name: db.evaluate("any", name),
    ]
    for ask in calls:
        with pytest.raises(
            UsageError, match='table "Grösse 2024" does not exist\nHint: Perhaps you meant "Größe 2024"'
        ):
            ask("Grösse 2024")
        with pytest.raises(UsageError, match=r'Perhaps you meant "Mein Schema"\."Customers"\.'):
            ask("customer")
    with pytest.raises(UsageError, match=r'table zzzz does not exist\nHint: There are .*"Größe 2024"'):
        db.train("logistic", "zzzz")


@pytest.mark.parametrize("name", ["a.b c", 'x"y', "", " ", ".", '"', "a\0b"])
def test_what_is_no_name(db: Connection, name: str) -> None:
    for ask in (lambda: db.load(frame(), name), lambda: db.train("logistic", name)):
        with pytest.raises(UsageError, match="is not a valid name"):
            ask()


def test_rows_where_a_name_belongs(db: Connection) -> None:
    for rows in (frame(), pl.DataFrame({"a": [1]})):
        with pytest.raises(TypeError, match=r'not a DataFrame; make it a table with db\.load\(frame, "name"\) first'):
            db.train("logistic", rows)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a table's name is expected, not a int"):
        identifier(3)
    with pytest.raises(UsageError, match="not a Series"):
        db.load(frame()[ODD], "series")


def test_names_of_columns(db: Connection) -> None:
    """One, or several in anything that holds them, as pandas has it."""
    made = frame()
    for given in ("100%", ["100%"], ("100%",), made.columns[1:2], made.columns[1:2].to_numpy(), pd.Series(["100%"])):
        assert names_of("features", given) == ["100%"]
    db.load(made, "t")
    result = db.train("logistic", "t", features="100%", label="Ja/Nein", epochs=1)
    assert [one.term for one in db.coefficients(result.model)] == ["(intercept)", "100%"]
    assert db.cross_validate("logistic", "t", folds=2, features="100%", label="Ja/Nein", metrics="auc")[0].metrics
    for wrong, message in ((3, "not int"), (["a", 3], "not 'a', 3"), ({"a": 1}, "not dict")):
        for ask in (db.train, db.cross_validate):
            with pytest.raises(TypeError, match=f"features must be a name or a sequence of names, {message}"):
                ask("logistic", "t", features=wrong, label="Ja/Nein")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="label must be a name, not a Series"):
        db.train("logistic", "t", features=["100%"], label=made["Ja/Nein"])  # type: ignore[typeddict-item]
