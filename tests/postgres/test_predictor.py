"""Predictors: the C evaluation has the interpreter's bits, and no damaged program leaves its memory."""

from __future__ import annotations

import ctypes
import random
import struct
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dana.errors import InternalError
from dana.predictor.program import HEADER_WORDS, decode_predictor, encode_predictor, with_metas
from dsl import compile_rule
from dsl.hdfg.graph import Graph, Op
from dsl.hdfg.interpreter import Interpreter
from dsl.semantics.composed import COMPOSED
from hwgen.spec import numerics
from tests.dsl.programs import Kinds, expressions
from tests.oracles import rounding
from tests.scale import scaled

ROOT = Path(__file__).parents[2]
SOURCES = [str(ROOT / "pg_extension/src/models/predictor.c"), str(Path(__file__).parent / "predictor_harness.c")]
INCLUDES = [f"-I{ROOT / folder}" for folder in ("pg_extension/src", "hwgen/spec/numerics/native")]
SPECIAL = np.array([0, -0.0, 1, -1, np.nan, np.inf, -np.inf, 1e-38, 1e-45, 3e38, 0.1, 88.8], dtype=np.float32)

Floats = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("predictor") / "predictor.so"
    flags = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC", *INCLUDES]
    subprocess.run(["cc", *flags, "-o", str(path), *SOURCES, "-lm"], check=True)
    return ctypes.CDLL(str(path))


def predict(library: ctypes.CDLL, program: bytes, weights: Floats, rows: Floats) -> Floats:
    """Predictions by the extension's code."""
    width = decode_predictor(program).width
    out = np.empty((len(rows), width) if width > 1 else len(rows), dtype=np.float32)
    why = ctypes.c_char_p()
    code = library.predict_rows(
        program,
        ctypes.c_size_t(len(program)),
        weights.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint32(weights.size),
        np.ascontiguousarray(rows).ctypes.data_as(ctypes.c_void_p),
        ctypes.c_uint32(len(rows)),
        out.ctypes.data_as(ctypes.c_void_p),
        ctypes.byref(why),
    )
    assert code == 0, why.value
    return out


def numbers(seed: int, *shape: int) -> Floats:
    """Ordinary numbers with special ones among them."""
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 2, shape).astype(np.float32)
    chosen = rng.random(shape) < 0.05
    return np.where(chosen, rng.choice(SPECIAL, shape), values).astype(np.float32)


def compared(library: ctypes.CDLL, graph: Graph, seed: int, metas: dict[str, float] | None = None) -> None:
    """Predict some rows both ways and compare bits."""
    nodes = graph.nodes
    assert graph.prediction is not None
    needed = graph.reachable([graph.prediction])
    inputs = [k for k in graph.inputs if nodes[k].op is Op.INPUT]
    models = {str(nodes[k].name): numbers(seed + k, *graph.concrete_shape(k)) for k in graph.models}
    columns = {str(nodes[k].name): numbers(seed + 100 + k, 20, *graph.concrete_shape(k)) for k in inputs}
    used = {str(nodes[k].name): columns[str(nodes[k].name)] for k in inputs if k in needed}
    with np.errstate(all="ignore"):
        expected = numerics.flush(Interpreter(graph, numerics).predict(used, models, metas))
    weights = numerics.flush(np.concatenate([one.reshape(-1) for one in models.values()]))
    rows = np.concatenate([numerics.flush(one).reshape(20, -1) for one in columns.values()], axis=1)
    found = predict(library, encode_predictor(graph, metas), weights, rows)
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


RULES = {
    "linear": ("w = dana.model([n]); x = dana.input([n])", "w, x", "dana.sigma(w * x, 1)"),
    "logistic": ("w = dana.model([n]); x = dana.input([n])", "w, x", "dana.sigmoid(dana.sigma(w * x, 1))"),
    "two layers": (
        "W = dana.model([5, n]); b = dana.model([5]); v = dana.model([5]); x = dana.input([n])",
        "W, b, v, x",
        "dana.sigma(v * dana.max(dana.sigma(W * x, 2) + b, 0), 1)",
    ),
    "rows": (
        "U = dana.model([12, n]); x = dana.input([n]); i = dana.input()",
        "U, x, i",
        "dana.sigma(U[i] * x, 1)",
    ),
    "rows of tables": (
        "w = dana.model([n]); T = dana.table([12, n]); B = dana.table([12]); x = dana.input([n]); i = dana.input()",
        "w, T, B, x, i",
        "dana.sigma(T[i] * x, 1) + B[i] + T[3] @ w",
    ),
    "computed rows": (
        "U = dana.model([12, n]); x = dana.input([n]); i = dana.input()",
        "U, x, i",
        "dana.sigma(U[dana.floor(i / 2)] * U[11 - i] * x, 1)",
    ),
    "product": ("w = dana.model([n]); x = dana.input([n])", "w, x", "dana.pi(w - x / 2, 1)"),
    "choice": (
        "w = dana.model([n]); x = dana.input([n]); t = dana.meta(0.25)",
        "w, x",
        "dana.where(dana.sigma(w * x, 1) > t, 1, -1)",
    ),
    "norms": ("w = dana.model([n]); x = dana.input([n])", "w, x", "dana.norm(w - x, 1) + dana.exp(-dana.norm(x, 1))"),
    "softmax": ("W = dana.model([3, n]); x = dana.input([n])", "W, x", "dana.softmax(dana.sigma(W * x, 2))"),
    "elements": (
        "W = dana.model([3, n]); x = dana.input([n])",
        "W, x",
        "(W @ x)[1] + x @ W[-1] * x[-1] + dana.concat(x[0], W[0:2, 0], 2) @ [1, -1, 0.5, x[:1][0]]",
    ),
    "a model for each class": ("v = dana.model([3]); x = dana.input([n])", "v, x", "v + 0 * dana.sigma(x, 1)"),
    "model only": ("w = dana.model([n]); x = dana.input([n])", "w, x", "dana.sigma(w, 1) + 0 * dana.sigma(x, 1)"),
}


def rule_graph(declarations: str, names: str, prediction: str, n: int) -> Graph:
    model = names.split(",")[0]
    text = "\n".join(
        [
            "import dana",
            f"n = {n}",
            *declarations.split("; "),
            "y = dana.output()",
            f"r = dana.algo({names}, y)",
            f"r.setModel({model}, {model} + 0 * y)",
            f"r.setPrediction({prediction})",
        ]
    )
    return compile_rule(text, filename="rule").hdfg.bind({})


@pytest.mark.parametrize(
    ("name", "n"), [*((name, n) for name in RULES for n in (1, 3, 8, 9, 100)), ("linear", 7), ("linear", 1000)]
)
def test_bits_of_known_rules(library: ctypes.CDLL, name: str, n: int) -> None:
    graph = rule_graph(*RULES[name], n)
    if "rows" in name:
        shapes = {str(graph.nodes[k].name): graph.concrete_shape(k) for k in graph.models}
        models = {name: numbers(seed, *shape) for seed, (name, shape) in enumerate(shapes.items(), 7)}
        x, i = numbers(2, 30, n), np.arange(30, dtype=np.float32) % 12
        with np.errstate(all="ignore"):
            expected = Interpreter(graph, numerics).predict({"x": x, "i": i}, models)
        weights = np.concatenate([numerics.flush(one).reshape(-1) for one in models.values()])
        rows = np.concatenate([numerics.flush(x), i[:, None]], axis=1)
        found = predict(library, encode_predictor(graph), weights, rows)
        assert np.array_equal(found, expected, equal_nan=True)
        return
    for seed in range(5):
        compared(library, graph, seed)


@pytest.mark.parametrize("name", COMPOSED)
def test_what_is_made_of_others_is_numpy_s(library: ctypes.CDLL, name: str) -> None:
    graph = rule_graph("w = dana.model(); x = dana.input()", "w, x", f"dana.{name}(x)", 1)
    values = rounding.numbers()
    found = predict(library, encode_predictor(graph), np.ones(1, np.float32), values[:, None])
    np.testing.assert_array_equal(found.view(np.uint32), rounding.expected(name, values).view(np.uint32))


@settings(max_examples=scaled(150), deadline=None, derandomize=True)
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_bits_of_random_rules(library: ctypes.CDLL, data: st.DataObject, seed: int) -> None:
    kinds = Kinds(names={"": ("b", "lr"), "n": ("w", "x"), "k": ("v", "z"), "kn": ("M",)})
    expression = data.draw(expressions(kinds, "", 4))
    sizes = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 5)))
    text = "\n".join(
        [
            "import dana",
            f"n = {sizes[0]}",
            f"k = {sizes[1]}",
            "w = dana.model([n]); b = dana.model(); v = dana.model([k]); M = dana.model([k, n])".replace("; ", "\n"),
            "x = dana.input([n])\nz = dana.input([k])\ny = dana.output()\nlr = dana.meta(0.125)",
            "r = dana.algo(w, b, v, M, x, z, y)",
            "r.setModel(b, b + y)",
            f"r.setPrediction(({expression}) + 0 * dana.sigma(x, 1))",  # the interpreter counts rows by an input
        ]
    )
    compared(library, compile_rule(text, filename="rule").hdfg.bind({}), seed % 1000, {"lr": 0.3})


def test_metas_are_set_afterwards(library: ctypes.CDLL) -> None:
    graph = rule_graph(*RULES["choice"], 3)
    default = encode_predictor(graph)
    assert with_metas(default, [0.5]) == encode_predictor(graph, {"t": 0.5, "unknown": 1.0})
    assert with_metas(default, [0.25]) == default
    with pytest.raises(InternalError, match="cannot hold"):
        with_metas(default, [0.0] * 100)


def refused(library: ctypes.CDLL, program: bytes) -> bool:
    """Whether the check or the evaluation refuses a program for two weights and two features."""
    room = np.zeros(64, dtype=np.float32)
    why = ctypes.c_char_p()
    pointer = room.ctypes.data_as(ctypes.c_void_p)
    code = library.predict_rows(
        program, ctypes.c_size_t(len(program)), pointer, ctypes.c_uint32(2), pointer, 1, pointer, ctypes.byref(why)
    )
    return bool(code != 0)


WORD = struct.Struct("<I")


def changed(program: bytes, word: int, value: int) -> bytes:
    return program[: 4 * word] + WORD.pack(value) + program[4 * word + 4 :]


def test_every_bound_is_checked(library: ctypes.CDLL) -> None:
    """A dot product of two features: 8 words of header, MUL of 17 words, SIGMA of 17 words."""
    program = encode_predictor(rule_graph(*RULES["linear"], 2))
    assert not refused(library, program)
    mul, sigma = 8, 8 + 17
    for word, value in (
        (0, 0x31504E44),  # another version
        (1, 3),
        (2, 3),
        (3, 1),
        (4, 2),
        (4, 1 << 30),
        (5, 3),
        (6, 7),
        (7, 0),
        (7, 2),  # the result's last number outside memory
        (7, 0xFFFFFFFF),
        (mul, 22),
        (mul + 1, 3),  # a result over the weights
        (mul + 1, 6),
        (mul + 2, 0),
        (mul + 3, 1 << 29),
        (mul + 4, 4),
        (mul + 5, 6),  # its second element is one behind the last
        (mul + 5, 7),
        (mul + 5, 0xFFFFFFFF),
        (mul + 8, 7),
        (mul + 13, 1),  # an operand that MUL does not have
        (mul + 16, 1),
        (sigma + 3, 5),
        (sigma + 7, 4),
    ):
        assert refused(library, changed(program, word, value)), f"word {word} = {value}"
    for length in range(0, len(program), 3):
        assert refused(library, program[:length])
    assert refused(library, program + b"\0\0\0\0")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({0: 24}, b"unknown operation"),
        ({2: 1 << 28, 3: 1 << 28, 4: 1 << 8}, b"too many elements"),  # 2 to the 64
        ({13: 0, 6: 0}, b"a model without rows"),
        # the sum of their products is 2 to the 64, and a little more
        ({13: 0xFFFFFFFF, 6: 0xFFFFFFFF, 8: 3 << 29}, b"a stride or an extent that is too large"),
    ],
)
def test_bounds_that_would_overflow(library: ctypes.CDLL, changes: dict[int, int], why: bytes) -> None:
    """Of the choice of a row: a row number that is none keeps what is wrongly accepted from running."""
    program = encode_predictor(rule_graph(*RULES["rows"], 9))
    assert refusal(library, program) == (-2, None)
    for word, value in changes.items():
        program = changed(program, HEADER_WORDS + word, value)
    assert refusal(library, program) == (-1, why)


def refusal(library: ctypes.CDLL, program: bytes) -> tuple[int, bytes | None]:
    """Code and text for 12 rows of 9 weights, and a row number of -1."""
    weights, row, out = np.zeros(12 * 9, dtype=np.float32), -np.ones(10, dtype=np.float32), np.zeros(1, np.float32)
    why = ctypes.c_char_p()
    code = library.predict_rows(
        program,
        ctypes.c_size_t(len(program)),
        weights.ctypes.data_as(ctypes.c_void_p),
        weights.size,
        row.ctypes.data_as(ctypes.c_void_p),
        1,
        out.ctypes.data_as(ctypes.c_void_p),
        ctypes.byref(why),
    )
    return int(code), why.value


def test_row_numbers_come_from_the_data(library: ctypes.CDLL) -> None:
    graph = rule_graph(*RULES["rows"], 2)
    program = encode_predictor(graph)
    weights = np.zeros(24, dtype=np.float32)
    why = ctypes.c_char_p()
    out = np.zeros(1, dtype=np.float32)
    for index, fits in ((0, True), (11, True), (12, False), (-1, False), (0.5, False), (np.nan, False), (1e30, False)):
        row = np.array([1, 1, index], dtype=np.float32)
        code = library.predict_rows(
            program,
            ctypes.c_size_t(len(program)),
            weights.ctypes.data_as(ctypes.c_void_p),
            24,
            row.ctypes.data_as(ctypes.c_void_p),
            1,
            out.ctypes.data_as(ctypes.c_void_p),
            ctypes.byref(why),
        )
        assert code == (0 if fits else -2)


def test_damaged_programs_under_the_sanitizers(tmp_path: Path) -> None:
    """Thousands of damaged predictors, checked and run with address and undefined-behaviour sanitizers."""
    binary = tmp_path / "fuzz"
    flags = [
        "-std=gnu11",
        "-O0",
        "-g1",
        "-DFUZZ",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        *INCLUDES,
    ]
    subprocess.run(["cc", *flags, "-o", str(binary), *SOURCES, "-lm"], check=True)
    rng = random.Random(1)
    good = [encode_predictor(rule_graph(*RULES[name], n)) for name in RULES for n in (1, 2, 9)]
    interesting = (0, 1, 2, 3, 4, 7, 8, 16, 255, 1 << 16, 1 << 28, (1 << 28) + 1, 1 << 31, 0xFFFFFFFF)
    records = []
    for _ in range(scaled(4000)):
        program = bytearray(rng.choice(good))
        for _ in range(rng.randint(0, 4)):
            word = rng.randrange(len(program) // 4)
            old = WORD.unpack_from(program, 4 * word)[0]
            value = rng.choice([rng.choice(interesting), old + 1, old - 1, old * 2, rng.randrange(64)])
            WORD.pack_into(program, 4 * word, value & 0xFFFFFFFF)
        if rng.random() < 0.1:
            program = program[: rng.randrange(len(program))]
        records.append(WORD.pack(len(program)) + bytes(program))
    done = subprocess.run([str(binary)], input=b"".join(records), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert len(records) / 8 < int(done.stdout) < len(records), "neither all rejected nor all accepted"
