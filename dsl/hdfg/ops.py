"""Operations of nodes and how often they run: the vocabulary of the dataflow graph.

In: nothing. Out: `Op`, `Region`, sets of operations. Must not: know what a graph is.
"""

from __future__ import annotations

from enum import StrEnum


class Op(StrEnum):
    """Operations; comparisons give 0.0 or 1.0."""

    # leaves
    INPUT = "input"  # a feature value or vector of the tuple
    OUTPUT = "output"  # a label of the tuple
    WEIGHT = "weight"  # how much the tuple counts; 1 by default
    MODEL = "model"  # state, as it stood before the batch
    META = "meta"  # a scalar that can be changed at train time; `value` is its default
    CONST = "const"  # a scalar literal in `value`, or the extent of an axis in `extent`
    ARANGE = "arange"  # the vector 0, 1, 2 …
    ROW = "row"  # the tuple's number in its batch, modulo `ROW_NUMBERS`
    TRAINING = "training"  # 1 while a rule trains, else 0; a graph has the number that it is
    # elementwise
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    NEG = "neg"
    LT = "lt"
    GT = "gt"
    LE = "le"
    GE = "ge"
    EQ = "eq"
    WHERE = "where"  # inputs (condition, then, otherwise); a condition other than zero holds, a NaN too
    SIGMOID = "sigmoid"
    TANH = "tanh"
    SINPI = "sinpi"  # sin(pi*x)
    GAUSSIAN = "gaussian"  # exp(-x*x)
    SQRT = "sqrt"
    EXP = "exp"
    LOG = "log"
    ABS = "abs"
    MAX = "max"
    MIN = "min"
    COPYSIGN = "copysign"
    BFLOAT16 = "bfloat16"
    # reductions along `axis`, by the fold order (docs/arithmetic.md)
    SIGMA = "sigma"
    PI = "pi"
    AMAX = "amax"
    # shape: no arithmetic, the elements keep their order
    EXPAND = "expand"  # a new axis of extent 1 at `axis`
    ELEMENT = "element"  # inputs (value, position): what lies at a whole-numbered const along `axis`
    # rows
    GATHER = "gather"  # inputs (model, index): one row of a model, the index a scalar input or a whole-numbered const
    # tuples to batch
    MERGE = "merge"  # joins the values of a batch by `merge_op`, as the adjacent-pair tree
    # in no rule: the compiler's, for symmetric matrices (dana/compiler/place/triangles.py)
    UPPER = "upper"  # the rows of lanes of a matrix at and above its diagonal
    MIRROR = "mirror"  # the matrix that has these


FROM_ROW = frozenset({Op.INPUT, Op.OUTPUT, Op.WEIGHT})
"""Leaves that a column fills."""
LEAVES = frozenset({Op.INPUT, Op.OUTPUT, Op.WEIGHT, Op.MODEL, Op.META, Op.CONST, Op.ARANGE, Op.ROW, Op.TRAINING})
PER_TUPLE = FROM_ROW | {Op.ROW}
"""Leaves with a value for each tuple."""
NAMELESS = frozenset({Op.CONST, Op.ARANGE, Op.ROW})
"""Leaves that are alike wherever they stand."""
FUNCTIONS = {
    Op.SIGMOID: "1 / (1 + exp(-a)), absolute error below 2⁻²²",
    Op.TANH: "hyperbolic tangent, within 4 ulp, near 0 too",
    Op.SINPI: "sin(π a), within 4 ulp for every a; exact where 2a is whole",
    Op.GAUSSIAN: "exp(-a · a), within 4 ulp",
    Op.SQRT: "square root, correctly rounded; NaN below 0",
    Op.EXP: "e to the power of a, within 4 ulp",
    Op.LOG: "natural logarithm, within 4 ulp; NaN below 0",
    Op.ABS: "magnitude",
    Op.BFLOAT16: "a rounded to bfloat16, 8 significant bits: to nearest, ties to even",
}
"""Those of one operand a that rules call by name, as documents and editors say what they are."""
FUNCTIONS_OF_TWO = {
    Op.MAX: "the larger of a and b; NaN if either is",
    Op.MIN: "the smaller of a and b; NaN if either is",
    Op.COPYSIGN: "the magnitude of a with the sign of b, of a zero's, too; a NaN's is +",
}
"""And those of two, a and b."""
UNARY = frozenset({Op.NEG, *FUNCTIONS})
COMPARISONS = frozenset({Op.LT, Op.GT, Op.LE, Op.GE, Op.EQ})
BINARY = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.DIV, *FUNCTIONS_OF_TWO}) | COMPARISONS
COMMUTATIVE = frozenset({Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.EQ})
"""Bit for bit."""
ELEMENTWISE = UNARY | BINARY | {Op.WHERE}
REDUCTIONS = {Op.SIGMA: Op.ADD, Op.PI: Op.MUL, Op.AMAX: Op.MAX}
"""And what joins two elements of each."""
ROW_NUMBERS = 1 << 23
"""Tuples are counted modulo this, so that the number of a batch's first one and one of the batch have an exact sum."""
MERGE_OPS = ("add", "mul", "max", "min")


def operand_count(op: Op) -> int:
    """Return how many inputs a node of this operation has."""
    if op in LEAVES:
        return 0
    if op is Op.WHERE:
        return 3
    return 2 if op in BINARY or op in (Op.GATHER, Op.ELEMENT) else 1


class Region(StrEnum):
    """How often a node is computed.

    An edge leads from CONST anywhere, from TUPLE to TUPLE or into a MERGE, from BATCH to BATCH. TUPLE nodes read of
    BATCH the model leaves, and what follows a merge: then the batch's tuples are gone through once more. A value of
    models alone that both sides use appears once in each.
    """

    CONST = "const"  # once: depends on metas and constants only
    TUPLE = "tuple"  # per tuple: depends on the tuple, or on models alone and feeds something that is per tuple
    BATCH = "batch"  # once per batch: depends on a merge, or on models only
