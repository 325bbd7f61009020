"""Data frames of pandas, Arrow and polars, and dicts, arrive in a table as they were; types are chosen; NaN is NULL."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import psycopg
import pyarrow as pa
import pytest

from dana.client.connection import Connection
from dana.client.predictions import predicted_rows
from dana.errors import UsageError
from dana.extras import install_command
from dana.session.frames import columns_of, frame_of
from dana.session.tables import BYTES_AT_ONCE, ROWS_AT_ONCE, Fixed, create_table

Session = psycopg.Connection[Any]
UTC = dt.UTC
DAY = dt.date(2020, 2, 29)
MOMENT = dt.datetime(2020, 2, 29, 12, 30, 0, 7)
ZONED = dt.datetime(2020, 2, 29, 12, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))


def came_back(session: Session, data: Any) -> tuple[dict[str, str], list[tuple[Any, ...]]]:
    """The types that were chosen, and the rows."""
    columns = columns_of(data)
    create_table(session, "framed", columns)
    session.execute("SET LOCAL timezone = 'UTC'")
    return {name: column.type for name, column in columns.items()}, session.execute("SELECT * FROM framed").fetchall()


PANDAS: dict[str, tuple[Any, str, list[Any]]] = {
    "narrow": (pd.array([1, None], dtype="Int8"), "smallint", [1, None]),
    "unsigned": (pd.array([65_535, None], dtype="UInt16"), "integer", [65_535, None]),
    "wide": (pd.array([2**62 + 1, None], dtype="Int64"), "bigint", [2**62 + 1, None]),  # beyond what a float holds
    "float": ([0.5, float("nan")], "double precision", [0.5, None]),
    "half": (np.array([0.5, np.nan], dtype=np.float16), "real", [0.5, None]),
    "single": (pd.array([1.5, None], dtype="Float32"), "real", [1.5, None]),
    "flag": (pd.array([True, None], dtype="boolean"), "boolean", [True, None]),
    "plain_flag": ([True, False], "boolean", [True, False]),
    "text": (["Müller", None], "text", ["Müller", None]),
    "text_python": (pd.array(["a", None], dtype="string[python]"), "text", ["a", None]),
    "text_arrow": (pd.array(["", None], dtype="string[pyarrow]"), "text", ["", None]),
    "text_object": (pd.Series(["a", np.nan], dtype=object), "text", ["a", None]),
    "category": (pd.Categorical(["b", None], categories=["a", "b"]), "text", ["b", None]),
    "numbered": (pd.Categorical([3, None], categories=[1, 3]), "bigint", [3, None]),
    "no_category": (pd.Categorical([None, None]), "text", [None, None]),
    "moment": (pd.to_datetime([MOMENT, None]), "timestamp", [MOMENT, None]),
    "nanoseconds": (
        pd.to_datetime(["2020-01-01 00:00:00.000001999", None]),
        "timestamp",
        [dt.datetime(2020, 1, 1, 0, 0, 0, 1), None],
    ),
    "zoned": (pd.to_datetime([ZONED, None]), "timestamptz", [ZONED.astimezone(UTC), None]),
    "day": (pd.Series([DAY, None], dtype=object), "date", [DAY, None]),
    "duration": (pd.to_timedelta([90, None], unit="min"), "interval", [dt.timedelta(minutes=90), None]),
    "arrow": (pd.array([7, None], dtype=pd.ArrowDtype(pa.int32())), "integer", [7, None]),
    "sparse": (pd.arrays.SparseArray([1.0, 0.0]), "double precision", [1.0, 0.0]),
    "nothing": (pd.Series([None, None], dtype=object), "text", [None, None]),
}


def test_a_frame_of_pandas(connection: Session) -> None:
    types, rows = came_back(connection, pd.DataFrame({name: values for name, (values, _, _) in PANDAS.items()}))
    assert types == {name: expected for name, (_, expected, _) in PANDAS.items()}
    assert rows == list(zip(*(values for _, _, values in PANDAS.values()), strict=True))


ARROW: dict[str, tuple[Any, str, list[Any]]] = {
    "text": (pa.array(["x", "ü", None]).slice(1), "text", ["ü", None]),
    "large": (pa.array(["x", None], pa.large_string()), "text", ["x", None]),
    "codes": (pa.array(["x", "y", None]).dictionary_encode().slice(1), "text", ["y", None]),
    "bytes": (pa.array([b"\0\xff", None]), "bytea", [b"\0\xff", None]),
    "number": (pa.array([1, None], pa.int16()), "smallint", [1, None]),
    "float": (pa.array([float("nan"), None]), "double precision", [None, None]),
    "flag": (pa.array([False, None]), "boolean", [False, None]),
    "exact": (pa.array([Decimal("1.25"), None]), "double precision", [1.25, None]),
    "day": (pa.array([DAY, None]), "date", [DAY, None]),
    "day64": (pa.array([DAY, None], pa.date64()), "date", [DAY, None]),
    "moment": (pa.array([MOMENT, None], pa.timestamp("ns")), "timestamp", [MOMENT, None]),
    "zoned": (
        pa.array([ZONED, None], pa.timestamp("ms", "Europe/Berlin")),
        "timestamptz",
        [ZONED.astimezone(UTC), None],
    ),
    "time": (pa.array([dt.time(1, 2, 3, 4), None]), "time", [dt.time(1, 2, 3, 4), None]),
    "duration": (pa.array([dt.timedelta(seconds=-3), None]), "interval", [dt.timedelta(seconds=-3), None]),
    "null": (pa.nulls(2), "text", [None, None]),
    "vector": (pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)), "real[]", [[1.0, 2.0], [3.0, 4.0]]),
}


def test_a_table_of_arrow_and_what_becomes_one(connection: Session) -> None:
    table = pa.table({name: values for name, (values, _, _) in ARROW.items()})
    for data in (table, table.to_reader(), dict(zip(table.column_names, table.columns, strict=True))):
        types, rows = came_back(connection, data)
        assert types == {name: expected for name, (_, expected, _) in ARROW.items()}
        assert rows == list(zip(*(values for _, _, values in ARROW.values()), strict=True))


def test_a_frame_of_polars(connection: Session) -> None:
    data = {
        "text": pl.Series(["x", None]),
        "category": pl.Series(["u", None], dtype=pl.Categorical),
        "enum": pl.Series(["v", None], dtype=pl.Enum(["u", "v"])),
        "float": pl.Series([float("nan"), 2.0]),
        "moment": pl.Series([MOMENT, None]),
        "vector": pl.Series([[1.0], [2.0]], dtype=pl.Array(pl.Float64, 1)),
    }
    expected = [("x", "u", "v", None, MOMENT, [1.0]), (None, None, None, 2.0, None, [2.0])]
    for frame in (pl.DataFrame(data), data):
        types, rows = came_back(connection, frame)
        assert list(types.values()) == ["text", "text", "text", "double precision", "timestamp", "double precision[]"]
        assert rows == expected


def test_lists_and_arrays(connection: Session) -> None:
    types, rows = came_back(
        connection,
        {
            "count": [1, None],
            "mixed": [1, 2.5],
            "money": [Decimal("1.5"), Decimal("NaN")],
            "text": np.array(["a", "bc"]),
            "either": [MOMENT, DAY],
            "zoned": [ZONED, None],
            "id": [UUID(int=5), None],
            "days": np.array(["2020-02-29", "NaT"], dtype="M8[D]"),
            "range": range(2),
            "matrix": np.array([[1, 2], [3, np.nan]], dtype=np.float32),
        },
    )
    expected = "bigint, double precision, double precision, text, timestamp, timestamptz, uuid, date, bigint, real[]"
    assert ", ".join(types.values()) == expected
    midnight = dt.datetime(2020, 2, 29)
    assert rows[0] == (1, 1.0, 1.5, "a", MOMENT, ZONED.astimezone(UTC), UUID(int=5), DAY, 0, [1.0, 2.0])
    assert rows[1][:9] == (None, 2.5, None, "bc", midnight, None, None, None, 1)


def test_many_rows_of_texts_of_all_lengths(connection: Session) -> None:
    """More rows than one block; a text that is wider than a block may be; runs of NULLs; texts that share bytes."""
    random = np.random.default_rng(3)
    rows = ROWS_AT_ONCE + 77
    texts: list[str | None] = ["ü" * int(k) for k in random.integers(0, 30, rows)]
    texts[40] = "x" * (BYTES_AT_ONCE + 1)
    texts[50:90] = [None] * 40
    codes = pd.Categorical.from_codes(random.integers(-1, 3, rows), ["a", "bbb", ""])
    create_table(connection, "texts", columns_of({"k": np.arange(rows), "t": texts, "c": pd.Series(codes)}))
    found = connection.execute("SELECT k, t, c FROM texts ORDER BY k").fetchall()
    expected = [
        (k, text, None if pd.isna(code) else code) for k, (text, code) in enumerate(zip(texts, codes, strict=True))
    ]
    assert found == expected


def test_no_rows(connection: Session) -> None:
    empty = pd.DataFrame({"s": pd.Series([], dtype="str"), "f": pd.Series([], dtype=float), "c": pd.Categorical([])})
    for frame in (empty, pa.Table.from_pandas(empty), pl.DataFrame(empty)):
        assert came_back(connection, frame)[1] == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (7, "a data frame of pandas, Arrow or polars, or a dict of arrays is expected, not int"),
        ({"x": 7}, "column x must be an array or a list, not int"),
        ({"x": ["a", 3]}, "column x must be numbers, texts, dates … of one kind, but row 1 has 3"),
        ({"x": [[1], [2, 3]]}, "column x has lists of 1 and of 2 elements"),
        ({"x": [[1, None]]}, r"lists of numbers without gaps, not such as \[1, None\]"),
        ({"x": [["a"]]}, r"lists of numbers without gaps, not such as \['a'\]"),
        ({"x": pd.period_range("2020", periods=2, freq="M")}, "but row 0 has Period"),
        ({"x": [MOMENT, ZONED]}, "column x has moments with and without a time zone"),
        ({"x": ["\ud800"]}, "column x has a value that does not fit the type text"),
        ({"x": [2**70]}, "column x has a value that does not fit the type bigint"),
        ({"x": np.array([2**63], dtype=np.uint64)}, "integers beyond those of bigint"),
        ({"x": np.zeros(1, dtype=np.complex128)}, "has the type complex128, which has no counterpart"),
        ({"x": np.zeros((1, 1, 1))}, r"not of shape \(1, 1, 1\)"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns have the name 'a'"),
        (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([(1, 2)])), r"plain names, not \(1, 2\)"),
    ],
)
def test_what_no_column_can_hold_is_said(data: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        columns_of(data)


@pytest.mark.parametrize(
    "values",
    [
        [[1, 2], None, [3, 4]],
        pd.Series([np.array([1.0, 2.0]), None, [3, 4]]),
        pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2)),
        pl.Series([[1, 2], None, [3, 4]]),
    ],
)
def test_columns_of_lists_are_arrays(connection: Session, values: Any) -> None:
    create_table(connection, "lists", columns_of({"x": values}))
    assert connection.execute("SELECT x, pg_typeof(x)::text FROM lists").fetchall() == [
        ([1.0, 2.0], "double precision[]"),
        (None, "double precision[]"),
        ([3.0, 4.0], "double precision[]"),
    ]


def test_files_lazy_frames_and_arrays_are_frames(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x1": [1.0, 2.0], "x2": [3.0, 4.0]})
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_csv(tmp_path / "a.csv")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    named = np.array([(1.0, 3.0), (2.0, 4.0)], dtype=[("x1", "f8"), ("x2", "f8")])
    files = [tmp_path / "a.parquet", str(tmp_path / "a.csv"), tmp_path / "a.csv.gz"]
    for data in (*files, frame, frame.lazy(), frame.to_numpy(), named):
        columns = columns_of(frame_of(data))
        assert [(name, each.type, list(each.values)) for name, each in columns.items() if isinstance(each, Fixed)] == [
            ("x1", "double precision", [1.0, 2.0]),
            ("x2", "double precision", [3.0, 4.0]),
        ]


def test_nothing_in_a_csv_file_is_null(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,number\nx,1.5\n,\n"",2\nNA,NaN\n')
    columns = columns_of(frame_of(tmp_path / "a.csv"))
    assert columns["text"].type == "text"
    assert columns["text"].valid.tolist() == [True, False, True, False]
    assert columns["number"].valid.tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("nowhere.csv", "there is no file nowhere.csv"),
        (Path(__file__), "is not a file .parquet, .csv or .csv.gz"),
        ("bad.parquet", "cannot read bad.parquet"),
        (np.zeros(3), r"must have the shape \(rows, columns\), not \(3,\)"),
    ],
)
def test_what_is_no_frame(data: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.parquet").write_text("no")
    with pytest.raises(UsageError, match=message):
        frame_of(data)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_session_of_another_encoding(pg_uri: str, encoding: str) -> None:
    with psycopg.connect(pg_uri, client_encoding=encoding) as session:
        create_table(session, "latin", columns_of({"t": ["Müller", "€"]}))
        assert session.pgconn.parameter_status(b"client_encoding") == encoding.encode()
        assert session.execute("SELECT convert_to(t, 'UTF8') FROM latin").fetchall() == [
            ("Müller".encode(),),
            ("€".encode(),),
        ]
        session.rollback()


WRONG_NAMES = {
    "x\0y": r"the name of a column must not have the character U\+0000: 'x\\x00y'",
    "x\ud800": r"the name of a column must not have the character U\+D800: 'x\\ud800'",
    "": "the name of a column must have 1 to 63 bytes, not 0",
    "ö" * 32: "the name of a column must have 1 to 63 bytes, not 64",
}


def test_a_table_is_loaded_under_a_name_of_sql(connection: Session) -> None:
    db = Connection(connection)
    frame = pd.DataFrame({"Size of": [1, 2], "kind": ["a", None]}, index=[7, 8])
    loaded = db.load(frame, "Loaded")
    assert (loaded.name, loaded.rows) == ("loaded", 2)
    assert [(one.name, one.type, one.nulls) for one in loaded.columns] == [
        ("Size of", "bigint", 0),
        ("kind", "text", 1),
    ]
    assert connection.execute('SELECT "Size of" FROM LOADED').fetchall() == [(1,), (2,)]
    connection.commit()
    try:
        with pytest.raises(psycopg.errors.DuplicateTable), connection.transaction():
            db.load(frame, "loaded")
        assert db.load({"x": [1.5]}, "public.loaded", replace=True).rows == 1
        # a temporary table replaces nothing that is none
        assert db.load({"x": [1.5, 2.5]}, "loaded", temporary=True, replace=True).rows == 2
        assert connection.execute("SELECT count(*) FROM public.loaded").fetchone() == (1,)
        assert db.load(frame, '"Odd ""name"""', temporary=True).name == '"Odd ""name"""'
        with pytest.raises(UsageError, match="is not a valid name"):
            db.load(frame, 'x"; DROP TABLE public.loaded; --')
        with pytest.raises(UsageError, match="1 to 63 bytes"):
            db.load({"x" * 64: [1]}, "long")
        for name, said in WRONG_NAMES.items():
            with pytest.raises(UsageError, match=said):
                db.load({name: [1]}, "named")
            with pytest.raises(UsageError, match=said.replace("column", "table")):
                create_table(connection, name, columns_of({"x": [1]}))
            with pytest.raises(UsageError, match=said):
                predicted_rows(connection, "m", "loaded", query=None, columns=[name], filter=None, function="x")
        for table in ("t" * 64, f'"{"ö" * 32}"', f'public."{"t" * 64}"'):
            with pytest.raises(UsageError, match="the name of a table must have 1 to 63 bytes, not 64"):
                db.load(frame, table)
        with pytest.raises(UsageError, match="is not a valid name"):
            db.load(frame, '"x\0y"')
        assert set(columns_of({"X": [1], "x": [2]})) == {"X", "x"}
    finally:
        connection.execute("DROP TABLE public.loaded")
        connection.commit()


ALONE = """
import sys
sys.modules["pandas"] = sys.modules["pyarrow"] = None
import json
import psycopg
from dana.client.connection import Connection
from dana.errors import UsageError
with psycopg.connect(sys.argv[1]) as session:
    db = Connection(session)
    db.load({"k": [1, 2], "t": ["a", None]}, "alone", temporary=True)
    rows = session.execute("SELECT * FROM alone").fetchall()
    try:
        db.jobs().to_frame()
    except UsageError as error:
        print(json.dumps([rows, str(error)]))
"""


def test_neither_pandas_nor_pyarrow_is_needed(pg_uri: str) -> None:
    done = subprocess.run([sys.executable, "-c", ALONE, pg_uri], check=True, capture_output=True, text=True)
    rows, said = json.loads(done.stdout)
    assert rows == [[1, "a"], [2, None]]
    assert said == f"a data frame needs the package pandas\nHint: Run: {install_command('analyst')}"
