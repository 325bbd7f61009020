"""Converts JSON values to the types that dataclasses declare."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

MAX_INTEGER = 1 << 63
"""Bound of integers, those of the bigint of PostgreSQL: -MAX_INTEGER <= n < MAX_INTEGER."""


_ARRAY = get_origin(NDArray[np.float32])
"""numpy.ndarray; from NumPy 2.5 on an alias."""


class Mismatch(TypeError):
    """A value has another type than declared."""


def conform(kind: Any, value: Any, where: str) -> Any:
    """Convert a value to `kind`: lists become tuples, objects become dataclasses.

    Parameters
    ----------
    kind
        A type, or an annotation made of None, bool, int, float, str, arrays, tuples of any length, mappings with
        string keys, unions and dataclasses.
    where
        Name of the value in an error.

    Raises
    ------
    Mismatch
        The value or a part of it has another type, or an object has a missing or unknown member.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value, where)
    if is_dataclass(kind):
        return _dataclass(kind, value, where)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(conform(arguments[0], one, where) for one in value)
    if origin is Mapping and isinstance(value, Mapping):
        return {key: conform(arguments[1], one, f"{where}.{key}") for key, one in value.items()}
    if origin is _ARRAY and isinstance(value, np.ndarray):
        return value
    # type(value), not isinstance: True is an int in Python, but not in JSON. Larger integers would lose digits
    if kind is float and type(value) is int and abs(value) < MAX_INTEGER:
        return float(value)
    if origin is None and type(value) is kind and (kind is not int or -MAX_INTEGER <= value < MAX_INTEGER):
        return value
    raise _mismatch(kind, value, where)


def _one_of(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    for kind in kinds:
        if kind is not types.NoneType:
            try:
                return conform(kind, value, where)
            except Mismatch as error:
                mismatch = error
    raise mismatch


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise _mismatch(kind, value, where)
    hints = _hints(kind)
    if unknown := value.keys() - hints.keys():
        raise Mismatch(f"{where} has no {sorted(unknown)[0]!r}")
    required = {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}
    if missing := required - value.keys():
        raise Mismatch(f"{where} lacks {sorted(missing)[0]!r}")
    return kind(**{name: conform(hints[name], one, f"{where}.{name}") for name, one in value.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _mismatch(kind: Any, value: Any, where: str) -> Mismatch:
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    return Mismatch(f"{where} must be of type {name}, not {type(value).__name__}")
