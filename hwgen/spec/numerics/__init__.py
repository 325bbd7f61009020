"""The arithmetic of the machine, one meaning everywhere: binary32, flushed, each operation rounded on its own.

In and out: float32 NumPy arrays. The C header ``native/numerics.h`` and the units of ``hwgen.rtl.arith`` give the same
bits; docs/arithmetic.md has the algorithms and their errors. This module's names satisfy the interpreter's Arithmetic
protocol; nothing here may know of the language or of Amaranth.
"""

from hwgen.spec.numerics.binary32 import (
    absolute,
    add,
    div,
    eq,
    flush,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    mul,
    neg,
    sqrt,
    sub,
    where,
)
from hwgen.spec.numerics.conversion import from_bool, from_float32, from_float64, from_int16, from_int32, from_int64
from hwgen.spec.numerics.functions import exp, gaussian, log, sigmoid, tanh
from hwgen.spec.numerics.reduction import IDENTITIES, fold, tree

__all__ = [
    "IDENTITIES",
    "absolute",
    "add",
    "div",
    "eq",
    "exp",
    "flush",
    "fold",
    "from_bool",
    "from_float32",
    "from_float64",
    "from_int16",
    "from_int32",
    "from_int64",
    "gaussian",
    "ge",
    "gt",
    "le",
    "log",
    "lt",
    "maximum",
    "minimum",
    "mul",
    "neg",
    "sigmoid",
    "sqrt",
    "sub",
    "tanh",
    "tree",
    "where",
]
