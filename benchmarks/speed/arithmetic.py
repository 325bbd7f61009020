"""Every binary32 input: the error of each function against libm in double, and what must be correctly rounded.

All 2**32 bit patterns go through `numerics.h`, the C form of the arithmetic (`docs/arithmetic.md`), whose bits are the
NumPy's and the hardware's. It takes ten to twenty minutes on one core; `DANA_EVERY=4001` takes every 4001st.
"""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.measure import Figure, main
from hwgen.spec import numerics
from tests.hwgen.numerics import test_native

SOURCE = Path(test_native.__file__).with_name("kernels.c")
HEADERS = Path(numerics.__file__).parent / "native"
INPUTS = 1 << 32
ROUNDED = {"sqrt": "square root", "from_int32": "integer to binary32"}
"""Correctly rounded; in C by their names there."""


def run() -> list[Figure]:
    """Sweep."""
    every = int(os.environ.get("DANA_EVERY", "1"))
    with tempfile.TemporaryDirectory() as folder:
        library = _compiled(Path(folder))
        return [
            *(_error(library, name, bound, every) for name, bound in test_native.ERRORS.items()),
            *(_wrong(library, name, what, every) for name, what in ROUNDED.items()),
        ]


def _compiled(folder: Path) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed, and neither cc nor gcc is on the PATH")
    library = folder / "kernels.so"
    command = [compiler, *test_native.FLAGS, "-O3", f"-I{HEADERS}", str(SOURCE), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def _error(library: ctypes.CDLL, name: str, bound: float, every: int) -> Figure:
    sweep = library[f"sweep_{name}"]
    sweep.restype = ctypes.c_double
    wrong = ctypes.c_uint64()
    worst = sweep(ctypes.c_uint64(0), ctypes.c_uint64(every), ctypes.byref(wrong))
    absolute = bound < 1
    unit = f"2^{math.log2(bound):.0f}, absolute" if absolute else f"{bound:g} ulp"
    return Figure(
        what=f"{name}, {_inputs(every)} inputs",
        measured=(f"{worst:.3g} = 2^{math.log2(worst):.2f}" if absolute else f"{worst:.3f} ulp")
        + (f", and {wrong.value} wrong zeros, infinities or NaNs" if wrong.value else ""),
        reference=f"libm in double; {unit}",
        ratio=math.inf if wrong.value else worst / bound,
        target=1.0,
    )


def _wrong(library: ctypes.CDLL, name: str, what: str, every: int) -> Figure:
    sweep = library[f"wrong_{name}"]
    sweep.restype = ctypes.c_uint64
    found = sweep(ctypes.c_uint64(0), ctypes.c_uint64(every))
    return Figure(
        what=f"{what}, {_inputs(every)} inputs",
        measured=f"{found} wrong",
        reference="in double, rounded once",
        ratio=float(found),
        target=0.0,
    )


def _inputs(every: int) -> str:
    return "all 2^32" if every == 1 else f"{INPUTS // every:,}"


if __name__ == "__main__":
    main(run)
