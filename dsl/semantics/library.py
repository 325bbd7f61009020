"""The names that `dana` offers to a rule.

In: nothing. Out: signatures by name; `dana.language.names` repeats them for editors, and a test compares
the two. Must not: implement anything.
"""

from __future__ import annotations

from dsl.hdfg import ops
from dsl.hdfg.init import Init, InitKind
from dsl.semantics.arguments import Signature
from dsl.semantics.axes import ALONG_AXIS
from dsl.semantics.composed import COMPOSED
from dsl.semantics.counting import GIVEN

DECLARATIONS = {
    "dim": Signature(name="dana.dim", optional=("extent",)),
    "model": Signature(name="dana.model", optional=("shape", "init")),
    "table": Signature(name="dana.table", required=("shape",), optional=("init",)),
    "input": Signature(name="dana.input", optional=("shape", "categories")),
    "output": Signature(name="dana.output", optional=("shape", "classes")),
    "weight": Signature(name="dana.weight"),
    "meta": Signature(name="dana.meta", required=("value",)),
    "inter": Signature(name="dana.inter", optional=("shape",)),
    "state": Signature(name="dana.state", required=("like",), optional=("shape", "init")),
    "algo": Signature(name="dana.algo", rest="members"),
}

UNARY_OPS = {op.value: op for op in ops.FUNCTIONS}
BINARY_OPS = {op.value: op for op in ops.FUNCTIONS_OF_TWO}
SAID = {op.value: text for op, text in ops.FUNCTIONS.items()}
# docstrings without capital and full stop, so that documents and editors share one text
SAID |= {name: str(made.__doc__)[0].lower() + str(made.__doc__)[1:-1] for name, made in COMPOSED.items()}
SAID |= {op.value: text for op, text in ops.FUNCTIONS_OF_TWO.items()}
"""Descriptions of functions of one operand a, or of a and b."""

NAMESAKES = {
    name: f"dana.a{name}(value, axis) looks along an axis; dana.{name}(a, b) compares element by element"
    for name in BINARY_OPS
    if f"a{name}" in ALONG_AXIS
}
"""Help for functions of two operands that also exist along an axis under another name."""

COLUMN_STARTS = {
    "column_mean": Init(kind=InitKind.MEAN),
    "column_deviation": Init(kind=InitKind.DEVIATION, first=1.0),
    "column_scale": Init(kind=InitKind.SCALE, first=1.0),
    "centres": Init(kind=InitKind.CENTRES, second=1.0),
}
"""Starts that the table decides, as they are without one."""

FUNCTIONS = {
    **{name: Signature(name=f"dana.{name}", required=("value",)) for name in (*UNARY_OPS, *COMPOSED)},
    **{
        name: Signature(name=f"dana.{name}", required=("left", "right"), instead=NAMESAKES.get(name, ""))
        for name in BINARY_OPS
    },
    "where": Signature(name="dana.where", required=("condition", "then", "otherwise")),
    "gradient": Signature(name="dana.gradient", required=("value", "by")),
    "stop_gradient": Signature(name="dana.stop_gradient", required=("value",)),
    **{name: Signature(name=f"dana.{name}", required=("value",), optional=("axis",)) for name in ALONG_AXIS},
    "total": Signature(name="dana.total", required=("value",)),
    "expand": Signature(name="dana.expand", required=("value", "axis")),
    "concat": Signature(name="dana.concat", required=("first",), rest="more"),
    "transpose": Signature(name="dana.transpose", required=("value",)),
    "arange": Signature(name="dana.arange", required=("count",)),
    "random": Signature(name="dana.random", optional=("shape", "seed")),
    "require": Signature(name="dana.require", required=("condition",)),
    "setState": Signature(name="dana.setState", required=("state", "value")),
    "uniform": Signature(name="dana.uniform", required=("low", "high"), optional=("seed",)),
    "normal": Signature(name="dana.normal", required=("mean", "deviation"), optional=("seed",)),
    **{
        name: Signature(name=f"dana.{name}", required=("value",), optional=("runs",) if name == "centres" else ())
        for name in COLUMN_STARTS
    },
}

MARKERS = ("all", "rule")
"""Names that are no functions in a rule: the batch that is the whole table, and the decorator of notebooks."""

NAMES = (*DECLARATIONS, *FUNCTIONS, *MARKERS, *GIVEN)
"""Everything that `from dana import *` binds."""

METHODS = {
    "merge": Signature(name="merge", required=("value", "batch", "op")),
    "minimize": Signature(
        name="minimize", required=("optimizer",), optional=("batch", "models", "loss"), options="options"
    ),
    "setModel": Signature(name="setModel", required=("value",), rest="more"),
    "addRows": Signature(name="addRows", required=("rows", "value"), optional=("batch", "op")),
    "setLoss": Signature(name="setLoss", required=("loss",)),
    "setPrediction": Signature(name="setPrediction", required=("prediction",)),
    "setConvergence": Signature(name="setConvergence", required=("condition",)),
    "setEpochs": Signature(name="setEpochs", required=("epochs",)),
}
"""Methods of the object that `dana.algo` gives."""

FAMILIAR_WORDS = {
    "sum": "dana.sigma(value, axis), or dana.total(value)",
    "dot": "dana.sigma(a * b, axis)",
    "prod": "dana.pi(value, axis)",
    "mean": "dana.sigma(value, axis) / count",
    "shape": "the dims that the value was declared with",
    "square": "x * x",
    "pow": "x * x, or dana.exp(k * dana.log(x))",
    "relu": "dana.max(x, 0)",
    "maximum": "dana.max(a, b)",
    "minimum": "dana.min(a, b)",
    "mse": "dana.sigma(e * e, 1) with e = p - y",
    **dict.fromkeys(("mod", "fmod", "remainder"), "a % b"),
    "rint": "dana.round(x)",
    "eye": "dana.arange(n) == dana.expand(dana.arange(n), 2)",
    **dict.fromkeys(("concatenate", "cat", "hstack"), "dana.concat(a, b)"),
    "stack": "[a, b], a value with one axis more",
    "matmul": "W @ x",
    "sign": "(x > 0) - (x < 0)",
    **dict.fromkeys(("rand", "random_uniform"), "dana.random(shape)"),
    "bernoulli": "dana.random(shape) < p",
}
"""Names known from NumPy and PyTorch, and their equivalents here."""

ELSEWHERE = "rule text is compiled, never run as Python; what dana offers is all there is"

PYTHON_WORDS = {
    "print": "a rule prints nothing; dana compile --emit hdfg shows what it computes",
    "len": "an extent is a dim: n = dana.dim()",
    "float": "every value is a binary32 number already",
    "int": "every value is a binary32 number already",
    "enumerate": "write for i in range(k):",
    "zip": "write for i in range(k):",
    **dict.fromkeys(("np", "numpy", "torch", "tf", "jnp", "math"), ELSEWHERE),
}
"""Names that Python programs take for granted, and what to do without them."""
