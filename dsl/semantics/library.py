"""The names that `dana` offers to a rule.

Comes in: nothing. Goes out: signatures by name; `dana.language` repeats them for editors, and a test compares the two.
Must not: implement anything.
"""

from __future__ import annotations

from dsl.hdfg.graph import Op
from dsl.semantics.arguments import Signature

DECLARATIONS = {
    "dim": Signature(name="dana.dim"),
    "model": Signature(name="dana.model", optional=("shape", "init")),
    "input": Signature(name="dana.input", optional=("shape",)),
    "output": Signature(name="dana.output", optional=("shape",)),
    "meta": Signature(name="dana.meta", required=("value",)),
    "inter": Signature(name="dana.inter", optional=("shape",)),
    "state": Signature(name="dana.state", required=("like",), optional=("shape", "init")),
    "algo": Signature(name="dana.algo", rest="members"),
}

UNARY_OPS = {op.value: op for op in (Op.SIGMOID, Op.GAUSSIAN, Op.SQRT, Op.EXP, Op.LOG, Op.ABS)}
BINARY_OPS = {op.value: op for op in (Op.MAX, Op.MIN)}
GROUP_OPS = {"sigma": Op.SIGMA, "pi": Op.PI}

FUNCTIONS = {
    **{name: Signature(name=f"dana.{name}", required=("value",)) for name in UNARY_OPS},
    **{name: Signature(name=f"dana.{name}", required=("left", "right")) for name in BINARY_OPS},
    "where": Signature(name="dana.where", required=("condition", "then", "otherwise")),
    **{name: Signature(name=f"dana.{name}", required=("value",), optional=("axis",)) for name in (*GROUP_OPS, "norm")},
    "expand": Signature(name="dana.expand", required=("value", "axis")),
    "arange": Signature(name="dana.arange", required=("count",)),
    "setState": Signature(name="dana.setState", required=("state", "value")),
    "uniform": Signature(name="dana.uniform", required=("low", "high"), optional=("seed",)),
    "normal": Signature(name="dana.normal", required=("mean", "deviation"), optional=("seed",)),
}

MARKERS = ("all", "udf")
"""Names that are no functions in a rule: the batch that is the whole table, and the decorator of notebooks."""

NAMES = (*DECLARATIONS, *FUNCTIONS, *MARKERS)
"""Everything that `from dana import *` binds."""

METHODS = {
    "merge": Signature(name="merge", required=("value", "batch", "op")),
    "setModel": Signature(name="setModel", required=("value",), rest="more"),
    "setLoss": Signature(name="setLoss", required=("loss",)),
    "setPrediction": Signature(name="setPrediction", required=("prediction",)),
    "setConvergence": Signature(name="setConvergence", required=("condition",)),
    "setEpochs": Signature(name="setEpochs", required=("epochs",)),
}
"""Methods of the object that `dana.algo` gives."""
