"""Written by python -m dana.generated: functions of each element; see `dana.language.names`."""

from dana.language.names import Operand, Value, refuse

__all__ = [
    "abs",
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
    """Of each element a: 1 / (1 + exp(-a)), absolute error below 2⁻²²."""
    refuse("sigmoid")


def tanh(value: Operand) -> Value:
    """Of each element a: hyperbolic tangent, within 4 ulp, near 0 too."""
    refuse("tanh")


def sinpi(value: Operand) -> Value:
    """Of each element a: sin(π a), within 4 ulp for every a; exact where 2a is whole."""
    refuse("sinpi")


def gaussian(value: Operand) -> Value:
    """Of each element a: exp(-a · a), within 4 ulp."""
    refuse("gaussian")


def sqrt(value: Operand) -> Value:
    """Of each element a: square root, correctly rounded; NaN below 0."""
    refuse("sqrt")


def exp(value: Operand) -> Value:
    """Of each element a: e to the power of a, within 4 ulp."""
    refuse("exp")


def log(value: Operand) -> Value:
    """Of each element a: natural logarithm, within 4 ulp; NaN below 0."""
    refuse("log")


def abs(value: Operand) -> Value:
    """Of each element a: magnitude."""
    refuse("abs")


def floor(value: Operand) -> Value:
    """Of each element a: the largest whole number that is not above a."""
    refuse("floor")


def ceil(value: Operand) -> Value:
    """Of each element a: the smallest whole number that is not below a; -0 from -0.3."""
    refuse("ceil")


def round(value: Operand) -> Value:
    """Of each element a: the nearest whole number, halves to the even one: 2 from 2.5; -0 from -0.3."""
    refuse("round")


def max(left: Operand, right: Operand) -> Value:
    """Of elements a and b: the larger of a and b; NaN if either is."""
    refuse("max")


def min(left: Operand, right: Operand) -> Value:
    """Of elements a and b: the smaller of a and b; NaN if either is."""
    refuse("min")


def copysign(left: Operand, right: Operand) -> Value:
    """Of elements a and b: the magnitude of a with the sign of b, of a zero's, too; a NaN's is +."""
    refuse("copysign")
