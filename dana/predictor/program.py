"""Predictor: what `dana_predict` evaluates in a PostgreSQL backend, encoded from a rule's prediction.

In: a bound graph with a prediction, and the values of its metas. Out: bytes, checked and run by
``pg_extension/src/models/predictor.c``, which says the same in C. It holds no model: the values come from
dana.model.weights, the models in the graph's order, row by row. It must not depend on a machine.

The program is a list of 32-bit words, little-endian: a header, constants, instructions of one length. Its memory is an
array of binary32 in four parts, one after the other: the tuple's features in the rule's order of inputs, the models,
the constants, and scratch, which each instruction writes. An instruction works on up to three axes; an operand has a
start and a stride for each, so broadcasting is a stride of 0.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dana.errors import InternalError, UsageError
from dsl.binary32 import round32
from dsl.hdfg.graph import ELEMENTWISE, REDUCTIONS, Graph, Node, Op
from dsl.hdfg.ops import operand_count
from hwgen.spec.operations import Opcode

MAGIC = 0x33504E44
"""``DNP3``; the version is its last character."""

HEADER_WORDS = 8
AXES = 3


# from 64 on: opcodes of the machine have 6 bits
OTHERS = {Op.SIGMA: 64, Op.PI: 65, Op.AMAX: 66, Op.GATHER: 67, Op.WHERE: 68}
"""Codes of operations that the machine does not have or composes of several."""

CODES = {op: Opcode[op.name].value for op in Op if op in ELEMENTWISE and op not in OTHERS} | OTHERS
"""Code of each operation. Stored programs contain these codes, so they must not change."""

OPERATIONS = {code: op for op, code in CODES.items()}


def header() -> str:
    """The codes in C, ``predictor_codes.h``: CODE(name, operands, value) of each operation on one element."""
    lines = ["/* Operations of dana/predictor/program.py. Written by python -m dana.generated. */", "#pragma once", ""]
    lines += ["enum predictor_code", "{", *(f"\tPREDICTOR_{op.name} = {code}," for op, code in CODES.items())]
    lines += [
        f"\tPREDICTOR_CODES = {max(CODES.values()) + 1}",
        "};",
        "",
        "/* On one element each, of operands A, B, C */",
    ]
    elementwise = (
        f"\tCODE({op.name}, {operand_count(op)}, dn_{op}({', '.join('ABC'[: operand_count(op)])}))"
        for op in CODES
        if op in ELEMENTWISE
    )
    lines += [" \\\n".join(["#define DANA_PREDICTOR_ELEMENTWISE(CODE)", *elementwise]), ""]
    lines += ["/* Operands of the others */"]
    others = (f"\tCODE({op.name}, {operand_count(op)})" for op in CODES if op not in ELEMENTWISE)
    return "\n".join([*lines, " \\\n".join(["#define DANA_PREDICTOR_OTHERS(CODE)", *others]), ""])


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """An operand: the address of element 0 and the stride along each axis."""

    start: int
    strides: tuple[int, int, int]


NOTHING = Operand(start=0, strides=(0, 0, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One operation.

    Attributes
    ----------
    code
        What it computes.
    out
        Address of its result, dense and in scratch.
    extents
        Elements along each axis. SIGMA, PI and AMAX reduce the middle one; GATHER has a row's elements in the last.
    operands
        What it reads. GATHER: the model's first row, the index, and as third start the number of rows.
    """

    code: Op
    out: int
    extents: tuple[int, int, int]
    operands: tuple[Operand, Operand, Operand]

    def words(self) -> list[int]:
        """Encode the instruction as 17 words."""
        parts = [part for operand in self.operands for part in (operand.start, *operand.strides)]
        return [CODES[self.code], self.out, *self.extents, *parts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A decoded predictor.

    Attributes
    ----------
    inputs, weights
        Numbers of features and of values of the models.
    constants
        Values, binary32.
    instructions
        In order.
    result, width
        Address of the prediction, and how many numbers it is: 1, or one for each class.
    """

    inputs: int
    weights: int
    constants: tuple[float, ...]
    instructions: tuple[Instruction, ...]
    result: int
    width: int = 1


def decode_predictor(predictor: bytes) -> Program:
    """Decode a predictor; its addresses are not checked.

    Raises
    ------
    UsageError
        The bytes are no predictor, or one of another version.
    """
    size = 2 + AXES + 3 * (1 + AXES)
    try:
        magic, inputs, weights, count, _, steps, result, width = struct.unpack_from(f"<{HEADER_WORDS}I", predictor)
        # before anything is unpacked by counts that the bytes themselves name
        if magic != MAGIC or len(predictor) != 4 * (HEADER_WORDS + count + steps * size):
            raise UsageError("these bytes are no predictor of this version", hint="Train the model again.")
        constants = struct.unpack_from(f"<{count}f", predictor, 4 * HEADER_WORDS)
        words = struct.unpack_from(f"<{steps * size}I", predictor, 4 * (HEADER_WORDS + count))
        instructions = tuple(_instruction(words[k * size : (k + 1) * size]) for k in range(steps))
    except (struct.error, ValueError) as error:
        raise UsageError(f"these bytes are no predictor: {error}", hint="Train the model again.") from None
    return Program(
        inputs=inputs, weights=weights, constants=constants, instructions=instructions, result=result, width=width
    )


def _instruction(words: tuple[int, ...]) -> Instruction:
    code, out, x, y, z, *rest = words
    if code not in OPERATIONS:
        raise ValueError(f"{code} is no operation")
    a, b, c = (
        Operand(start=start, strides=(one, two, three))
        for start, one, two, three in (rest[k : k + 1 + AXES] for k in range(0, len(rest), 1 + AXES))
    )
    return Instruction(code=OPERATIONS[code], out=out, extents=(x, y, z), operands=(a, b, c))


def encode_predictor(graph: Graph, metas: Mapping[str, float] | None = None) -> bytes:
    """Encode the prediction of a rule.

    Parameters
    ----------
    graph
        Bound, and with a prediction.
    metas
        Values that replace the rule's defaults, by name; names that the rule does not have are left alone.

    Raises
    ------
    UsageError
        The prediction has a value of more than three axes.
    """
    if graph.prediction is None:
        raise InternalError(f"rule {graph.name!r} has no prediction to encode")
    return _Encoder(graph, metas or {}).encode(graph.prediction)


def with_metas(predictor: bytes, metas: Sequence[float]) -> bytes:
    """Return the predictor with other values of all metas, given in order of declaration."""
    _, _, _, constants, *_ = struct.unpack_from(f"<{HEADER_WORDS}I", predictor)
    if len(metas) > constants:
        raise InternalError(f"a predictor with {constants} constants cannot hold {len(metas)} metas")
    values = struct.pack(f"<{len(metas)}f", *map(round32, metas))
    start = 4 * HEADER_WORDS
    return predictor[:start] + values + predictor[start + len(values) :]


class _Encoder:
    """Allocates addresses; scratch is not reused, because predictions are short."""

    def __init__(self, graph: Graph, metas: Mapping[str, float]) -> None:
        self._graph = graph
        self._metas = metas
        self._address: dict[int, int] = {}
        self._instructions: list[Instruction] = []
        inputs = [k for k in graph.inputs if graph.nodes[k].op is Op.INPUT]
        self._inputs = self._place(inputs, 0)
        self._weights = self._place(graph.models, self._inputs) - self._inputs

    def _place(self, nodes: tuple[int, ...] | list[int], start: int) -> int:
        for k in nodes:
            self._address[k] = start
            start += self._size(k)
        return start

    def encode(self, prediction: int) -> bytes:
        # by id, a topological order
        needed = [self._graph.nodes[k] for k in sorted(self._needed(prediction))]
        # all metas come first and in order, where with_metas() replaces them
        constants = [self._graph.nodes[k] for k in self._graph.metas]
        constants += [node for node in needed if node.op in (Op.CONST, Op.ARANGE)]
        first = self._inputs + self._weights
        self._next = self._place([node.id for node in constants], first)
        scratch = self._next
        for node in needed:
            if node.op is Op.EXPAND:
                # dense values have the same elements at the same places with an axis of one more
                self._address[node.id] = self._address[node.inputs[0]]
            # along the first axis the rest is dense; along others it is copied, by a sum of one element
            elif node.op is Op.ELEMENT and not node.axis:  # it is read where it lies
                self._address[node.id] = self._address[node.inputs[0]] + self._position(node) * self._size(node.id)
            elif node.id not in self._address:
                self._instructions.append(self._instruction(node))
        header = [
            MAGIC,
            self._inputs,
            self._weights,
            scratch - first,
            self._next - scratch,
            len(self._instructions),
            self._address[prediction],
            self._size(prediction),
        ]
        values = [value for node in constants for value in self._constant(node)]
        words = [word for instruction in self._instructions for word in instruction.words()]
        return struct.pack(f"<{len(header)}I{len(values)}f{len(words)}I", *header, *values, *words)

    def _needed(self, prediction: int) -> set[int]:
        """Return the nodes to compute."""
        found, waiting = set[int](), [prediction]
        while waiting:
            k = waiting.pop()
            if k in found or k in self._address:
                continue
            found.add(k)
            node = self._graph.nodes[k]
            waiting += node.inputs[:1] if node.op is Op.ELEMENT else node.inputs
        return found

    def _position(self, element: Node) -> int:
        return int(self._graph.nodes[element.inputs[1]].value or 0)

    def _size(self, node: int) -> int:
        return prod(self._graph.concrete_shape(node))

    def _constant(self, node: Node) -> list[float]:
        if node.op is Op.ARANGE:
            return [round32(float(k)) for k in range(self._size(node.id))]
        value = node.value
        if node.op is Op.META:
            value = self._metas.get(str(node.name), value)
        if value is None:
            raise InternalError(f"node {node.id} of rule {self._graph.name!r} has no value")
        return [round32(value)]

    def _instruction(self, node: Node) -> Instruction:
        out = self._address[node.id] = self._next
        # a result for each node: no address is used twice, which `dana.predictor.affine` relies on
        self._next += self._size(node.id)
        shape, code = self._graph.concrete_shape(node.id), node.op
        if node.op in ELEMENTWISE:
            extents = self._three(shape)
            operands = [self._broadcast(k, extents) for k in node.inputs]
        elif node.op in REDUCTIONS or node.op is Op.ELEMENT:
            assert node.axis is not None
            of, start = self._graph.concrete_shape(node.inputs[0]), self._address[node.inputs[0]]
            self._three(of)
            outer, n, inner = prod(of[: node.axis]), of[node.axis], prod(of[node.axis + 1 :])
            extents = (outer, n, inner)
            if node.op is Op.ELEMENT:  # a sum of one element
                code, extents, start = Op.SIGMA, (outer, 1, inner), start + self._position(node) * inner
            operands = [Operand(start=start, strides=(n * inner, inner, 1))]
        elif node.op is Op.GATHER:
            model, index = node.inputs
            # the number of rows is the bound that the backend checks the index against
            rows, *row = self._graph.concrete_shape(model)
            extents = (1, 1, prod(row))
            operands = [
                Operand(start=self._address[model], strides=(prod(row), 0, 1)),
                Operand(start=self._address[index], strides=(0, 0, 0)),
                Operand(start=rows, strides=(0, 0, 0)),
            ]
        else:
            raise InternalError(f"a prediction cannot depend on {node.op}, node {node.id} of rule {self._graph.name!r}")
        a, b, c = (*operands, NOTHING, NOTHING, NOTHING)[:3]
        return Instruction(code=code, out=out, extents=extents, operands=(a, b, c))

    def _three(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        if len(shape) > AXES:
            raise UsageError(f"a prediction's values have at most {AXES} axes, not {len(shape)}")
        a, b, c = (*(1,) * (AXES - len(shape)), *shape)
        return a, b, c

    def _broadcast(self, operand: int, extents: tuple[int, int, int]) -> Operand:
        own = self._three(self._graph.concrete_shape(operand))
        dense = (own[1] * own[2], own[2], 1)
        a, b, c = (0 if mine == 1 else stride for mine, stride in zip(own, dense, strict=True))
        return Operand(start=self._address[operand], strides=(a, b, c))
