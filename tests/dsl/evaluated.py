"""What an expression gives: the shortest way from rule text to numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsl import compile_rule
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics


def evaluated(expression: str, shape: tuple[int, ...], **values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """An expression of models that hold the values; it must broadcast to the shape, and be no smaller."""
    arrays = {name: np.asarray(value, np.float32) for name, value in values.items()}
    lines = ["import dana", f"found = dana.model({list(shape)})", "row = dana.input()"]
    lines += [f"{name} = dana.model({list(array.shape)})" for name, array in arrays.items()]
    lines += [f"rule = dana.algo(found, row, {', '.join(arrays)})", f"rule.setModel(found, {expression})"]
    checked = compile_rule("\n".join(lines))
    assert checked.checked.updates[0].value.shape == shape, "the shape that the language gives it"
    return Interpreter(checked.hdfg, numerics).train({"row": [0]}, arrays).models["found"]
