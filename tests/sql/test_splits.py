"""The rows that a training leaves out for a test: training and test are all rows, disjoint, and found again later."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import psycopg
import pytest

from dana import rules
from tests.sql.conftest import Session

errors = psycopg.errors
Invalid = errors.InvalidParameterValue

ROWS = """
CREATE TABLE {0} AS SELECT i AS id, i / 8 AS patient, date '2024-01-01' + i / 4 AS day, (i % 7)::real AS x,
    (i * 37 % 11)::real AS z, CASE WHEN i % 10 < 2 THEN 'rare' WHEN i % 2 = 0 THEN 'a' ELSE 'b' END AS kind,
    (CASE WHEN i % 20 < 3 THEN 1 ELSE 0 END)::smallint AS ill, i::real AS y
FROM generate_series(1, 400) AS i
"""
SOURCES = {
    "table": ("", "'t'"),
    "key": ("ALTER TABLE t ADD PRIMARY KEY (id)", "'t'"),
    "domain": (
        "CREATE DOMAIN number AS int; ALTER TABLE t ALTER id TYPE number; ALTER TABLE t ADD PRIMARY KEY (id);"
        " CREATE VIEW v AS SELECT * FROM t",
        "'v'",
    ),
    "view": ("CREATE VIEW v AS SELECT * FROM t WHERE id > 0", "'v'"),
    "query": ("", "query => 'SELECT * FROM t -- all of them'"),
    "partitions": (
        "CREATE TABLE p (LIKE t) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (200);"
        " CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (200) TO (1000); INSERT INTO p SELECT * FROM t",
        "'p'",
    ),
}
SPLITS: dict[str, dict[str, Any]] = {
    "part": {"test_size": 0.25},
    "group": {"test_size": 0.25, "test_by": "patient"},
    "time": {"test_after": {"id": 300}},
}


@pytest.fixture
def made(session: Session) -> Session:
    session.execute(ROWS.format("t"))
    for rule in ("logistic", "softmax"):
        session.execute("SELECT dana_create_udf(%s, %s)", (rule, rules.text(rule)))
    return session


def arguments(options: dict[str, Any]) -> str:
    """Options in SQL."""
    texts = {
        name: f"'{json.dumps(value)}'" if isinstance(value, dict) else repr(value) for name, value in options.items()
    }
    return "".join(f", {name} => {text}" for name, text in texts.items())


def relation(source: str) -> str:
    return "t" if source.startswith("query") else source.strip("'")


def parts(session: Session, model: str, rows: str) -> tuple[set[int], set[int]]:
    """The rows by id that were held out, and the others."""
    condition = session.execute("SELECT dana_test_rows(%s)", (model,)).fetchall()[0][0]
    held_out = f"SELECT id, {condition} FROM (SELECT * FROM {rows}) AS r"
    if f".{rows}.*" in condition or "ctid" in condition:
        held_out = f"SELECT id, {condition} FROM {rows}"
    found = session.execute(held_out).fetchall()  # type: ignore[arg-type]
    return {one for one, taken in found if taken}, {one for one, taken in found if not taken}


def evaluated(session: Session, model: str, more: str = "") -> dict[str, Any]:
    found: dict[str, Any] = session.execute(f"SELECT dana_evaluate('{model}'{more})").fetchall()[0][0]  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("source", SOURCES)
def test_training_and_test_are_all_rows(made: Session, source: str, split: str) -> None:
    prepare, asked = SOURCES[source]
    made.execute(prepare)  # type: ignore[arg-type]
    call = f"dana_train('sums', {asked}, model => 'm', features => '{{x,z}}', label => 'y', epochs => 1"
    (trained,) = made.execute(f"SELECT tuples FROM {call}{arguments(SPLITS[split])})").fetchall()[0]  # type: ignore[arg-type]
    test, train = parts(made, "m", relation(asked))
    assert (test | train, test & train) == (set(range(1, 401)), set())
    assert trained == len(train)
    found = evaluated(made, "m")
    assert (found["part"], found["rows"]) == ("test", len(test))
    assert evaluated(made, "m", ", part => 'train'")["rows"] == len(train)
    if split == "time":
        assert test == set(range(301, 401))
    else:
        assert 60 < len(test) < 140
    if split == "group":
        assert abs(len(test) - 100) <= 4
        assert {one // 8 for one in test}.isdisjoint(one // 8 for one in train)
    # the same model as of a table with the rows that train, in their order
    expected = made.execute("SELECT weights FROM dana.model").fetchone()
    made.execute("CREATE TABLE kept AS SELECT * FROM t WHERE id = ANY(%s) ORDER BY id", (sorted(train),))
    made.execute("SELECT dana_train('sums', 'kept', model => 'n', features => '{x,z}', label => 'y', epochs => 1)")
    assert made.execute("SELECT weights FROM dana.model WHERE name = 'n'").fetchone() == expected
    with psycopg.connect(made.info.dsn, autocommit=True) as other:
        other.execute("SET search_path = test, public; SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'")
        assert parts(other, "m", relation(asked)) == (test, train)
        assert evaluated(other, "m") == found


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("source", ["key", "view", "query"])
def test_rows_that_move_stay_in_their_part(made: Session, source: str, split: str) -> None:
    prepare, asked = SOURCES[source]
    made.execute(prepare)  # type: ignore[arg-type]
    call = f"dana_train('sums', {asked}, model => 'm', features => '{{x,z}}', label => 'y'{arguments(SPLITS[split])})"
    made.execute(f"SELECT {call}".encode())
    before = parts(made, "m", relation(asked))
    made.execute("CREATE INDEX by_z ON t (z); CLUSTER t USING by_z")
    made.execute("VACUUM FULL t")
    assert parts(made, "m", relation(asked)) == before
    # later rows are in one of the parts, and those of the training stay where they are
    made.execute(
        "INSERT INTO t SELECT i, i / 8, day, x, z, kind, ill, y FROM t, generate_series(500, 539) AS i WHERE id = 1"
    )
    test, train = parts(made, "m", relation(asked))
    assert (test - set(range(500, 540)), train - set(range(500, 540))) == before
    assert len(test | train) == 440
    assert evaluated(made, "m")["rows"] == len(test)


def test_equal_rows_are_in_one_part(made: Session) -> None:
    query = "SELECT x, z, x + z AS y FROM t, generate_series(1, 3)"
    made.execute("SELECT dana_train('sums', query => %s, test_size => 0.3)", (query,))
    condition = made.execute("SELECT dana_test_rows('sums')").fetchall()[0][0]
    found = made.execute(
        f"SELECT x, z, count(DISTINCT {condition}) FROM ({query}) AS r GROUP BY 1, 2".encode()
    ).fetchall()
    assert {parts for _, _, parts in found} == {1}


ANY_TYPE = """
CREATE OR REPLACE VIEW v AS SELECT id, NULLIF(id % 3, 0) AS n, ARRAY[x, z] AS a, json_build_object('id', id) AS j,
    (CASE WHEN id % 2 = 0 THEN 'good' ELSE 'bad' END)::mood AS m, id % 2 = 0 AS b,
    (day + id * interval '1h') AT TIME ZONE 'UTC' AS at, interval '1 day' * id AS i, ROW(id, x)::pair AS r, x, y{}
FROM t
"""


def test_equal_numbers_have_one_part(session: Session) -> None:
    pairs = (("0::float8", "'-0'::float8"), ("0::real", "'-0'::real"), ("1::smallint", "1::bigint"), ("1.5", "1.500"))
    for one, other in (*pairs, ("'NaN'::float8", "'-NaN'::float8"), ("'a'::char(3)", "'a'::text")):
        parts = "SELECT {} = {} FROM generate_series(0, 99) AS seed".format(
            *(f"dana.dana_part('{{{{2,0.5}}}}', seed, NULL::int, {value})" for value in (one, other))
        )
        assert set(session.execute(parts.encode()).fetchall()) == {(True,)}, one


def test_values_of_any_type_identify_a_row(made: Session) -> None:
    made.execute("CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE TYPE pair AS (a int, b real)")
    made.execute(ANY_TYPE.format("").encode())
    for source in ("'v'", "query => 'SELECT * FROM v'"):
        call = f"dana_train('sums', {source}, model => 'm', features => '{{a}}', label => 'y', test_size => 0.25)"
        (trained,) = made.execute(f"SELECT tuples FROM {call}").fetchall()[0]  # type: ignore[arg-type]
        assert 240 < trained < 360
        assert evaluated(made, "m")["rows"] == 400 - trained
        made.execute("SET TimeZone = 'Asia/Tokyo'; SET extra_float_digits = -5; SET DateStyle = 'German'")
        assert evaluated(made, "m")["rows"] == 400 - trained
        made.execute("RESET TimeZone; RESET extra_float_digits; RESET DateStyle")
    made.execute("SELECT dana_train('sums', 'v', model => 'm', features => '{a}', label => 'y', test_size => 0.25)")
    made.execute(ANY_TYPE.format(", 1 AS more").encode())
    with pytest.raises(errors.UndefinedColumn, match="more columns than those by which the test rows"):
        evaluated(made, "m")
    assert evaluated(made, "m", ", part => 'all'")["rows"] == 400


def test_rows_of_one_group_that_is_null_stay_together(made: Session) -> None:
    made.execute("UPDATE t SET patient = NULL WHERE id % 3 = 0; UPDATE t SET day = NULL WHERE id > 390")
    made.execute(
        "SELECT dana_train('sums', 't', test_size => 0.5, test_by => 'patient', features => '{x}', label => 'y')"
    )
    test, train = parts(made, "sums", "t")
    assert len(test) + len(train) == 400
    assert len([part for part in (test, train) if any(one % 3 == 0 for one in part)]) == 1
    # a row without a time trains
    made.execute(
        """SELECT dana_train('sums', 't', test_after => '{"day": "2024-03-01"}', features => '{x}', label => 'y')"""
    )
    test, train = parts(made, "sums", "t")
    assert test == {one for one in range(1, 391) if one // 4 > 60}
    assert len(test | train) == 400
    # a type of that name hides the column's own in this session
    made.execute("CREATE DOMAIN pg_temp.date AS pg_catalog.date; CREATE DOMAIN pg_temp.text AS pg_catalog.text")
    assert parts(made, "sums", "t") == (test, train)


CLASSES = {"kind": "'softmax'", "ill": "'logistic'"}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("label", CLASSES)
def test_each_class_has_its_share(made: Session, label: str, source: str) -> None:
    prepare, asked = SOURCES[source]
    made.execute(prepare)  # type: ignore[arg-type]
    training = f"{asked}, model => 'm', features => '{{x,z}}', label => '{label}', epochs => 1"
    for seed in range(3):
        call = f"dana_train({CLASSES[label]}, {training}, test_size => 0.2, seed => {seed})"
        (trained,) = made.execute(f"SELECT tuples FROM {call}").fetchall()[0]  # type: ignore[arg-type]
        test, train = parts(made, "m", relation(asked))
        assert (test | train, test & train) == (set(range(1, 401)), set())
        labels = dict(made.execute(f"SELECT id, {label} FROM t").fetchall())  # type: ignore[arg-type]
        counts = Counter(labels.values())
        shares = Counter(labels[one] for one in test)
        # partitions have rows of one place, which stay together
        apart = 1 if source == "partitions" else 0
        assert all(abs(shares[of] - round(0.2 * count)) <= apart for of, count in counts.items())
        assert (trained, evaluated(made, "m")["rows"]) == (len(train), len(test))


def test_rows_of_classes_that_come_later(made: Session) -> None:
    call = "dana_train('softmax', 't', model => 'm', features => '{x,z}', label => 'kind', test_size => 0.5"
    made.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    made.execute(f"SELECT {call}, validation_size => 0.25)")  # type: ignore[arg-type]
    before = parts(made, "m", "t")
    made.execute("INSERT INTO t SELECT id + 400, patient, day, x, z, 'new', ill, y FROM t WHERE id <= 40")
    made.execute("INSERT INTO t SELECT id + 500, patient, day, x, z, NULL, ill, y FROM t WHERE id <= 40")
    test, train = parts(made, "m", "t")
    assert ({one for one in test if one <= 400}, {one for one in train if one <= 400}) == before
    assert len(test | train) == 480
    made.execute("ALTER TABLE t ALTER kind TYPE bytea USING kind::bytea")
    with pytest.raises(errors.UndefinedColumn, match='"kind", by which the test rows of model "m" were chosen'):
        evaluated(made, "m")


@pytest.mark.parametrize("source", SOURCES)
def test_folds(made: Session, source: str) -> None:
    """All rows once; each class by its share, or each group in one fold."""
    prepare, asked = SOURCES[source]
    made.execute(prepare)  # type: ignore[arg-type]
    query = {"query": "SELECT * FROM t"} if source == "query" else {}
    table = "NULL" if query else asked
    training = {"features": ["x", "z"], "label": "kind", "epochs": 1} | query
    call = f"SELECT tested, trained, metrics -> 'classes' FROM dana_cross_validate('softmax', {table}, 4, %s) LIMIT 4"
    folds = made.execute(call, (json.dumps(training),)).fetchall()  # type: ignore[arg-type]
    assert all(tested + trained == 400 for tested, trained, _ in folds)
    # partitions have rows of one place, which stay together
    apart = 1 if source == "partitions" else 0
    for *_, classes in folds:
        assert all(abs(one["rows"] - share) <= apart for one, share in zip(classes, (40, 40, 20), strict=True))
    folds = made.execute(call, (json.dumps(training | {"test_by": "patient"}),)).fetchall()  # type: ignore[arg-type]
    assert sum(tested for tested, *_ in folds) == 400
    assert all(trained + tested == 400 and abs(tested - 100) <= 8 for tested, trained, _ in folds)
    # few values, of 58 or 57 rows
    folds = made.execute(call, (json.dumps(training | {"features": ["z"], "test_by": "x"}),)).fetchall()  # type: ignore[arg-type]
    assert all(tested in (57, 58, 114, 115, 116) for tested, *_ in folds)


@pytest.mark.parametrize("split", [{"test_size": 0.25}, {"test_after": {"id": 300}}])
@pytest.mark.parametrize("source", ["table", "view", "query"])
def test_a_search_scores_on_the_rows_that_its_model_leaves_out(
    made: Session, source: str, split: dict[str, Any]
) -> None:
    prepare, asked = SOURCES[source]
    made.execute(prepare)  # type: ignore[arg-type]
    query = {"query": "SELECT * FROM t"} if source == "query" else {}
    training = json.dumps({"features": ["x", "z"], "label": "ill"} | query)
    call = (
        f"dana_search('logistic', {'NULL' if query else asked}, '{{\"penalty\": [0.1]}}', keep => 'm', training => %s"
    )
    (score,) = made.execute(f"SELECT score FROM {call}{arguments(split)})".encode(), (training,)).fetchall()[0]
    found = evaluated(made, "m")
    assert (found["part"], found["log_loss"]) == ("test", pytest.approx(score))


def test_groups_leave_rows_of_a_query_out(made: Session) -> None:
    training = {"query": "SELECT * FROM t", "features": ["x"], "label": "y", "test_size": 0.25, "test_by": "patient"}
    trained = made.execute(
        "SELECT model, tuples FROM dana_train_groups('sums', NULL, '{kind}', %s)", (json.dumps(training),)
    )
    for model, tuples in trained.fetchall():
        tested = evaluated(made, model)
        assert tested["part"] == "test"
        counts = made.execute("SELECT count(*) FROM t WHERE kind = %s", (model[5:-1],)).fetchone()
        assert counts == (tuples + tested["rows"],)


def test_validation_keeps_groups_together(made: Session) -> None:
    made.execute("SELECT dana_create_udf('linear', %s)", (rules.text("linear"),))
    made.execute("ALTER TABLE t ADD PRIMARY KEY (id)")
    for source in ("'t'", "query => 'SELECT * FROM t'"):
        call = f"dana_train('linear', {source}, features => '{{x}}', label => 'y', test_by => 'patient'"
        (trained,) = made.execute(f"SELECT tuples FROM {call}, validation_size => 0.25)".encode()).fetchall()[0]
        assert trained % 8 in (0, 1, 7)
        assert abs(trained - 300) <= 4


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ("test_by => 'patient'", Invalid, '"test_by" chooses the rows of a part, and there is none'),
        ("test_by => 'age', test_size => 0.5", errors.UndefinedColumn, 'which argument "test_by" names'),
        ("test_after => '{\"age\": 1}'", errors.UndefinedColumn, 'which argument "test_after" names'),
        ("test_after => '{}'", Invalid, "must name one column and a value"),
        ("test_after => '{\"id\": 1, \"x\": 2}'", Invalid, "must name one column and a value"),
        ("test_after => '{\"id\": [1]}'", Invalid, "must name one column and a value"),
        ("test_after => '3'", Invalid, '"test_after" must be a JSON object'),
        ("test_after => '{\"kind\": \"a\"}'", errors.DatatypeMismatch, "is of type text, which has no times"),
        ("test_after => '{\"day\": \"soon\"}'", errors.InvalidDatetimeFormat,
         'argument "test_after" must have a value of column "day", which is of type .*: .*soon'),
        ("test_after => '{\"id\": 1e400}'", Invalid, '"test_after" has a number outside the range of double precision'),
        ("test_after => '{\"id\": 1e20}'", errors.DataError, '"test_after" must have a value of column "id"'),
        ("test_after => '{\"id\": 3}', test_size => 0.5", Invalid, "not both"),
        ("test_after => '{\"id\": 1000}'", Invalid,
         '"test_after" leaves no row for a test: no value of column "id" of test.t is later than 1000\n.* is 400.'),
        ("test_after => '{\"day\": \"2023-01-01\"}'", Invalid,
         'leaves no row to train on: each value of column "day" of test.t is later than 2023-01-01'),
        ("test_size => 1e-9", Invalid, '"test_size" leaves no row for a test: it is 1e-09\n.*has 400 rows'),
        ("test_size => 0.5, test_by => 'same'", Invalid, "leaves no row for a test.*\n.*1 different value, and"),
    ],
)  # fmt: skip
def test_what_cannot_be(made: Session, options: str, error: type[psycopg.Error], message: str) -> None:
    made.execute("ALTER TABLE t ADD same int DEFAULT 3")
    for source in ("'t'", "query => 'SELECT * FROM t'"):
        wanted = message if source == "'t'" else message.replace("test.t", "the query")
        call = f"SELECT tuples FROM dana_train('sums', {source}, features => '{{x}}', label => 'y', {options})"
        with pytest.raises(error, match=wanted):
            made.execute(call)  # type: ignore[arg-type]


def test_an_empty_part_of_a_search(made: Session) -> None:
    call = 'SELECT dana_search(\'sums\', \'t\', \'{"lr": [1]}\', training => \'{"features": ["x"], "label": "y"}\', %s)'
    for options in ("test_size => 1e-9", "test_after => '{\"id\": 1000}'"):
        with pytest.raises(Invalid, match="leaves no row for a test"):
            made.execute((call % options).encode())


def test_a_split_of_a_table_reads_its_pages(made: Session) -> None:
    """As many pages as without, copied and not packed into frames; the labels of classes are read once more."""
    splits = ("", ", test_size => 0.2", ", test_size => 0.2, test_by => 'patient'", ", test_after => '{\"id\": 300}'")
    for rule, label in (("sums", "y"), ("logistic", "ill")):
        read = set()
        for split in splits:
            call = f"dana_train('{rule}', 't', features => '{{x,z}}', label => '{label}', epochs => 1{split})"
            (run, pages) = made.execute(f"SELECT run, pages FROM {call}".encode()).fetchall()[0]
            (stream,) = made.execute("SELECT design -> 'stream' FROM dana.run WHERE id = %s", (run,)).fetchall()[0]
            read.add((pages, str(stream)))
        assert len(read) == 1
