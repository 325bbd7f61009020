"""numerics.h gives NumPy's bits, vectorised or not, flushed by the processor or by hand; errors are bounded."""

import ctypes
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hwgen.spec import numerics
from hwgen.spec.columns import ColumnType
from hwgen.spec.operations import Opcode, Unit
from tests.hwgen import vectors
from tests.oracles import operations
from tests.oracles.functions import FUNCTIONS
from tests.scale import scaled

HEADERS = Path(numerics.__file__).parent / "native"
FLAGS = ["-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
VARIANTS = {
    "scalar": ["-O1"],
    "portable": ["-O3", "-DDN_PORTABLE"],
    "sse": ["-O3"],
    "avx2": ["-O3", "-mavx2", "-mfma"],
    "avx512": ["-O3", "-mavx512f", "-mavx512dq", "-mavx512vl", "-mfma"],
}
BINARY = {op.name.lower(): meaning for op, meaning in operations.BINARY.items()}
UNARY = {op.name.lower(): meaning for op, meaning in operations.UNARY.items()} | {
    "flush": numerics.flush,
    "canonical": numerics.flush,
}
Pointer = ctypes.c_void_p


def _supported(variant: str) -> bool:
    if variant in ("scalar", "portable"):
        return True
    if platform.machine() != "x86_64":
        return False
    wanted = {"sse": set(), "avx2": {"avx2", "fma"}, "avx512": {"avx512f", "avx512dq", "avx512vl", "fma"}}[variant]
    return wanted <= set(Path("/proc/cpuinfo").read_text().split())


@pytest.fixture(scope="module", params=[v for v in VARIANTS if _supported(v)])
def native(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "the project needs a C compiler"
    library = tmp_path_factory.mktemp("native") / f"{request.param}.so"
    source = Path(__file__).with_name("kernels.c")
    conversions = " ".join(f"CONVERSION({kind.convert.__name__}, {kind.c_type})" for kind in ColumnType)
    functions = " ".join(f"FUNCTION({name}, {f.meaning}, {f.absolute:d})" for name, f in FUNCTIONS.items())
    unary, binary = (
        (f"UNARY({name})" for name in UNARY if name not in FUNCTIONS),
        (f"BINARY({name})" for name in BINARY),
    )
    flags = [
        *FLAGS,
        *VARIANTS[request.param],
        f"-I{HEADERS}",
        f"-DCONVERSIONS={conversions}",
        f"-DFUNCTIONS={functions}",
        f"-DOPERATIONS={' '.join((*unary, *binary))}",
    ]
    command = [compiler, *flags, source, "-o", library, "-lm"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def _map(native: ctypes.CDLL, name: str, *operands: vectors.Floats) -> vectors.Floats:
    out = np.empty_like(operands[0])
    inputs = [np.ascontiguousarray(operand) for operand in operands]
    pointers = [Pointer(array.ctypes.data) for array in inputs] + [Pointer()] * (3 - len(inputs))
    native[f"map_{name}"](*pointers, Pointer(out.ctypes.data), ctypes.c_size_t(out.size))
    # between operations a NaN may have any payload; canonical, as where bits become visible, they must be equal
    return out if name == "canonical" else numerics.flush(out) if np.isnan(out).any() else out


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(native: ctypes.CDLL, name: str) -> None:
    x = vectors.single(scaled(100_000), seed=len(name))
    vectors.same_bits(_map(native, name, x), UNARY[name](x), x)


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(native: ctypes.CDLL, name: str) -> None:
    a, b = vectors.pairs(scaled(300_000), seed=len(name))
    vectors.same_bits(_map(native, name, a, b), BINARY[name](a, b), a, b)


def test_where(native: ctypes.CDLL) -> None:
    a, b = vectors.pairs(scaled(100_000))
    c = np.resize(vectors.floats(vectors.EDGES), a.shape)
    vectors.same_bits(_map(native, "where", c, a, b), numerics.where(c, a, b), c, a, b)


@pytest.mark.parametrize("kind", ColumnType)
def test_conversions(native: ctypes.CDLL, kind: ColumnType) -> None:
    dtype = np.dtype(kind.dtype)
    rng = np.random.default_rng(3)
    count = scaled(100_000)
    column = rng.integers(0, 256, (count, kind.bytes), dtype=np.uint8).view(dtype)[:, 0]
    if kind is ColumnType.FLOAT8:
        # around the bounds of binary32 and halfway between its numbers
        near = numerics.flush(vectors.single(count)).astype(np.float64)
        near *= 1 + rng.choice([0, 2.0**-24, -(2.0**-25), 2.0**-52], near.shape)
        low = 2.0**-126 * (1 - rng.integers(-3, 4, 1000) * 2.0**-26)
        column = np.concatenate([column, near, low, -low, [2.0**128, 2.0**128 - 2.0**103, 5e-324]])
    if np.issubdtype(dtype, np.integer):
        shifted = column >> rng.integers(0, 8 * kind.bytes, count).astype(dtype)
        column = np.concatenate([column, shifted, [np.iinfo(dtype).min, np.iinfo(dtype).max]]).astype(dtype)
    out = np.empty(column.shape, dtype=np.float32)
    native[f"convert_{kind.convert.__name__}"](
        Pointer(column.ctypes.data), Pointer(out.ctypes.data), ctypes.c_size_t(out.size)
    )
    vectors.same_bits(out, kind.convert(column))


def test_every_function_has_a_row() -> None:
    assert FUNCTIONS.keys() == {op.name.lower() for op in Opcode if op.unit is Unit.FUNCTION}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_bound(native: ctypes.CDLL, name: str) -> None:
    """Every stride-th input; a stride of 1 (DANA_TEST_SCALE=4001) is all of them."""
    stride = max(1, round(4001 / scaled(1)))
    sweep = native[f"sweep_{name}"]
    sweep.restype = ctypes.c_double
    wrong = ctypes.c_uint64()
    worst = sweep(ctypes.c_uint64(0), ctypes.c_uint64(stride), ctypes.byref(wrong))
    assert wrong.value == 0
    # a bound that is far from what is reached would say nothing
    assert FUNCTIONS[name].error / 2 < worst <= FUNCTIONS[name].error
