"""The engine's operations, a row each: all other tables of operations are made from these rows.

In: nothing. Out: `Opcode`, its columns as attributes. No hardware library. `python -m dana.generated` writes the C
headers and the documents that repeat a column.
"""

from enum import Enum

from hwgen.spec import timing
from hwgen.spec.described import Described


class Unit(Enum):
    """What computes an operation."""

    SEQUENCER = "sequencer"  # nothing: the operation writes no row
    ADD = "add"  # a lane's adder
    MULTIPLY = "multiply"  # a lane's multiplier
    SELECT = "select"  # what moves and compares numbers in a lane
    FUNCTION = "function"  # a cluster's table and polynomial: an element of the cluster in each cycle
    DIVIDE = "divide"  # a cluster's quotients and roots: an element every `MachineConfig.divide_interval` cycles


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
    REQUIRED = "required"  # the operation chooses between the two words that partners have exchanged


NEVER, ALLOWED, REQUIRED = Exchange


class Opcode(Described):
    """Operations; the columns are code, text, operands, unit, exchange, identity, and a function's register stages.

    Codes below 32 are the lanes' own; the *special functions*, of a cluster's units, have codes from 32 on. The
    identity e of a reduction has x op e = x; of every other operation it is +0.0.
    """

    END = 0, "The section is over, after `wait`; it has no row."
    MOV = 1, "A, flushed; a NaN is canonical.", 1, Unit.SELECT
    ADD = 2, "A + B", 2, Unit.ADD, ALLOWED, 0x80000000
    SUB = 3, "A - B", 2, Unit.ADD, ALLOWED
    MUL = 4, "A * B", 2, Unit.MULTIPLY, ALLOWED, 0x3F800000
    MAX = 5, "The larger of A and B; NaN if one of them is.", 2, Unit.SELECT, ALLOWED, 0xFF800000
    MIN = 6, "The smaller of A and B; NaN if one of them is.", 2, Unit.SELECT, ALLOWED, 0x7F800000
    LT = 7, "1.0 if A < B, else 0.0, as in other comparisons; 0.0 if one of them is NaN.", 2, Unit.SELECT, ALLOWED
    GT = 8, "A > B", 2, Unit.SELECT, ALLOWED
    LE = 9, "A <= B", 2, Unit.SELECT, ALLOWED
    GE = 10, "A >= B", 2, Unit.SELECT, ALLOWED
    EQ = 11, "A = B", 2, Unit.SELECT, ALLOWED
    NEG = 12, "-A", 1, Unit.SELECT
    ABS = 13, "A without its sign", 1, Unit.SELECT
    MOVC = 14, "A, in those lanes in which B is not zero; the others keep what they hold.", 2, Unit.SELECT
    SETX = 15, "Sets an entry of the index file; writes no row.", 1, Unit.SEQUENCER
    LOW = 16, "A where the lane's (thread's) bit `distance` is clear, else B; as MOV.", 2, Unit.SELECT, REQUIRED
    HIGH = 17, "B where the lane's (thread's) bit `distance` is clear, else A; as MOV.", 2, Unit.SELECT, REQUIRED
    PUT = 18, "A as MOV makes it, to the outbox.", 1, Unit.SEQUENCER
    COPYSIGN = 19, "A with the sign of B; a NaN's is +.", 2, Unit.SELECT, ALLOWED
    BFLOAT16 = 20, "A, rounded to bfloat16: to nearest, ties to even.", 1, Unit.SELECT
    SIGMOID = 32, "1 / (1 + exp(-A))", 1, Unit.FUNCTION, NEVER, None, 12
    GAUSSIAN = 33, "exp(-A * A)", 1, Unit.FUNCTION, NEVER, None, 17
    EXP = 34, "e to the power of A", 1, Unit.FUNCTION, NEVER, None, 15
    LOG = 35, "Natural logarithm of A", 1, Unit.FUNCTION, NEVER, None, 13
    SQRT = 36, "Square root of A", 1, Unit.DIVIDE
    DIV = 37, "A / B", 2, Unit.DIVIDE
    TANH = 38, "Hyperbolic tangent of A", 1, Unit.FUNCTION, NEVER, None, 12
    SINPI = 39, "sin(pi A)", 1, Unit.FUNCTION, NEVER, None, 14

    def __init__(
        self,
        code: int,
        text: str = "",
        operands: int = 0,
        unit: Unit = Unit.SEQUENCER,
        exchange: Exchange = NEVER,
        identity: int | None = None,
        stages: int = 0,
    ) -> None:
        super().__init__(code, text)
        self.operands, self.unit, self.exchange, self.identity = operands, unit, exchange, identity
        self.stages = STAGES.get(unit, stages)

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
