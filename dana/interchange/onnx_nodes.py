"""Nodes of an ONNX graph as they are made, with names that no input has.

In: operators and the names of their inputs. Out: names of values, nodes and initializers; equal constants are one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dana.interchange.columns import free

if TYPE_CHECKING:
    import onnx

FLOAT = 1  # onnx.TensorProto.FLOAT
INT64 = 7  # onnx.TensorProto.INT64
STRING = 8  # onnx.TensorProto.STRING
DOUBLE = 11  # onnx.TensorProto.DOUBLE
BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16

ML = "ai.onnx.ml"
"""The domain of the operators of classical machine learning."""

NULL_INTEGER = np.iinfo(np.int64).min
"""Stands for NULL in tensors of whole numbers, as NumPy's ``NaT`` does."""


class Nodes:
    """The nodes of a graph.

    Parameters
    ----------
    inputs
        Names of the graph's inputs.
    """

    def __init__(self, inputs: Collection[str]) -> None:
        self.made: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._inputs = frozenset(inputs)
        # all names of a graph share one space, and columns are named by users
        self._names: Iterator[str] = (name for name in (f"v{k}" for k in count()) if name not in self._inputs)

    @property
    def initializers(self) -> list[onnx.TensorProto]:
        """The constants that a node reads: of others runtimes warn."""
        read = {name for node in self.made for name in node.input}
        return [one for one in self._initializers if one.name in read]

    def read_for(self, outputs: Collection[str]) -> list[onnx.NodeProto]:
        """Return the nodes that the outputs need."""
        read, kept = set(outputs), []
        for node in reversed(self.made):
            if read & set(node.output):
                read.update(node.input)
                kept.append(node)
        self.made = kept[::-1]
        return self.made

    def free(self, name: str) -> str:
        """Return a name for an output, which no input has."""
        return free(name, self._inputs)

    def node(self, operator: str, *inputs: str, out: str | None = None, domain: str = "", **attributes: Any) -> str:
        """Append a node and return the name of its output."""
        from onnx import helper

        name = out or next(self._names)
        self.made.append(helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def less(self, value: str, centres: NDArray[np.float64]) -> str:
        """Return the name of a value in binary64 less its centres, as binary32."""
        smaller = self.node("Sub", value, self.constant(centres)) if centres.any() else value
        return self.node("Cast", smaller, to=FLOAT)

    def texts(self, values: Collection[str]) -> str:
        return self._initializer(np.array(list(values), dtype=object))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def constant(self, values: NDArray[Any]) -> str:
        """Return the name of a constant of the array's type and shape."""
        # by the bytes: 0 and -0 are two constants, and a NaN equals itself
        key = values.dtype.str, values.shape, values.tobytes()
        if key not in self._constants:
            self._constants[key] = self._initializer(np.ascontiguousarray(values))
        return self._constants[key]

    def _initializer(self, values: NDArray[Any]) -> str:
        from onnx import numpy_helper

        name = next(self._names)
        self._initializers.append(numpy_helper.from_array(values, name))
        return name
