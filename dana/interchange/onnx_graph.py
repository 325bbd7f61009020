"""A model's prediction as an ONNX graph.

In: a `StoredModel`. Out: the bytes of a ModelProto with one input, ``features`` (float, rows × numbers). A classifier
has the outputs of skl2onnx: ``label`` (int64 or string, rows) and ``probabilities`` (float, rows × classes), or
``scores`` if the numbers are not probabilities (one for two classes). The last or only output is ``prediction``: the
result of ``dana_predict`` (float, rows), or for several numbers that of ``dana_predict_array`` (float, rows × numbers).
Each instruction of the predictor becomes one node or a few. They compute in binary32 like the predictor; the runtime
chooses the order of sums and its own functions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dana.errors import SetupError, UsageError
from dana.extras import install_command
from dana.interchange.stored import Floats, StoredModel
from dana.predictor.operands import Part, Read, place, reads, result_size, scratch
from dana.predictor.program import Instruction, Program
from dsl.hdfg.ops import COMPARISONS, ELEMENTWISE, Op

if TYPE_CHECKING:
    import onnx

OPSET = 13
"""Operators of 2020: what all runtimes of today load."""

IR_VERSION = 8

REDUCED = {Op.PI: "ReduceProd", Op.AMAX: "ReduceMax"}
COMPARED = {
    Op.LT: "Less",
    Op.GT: "Greater",
    Op.LE: "LessOrEqual",
    Op.GE: "GreaterOrEqual",
    Op.EQ: "Equal",
}
SEVERAL = COMPARISONS | {Op.WHERE, Op.GAUSSIAN, Op.SINPI, Op.COPYSIGN}
"""Operations that are more than one operator; every other that is elementwise is the one of its name."""

VECTORS = {"probability": "probabilities"}
"""What an output of a number for each class is called, by what the model predicts."""

FLOAT = 1  # onnx.TensorProto.FLOAT
INT64 = 7  # onnx.TensorProto.INT64
STRING = 8  # onnx.TensorProto.STRING


Labels = tuple[str, ...] | tuple[int, ...]


def is_whole(labels: Labels) -> bool:
    """Whether they are whole numbers, not texts."""
    return isinstance(labels[0], int)


def onnx_model(model: StoredModel) -> bytes:
    """Make the graph.

    Raises
    ------
    UsageError
        The model cannot predict.
    SetupError
        The package onnx is not installed.
    """
    try:
        import onnx
        from onnx import helper
    except ModuleNotFoundError as error:
        raise SetupError(f"ONNX needs the package {error.name}; run: {install_command('exchange')}") from None
    graph = _Graph(model.prediction, model.weights)
    labels, vector = model.class_labels, VECTORS.get(model.predicts, "scores")
    several = model.predicts == "numbers"
    nodes, constants = graph.build("prediction" if several else vector, labels)
    read = {name for node in nodes for name in node.input}
    initializers = [one for one in constants if one.name in read]  # of others runtimes warn
    outputs = []
    if labels is not None:
        outputs.append(helper.make_tensor_value_info("label", INT64 if is_whole(labels) else STRING, ["rows"]))
    if labels is not None or (model.prediction.width > 1 and not several):
        width = 2 if model.prediction.width == 1 and vector == "probabilities" else model.prediction.width
        outputs.append(helper.make_tensor_value_info(vector, FLOAT, ["rows", width]))
    each = [model.prediction.width] if several else []
    outputs.append(helper.make_tensor_value_info("prediction", FLOAT, ["rows", *each]))
    made = helper.make_model(
        helper.make_graph(
            nodes,
            model.name,
            [helper.make_tensor_value_info("features", FLOAT, ["rows", model.prediction.inputs])],
            outputs,
            initializers,
            doc_string=f"rule {model.rule}; features: {', '.join(model.inputs)}",
        ),
        producer_name="dana",
        model_version=model.version,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    notes = {"rule": model.rule, "features": _lines(model.inputs), "labels": _lines(model.labels)}
    helper.set_model_props(made, notes | ({"preprocess": json.dumps(model.preprocess)} if model.preprocess else {}))
    onnx.checker.check_model(made, full_check=True)
    return bytes(made.SerializeToString())


def _lines(names: Sequence[str]) -> str:
    """A name a line; since one may have any character, a backslash and a line feed in it are written as C does."""
    return "\n".join(name.replace("\\", "\\\\").replace("\n", "\\n") for name in names)


class _Graph:
    """Nodes as they are made. Values have the shape (rows or 1, three axes)."""

    def __init__(self, program: Program, weights: Floats) -> None:
        self._program = program
        self._memory = {
            Part.WEIGHTS: weights,
            Part.CONSTANTS: np.array(program.constants, dtype=np.float32),
        }
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._values: dict[int, tuple[str, int]] = {}
        """Name and size of what was written to scratch, by where it starts there."""

    def build(self, vector: str, labels: Labels | None) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        width = self._program.width
        for instruction in self._program.instructions:
            name = self._instruction(instruction)
            self._values[instruction.out - scratch(self._program)] = (name, result_size(instruction))
        part, start = place(self._program, self._program.result)
        result = self._operand(Read(part=part, start=start, shape=(1, 1, width)))
        # a prediction without features is one for all rows
        rows = self._node("Slice", self._node("Shape", "features"), self._ints(0), self._ints(1))
        if width == 1:
            one = self._node("Expand", self._node("Reshape", result, self._ints(-1)), rows, out="prediction")
            if labels is not None:
                self._two_classes(one, vector, labels)
            return self._nodes, list(self._initializers.values())
        shape = self._node("Concat", rows, self._ints(width), axis=0)
        each = self._node("Expand", self._node("Reshape", result, self._ints(-1, width)), shape, out=vector)
        if vector == "prediction":
            return self._nodes, list(self._initializers.values())
        number = self._node("ArgMax", each, axis=1, keepdims=0)  # the first of equals
        self._node("Cast", number, to=FLOAT, out="prediction")
        if labels is not None:
            self._node("Gather", self._labels(labels), number, axis=0, out="label")
        return self._nodes, list(self._initializers.values())

    def _two_classes(self, one: str, vector: str, labels: Labels) -> None:
        """What one number says of two classes, as dana_classify() has it."""
        probable = vector == "probabilities"
        least = self._floats(np.array([0.5 if probable else 0], np.float32))
        second = self._node("Cast", self._node("GreaterOrEqual", one, least), to=INT64)
        self._node("Gather", self._labels(labels), second, axis=0, out="label")
        column = self._node("Reshape", one, self._ints(-1, 1), out=None if probable else vector)
        if probable:
            first = self._node("Sub", self._floats(np.ones((1, 1), np.float32)), column)
            self._node("Concat", first, column, axis=1, out=vector)

    def _instruction(self, instruction: Instruction) -> str:
        code = instruction.code
        operands = reads(self._program, instruction)
        if code is Op.GATHER:
            return self._gather(operands)
        values = [self._operand(operand) for operand in operands]
        if code in ELEMENTWISE - SEVERAL:
            return self._node(code.capitalize(), *values)
        if code in COMPARED:
            return self._node("Cast", self._node(COMPARED[code], *values), to=FLOAT)
        if code is Op.WHERE:
            zero = self._node("Equal", values[0], self._floats(np.zeros((1, 1, 1, 1), np.float32)))
            return self._node("Where", zero, values[2], values[1])
        if code is Op.COPYSIGN:
            # 0 and -0 differ in their reciprocals
            zero = self._floats(np.zeros((1, 1, 1, 1), np.float32))
            at_zero, reciprocal = self._node("Equal", values[1], zero), self._node("Reciprocal", values[1])
            minus = self._node("Less", self._node("Where", at_zero, reciprocal, values[1]), zero)
            size = self._node("Abs", values[0])
            return self._node("Where", minus, self._node("Neg", size), size)
        if code is Op.SINPI:
            two, pi = (self._floats(np.full((1, 1, 1, 1), value, np.float32)) for value in (2, np.pi))
            return self._node("Sin", self._node("Mul", self._node("Mod", values[0], two, fmod=1), pi))
        if code is Op.GAUSSIAN:
            return self._node("Exp", self._node("Neg", self._node("Mul", values[0], values[0])))
        if code is Op.SIGMA:
            return self._node("ReduceSum", values[0], self._ints(2), keepdims=1)
        return self._node(REDUCED[code], values[0], axes=[2], keepdims=1)

    def _gather(self, operands: Sequence[Read]) -> str:
        table, index = operands
        if table.part not in self._memory:
            raise UsageError("the prediction chooses rows of a value that it computes, which ONNX files here do not do")
        rows = self._stored(table).reshape(table.shape[1:])
        chosen = self._node("Reshape", self._operand(index), self._ints(-1))
        # Gather counts negative numbers from the end and Cast cuts fractions off; what is no number of a row becomes
        # an index past the end is an error of the runtime, as it is of dana_predict()
        beyond = self._floats(np.array([len(rows)], np.float32))
        good = self._node("Equal", self._node("Floor", self._node("Abs", chosen)), chosen)
        bounded = self._node("Where", good, self._node("Min", chosen, beyond), beyond)
        return self._node("Gather", self._floats(rows), self._node("Cast", bounded, to=INT64), axis=0)

    def _operand(self, read: Read) -> str:
        """The name of a value of the operand's shape."""
        if read.part in self._memory:
            return self._floats(self._stored(read).reshape(1, *read.shape))
        if read.part is Part.FEATURES:
            bounds = (self._ints(read.start), self._ints(read.start + read.size), self._ints(1))
            name = "features" if read.size == self._program.inputs else self._node("Slice", "features", *bounds)
        else:
            name, size = self._values.get(read.start, ("", 0))
            if size != read.size:
                raise UsageError("the predictor reads what no instruction wrote")
        return self._node("Reshape", name, self._ints(-1, *read.shape))

    def _stored(self, read: Read) -> Floats:
        return self._memory[read.part][read.start : read.start + read.size]

    def _node(self, operator: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        name = out or f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def _labels(self, labels: Labels) -> str:
        from onnx import numpy_helper

        values = np.array(labels, dtype=np.int64 if is_whole(labels) else object)
        self._initializers["labels"] = numpy_helper.from_array(values, "labels")
        return "labels"

    def _floats(self, values: Floats) -> str:
        return self._initializer(values)

    def _ints(self, *values: int) -> str:
        return self._initializer(np.array(values, dtype=np.int64))

    def _initializer(self, values: np.ndarray) -> str:
        """The name of a constant; equal ones are one."""
        from onnx import numpy_helper

        key = f"c{len(self._initializers)}"
        for name, tensor in self._initializers.items():
            if tensor.data_type == (INT64 if values.dtype == np.int64 else FLOAT) and (
                tuple(tensor.dims) == values.shape and tensor.raw_data == values.tobytes()
            ):
                return name
        self._initializers[key] = numpy_helper.from_array(np.ascontiguousarray(values), key)
        return key
