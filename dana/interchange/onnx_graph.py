"""A model's prediction as an ONNX graph.

In: a `StoredModel`. Out: the bytes of a ModelProto. If columns are encoded, it has an input for each column of the
table (see `dana.interchange.onnx_columns`); else one, ``features`` (float, rows × numbers; double where columns were
trained on less their centres, which is also the type of a prediction with such a label). A classifier has the
outputs of skl2onnx: ``label`` (int64 or string, rows) and ``probabilities`` (float, rows × classes), or ``scores`` if
the numbers are not probabilities (one for two classes). The last or only output is ``prediction``: the result of
``dana_predict`` (float, rows), or for several numbers that of ``dana_predict_array`` (float, rows × numbers). Where a
NULL leaves no prediction, numbers are NaN and labels those of NULL in an input. Each instruction of the predictor
becomes one node or a few. They compute in binary32 like the predictor; the runtime chooses the order of sums and its
own functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dana.errors import SetupError, UsageError
from dana.extras import install_command
from dana.interchange.onnx_columns import encode, null_texts
from dana.interchange.onnx_nodes import BFLOAT16, DOUBLE, FLOAT, INT64, ML, NULL_INTEGER, STRING, Nodes
from dana.interchange.stored import Floats, StoredModel
from dana.predictor.operands import Part, Read, place, reads, result_size, scratch
from dana.predictor.program import Instruction
from dsl.hdfg.ops import COMPARISONS, ELEMENTWISE, Op

if TYPE_CHECKING:
    import onnx

OPSET = 13
"""Operators of 2020: what all runtimes of today load."""

OPSET_ML = 2

IR_VERSION = 8

REDUCED = {Op.PI: "ReduceProd", Op.AMAX: "ReduceMax"}
COMPARED = {
    Op.LT: "Less",
    Op.GT: "Greater",
    Op.LE: "LessOrEqual",
    Op.GE: "GreaterOrEqual",
    Op.EQ: "Equal",
}
SEVERAL = COMPARISONS | {Op.WHERE, Op.GAUSSIAN, Op.SINPI, Op.COPYSIGN, Op.BFLOAT16}
"""Operations that are more than one operator; every other that is elementwise is the one of its name."""

VECTORS = {"probability": "probabilities"}
"""What an output of a number for each class is called, by what the model predicts."""

Labels = tuple[str, ...] | tuple[int, ...]


def is_whole(labels: Labels) -> bool:
    """Whether they are whole numbers, not texts."""
    return isinstance(labels[0], int)


def onnx_model(model: StoredModel) -> bytes:
    """Make the graph.

    Raises
    ------
    UsageError
        The model cannot predict, or its columns cannot be expressed.
    SetupError
        The package onnx is not installed.
    """
    try:
        import onnx
        from onnx import helper
    except ModuleNotFoundError as error:
        raise SetupError(f"ONNX needs the package {error.name}; run: {install_command('exchange')}") from None
    names = [column.name for column in model.columns] if model.encoded else ["features"]
    graph = _Graph(model, Nodes(names))
    outputs = graph.build()
    made = helper.make_model(
        helper.make_graph(
            graph.nodes.read_for([one.name for one in outputs]),
            model.name,
            graph.inputs,
            outputs,
            graph.nodes.initializers,
            doc_string=f"rule {model.rule}; features: {', '.join(names if model.encoded else model.inputs)}",
        ),
        producer_name="dana",
        model_version=model.version,
        opset_imports=[helper.make_opsetid("", OPSET), *([helper.make_opsetid(ML, OPSET_ML)] if model.encoded else [])],
        ir_version=IR_VERSION,
    )
    notes = {"rule": model.rule, "labels": _lines(model.labels)}
    helper.set_model_props(made, notes | {"features": _lines(names if model.encoded else model.inputs)})
    onnx.checker.check_model(made, full_check=True)
    return bytes(made.SerializeToString())


def _lines(names: Sequence[str]) -> str:
    """A name a line; since one may have any character, a backslash and a line feed in it are written as C does."""
    return "\n".join(name.replace("\\", "\\\\").replace("\n", "\\n") for name in names)


class _Graph:
    """Nodes as they are made. Values have the shape (rows or 1, three axes)."""

    def __init__(self, model: StoredModel, nodes: Nodes) -> None:
        from onnx import helper

        self.nodes = nodes
        self._node, self._ints, self._floats = nodes.node, nodes.ints, nodes.constant
        self._model = model
        self._program = model.prediction
        self._memory = {
            Part.WEIGHTS: model.weights,
            Part.CONSTANTS: np.array(self._program.constants, dtype=np.float32),
        }
        self._values: dict[int, tuple[str, int]] = {}
        """Name and size of what was written to scratch, by where it starts there."""
        if model.encoded:
            made = encode(nodes, model.columns, model.array_length, model.centres.features)
            self.inputs, self._features, self._null = made.inputs, made.features, made.null
        else:
            centred, count = bool(model.centres.features), self._program.inputs
            kind = DOUBLE if centred else FLOAT
            self.inputs = [helper.make_tensor_value_info("features", kind, ["rows", count])]
            self._features = nodes.less("features", model.centres.of_features(count)) if centred else "features"
            self._null = None

    def build(self) -> list[onnx.ValueInfoProto]:
        """Append the nodes of the prediction and return the graph's outputs."""
        from onnx import helper

        width, labels = self._program.width, self._model.class_labels
        for instruction in self._program.instructions:
            name = self._instruction(instruction)
            self._values[instruction.out - scratch(self._program)] = (name, result_size(instruction))
        part, start = place(self._program, self._program.result)
        result = self._operand(Read(part=part, start=start, shape=(1, 1, width)))
        # a prediction without features is one for all rows
        rows = self._node("Slice", self._node("Shape", self._features), self._ints(0), self._ints(1))
        # an Expand to the number of rows also repeats what depends on no feature
        shape = self._node("Concat", rows, self._ints(width), axis=0)
        each = self._node("Expand", self._node("Reshape", result, self._ints(-1, width)), shape)
        if self._null is not None:
            each = self._node("Where", self._null, self._nan(), each)
        if self._model.predicts == "numbers":
            return [self._output("prediction", each, width)]
        outputs = []
        if width == 1:
            prediction = self._node("Reshape", each, self._ints(-1))
            probable = self._model.predicts == "probability"
            least = self._floats(np.array([0.5 if probable else 0], np.float32))
            number = self._node("Cast", self._node("GreaterOrEqual", prediction, least), to=INT64)
            if probable:
                first = self._node("Sub", self._floats(np.ones((1, 1), np.float32)), each)
                each = self._node("Concat", first, each, axis=1)
        else:
            number = self._node("ArgMax", each, axis=1, keepdims=0)  # the first of equals
            prediction = self._node("Where", self._undecided(each), self._nan(), self._node("Cast", number, to=FLOAT))
        if labels is not None:
            sort = INT64 if is_whole(labels) else STRING
            # as dana_classify(), which returns NULL if a number is NaN
            known = self._node("Where", self._undecided(each), self._ints(len(labels)), number)
            label = self._node("Gather", self._labels(labels), known, axis=0, out=self.nodes.free("label"))
            outputs.append(helper.make_tensor_value_info(label, sort, ["rows"]))
        if labels is not None or width > 1:
            wide = 2 if width == 1 and self._model.predicts == "probability" else width
            outputs.append(self._output(VECTORS.get(self._model.predicts, "scores"), each, wide))
        if self._model.centres.label:
            exact = self._node("Cast", prediction, to=DOUBLE)
            prediction = self._node("Add", exact, self._floats(np.array([self._model.centres.label])))
            return [*outputs, self._output("prediction", prediction, kind=DOUBLE)]
        return [*outputs, self._output("prediction", prediction)]

    def _output(self, name: str, value: str, *width: int, kind: int = FLOAT) -> onnx.ValueInfoProto:
        from onnx import helper

        named = self._node("Identity", value, out=self.nodes.free(name))
        return helper.make_tensor_value_info(named, kind, ["rows", *width])

    def _nan(self) -> str:
        return self._floats(np.array([np.nan], np.float32))

    def _undecided(self, each: str) -> str:
        """Whether one of a row's numbers is NaN (rows)."""
        flags = self._node("Cast", self._node("IsNaN", each), to=FLOAT)
        largest = self._node("ReduceMax", flags, axes=[1], keepdims=0)
        return self._node("Greater", largest, self._floats(np.zeros(1, np.float32)))

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
        # ONNX's Where takes booleans; here any number other than 0 holds, NaN included
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
        if code is Op.BFLOAT16:
            return self._node("Cast", self._node("Cast", values[0], to=BFLOAT16), to=FLOAT)
        if code is Op.SINPI:
            # Mod keeps the argument small: Sin of a large product with pi would lose its digits
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
            whole = read.size == self._program.inputs
            name = self._features if whole else self._node("Slice", self._features, *bounds)
        else:
            name, size = self._values.get(read.start, ("", 0))
            if size != read.size:
                raise UsageError("the predictor reads what no instruction wrote")
        return self._node("Reshape", name, self._ints(-1, *read.shape))

    def _stored(self, read: Read) -> Floats:
        return self._memory[read.part][read.start : read.start + read.size]

    def _labels(self, labels: Labels) -> str:
        """The labels, and after them that of no class."""
        if is_whole(labels):
            return self._ints(*map(int, labels), NULL_INTEGER)
        texts = [*map(str, labels)]
        return self.nodes.texts([*texts, null_texts(texts)[0]])
