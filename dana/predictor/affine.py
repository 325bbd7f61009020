"""Recognises predictions that are a known function of weighted sums of the features.

The sums and the function are found by symbolic execution of the program, independently of the name and text of the
rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from dana.errors import UsageError
from dana.predictor.centres import Centres
from dana.predictor.operands import Part, Read, place, reads, result_size, scratch
from dana.predictor.program import Instruction, Program, decode_predictor, encode_predictor
from dsl import compile_rule
from dsl.hdfg.ops import Op

MAX_COEFFICIENTS = 1 << 26
"""Maximum number of coefficients of an intermediate value (512 MB)."""

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]


class Link(Enum):
    """The function of the sums."""

    NONE = "none"
    LOGIT = "logit"
    EXP = "exp"
    LARGEST = "largest"  # the index of the largest sum


LINKS = {Op.SIGMOID: Link.LOGIT, Op.EXP: Link.EXP}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Weighted sums, and the function of them.

    Attributes
    ----------
    coefficients
        Shape (sums, features).
    intercepts
        Shape (sums,).
    """

    link: Link
    coefficients: Doubles
    intercepts: Doubles

    def of_columns(self, centres: Centres) -> Scores:
        """Return the sums of columns from which these centres are subtracted before the prediction."""
        away = self.coefficients @ centres.of_features(self.coefficients.shape[1])
        return replace(self, intercepts=self.intercepts - away + centres.label)


def scores(program: Program, weights: Floats, limit: int = MAX_COEFFICIENTS) -> Scores | None:
    """Return the weighted sums of a program; None if its result is anything else.

    Raises
    ------
    UsageError
        An intermediate value has more coefficients than `limit`.
    """
    return _Followed(program, weights, limit).scores()


class _Followed:
    """Values as weighted sums: arrays of shape (three axes, features + 1); the last element is the constant."""

    def __init__(self, program: Program, weights: Floats, limit: int = MAX_COEFFICIENTS) -> None:
        self._program = program
        self._memory = {Part.WEIGHTS: weights, Part.CONSTANTS: np.array(program.constants, np.float32)}
        self._written: dict[int, Instruction] = {}
        self._values: dict[int, Doubles | None] = {}
        # an instruction reads results of earlier ones alone, and each writes scratch of its own
        for instruction in program.instructions:
            start = instruction.out - scratch(program)
            if result_size(instruction) * (program.inputs + 1) > limit:
                raise UsageError("the prediction is too wide for PMML", hint="Export it as ONNX.")
            self._written[start] = instruction
            self._values[start] = self._follow(instruction)

    def scores(self) -> Scores | None:
        part, start = place(self._program, self._program.result)
        width = self._program.width
        value = self._value(Read(part=part, start=start, shape=(1, 1, width)))
        # the result itself is sums: of several, the class with the largest is predicted
        if value is not None:
            return self._of(Link.NONE if width == 1 else Link.LARGEST, value)
        last = self._written.get(start)
        if last is None:
            return None
        if last.code in LINKS:
            value = self._value(reads(self._program, last)[0])
            return None if value is None else self._of(LINKS[last.code], value)
        return self.largest()

    def _of(self, link: Link, value: Doubles) -> Scores:
        rows = value.reshape(-1, self._program.inputs + 1)
        return Scores(link=link, coefficients=rows[:, :-1], intercepts=rows[:, -1])

    def _follow(self, instruction: Instruction) -> Doubles | None:
        code = instruction.code
        # the row depends on the data: it is no weighted sum
        if code is Op.GATHER:
            return None
        found = [self._value(read) for read in reads(self._program, instruction)]
        values = [value for value in found if value is not None]
        if len(values) != len(found):
            return None
        if code is Op.SIGMA:
            return np.asarray(np.sum(values[0], axis=1, keepdims=True))
        if code is Op.NEG:
            return -values[0]
        if code is Op.BFLOAT16:  # a coefficient says nothing of rounding
            return values[0]
        if code not in (Op.ADD, Op.SUB, Op.MUL, Op.DIV):
            return None
        a, b = (np.broadcast_to(value, (*instruction.extents, value.shape[-1])) for value in values)
        if code is Op.ADD:
            return a + b
        if code is Op.SUB:
            return a - b
        # one factor has to be the same for all rows; that is `b` from here on
        if code is Op.MUL and not a[..., :-1].any():
            a, b = b, a
        # a division by 0 gives infinities and NaN, which no weighted sum does
        if b[..., :-1].any() or (code is Op.DIV and not b[..., -1:].all()):
            return None
        return a * b[..., -1:] if code is Op.MUL else a / b[..., -1:]

    def _value(self, read: Read) -> Doubles | None:
        if read.part is Part.SCRATCH:
            value = self._values.get(read.start)
            instruction = self._written.get(read.start)
            # a part of a value, or a value of another size at the same address, was not followed
            if value is None or instruction is None or result_size(instruction) != read.size:
                return None
            return value.reshape(*read.shape, self._program.inputs + 1)
        made = np.zeros((read.size, self._program.inputs + 1))
        if read.part is Part.FEATURES:
            made[np.arange(read.size), read.start + np.arange(read.size)] = 1
        else:
            made[:, -1] = self._memory[read.part][read.start : read.start + read.size]
        return made.reshape(*read.shape, self._program.inputs + 1)

    def largest(self) -> Scores | None:
        """Return the scores if the result is their ``dana.argmax`` or ``dana.softmax``."""
        form = self.form()
        made = "argmax" if self._program.width == 1 else "softmax"
        # compared with what the encoder makes of that function today: no list of instructions to keep up to date
        if form is None or not form.scores or form.steps != _form_of(made, form.scores[1]):
            return None
        start, count = form.scores
        value = self._value(Read(part=Part.SCRATCH, start=start, shape=(1, 1, count)))
        return None if value is None else self._of(Link.LARGEST, value)

    def form(self) -> _Form | None:
        """Return the instructions after the sums without addresses; None if they use more than one value."""
        tail = [one for one in self._program.instructions if self._values[self._start(one)] is None]
        if any(one.code is Op.GATHER for one in tail):  # chosen rows are not weighted sums of features
            return None
        number = {self._start(instruction): k for k, instruction in enumerate(tail)}
        made: set[tuple[int, int]] = set()
        steps: list[object] = []
        for instruction in tail:
            operands: list[object] = []
            for read, operand in zip(reads(self._program, instruction), instruction.operands, strict=False):
                known = self._value(read)
                # constants by value: -extent and 0, 1, 2 … are as much of the form as the instructions
                if known is not None and not known[..., :-1].any():
                    operands.append((operand.strides, known[..., -1].reshape(-1).tolist()))
                elif read.start in number and read.part is Part.SCRATCH:
                    operands.append((operand.strides, number[read.start]))
                else:
                    made.add((read.start if read.part is Part.SCRATCH else -1, read.size))
                    operands.append((operand.strides, "scores"))
            steps.append((instruction.code, instruction.extents, operands))
        if len(made) > 1 or any(start < 0 for start, _ in made):
            return None
        return _Form(scores=next(iter(made), None), steps=steps)

    def _start(self, instruction: Instruction) -> int:
        return instruction.out - scratch(self._program)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """Instructions without addresses, and the address and size of the value that they use."""

    scores: tuple[int, int] | None
    steps: list[object]


def _form_of(function: str, count: int) -> list[object] | None:
    """Return the form of a function of `count` scores as the compiler generates it."""
    # the update only makes the rule complete: nothing is trained by it
    text = f"""
import dana
w = dana.model([{count}])
x = dana.input([{count}])
y = dana.output()
chosen = dana.algo(w, x, y)
chosen.setModel(w, w + 0 * y)
chosen.setPrediction(dana.{function}(w * x))
"""
    program = decode_predictor(encode_predictor(compile_rule(text, filename=function).hdfg.bind({})))
    form = _Followed(program, np.ones(count, np.float32)).form()
    return None if form is None else form.steps
