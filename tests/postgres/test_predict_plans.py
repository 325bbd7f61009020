"""`dana_predict` in SQL: which model, which features, which errors. The bits are `test_predictor`'s matter."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray
from psycopg.types.json import Jsonb

from dana.predictor.program import CODES, MAGIC, encode_predictor
from dsl import compile_rule
from dsl.hdfg.ops import Op
from tests.postgres.conftest import Session

errors = psycopg.errors
Train = Callable[..., str]


def predictor(n: int, expression: str = "dana.sigma(w * x, 1)") -> str:
    """Hexadecimal predictor of a rule with a model w and an input x of n elements, and a scalar model b (NaN here)."""
    text = (
        f"import dana\nn = {n}\nw = dana.model([n])\nb = dana.model()\nx = dana.input([n])\ny = dana.output()\n"
        f"r = dana.algo(w, b, x, y)\nr.setModel(b, y)\nr.setPrediction({expression})\n"
    )
    return encode_predictor(compile_rule(text, filename="rule").hdfg.bind({})).hex()


@pytest.fixture
def train(session: Session, rule: Callable[..., str]) -> Train:
    """Trains a model whose weights are given."""
    session.execute("CREATE TABLE one AS SELECT 1 AS id")

    def make(name: str, weights: list[float], expression: str = "dana.sigma(w * x, 1)") -> str:
        made = rule(weights=weights, predictor=predictor(len(weights), expression))
        session.execute("SELECT * FROM dana_train(%s, 'one', %s)", (made, name))
        return name

    return make


def value(session: Session, call: str) -> Any:
    row = session.execute(f"SELECT {call}").fetchone()
    assert row is not None
    return row[0]


def test_versions(session: Session, train: Train) -> None:
    train("m", [1, 2])
    train("m", [10, 20])
    assert value(session, "dana_predict('m', 1.0, 1.0)") == 30
    assert value(session, "dana_predict('m@1', 1.0, 1.0)") == 3
    assert value(session, "dana_predict('m@2', 1.0, 1.0)") == 30
    with pytest.raises(errors.UndefinedObject, match='model "m@3" does not exist'):
        value(session, "dana_predict('m@3', 1.0, 1.0)")
    with pytest.raises(errors.InvalidName):
        value(session, "dana_predict('m@x', 1.0, 1.0)")
    session.execute("SELECT dana_drop_model('m', 2)")
    assert value(session, "dana_predict('m', 1.0, 1.0)") == 3


@pytest.mark.parametrize(
    "features",
    [
        "1::real, 2::float8, 3::int2, 4::int4, 5::int8, true, 7::numeric",
        "ARRAY[1, 2, 3, 4, 5, 1, 7]::real[]",
        "ARRAY[1, 2, 3, 4, 5, 1, 7]::float8[]",
        "ARRAY[1, 2, 3, 4, 5, 1, 7]::int2[]",
        "ARRAY[1, 2, 3, 4, 5, 1, 7]",
        "ARRAY[1, 2, 3, 4, 5, 1, 7]::int8[]",
        "ARRAY[1, 2, 3, 4, 5, 1, 7]::numeric[]",
        "VARIADIC ARRAY[1, 2, 3, 4, 5, 1, 7]::real[]",
        "1, ARRAY[2, 3]::real[], 4, ARRAY[[5], [1]], 7.0",
        "1::positive, ARRAY[2, 3, 4, 5, 1, 7]::positive[]",
        "ARRAY[]::real[], ARRAY[1, 2, 3, 4, 5, 1, 7]",
    ],
)
def test_types(session: Session, train: Train, features: str) -> None:
    session.execute("CREATE DOMAIN positive AS real CHECK (VALUE > 0)")
    train("m", [1, 10, 100, 1000, 10000, 100000, 1000000])
    assert value(session, f"dana_predict('m', {features})") == 7154321


def test_booleans(session: Session, train: Train) -> None:
    train("m", [1, 10, 100])
    assert value(session, "dana_predict('m', true, false, true)") == 101
    assert value(session, "dana_predict('m', ARRAY[true, false, true])") == 101


def test_one_rounding(session: Session, train: Train) -> None:
    """A bigint or double precision is rounded to binary32 once, as in training."""
    train("m", [1])
    assert value(session, f"dana_predict('m', {2**24 + 1}::int4)") == 2**24
    assert value(session, f"dana_predict('m', {2**60 + 2**36 + 1}::int8)::float8") == 2**60 + 2**37
    assert value(session, "dana_predict('m', 1e-46::float8)") == 0
    assert value(session, "dana_predict('m', 1e-39::float8)") == 0, "subnormal"
    assert value(session, "dana_predict('m', 1e300::float8)") == float("inf")


def test_nulls(session: Session, train: Train) -> None:
    train("m", [1, 2])
    for call in ("'m', 1.0, NULL::real", "'m', ARRAY[1, NULL]", "'m', NULL::real[]", "NULL, 1.0, 2.0"):
        assert value(session, f"dana_predict({call})") is None


ENCODED = [
    {"column": "town", "encode": "one_hot", "categories": ["", "a", "ä\n"], "other": True, "impute": [0, 0, 0, 1]},
    {"column": "day", "encode": ["dow", "year", "hour", "month", "day"]},
    {"column": "age", "impute": [2.5]},
]


@pytest.fixture
def encoded(session: Session, train: Train) -> Callable[..., None]:
    """Model m, whose ten features are three columns; writes what its metadata say of them."""
    train("m", [1, 10, 100, 1000, 1e4, 1, 1e5, 1e2, 1, 1e6])

    def write(preprocess: Any = ENCODED) -> None:
        session.execute(
            "UPDATE dana.model SET metadata = metadata || %s",
            (Jsonb({"features": ["town", "day", "age"], "preprocess": preprocess}),),
        )

    write()
    return write


def test_what_was_done_to_columns_is_done(session: Session, encoded: Callable[..., None]) -> None:
    """Each place of the list, by order and by name; text of any kind and stored in any way."""
    day = "'2023-11-05'::date"
    sunday = 2023 + 1100 + 5
    for town, number in (("''", 1), ("'a'", 10), ("E'ä\\n'", 100), ("'b'", 1000), ("NULL", 1000), ("'A'", 1000)):
        for kind in ("", "::text", "::varchar", "::name", "::char(40)"):
            if (town, kind) != ("E'ä\\n'", "::name"):
                assert value(session, f"dana_predict('m', {town}{kind}, {day}, 0)") == number + sunday
    for moment, number in (
        ("'2023-11-05 23:59:59.9'::timestamp", sunday + 23e5),
        ("'1999-12-31 23:00'::timestamp", 5e4 + 1999 + 23e5 + 1200 + 31),
        ("'2000-01-01 03:00+05'::timestamptz", 5e4 + 1999 + 22e5 + 1200 + 31),
        ("'0044-03-15 BC'::date", 5e4 - 44 + 300 + 15),
    ):
        assert value(session, f"dana_predict('m', 'a', {moment}, 0)") == np.float32(10 + number)
    assert value(session, f"dana_predict('m', 'a', {day}, NULL)") == 10 + sunday + 2.5e6
    assert value(session, "dana_predict('m', 'a', NULL::date, 1)") is None
    session.execute("CREATE TABLE t AS SELECT repeat('a', 300000) AS town, 1::numeric AS age, date '2023-11-05' AS day")
    session.execute("INSERT INTO t VALUES ('a', NULL, '2023-11-05')")
    assert session.execute("SELECT dana_predict('m', t) FROM t").fetchall() == [
        (np.float32(1000 + sunday + 1e6),),
        (np.float32(10 + sunday + 2.5e6),),
    ]
    session.execute("CREATE TYPE kind AS ENUM ('b', 'a')")
    assert value(session, f"dana_predict('m', 'a'::kind, {day}, 0)") == 10 + sunday
    assert value(session, f"dana_predict('m', 0::oid::regtype::text, {day}, 0)") == 1000 + sunday


@pytest.mark.parametrize(
    "preprocess",
    [
        {},
        "x",
        [1, 2, 3],
        [[], [], []],
        ENCODED[:2],
        [*ENCODED, ENCODED[0]],
        [ENCODED[0] | {"categories": None}, *ENCODED[1:]],
        [ENCODED[0] | {"categories": [1]}, *ENCODED[1:]],
        [ENCODED[0] | {"categories": ["b", "a", "c"]}, *ENCODED[1:]],
        [ENCODED[0] | {"categories": ["a", "a", "c"]}, *ENCODED[1:]],
        [ENCODED[0] | {"impute": [1, 2]}, *ENCODED[1:]],
        [ENCODED[0] | {"impute": "other"}, *ENCODED[1:]],
        [ENCODED[0] | {"encode": "two_hot"}, *ENCODED[1:]],
        [ENCODED[0], {"column": "day", "encode": ["year"] * 5}, ENCODED[2]],
        [ENCODED[0], {"column": "day", "encode": ["year", "month", "day", "dow", "hour", "year"]}, ENCODED[2]],
        [ENCODED[0], {"column": "day", "encode": []}, ENCODED[2]],
    ],
)
def test_a_list_that_somebody_wrote(session: Session, encoded: Callable[..., None], preprocess: Any) -> None:
    """A superuser may write anything into dana.model: an error, and the server stays."""
    encoded(preprocess)
    with pytest.raises((errors.DataCorrupted, errors.DatatypeMismatch)):
        value(session, "dana_predict('m', 'a', '2023-11-05'::date, 0)")
    encoded([ENCODED[0] | {"other": False, "impute": None}, *ENCODED[1:]])
    with pytest.raises(errors.InvalidParameterValue, match="takes 10 features, not 9"):
        value(session, "dana_predict('m', 'a', '2023-11-05'::date, 0)")


def test_the_servers_arithmetic_is_left_alone(session: Session, train: Train) -> None:
    """Subnormals are flushed inside a prediction and nowhere else."""
    train("m", [1])
    assert value(session, "dana_predict('m', 1.0) * 1e-310::float8 * 0.5::float8") == 1e-310 * 0.5 != 0


def test_wrong_calls(session: Session, train: Train, rule: Callable[..., str]) -> None:
    train("m", [1, 2])
    session.execute("SELECT * FROM dana_train(%s, 'one', 'silent')", (rule(),))
    for call, error, message in (
        ("'m', 1.0", errors.InvalidParameterValue, "takes 2 features, not 1"),
        ("'m', 1.0, 2.0, 3.0", errors.InvalidParameterValue, "takes 2 features, not 3"),
        ("'m', ARRAY[1,2,3]", errors.InvalidParameterValue, "takes 2 features, not 3"),
        ("'m', interval '1 day', 1.0", errors.DatatypeMismatch, "feature 1 of dana_predict() has type interval"),
        ("'m', 1.0, ARRAY['a']", errors.DatatypeMismatch, "feature 2 of dana_predict() has type text[]"),
        ("'silent', 1.0", errors.ObjectNotInPrerequisiteState, 'model "silent" cannot predict'),
    ):
        with pytest.raises(error) as raised:
            value(session, f"dana_predict({call})")
        assert message in str(raised.value.diag.message_primary)


def test_whole_tables(session: Session, train: Train) -> None:
    """In parallel workers, with a model chosen per row, and in an index's expression's stead."""
    train("a", [1, 2])
    train("b", [3, 4])
    session.execute(
        "CREATE TABLE t AS SELECT g AS id, g::real AS x1, (g % 7)::real AS x2 FROM generate_series(1, 20000) g"
    )
    expected = sum(g + 2 * (g % 7) for g in range(1, 20001))
    assert value(session, "sum(dana_predict('a', x1, x2)::float8) FROM t") == expected
    for setting in ("parallel_setup_cost = 0", "parallel_tuple_cost = 0", "min_parallel_table_scan_size = 0"):
        session.execute(f"SET {setting}")
    plan = "\n".join(
        row[0] for row in session.execute("EXPLAIN SELECT sum(dana_predict('a', x1, x2)) FROM t").fetchall()
    )
    assert "Parallel Seq Scan" in plan
    assert value(session, "sum(dana_predict('a', x1, x2)::float8) FROM t") == expected
    by_row = value(
        session, "sum(dana_predict(CASE id % 2 WHEN 0 THEN 'a' ELSE 'b' END, x1, x2)::float8) FROM t WHERE id <= 100"
    )
    assert by_row == sum((1 if g % 2 == 0 else 3) * g + (2 if g % 2 == 0 else 4) * (g % 7) for g in range(1, 101))
    # a model that does not name its columns cannot find them in a row
    assert value(session, "metadata ? 'features' FROM dana.model WHERE name = 'a'") is False
    with pytest.raises(psycopg.errors.InvalidParameterValue, match='model "a" takes 2 features, not 0'):
        session.execute("SELECT count(*) FROM dana_predict_table('a', 't')")


def test_read_only_transactions(session: Session, train: Train) -> None:
    train("m", [1, 2])
    with session.transaction():
        session.execute("SET TRANSACTION READ ONLY")
        assert value(session, "dana_predict('m', 1.0, 2.0)") == 5


@pytest.mark.parametrize("n", [4096, 4097, 5000])
def test_many_features(session: Session, train: Train, n: int) -> None:
    """More than a function has arguments: as an array. The last weight may be alone in a block of 4,096."""
    train("m", [*[1.0] * (n - 1), 7.0])
    assert value(session, f"dana_predict('m', (SELECT array_agg(1::real) FROM generate_series(1, {n})))") == n + 6


def test_damaged_rows(session: Session, train: Train) -> None:
    """What a superuser, or a restored dump, put into dana.model."""
    train("m", [1, 2])
    for damage in (
        "predictor = ''",
        "predictor = '\\x00'",
        "predictor = substr(predictor, 1, 100)",
        "predictor = set_byte(predictor, 4, 200)",
        "predictor = set_byte(predictor, 33, 255)",
        "weights = '{}'",
        "weights = '{1,2,NULL}'",
        "weights = weights || 1::real",
    ):
        with session.transaction(force_rollback=True):
            session.execute(f"UPDATE dana.model SET {damage}")
            with pytest.raises(errors.DataCorrupted), session.transaction():
                value(session, "dana_predict('m', 1.0, 2.0)")
    assert value(session, "dana_predict('m', 1.0, 2.0)") == 5


def test_long_evaluations_can_be_cancelled(session: Session, train: Train) -> None:
    """A predictor that repeats one large operation 4,000 times, written by hand."""
    train("m", [1, 2])
    n = 1 << 24
    add = [CODES[Op.ADD], 3, 1, 1, n, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    words = [MAGIC, 2, 3, 0, n, 4000, 5, 1, *([*add[:1], 5, *add[2:]] * 4000)]
    session.execute("UPDATE dana.model SET predictor = %s WHERE name = 'm'", (struct.pack(f"<{len(words)}I", *words),))
    session.execute("UPDATE dana.model SET weights = '{1,2,3}' WHERE name = 'm'")
    session.execute("SET statement_timeout = '500ms'")
    with pytest.raises(errors.QueryCanceled):
        value(session, "dana_predict('m', 1.0, 2.0)")


ROWS, WIDTH = 20_000, 7


@pytest.fixture(params=["U, w", "w, U"])
def chosen(request: pytest.FixtureRequest, session: Session, rule: Callable[..., str]) -> NDArray[np.float32]:
    """What each row of model "large" predicts: its 7 numbers' sum, and that of a vector, stored behind or before them.

    The last number stored is one that a prediction reads: of the vector, or of the last row alone.
    """
    text = (
        f"import dana\nU = dana.model([{ROWS}, {WIDTH}])\nw = dana.model([{WIDTH}])\n"
        f"i = dana.input()\ny = dana.output()\nr = dana.algo({request.param}, i, y)\nr.setModel(U[i], U[i] + y)\n"
        "r.setPrediction(dana.sigma(U[i] + w, 1))\n"
    )
    weights = [float(k % 4099) for k in range((ROWS + 1) * WIDTH)]
    program = encode_predictor(compile_rule(text, filename="rule").hdfg.bind({})).hex()
    session.execute("CREATE TABLE one AS SELECT 1 AS id")
    session.execute("SELECT * FROM dana_train(%s, 'one', 'large')", (rule(weights=weights, predictor=program),))
    session.execute("UPDATE dana.model SET weights = trim_array(weights, 1)")  # the trainer's b, which nothing reads
    sums = np.array(weights, dtype=np.float32).reshape(-1, WIDTH).sum(1)
    return sums[:-1] + sums[-1] if request.param == "U, w" else sums[1:] + sums[0]


def test_rows_of_a_large_model(session: Session, chosen: NDArray[np.float32]) -> None:
    """Wherever they lie in the blocks that are read, and whichever of a row's two blocks is there already."""
    for order in ("i % 97, i", "i DESC"):
        numbers = f"SELECT i FROM generate_series(0, {ROWS - 1}) AS i ORDER BY {order}"
        found = session.execute(f"SELECT i, dana_predict('large', i) FROM ({numbers}) AS s").fetchall()
        assert all(value == chosen[i] for i, value in found)
        assert len(found) == ROWS
    with pytest.raises(errors.DataException, match=f"it chooses row {ROWS} of "):
        value(session, f"dana_predict('large', {ROWS})")


def test_one_prediction_reads_little_of_a_large_model(session: Session, chosen: NDArray[np.float32]) -> None:
    """The row's block and the vector's, of 36; a statement reads some pages of its own."""

    def read(call: str) -> int:
        session.execute(call)
        hits = "jsonb_path_query_first(plan, '$.**.\"Shared Hit Blocks\"')"
        return int(value(session, f"{hits} FROM plan_of($${call}$$) AS plan"))

    session.execute(
        "CREATE FUNCTION plan_of(call text, OUT plan jsonb) LANGUAGE plpgsql AS "
        "'BEGIN EXECUTE ''EXPLAIN (ANALYZE, BUFFERS, FORMAT json) '' || call INTO plan; END'"
    )
    one = read("SELECT dana_predict('large', id) FROM one")
    every = read(f"SELECT dana_predict('large', i) FROM generate_series(0, {ROWS - 1}) AS i")
    assert 2 * one < every


@pytest.mark.parametrize(
    "weights",
    ["weights[2:]", "array_cat(weights, '{1}')", "array_set(weights, 1, NULL)", "ARRAY[weights, weights]"],
)
def test_damaged_rows_of_a_large_model(session: Session, chosen: NDArray[np.float32], weights: str) -> None:
    session.execute(
        "CREATE FUNCTION array_set(a real[], at int, v real) RETURNS real[] LANGUAGE plpgsql AS "
        "'BEGIN a[at] := v; RETURN a; END'"
    )
    session.execute(f"UPDATE dana.model SET weights = {weights}")
    with pytest.raises(errors.DataCorrupted, match="weights, but its predictor needs"):
        value(session, "dana_predict('large', 1)")
