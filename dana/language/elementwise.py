"""Written by python -m dana.generated: functions of each element; see `dana.language.names`."""

from dana.language.names import Operand, Value, not_in_rule

__all__ = [
    "abs",
    "bfloat16",
    "ceil",
    "copysign",
    "exp",
    "floor",
    "gaussian",
    "log",
    "max",
    "min",
    "round",
    "sigmoid",
    "sinpi",
    "sqrt",
    "tanh",
]


def sigmoid(value: Operand) -> Value:
    """For each element a: 1 / (1 + exp(-a)), absolute error below 2⁻²²."""
    not_in_rule("sigmoid")


def tanh(value: Operand) -> Value:
    """For each element a: hyperbolic tangent, within 4 ulp, near 0 too."""
    not_in_rule("tanh")


def sinpi(value: Operand) -> Value:
    """For each element a: sin(π a), within 4 ulp for every a; exact where 2a is whole."""
    not_in_rule("sinpi")


def gaussian(value: Operand) -> Value:
    """For each element a: exp(-a · a), within 4 ulp."""
    not_in_rule("gaussian")


def sqrt(value: Operand) -> Value:
    """For each element a: square root, correctly rounded; NaN below 0."""
    not_in_rule("sqrt")


def exp(value: Operand) -> Value:
    """For each element a: e to the power of a, within 4 ulp."""
    not_in_rule("exp")


def log(value: Operand) -> Value:
    """For each element a: natural logarithm, within 4 ulp; NaN below 0."""
    not_in_rule("log")


def abs(value: Operand) -> Value:
    """For each element a: magnitude."""
    not_in_rule("abs")


def bfloat16(value: Operand) -> Value:
    """For each element a: a rounded to bfloat16, 8 significant bits: to nearest, ties to even."""
    not_in_rule("bfloat16")


def floor(value: Operand) -> Value:
    """For each element a: the largest whole number that is not above a."""
    not_in_rule("floor")


def ceil(value: Operand) -> Value:
    """For each element a: the smallest whole number that is not below a; -0 from -0.3."""
    not_in_rule("ceil")


def round(value: Operand) -> Value:
    """For each element a: the nearest whole number, halves to the even one: 2 from 2.5; -0 from -0.3."""
    not_in_rule("round")


def max(left: Operand, right: Operand) -> Value:
    """For elements a and b: the larger of a and b; NaN if either is."""
    not_in_rule("max")


def min(left: Operand, right: Operand) -> Value:
    """For elements a and b: the smaller of a and b; NaN if either is."""
    not_in_rule("min")


def copysign(left: Operand, right: Operand) -> Value:
    """For elements a and b: the magnitude of a with the sign of b, of a zero's, too; a NaN's is +."""
    not_in_rule("copysign")
