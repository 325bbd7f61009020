"""The engine's operations, a row each: whatever else says something of an operation is made from these rows.

In: nothing. Out: `Opcode`, its columns as attributes. No hardware library. `python -m dana.generated` writes the C
headers and the documents that repeat a column.
"""

from enum import Enum, IntEnum
from typing import Self

from hwgen.spec import timing


class Unit(Enum):
    """What computes an operation."""

    SEQUENCER = "sequencer"
    """Nothing: the operation writes no row."""
    ADD = "add"
    """A lane's adder."""
    MULTIPLY = "multiply"
    """A lane's multiplier."""
    SELECT = "select"
    """What moves and compares numbers in a lane."""
    FUNCTION = "function"
    """A cluster's table and polynomial: an element of the cluster in each cycle."""
    DIVIDE = "divide"
    """A cluster's quotients and roots: an element every `MachineConfig.divide_interval` cycles."""


STAGES = {
    Unit.ADD: timing.ADD_LATENCY,
    Unit.MULTIPLY: timing.MUL_LATENCY,
    Unit.SELECT: timing.SELECT_LATENCY,
    Unit.DIVIDE: timing.DIVIDE_LATENCY,
}
"""Register stages of the units that take as long for each of their operations."""


class Exchange(Enum):
    """Whether operand b may be a partner's."""

    NEVER = "never"
    ALLOWED = "allowed"
    REQUIRED = "required"
    """The operation chooses between the two words that partners have exchanged."""


NEVER, ALLOWED, REQUIRED = Exchange


class Opcode(IntEnum):
    """Operations; the columns are code, operands, unit, exchange, identity, and of a function its register stages.

    Codes below 32 are the lanes' own; the *special functions*, of a cluster's units, have codes from 32 on. The
    identity e of a reduction has x op e = x; of every other operation it is +0.0.
    """

    END = 0
    """The section is over, after `wait`; it has no row."""
    MOV = 1, 1, Unit.SELECT
    """A, flushed; a NaN is canonical."""
    ADD = 2, 2, Unit.ADD, ALLOWED, 0x80000000
    """A + B"""
    SUB = 3, 2, Unit.ADD, ALLOWED
    """A - B"""
    MUL = 4, 2, Unit.MULTIPLY, ALLOWED, 0x3F800000
    """A * B"""
    MAX = 5, 2, Unit.SELECT, ALLOWED, 0xFF800000
    """The larger of A and B; NaN if one of them is."""
    MIN = 6, 2, Unit.SELECT, ALLOWED, 0x7F800000
    """The smaller of A and B; NaN if one of them is."""
    LT = 7, 2, Unit.SELECT, ALLOWED
    """1.0 if A < B, else 0.0, here and in the other comparisons; 0.0 if one of them is NaN."""
    GT = 8, 2, Unit.SELECT, ALLOWED
    """A > B"""
    LE = 9, 2, Unit.SELECT, ALLOWED
    """A <= B"""
    GE = 10, 2, Unit.SELECT, ALLOWED
    """A >= B"""
    EQ = 11, 2, Unit.SELECT, ALLOWED
    """A = B"""
    NEG = 12, 1, Unit.SELECT
    """-A"""
    ABS = 13, 1, Unit.SELECT
    """A without its sign"""
    MOVC = 14, 2, Unit.SELECT
    """A, in those lanes in which B is not zero; the others keep what they hold."""
    SETX = 15, 1, Unit.SEQUENCER
    """Sets an entry of the index file; writes no row."""
    LOW = 16, 2, Unit.SELECT, REQUIRED
    """A in lanes (threads) whose bit `distance` is clear, B in the others; flushed, a NaN is canonical."""
    HIGH = 17, 2, Unit.SELECT, REQUIRED
    """B in lanes (threads) whose bit `distance` is clear, A in the others; likewise."""
    PUT = 18, 1, Unit.SEQUENCER
    """A as MOV makes it, to the outbox."""
    COPYSIGN = 19, 2, Unit.SELECT, ALLOWED
    """A with the sign of B; a NaN's is +."""
    SIGMOID = 32, 1, Unit.FUNCTION, NEVER, None, 12
    """1 / (1 + exp(-A))"""
    GAUSSIAN = 33, 1, Unit.FUNCTION, NEVER, None, 17
    """exp(-A * A)"""
    EXP = 34, 1, Unit.FUNCTION, NEVER, None, 15
    """e to the power of A"""
    LOG = 35, 1, Unit.FUNCTION, NEVER, None, 13
    """Natural logarithm of A"""
    SQRT = 36, 1, Unit.DIVIDE
    """Square root of A"""
    DIV = 37, 2, Unit.DIVIDE
    """A / B"""
    TANH = 38, 1, Unit.FUNCTION, NEVER, None, 12
    """Hyperbolic tangent of A"""
    SINPI = 39, 1, Unit.FUNCTION, NEVER, None, 14
    """sin(pi A)"""

    operands: int
    unit: Unit
    exchange: Exchange
    identity: int | None
    stages: int

    def __new__(
        cls,
        code: int,
        operands: int = 0,
        unit: Unit = Unit.SEQUENCER,
        exchange: Exchange = NEVER,
        identity: int | None = None,
        stages: int = 0,
    ) -> Self:
        op = int.__new__(cls, code)
        op._value_ = code
        op.operands, op.unit, op.exchange, op.identity = operands, unit, exchange, identity
        op.stages = STAGES.get(unit, stages)
        return op

    @property
    def special(self) -> bool:
        """Whether a unit of the cluster computes it, not the lanes."""
        return self.unit in (Unit.FUNCTION, Unit.DIVIDE)

    @property
    def chooses(self) -> bool:
        """Whether it writes one of the two words that partners have exchanged."""
        return self.exchange is REQUIRED

    @property
    def reads_b(self) -> bool:
        """Whether it has an operand b."""
        return self.operands > 1
