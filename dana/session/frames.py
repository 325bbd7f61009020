"""Data frames as columns of a table: types are chosen, missing values become NULL.

In: a pandas data frame; a table of Arrow, or any object with Arrow's C stream (polars, DuckDB …); a mapping of
names to arrays or lists. Out: columns of `dana.session.tables`. pandas and pyarrow are loaded only for their own
objects.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from dana.errors import UsageError
from dana.extras import install_command
from dana.printable import printable
from dana.session.tables import Column, Fixed, Varying
from dana.storage.types import ARRAYS, SCALARS

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class ArrowStream(Protocol):
    """A table that is read through Arrow's C stream, as pyarrow, polars and DuckDB provide it."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule with an ``ArrowArrayStream``."""


Values: TypeAlias = "NDArray[np.generic] | pd.Series | Sequence[object]"


class LazyFrame(Protocol):
    """A lazy frame of polars."""

    def collect(self) -> ArrowStream:
        """Its rows."""


Frame: TypeAlias = "pd.DataFrame | ArrowStream | Mapping[str, Values]"
"""What `columns_of` reads."""

Loadable: TypeAlias = "Frame | LazyFrame | NDArray[np.generic] | Path | str"
"""What `frame_of` makes a frame of."""

EPOCH = np.datetime64("2000-01-01")  # POSTGRES_EPOCH_JDATE of timestamp.h

NUMBERS = {
    np.dtype(narrow): np.dtype(wide)
    for wide, narrows in {"?": "?", "i2": "i1 u1 i2", "i4": "u2 i4", "i8": "u4 i8", "f4": "f2 f4", "f8": "f8"}.items()
    for narrow in narrows.split()
}
"""NumPy's types of numbers, and the ones in which PostgreSQL holds them."""

SQL_TYPES = {np.dtype(one.dtype): one.name for one in SCALARS.values()}
ARRAY_ELEMENTS = {one.dtype: one for one in ARRAYS.values()}


def columns_of(data: Frame) -> dict[str, Column]:
    """The columns of a data frame, in their order.

    Parameters
    ----------
    data
        ``pandas.DataFrame`` (its index is left out), ``pyarrow.Table``, ``polars.DataFrame``, or a mapping of names to
        arrays, series or lists. NaN, NaT, None and Arrow's nulls become NULL.

    Returns
    -------
    dict
        By name. Integers become smallint, integer or bigint, as wide as they were; floats real or double precision;
        booleans boolean; texts and categories text; days date; moments timestamp, with a time zone timestamptz;
        durations interval; bytes bytea; ``decimal.Decimal`` double precision, UUIDs uuid; a matrix of floats, or
        lists of as many numbers in each row, an array.

    Raises
    ------
    UsageError
        ``data`` or a column is of another type.
    """
    names: list[object]
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # before Arrow's stream, for which pandas needs pyarrow
        # iloc: names of columns may repeat, and a name would then select a frame
        names, values = list(data.columns), [data.iloc[:, k] for k in range(len(data.columns))]
    elif hasattr(data, "iloc"):
        raise UsageError(
            "a data frame is expected, not a Series",
            hint="Use series.to_frame() for a column, series.to_frame().T for a row.",
        )
    elif hasattr(data, "__arrow_c_stream__"):
        table = _pyarrow().table(data)
        names, values = list(table.column_names), list(table.columns)
    elif isinstance(data, Mapping):
        names, values = list(data), list(data.values())
    else:
        raise UsageError(
            f"a data frame of pandas, Arrow or polars, or a dict of arrays is expected, not {type(data).__name__}"
        )
    found: dict[str, Column] = {}
    for name, value in zip(names, values, strict=True):
        if isinstance(name, tuple):
            raise UsageError(f"columns must have plain names, not {name!r}", hint="Flatten the frame's columns first.")
        # after str: 1 and "1" are two columns of pandas and one of PostgreSQL
        if str(name) in found:
            raise UsageError(f"two columns have the name {str(name)!r}")
        found[str(name)] = column_of(str(name), value)
    return found


def frame_of(data: Loadable) -> Frame:
    """What a user loads, as a data frame.

    Parameters
    ----------
    data
        A data frame; a lazy one of polars, which is collected; an array of shape (rows, n), with columns x1 to xn, or
        one with named fields; the path of a Parquet or CSV file, which pyarrow reads.

    Raises
    ------
    UsageError
        The array has another shape; there is no such file, or it cannot be read.
    """
    if isinstance(data, str | Path):
        return _read(Path(data))
    if isinstance(data, np.ndarray):
        return _named(data)
    return cast(LazyFrame, data).collect() if hasattr(data, "collect_schema") and hasattr(data, "collect") else data


def _read(file: Path) -> ArrowStream:
    """Read a Parquet or CSV file."""
    if not file.is_file():
        raise UsageError(f"there is no file {printable(str(file))}", hint="db.load takes a file's path first.")
    module, read = {".parquet": ("parquet", "read_table"), ".csv": ("csv", "read_csv")}.get(
        file.suffix if file.suffix != ".gz" else Path(file.stem).suffix, ("", "")
    )
    if not module:
        raise UsageError(
            f"{printable(str(file))} is not a file .parquet, .csv or .csv.gz",
            hint="Read it into a data frame first, and load that.",
        )
    pyarrow = _pyarrow()
    library = import_module(f"pyarrow.{module}")
    # as COPY reads a file: nothing between two commas is NULL, in texts, too; "" is an empty text
    nulls = {"strings_can_be_null": True, "quoted_strings_can_be_null": False}
    options = {"convert_options": library.ConvertOptions(**nulls)} if module == "csv" else {}
    try:
        table: ArrowStream = getattr(library, read)(file, **options)
    except pyarrow.ArrowInvalid as error:
        raise UsageError(f"cannot read {printable(str(file))}: {error}") from None
    return table


def _named(values: NDArray[Any]) -> Mapping[str, Values]:
    """The columns of an array by name."""
    if values.dtype.names is not None:
        return {name: values[name] for name in values.dtype.names}
    if values.ndim != 2:
        raise UsageError(
            f"an array must have the shape (rows, columns), not {values.shape}",
            hint="Use a dict of arrays, such as {'x': values}.",
        )
    return {f"x{k + 1}": values[:, k] for k in range(values.shape[1])}


def column_of(name: str, values: Values) -> Column:
    """One column of a data frame, as `columns_of` converts it."""
    if hasattr(values, "combine_chunks") or hasattr(values, "__arrow_c_array__"):
        return _of_arrow(name, values)
    if hasattr(values, "__arrow_c_stream__") and not hasattr(values, "iloc"):
        return _of_arrow(name, _pyarrow().chunked_array(values))
    if hasattr(values, "iloc"):
        return _of_series(name, values)
    if isinstance(values, np.ndarray):
        return _of_array(name, values)
    # texts are sequences, too, and would become columns of characters
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return _of_objects(name, list(values))
    if hasattr(values, "__array__"):
        return _of_array(name, np.asarray(values))
    raise UsageError(f"column {name} must be an array or a list, not {type(values).__name__}")


def _pyarrow() -> ModuleType:
    try:
        return import_module("pyarrow")
    except ModuleNotFoundError:
        raise UsageError(
            "reading this data needs the package pyarrow", hint=f"Run: {install_command('analyst')}"
        ) from None


def _of_array(name: str, values: np.ndarray, valid: NDArray[np.bool_] | None = None) -> Column:
    """From an array of NumPy; NaN, NaT and values that are not `valid` become NULL."""
    given = valid
    valid = np.ones(values.shape[:1], dtype=np.bool_) if valid is None else valid
    kind, dtype = values.dtype.kind, values.dtype.newbyteorder("=")
    if values.ndim == 2 and kind == "f":
        return _of_matrix(name, values)
    if values.ndim != 1:
        raise UsageError(f"column {name} must be a vector, or a matrix of floats, not of shape {values.shape}")
    if dtype == np.uint64:  # PostgreSQL has no unsigned types
        if values.max(initial=0) > np.iinfo(np.int64).max:
            raise UsageError(f"column {name} has integers beyond those of bigint")
        return Fixed("bigint", valid, values.astype(np.int64))
    if dtype in NUMBERS:
        wide = NUMBERS[dtype]
        return Fixed(SQL_TYPES[wide], _present(values, valid), values.astype(wide))
    if kind == "M":
        # units of a day and longer have no time of day, so a date loses nothing
        day = np.datetime_data(values.dtype)[0] in ("Y", "M", "W", "D")
        since = values.astype("M8[D]" if day else "M8[us]") - EPOCH
        return Fixed("date" if day else "timestamp", _present(values, valid), since.astype("i4" if day else "i8"))
    if kind == "m":
        # the order of interval_recv
        intervals = np.zeros(len(values), dtype=[("us", ">i8"), ("days", ">i4"), ("months", ">i4")])
        # all in microseconds: a day of an interval may have 23 or 25 hours
        intervals["us"] = values.astype("m8[us]").astype("i8")
        return Fixed("interval", _present(values, valid), intervals.view("V16"))
    if kind in "OUST":
        return _of_objects(name, values.tolist(), given)
    raise UsageError(f"column {name} has the type {values.dtype}, which has no counterpart in PostgreSQL")


def _present(values: np.ndarray, valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
    missing = {"f": np.isnan, "m": np.isnat, "M": np.isnat}.get(values.dtype.kind)
    return valid if missing is None else valid & ~np.asarray(missing(values), dtype=np.bool_)


def _of_matrix(name: str, values: np.ndarray, valid: NDArray[np.bool_] | None = None) -> Column:
    """A row of the matrix is an array: its header (array_recv), then each element's length and value."""
    rows, length = values.shape
    wide = NUMBERS.get(values.dtype.newbyteorder("="))
    if wide is None:
        raise UsageError(f"column {name} has the type {values.dtype}, which has no counterpart in PostgreSQL")
    element = ARRAY_ELEMENTS[wide.str[1:]]
    fields = np.zeros(
        rows, dtype=[("head", ">i4", 5), ("elements", [("length", ">i4"), ("value", wide.newbyteorder(">"))], length)]
    )
    fields["head"] = (
        1,
        0,
        element.oid,
        length,
        1,
    )  # dimensions, whether there are NULLs, elements' type, length, lower bound
    fields["elements"]["length"] = wide.itemsize
    fields["elements"]["value"] = values
    valid = np.ones(rows, dtype=np.bool_) if valid is None else valid
    return Fixed(f"{element.name}[]", valid, fields.view(f"V{fields.dtype.itemsize}"))


def _of_lists(name: str, found: list[Any], valid: NDArray[np.bool_]) -> Column:
    """From lists of as many numbers in each row that has one."""
    lengths = sorted({len(each) for each in found})
    if len(lengths) > 1:
        raise UsageError(
            f"column {name} has lists of {lengths[0]} and of {lengths[-1]} elements",
            hint="A rule reads arrays of one length: pad them, or leave rows out.",
        )
    numbers = np.array(found)
    if numbers.ndim != 2 or numbers.dtype.kind not in "biuf":
        raise UsageError(f"column {name} must have lists of numbers without gaps, not such as {found[0]!r}")
    rows = np.zeros((len(valid), lengths[0]), dtype="f4" if numbers.dtype == np.float32 else "f8")
    rows[valid] = numbers
    return _of_matrix(name, rows, valid)


def _of_series(name: str, values: pd.Series) -> Column:
    """From a series of pandas."""
    dtype = values.dtype
    if isinstance(dtype, np.dtype):
        return _of_array(name, values.to_numpy())
    # the categories are converted once, not each row
    if hasattr(values, "cat"):
        return _taken(name, column_of(name, values.cat.categories.to_series()), values.cat.codes.to_numpy())
    if hasattr(dtype, "pyarrow_dtype") or getattr(dtype, "storage", "") == "pyarrow":  # pandas 3 stores texts in it
        return _of_arrow(name, values.array.__arrow_array__())
    missing = values.isna().to_numpy()
    if dtype.kind == "M":  # with a time zone
        moments = values.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        return _zoned(_of_array(name, moments.astype("M8[us]")))
    if dtype.kind in "iufb":  # masked (Int64, Float64, boolean), or sparse
        numbers = dtype.numpy_dtype if hasattr(dtype, "numpy_dtype") else dtype.subtype
        plain = values.to_numpy(dtype=numbers, na_value=numbers.type(0)) if missing.any() else values.to_numpy(numbers)
        return _of_array(name, plain, ~missing)
    return _of_array(name, values.to_numpy(dtype=object), ~missing)


def _zoned(column: Column) -> Column:
    assert isinstance(column, Fixed)
    return Fixed("timestamptz", column.valid, column.values)


def _taken(name: str, categories: Column, codes: np.ndarray) -> Column:
    if not len(categories.valid):  # no category to index
        return _of_objects(name, [None] * len(codes))
    return categories.take(codes)


def _of_arrow(name: str, values: pa.ChunkedArray) -> Column:
    arrow = _pyarrow()
    is_, kind = arrow.types, values.type
    if is_.is_dictionary(kind) and not len(values):  # Arrow cannot combine zero chunks
        return _of_arrow(name, arrow.array([], kind.value_type))
    if is_.is_string(kind):  # combined chunks may exceed 32-bit offsets
        values = values.cast(arrow.large_string())
    array = values.combine_chunks() if isinstance(values, arrow.ChunkedArray) else arrow.array(values)
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    if is_.is_dictionary(kind):
        codes = array.indices.cast(arrow.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        return _taken(name, _of_arrow(name, array.dictionary), codes)
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        return _of_offsets("text", valid, array.cast(arrow.large_string()))
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind) or is_.is_binary_view(kind):
        return _of_offsets("bytea", valid, array.cast(arrow.large_binary()))
    if is_.is_decimal(kind):
        array, kind = array.cast(arrow.float64()), arrow.float64()
    if is_.is_boolean(kind) or is_.is_integer(kind) or is_.is_floating(kind):
        plain = array.fill_null(False if is_.is_boolean(kind) else 0)
        return _of_array(name, plain.to_numpy(zero_copy_only=False), valid)
    if is_.is_date(kind):
        return _of_array(name, array.cast(arrow.date32()).to_numpy(zero_copy_only=False).astype("M8[D]"), valid)
    if is_.is_timestamp(kind):
        moments = array.cast(arrow.timestamp("us", kind.tz), safe=False).to_numpy(zero_copy_only=False)
        return (_zoned if kind.tz else _same)(_of_array(name, moments.astype("M8[us]"), valid))
    if is_.is_duration(kind):
        return _of_array(name, array.to_numpy(zero_copy_only=False).astype("m8[us]"), valid)
    # with a NULL the flattened values do not have a row for each list
    if is_.is_fixed_size_list(kind) and is_.is_floating(kind.value_type) and valid.all():
        numbers = array.flatten().to_numpy(zero_copy_only=False)
        return _of_matrix(name, numbers.reshape(len(array), kind.list_size))
    return _of_objects(name, array.to_pylist())


def _same(column: Column) -> Column:
    return column


def _of_offsets(kind: str, valid: NDArray[np.bool_], array: pa.Array) -> Column:
    """From Arrow's large strings or binaries: 64-bit offsets into bytes."""
    _, offsets, data = array.buffers()
    places = np.zeros(1, dtype=np.int64)  # an empty array may have no offsets
    if len(array):
        # a slice shares the buffers of the whole and begins at `offset`
        places = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    bytes_ = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.empty(0, dtype=np.uint8)
    return Varying(kind, valid, bytes_, places[:-1], np.where(valid, np.diff(places), 0))


Convert = Callable[[list[Any]], Any]

# bool before int, its base class; int before float, which would round integers above 2^53
OBJECTS: tuple[tuple[tuple[type, ...], str, Convert], ...] = (
    ((str,), "text", lambda found: [each.encode() for each in found]),
    ((bool, np.bool_), "boolean", lambda found: np.array(found, dtype=np.bool_)),
    ((int, np.integer), "bigint", lambda found: np.array(found, dtype=np.int64)),
    ((int, float, Decimal, np.number), "double precision", lambda found: np.array(found, dtype=np.float64)),
    ((bytes, bytearray), "bytea", list),
    ((UUID,), "uuid", lambda found: np.array([each.bytes for each in found], dtype="V16")),
    ((dt.time,), "time", lambda found: np.array([_microseconds(each) for each in found], dtype=np.int64)),
    ((dt.date,), "date", lambda found: np.array(found, dtype="M8[D]")),
    ((dt.date, np.datetime64), "timestamp", lambda found: np.array(list(map(_moment, found)), dtype="M8[us]")),
    ((dt.timedelta, np.timedelta64), "interval", lambda found: np.array(found, dtype="m8[us]")),
)
"""Python types of a list's values, SQL type, conversion; the first row that fits all values is taken."""


def _microseconds(value: dt.time) -> int:
    if value.tzinfo is not None:
        raise OverflowError("times of day have no time zone here")
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _moment(value: object) -> object:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return value


def _missing(value: object) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas' NA and NaT, without loading pandas
        return True
    # only a NaN differs from itself; other objects may return an array from the comparison
    return isinstance(value, float | Decimal | np.inexact | np.datetime64 | np.timedelta64) and bool(value != value)


def _of_objects(name: str, values: list[Any], valid: NDArray[np.bool_] | None = None) -> Column:
    """From Python values of one kind; values that are missing, or not `valid`, become NULL."""
    if valid is None:
        valid = ~np.fromiter(map(_missing, values), dtype=np.bool_, count=len(values))
    found = values if valid.all() else [each for each, kept in zip(values, valid, strict=True) if kept]
    types = set(map(type, found))
    if types and types <= {list, tuple, np.ndarray}:
        return _of_lists(name, found, valid)
    # datetime is a subclass of date: as a date it would lose its time of day
    fitting = (
        (sql_type, convert)
        for kinds, sql_type, convert in OBJECTS
        if all(issubclass(each, kinds) and (sql_type != "date" or each is dt.date) for each in types)
    )
    sql_type, convert = next(fitting, ("", list))
    if not sql_type:
        # texts fit some row of OBJECTS, so the first other value is the odd one
        row = next(k for k, each in enumerate(values) if valid[k] and type(each) is not str)
        raise UsageError(
            f"column {name} must be numbers, texts, dates … of one kind, but row {row} has {values[row]!r}",
            hint="Convert the column first, with astype(str) for instance.",
        )
    zones = {each.tzinfo is not None for each in found if isinstance(each, dt.datetime)}
    if len(zones) > 1:
        raise UsageError(f"column {name} has moments with and without a time zone")
    try:
        made = convert(found)
    except (OverflowError, UnicodeEncodeError) as error:
        raise UsageError(f"column {name} has a value that does not fit the type {sql_type}: {error}") from None
    if isinstance(made, list):
        lengths = np.zeros(len(values), dtype=np.int64)
        lengths[valid] = np.fromiter(map(len, made), dtype=np.int64, count=len(made))
        data = np.frombuffer(b"".join(made), dtype=np.uint8)
        return Varying(sql_type, valid, data, np.cumsum(lengths) - lengths, lengths)
    whole = np.zeros(len(values), dtype=made.dtype)
    whole[valid] = made
    if sql_type in ("uuid", "time"):
        return Fixed(sql_type, valid, whole)
    column = _of_array(name, whole, valid)
    return _zoned(column) if zones == {True} else column
