"""Categories say how large models are: the largest number that the table holds, wherever its rows come from."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import psycopg
import pytest
from psycopg.types.json import Jsonb

from dana.client.connection import Connection

USERS, ITEMS = 1203, 47
ROWS = 600


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    random = np.random.default_rng(0)
    with psycopg.connect(pg_uri) as session:
        client = Connection(session)
        client.create_rules("lrmf", "fm", "bpr")
        session.execute("CREATE TABLE rated (i int, j smallint, pair int[], y real)")
        with session.cursor() as cursor, cursor.copy("COPY rated FROM STDIN") as copy:
            for row in range(ROWS):
                i, j = (int(random.integers(n - 1)) for n in (USERS, ITEMS)) if row else (USERS - 1, ITEMS - 1)
                copy.write_row((i, j, [i, j], float(random.normal())))
        yield client
        session.rollback()


def dims(db: Connection, model: str) -> dict[str, int]:
    found = db.session.execute("SELECT metadata->'dims' FROM dana.model WHERE name = %s", (model,)).fetchone()
    assert found is not None
    return {name: found[0][name] for name in ("m", "n") if name in found[0]}


@pytest.mark.parametrize(
    ("rule", "arguments", "wanted"),
    [
        ("lrmf", "'rated', features => '{i,j}', label => 'y'", {"m": USERS, "n": ITEMS}),
        ("lrmf", "'rated', features => '{i,j}', label => 'y', machine => 'interp'", {"m": USERS, "n": ITEMS}),
        ("lrmf", "'rated', features => '{j,i}', label => 'y'", {"m": ITEMS, "n": USERS}),
        ("lrmf", "'rated', features => '{i,j}', label => 'y', hyper => '{\"m\": 1300}'", {"m": 1300, "n": ITEMS}),
        ("lrmf", "'rated', features => '{i,j}', label => 'y', filter => 'i < 20'", {"m": 20}),
        ("lrmf", "query => 'SELECT i, j, y FROM rated WHERE j < 9'", {"n": 9}),
        ("lrmf", """query => 'SELECT i AS "The User", j, y FROM rated', features => '{The User,j}'""", {"m": USERS}),
        ("fm", "'rated', features => '{pair}', label => 'y'", {"n": USERS}),
        ("fm", "'rated', features => '{i,j}', label => 'y'", {"n": USERS}),
    ],
)
def test_the_table_says_how_many(db: Connection, rule: str, arguments: str, wanted: dict[str, int]) -> None:
    db.session.execute(f"SELECT dana_train('{rule}', {arguments}, epochs => 1)".encode())
    assert wanted.items() <= dims(db, rule).items()


@pytest.mark.parametrize("left_out", [False, True])
def test_rows_left_out_for_a_test_count(db: Connection, left_out: bool) -> None:
    """One row alone has the largest numbers."""
    found = db.session.execute(
        "SELECT s FROM generate_series(0, 99) AS s, rated WHERE i = %s AND dana_holdout(rated.ctid, 0.5, s) = %s",
        (USERS - 1, left_out),
    ).fetchone()
    assert found is not None
    db.session.execute(
        "SELECT dana_train('lrmf', 'rated', features => '{i,j}', label => 'y', epochs => 1, test_size => 0.5, "
        "seed => %s)",
        found,
    )
    assert dims(db, "lrmf") == {"m": USERS, "n": ITEMS}


@pytest.mark.parametrize("source", ["'rated'", "NULL"])
def test_rows_of_other_folds_count(db: Connection, source: str) -> None:
    """The row that alone has the largest number is in one fold, which the others' model predicts."""
    asked = {"features": ["i", "j"], "label": "y", "epochs": 1}
    if source == "NULL":
        asked["query"] = "SELECT i, j, y FROM rated"
    for call in ("dana_cross_validate('lrmf', {}, folds => 2", "dana_search('lrmf', {}, '[{{}}]', 'rmse', folds => 2"):
        statement = f"SELECT count(*) FROM {call.format(source)}, training => %s)"
        assert db.session.execute(statement.encode(), (Jsonb(asked),)).fetchone() is not None


def test_null_nan_and_infinity_are_no_categories(db: Connection) -> None:
    db.session.execute("CREATE TABLE gaps AS SELECT i::float8, j::float8, y FROM rated WHERE i < 100")
    db.session.execute("INSERT INTO gaps VALUES ('NaN', 1, 1), ('Infinity', 2, 1), (NULL, 3, 1)")
    db.session.execute("SELECT dana_train('lrmf', 'gaps', epochs => 1)")
    users = db.session.execute("SELECT max(i) + 1 FROM rated WHERE i < 100").fetchone()
    assert users == (dims(db, "lrmf")["m"],)


def test_a_model_to_start_from_says_it(db: Connection) -> None:
    of = "features => '{i,j}', label => 'y', epochs => 1"
    db.session.execute(f"SELECT dana_train('lrmf', 'rated', 'first', {of}, hyper => '{{\"k\": 3}}')".encode())
    db.session.execute("CREATE TABLE later AS SELECT * FROM rated WHERE i < 500")
    db.session.execute(f"SELECT dana_train('lrmf', 'later', 'second', {of}, warm_start_from => 'first')".encode())
    assert dims(db, "second") == {"m": USERS, "n": ITEMS}
    of = of.replace("i,j", "j,i")
    with pytest.raises(psycopg.Error, match="columns i, j, in this order, but column j has another position"):
        db.session.execute(f"SELECT dana_train('lrmf', 'later', 'third', {of}, warm_start_from => 'first')".encode())


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_new_categories_begin_as_in_a_cold_start(db: Connection, machine: str) -> None:
    of = f"features => '{{i,j}}', label => 'y', epochs => 1, machine => '{machine}'"
    db.session.execute("CREATE TABLE early AS SELECT * FROM rated WHERE i < 500")
    db.session.execute("CREATE TABLE last AS SELECT * FROM rated WHERE i = %s", (USERS - 1,))
    for table, model, more in (
        ("early", "early", ""),
        ("last", "grown", ", warm_start_from => 'early'"),
        ("last", "cold", f""", hyper => '{{"n": {ITEMS}}}'"""),
    ):
        db.session.execute(f"SELECT dana_train('lrmf', '{table}', '{model}', {of}{more})".encode())
    early, grown, cold = (db.parameters(name)["U"] for name in ("early", "grown", "cold"))
    assert len(grown) == USERS
    np.testing.assert_array_equal(grown[: len(early)], early)
    np.testing.assert_array_equal(grown[len(early) : USERS - 1], cold[len(early) : USERS - 1])
    assert (grown[USERS - 1] != cold[USERS - 1]).any(), "trained beside other factors of items"


def test_groups_have_models_of_one_size(db: Connection) -> None:
    db.session.execute("ALTER TABLE rated ADD part int")
    db.session.execute("UPDATE rated SET part = i % 3")
    made = db.session.execute(
        "SELECT model FROM dana_train_groups('lrmf', 'rated', '{part}', "
        """'{"features": ["i", "j"], "label": "y", "epochs": 1}')"""
    ).fetchall()
    assert [dims(db, name) for (name,) in made] == [{"m": USERS, "n": ITEMS}] * 3


def test_numbers_that_are_none_of_categories(db: Connection) -> None:
    db.session.execute("CREATE TABLE keys AS SELECT i + 5000000000 AS i, j, y FROM rated")
    with pytest.raises(psycopg.errors.DataException, match=r"column i of .*keys holds 50000012\d\d, but") as e:
        db.session.execute("SELECT dana_train('lrmf', 'keys', epochs => 1)")
    assert "Number the categories" in str(e.value.diag.message_hint)


def test_explain_knows_them(db: Connection) -> None:
    found, said = (
        str(db.explain("lrmf", "rated", features=["i", "j"], label="y", **more))
        for more in ({}, {"hyper": {"m": USERS, "n": ITEMS}})
    )
    assert found == said != str(db.explain("lrmf", "rated", features=["i", "j"], label="y", hyper={"m": 9, "n": 99}))


@pytest.fixture
def told(db: Connection) -> list[str]:
    """NOTICEs about columns and rows, each with its hint."""
    heard: list[str] = []

    def hear(said: psycopg.errors.Diagnostic) -> None:
        if re.match("column |.* left out", str(said.message_primary)):
            heard.append(f"{said.message_primary}\n{said.message_hint}")

    db.session.execute("SET client_min_messages = notice")
    db.session.add_notice_handler(hear)
    return heard


QUICK = "epochs => 1"


def test_a_number_far_beyond_the_rows(db: Connection, told: list[str]) -> None:
    db.session.execute("CREATE TABLE stray AS SELECT i, j, y FROM rated")
    db.session.execute(f"SELECT dana_train('lrmf', 'stray', {QUICK})".encode())
    assert told == []
    db.session.execute("INSERT INTO stray VALUES (150000, 1, 1)")
    db.session.execute(f"SELECT dana_train('lrmf', 'stray', {QUICK})".encode())
    (said,) = told
    assert said.startswith("column i: models get 150001 rows for its numbers, but the 601 rows of public.stray")
    assert "choose at most 601\nNumber the values" in said


def test_numbers_below_0(db: Connection, told: list[str]) -> None:
    query = "SELECT nullif(i, 5) AS i, CASE WHEN j = 3 THEN -1 ELSE j END AS j, y FROM rated"
    (count,) = db.session.execute("SELECT count(*) FROM rated WHERE j = 3").fetchone() or ()
    db.session.execute(f"SELECT dana_train('fm', query => '{query} WHERE i <> 5', {QUICK})".encode())
    assert [one for one in told if "below 0" in one] == [
        f"column j: {count} rows hold numbers below 0, which are taken as unknown\nNone"
    ]
    of = f"query => '{query} WHERE i <> 5', {QUICK}, machine => 'interp'"
    with pytest.raises(psycopg.errors.DataException, match="row -1"):  # where they are no rows of a model
        db.session.execute(f"SELECT dana_train('lrmf', {of})".encode())


@pytest.fixture
def gaps(db: Connection) -> int:
    """A table `gaps` in which nobody has user 5; how many rows that are."""
    db.session.execute("CREATE TABLE gaps AS SELECT nullif(i % 40, 5) AS i, j, y FROM rated")
    (count,) = db.session.execute("SELECT count(*) FROM gaps WHERE i IS NULL").fetchone() or ()
    assert count > 0
    return int(count)


@pytest.mark.parametrize("how", ["mean", "median"])
@pytest.mark.parametrize(
    ("rule", "hint"),
    [("lrmf", "Leave such rows out: preprocess => "), ("fm", "Give -1, which the rule takes as")],
)
def test_numbers_of_rows_have_no_mean(db: Connection, gaps: int, rule: str, hint: str, how: str) -> None:
    for asked in (f"nulls => '{how}'", f"""preprocess => '{{"i": {{"impute": "{how}"}}}}'"""):
        with pytest.raises(psycopg.errors.InvalidParameterValue) as raised, db.session.transaction():
            db.session.execute(f"SELECT dana_train('{rule}', 'gaps', {asked}, {QUICK})".encode())
        said = f'column "i" of public.gaps chooses rows of a model: a {how} of its numbers cannot replace NULLs'
        assert raised.value.diag.message_primary == said
        assert str(raised.value.diag.message_hint).startswith(hint)


def test_what_stands_for_a_null_is_told(db: Connection, told: list[str], gaps: int) -> None:
    db.session.execute(f"SELECT dana_train('lrmf', 'gaps', nulls => '0', {QUICK})".encode())
    db.session.execute(
        f"""SELECT dana_train('fm', 'gaps', preprocess => '{{"i": {{"impute": -1}}}}', {QUICK})""".encode()
    )
    said = [one.partition("\n")[0] for one in told]
    assert said == [f"column i: {gaps} rows hold NULL, which becomes 0, as if it were that category"]
    told.clear()
    db.session.execute(f"SELECT dana_train('lrmf', query => 'TABLE gaps', {QUICK})".encode())
    (said_of,) = told
    assert said_of == f'{gaps} of {ROWS} rows of the query are left out: "i" is null ({gaps})\nNone'
    db.session.execute("SELECT dana_train('lrmf', 'gaps', nulls => '70', epochs => 1)")
    assert dims(db, "lrmf")["m"] in (40, 71)


def test_a_number_without_a_row_is_told_alone(db: Connection) -> None:
    """No statement of ours stands below it, where somebody else's statements still do."""
    db.session.execute(f"SELECT dana_train('lrmf', 'rated', features => '{{i,j}}', label => 'y', {QUICK})".encode())
    db.session.execute("CREATE TABLE new AS SELECT i + 2000 AS i, j, y FROM rated")
    for call in ("dana_evaluate('lrmf', 'new')", "dana_predict_table('lrmf', 'new')"):
        with pytest.raises(psycopg.errors.DataException, match="where i is ") as raised, db.session.transaction():
            db.session.execute(f"SELECT {call}".encode())
        assert raised.value.diag.context is None
    call = "dana_evaluate('lrmf', 'rated', filter => '1 / (i - i) > 0')"
    with pytest.raises(psycopg.errors.DivisionByZero) as of_filter, db.session.transaction():
        db.session.execute(f"SELECT {call}".encode())
    assert "1 / (i - i) > 0" in str(of_filter.value.diag.context)
