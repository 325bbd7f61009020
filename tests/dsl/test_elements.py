"""Elements, slices, lists, concatenation, transposes and products of matrices against NumPy, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from dana.compiler.passes import plan_of
from dana.predictor.program import decode_predictor, encode_predictor
from dsl import Rule, compile_rule
from dsl.hdfg.choice import choosing_inputs
from dsl.hdfg.graph import BindError, Op
from dsl.hdfg.interpreter import Interpreter
from dsl.hdfg.text import graph_text, parse_graph
from dsl.hdfg.verify import InvalidGraph
from hwgen.spec import numerics
from tests.dsl.evaluated import evaluated

RANDOM = np.random.default_rng(11)
VALUES = {
    "a": np.array([1.5, -0.0, np.inf, 0.0, -np.inf, 3.25], np.float32),
    "b": RANDOM.standard_normal(3),
    "s": np.float32(-2.5),
    "A": RANDOM.integers(-9, 9, (3, 4)),
    "B": RANDOM.integers(-9, 9, (4, 2)),
    "C": RANDOM.integers(-9, 9, (2, 3, 4)),
    "v": RANDOM.integers(-9, 9, 3),
    "w": RANDOM.integers(-9, 9, 4),
}
SELECTED = [
    "a[0]",
    "a[3]",
    "a[-1]",
    "a[1:3]",
    "a[:2]",
    "a[-2:]",
    "a[2:-1]",
    "a[:]",
    "a[5:6]",
    "A[1]",
    "A[-1]",
    "A[2, 1]",
    "A[:, 1]",
    "A[1:, 2]",
    "A[:2]",
    "A[:, 1:3]",
    "A[0:2, -3:-1]",
    "C[1]",
    "C[1, 2]",
    "C[:, 2, 3]",
    "C[0, 1:, :2]",
    "C[:, :, 0]",
]
PRODUCTS = [
    "A @ w",
    "v @ A",
    "v @ v",
    "A @ B",
    "A.T @ v",
    "w @ A.T",
    "B.T @ A.T",
    "A @ A.T",
    "A.T @ A",
    "A.T",
    "A.T[1:3]",
    "v @ A @ B",
]


def python(expression: str) -> np.ndarray:
    """What Python and NumPy make of it."""
    arrays = {name: np.asarray(value, np.float32) for name, value in VALUES.items()}
    return np.asarray(eval(expression, {"__builtins__": {}}, arrays), np.float32)


@pytest.mark.parametrize("expression", SELECTED + PRODUCTS)
def test_as_numpy_has_it(expression: str) -> None:
    """Of models and of computed values, infinities and zeros of both signs among them; products of whole numbers."""
    expected = python(expression)
    for name in ("", "-"):
        computed = expression if not name else "".join(f"(-{c})" if c in VALUES else c for c in expression)
        found = evaluated(computed, expected.shape, **VALUES)
        sign = -1 if name and "@" not in expression else (-1) ** (expression.count("@") + 1) if name else 1
        np.testing.assert_array_equal(found.view(np.uint32), (np.float32(sign) * expected).view(np.uint32))


JOINED = {
    "dana.concat(a, b)": "a b",
    "dana.concat(b, s, a, 7)": "b s a 7",
    "dana.concat(s, -2)": "s -2",
    "dana.concat(b)": "b",
}


@pytest.mark.parametrize("expression", JOINED)
def test_joined(expression: str) -> None:
    parts = [np.atleast_1d(VALUES.get(part, part)).astype(np.float32) for part in JOINED[expression].split()]
    expected = np.concatenate(parts)
    found = evaluated(expression, expected.shape, **VALUES)
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


LISTS = {
    "[1, 2, 3] * b": np.float32([1, 2, 3]) * VALUES["b"].astype(np.float32),
    "b + [s, 0.5, b[0]]": VALUES["b"].astype(np.float32) + np.float32([-2.5, 0.5, VALUES["b"][0]]),
    "[[1, -2], [3, 4]]": np.float32([[1, -2], [3, 4]]),
    "[v, 2 * v]": np.float32([VALUES["v"], 2 * VALUES["v"]]),
    "[A, A + 1]": np.float32([VALUES["A"], VALUES["A"] + 1]),
    "[s]": np.float32([-2.5]),
    "[-0.0, 0.0]": np.float32([-0.0, 0.0]),
    "[1, 2] + [s]": np.float32([1, 2, -2.5]),
    "dana.sigma([1, 2, 4])": np.float32(7),
}


@pytest.mark.parametrize("expression", LISTS)
def test_lists_are_vectors(expression: str) -> None:
    expected = np.asarray(LISTS[expression], np.float32)
    found = evaluated(expression, expected.shape, **VALUES)
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_a_list_that_grows() -> None:
    text = """import dana
x = dana.input([4])
w = dana.model([3])
rule = dana.algo(w, x)
powers = []
for k in range(3):
    powers = powers + [x[k] * k]
rule.setModel(powers)
"""
    found = Interpreter(compile_rule(text).hdfg, numerics).train({"x": [[5, 6, 7, 8]]}).models["w"]
    np.testing.assert_array_equal(found, [0, 6, 14])


SYMBOLIC = """import dana
n = dana.dim()
x = dana.input([n])
w = dana.model([n])
rule = dana.algo(w, x)
rule.setModel(w + {} - x)
"""


@pytest.mark.parametrize(
    ("expression", "least"),
    [
        ("x[0]", 1),
        ("x[3]", 4),
        ("x[-1]", 1),
        ("x[-3]", 3),
        ("dana.sigma(x[1:])", 2),
        ("dana.sigma(x[:3])", 3),
        ("dana.sigma(x[2:-1])", 4),
        ("x[n - 2]", 2),
    ],
)
def test_of_an_axis_that_the_table_decides(expression: str, least: int) -> None:
    graph = compile_rule(SYMBOLIC.format(expression)).hdfg
    for n in range(least, least + 3):
        x = np.arange(1, n + 1, dtype=np.float32)
        found = Interpreter(graph.bind({"n": n}), numerics).train({"x": [x]}).models["w"]
        value = eval(expression.replace("dana.sigma", "sum"), {"x": x, "n": n, "sum": sum})
        np.testing.assert_array_equal(found, value - x)
    if least > 1:
        with pytest.raises(BindError, match=f"n = {least - 1}"):
            graph.bind({"n": least - 1})


@pytest.mark.parametrize("expression", ["C[1]", "x[2, 1]", "U[i][2]", "U[i, 1]", "U[2][0:2]"])
def test_selections_read_rows_of_models(expression: str) -> None:
    text = f"""import dana
U = dana.model([4, 3])
C = dana.model([2, 3])
i = dana.input()
x = dana.input([3, 2])
rule = dana.algo(U, C, i, x)
rule.setModel(U[i], dana.sigma(U[i] + x[0, 0]) + U[i])
rule.setModel(C, C + dana.sigma(dana.concat({expression}, 0)))
"""
    assert not Rule(text).diagnostics


def test_whole_division_of_whole_numbers_is_exact() -> None:
    """Of both signs up to 2^23, just below multiples above all; by Python's rule."""
    random = np.random.default_rng(3)
    b = np.concatenate([random.integers(1, 1 << 12, 3000), random.integers(1, 1 << 23, 1000)])
    k = random.integers(0, (1 << 23) // b)
    a = np.clip(k * b + random.integers(-1, 2, b.size), 0, (1 << 23) - 1) * random.choice([-1, 1], b.size)
    b = b * random.choice([-1, 1], b.size)
    np.testing.assert_array_equal(evaluated("a // b", a.shape, a=a, b=b), a // b)
    np.testing.assert_array_equal(evaluated("a % b", a.shape, a=a, b=b), a % b)


def test_whole_division_of_numbers() -> None:
    found = evaluated("a % 1.5 + 100 * (a // 1.5)", (4,), a=[4, -4, 0.75, 1.5])
    np.testing.assert_array_equal(found, [201, -299.5, 0.75, 100])


@pytest.mark.parametrize("rest", ["2", "-1", "y", "x"])
def test_a_sum_of_an_element_and_others_is_no_element(rest: str) -> None:
    text = (
        "import dana\nM, x, y = dana.model([9, 2]), dana.input([3]), dana.output()\nrule = dana.algo(M, x, y)\n"
        f"r = dana.sigma(dana.where(dana.arange(3) == 1, x, {rest}))\nrule.setModel(M[r], M[r] + 1)\n"
    )
    assert not choosing_inputs(compile_rule(text).hdfg)
    assert choosing_inputs(compile_rule(text.replace("M[r]", "M[x[1]]")).hdfg) == {"x"}


TAKEN = """
import dana
n = 4
w = dana.model([n])
x = dana.input([n])
y = dana.output()
taken = dana.algo(w, x, y)
taken.setModel(w, w - 0.1 * y * x)
taken.setPrediction(x[3])
"""


def test_an_element_is_read_where_it_lies() -> None:
    """The prediction is the last feature: no operation of the graph masks it, no instruction computes it."""
    graph = compile_rule(TAKEN).hdfg
    assert graph.prediction is not None
    assert graph.nodes[graph.prediction].op is Op.ELEMENT
    assert not any(node.op in (Op.WHERE, Op.SIGMA) for node in graph.nodes)
    program = decode_predictor(encode_predictor(graph))
    assert (program.instructions, program.result, program.width) == ((), 3, 1)


def test_one_of_very_many_elements_is_found_without_counting_them() -> None:
    text = f"import dana\nw = dana.model()\nx = dana.input([{1 << 31}])\nrule = dana.algo(w, x)\n"
    graph = compile_rule(f"{text}rule.setModel(w + x[-128])\n").hdfg
    assert (1 << 31) - 128 in [node.value for node in graph.nodes if node.op is Op.CONST]


def test_a_graph_gathers_rows_by_whole_numbers() -> None:
    rule = "import dana\nw = dana.model([4, 2])\nx = dana.input([2])\nrule = dana.algo(w, x)\n"
    text = graph_text(compile_rule(f"{rule}rule.setModel(w, w + w[3] * x)\n").hdfg, spans=False)
    assert "const 3.0" in text
    for number in ("inf", "nan", "1.5", "-1.0"):
        with pytest.raises(InvalidGraph, match="must be indexed by a whole number"):
            parse_graph(text.replace("const 3.0", f"const {number}"))


@pytest.mark.parametrize("number", ["4", "1.5", "-1"])
def test_a_graph_selects_elements_that_exist(number: str) -> None:
    text = graph_text(compile_rule(TAKEN).hdfg, spans=False)
    assert "const 3.0" in text
    with pytest.raises(InvalidGraph, match=rf"must have a position from 0 to 3, not {number}"):
        parse_graph(text.replace("const 3.0", f"const {float(number)}"))


def test_the_machine_sums_what_a_mask_leaves() -> None:
    """Of all elements by one mask for each position; the plan knows which element of the input each sum is."""
    more = TAKEN.replace("0.1 * y * x", "0.1 * (x[1] + x[1] * y + x[3])")
    plan = plan_of(compile_rule(more).hdfg)
    x = next(k for k in plan.graph.inputs if plan.graph.nodes[k].name == "x")
    assert sorted(plan.elements.values()) == [(x, 1), (x, 3)]
    assert all(plan.graph.nodes[k].op is Op.SIGMA for k in plan.elements)
    assert [node.op for node in plan.graph.nodes].count(Op.ARANGE) == 1
    assert not any(node.op is Op.ELEMENT for node in plan.graph.nodes)


@pytest.mark.parametrize(
    ("declared", "read"),
    [("dana.input([n])", "v[16777217]"), ("dana.model([20000003])", "v[-2]"), ("dana.model([n, 2])", "v[16777217]")],
)
def test_a_position_that_binary32_lacks(declared: str, read: str) -> None:
    """It would be rounded, and another element read."""
    text = f"""import dana
n = dana.dim()
v = {declared}
w = dana.model()
y = dana.output()
rule = dana.algo(w, y)
rule.setModel(w - rule.merge(dana.sigma({read}) * y, 8, "+"))
"""
    assert ("E302", "the position does not fit") in [(one.code, one.title) for one in Rule(text).diagnostics]


@pytest.mark.parametrize(("read", "wrong"), [("x[-1]", 16777218), ("x[n - 3]", 16777220)])
def test_a_position_that_binary32_lacks_by_a_dim(read: str, wrong: int) -> None:
    text = f"""import dana
n = dana.dim()
w = dana.model()
x = dana.input([n])
rule = dana.algo(w, x)
rule.setModel(w + {read})
"""
    graph = compile_rule(text).hdfg
    assert 16777214 in [node.value for node in graph.bind({"n": wrong - 3}).nodes]
    with pytest.raises(BindError, match="selects element 16,777,217, but a position must be a number of binary32"):
        graph.bind({"n": wrong})
