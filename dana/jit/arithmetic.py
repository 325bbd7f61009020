"""Operations of the language as instructions of LLVM.

In: values of one float or of vectors. Out: their sum, their fold … Each operation is rounded on its own, in the
language's order (docs/arithmetic.md): no flag allows anything else. Where the processor has no mode that flushes
subnormals as the language does, instructions do: all values but those on a page are flushed.
"""

from collections.abc import Callable, Sequence
from functools import cache

from llvmlite import ir

from dana.jit.plan import Unsupported
from dana.simulator import native
from dsl.hdfg.graph import Op

FLOAT, I32, I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
POINTER = ir.PointerType()
Vectors = tuple[ir.Value, ...]
COMPARED = {Op.LT: "<", Op.GT: ">", Op.LE: "<=", Op.GE: ">=", Op.EQ: "=="}
ARITHMETIC = {Op.ADD: "fadd", Op.SUB: "fsub", Op.MUL: "fmul", Op.DIV: "fdiv"}
LEAST = 2.0**-126
"""The smallest normal number."""
RAISED = 2.0**32
# IEEE 754-2019's maximum and minimum: NaN if either is, -0 below +0; maxnum would drop a NaN
INTRINSICS = {Op.MAX: "maximum", Op.MIN: "minimum", Op.SQRT: "sqrt", Op.ABS: "fabs", Op.COPYSIGN: "copysign"}


def folded(builder: ir.IRBuilder, op: str, count: int, leaf: Callable[[int], Vectors]) -> Vectors:
    """Folds of the language, side by side and depth first, so that few values wait in registers."""

    def at(i: int, extent: int) -> Vectors:
        """Element i of what is left when only `extent` elements are."""
        # powers of two below `count`: element i was joined with i + extent, if there was one
        if extent == count:
            return leaf(i)
        before = min(2 * extent, count)
        left = at(i, before)
        if i + extent >= before:
            return left
        right = at(i + extent, before)
        return tuple(combine(builder, op, a, b) for a, b in zip(left, right, strict=True))

    return at(0, 1)


def trees(
    builder: ir.IRBuilder, ops: Sequence[str], first: int, count: int, leaves: Callable[[int], list[ir.Value]]
) -> list[ir.Value]:
    """The tree of neighbours over a power of two, for each reduction: side by side, so that they share operands."""
    if count == 1:
        return leaves(first)
    half = count // 2
    left, right = (trees(builder, ops, start, half, leaves) for start in (first, first + half))
    return [combine(builder, op, a, b) for op, a, b in zip(ops, left, right, strict=True)]


def combine(builder: ir.IRBuilder, op: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """One step of a reduction."""
    return operation(builder, Op(op), [a, b])


def operation(builder: ir.IRBuilder, op: Op, values: Sequence[ir.Value]) -> ir.Value:
    """One elementwise operation, of numbers or vectors; Unsupported where it is none of those."""
    typ = values[0].type
    if op in COMPARED:
        # ordered: with a NaN no comparison holds
        holds = builder.fcmp_ordered(COMPARED[op], *values)
        return builder.select(holds, _all(typ, 1.0), _all(typ, 0.0))
    if op is Op.WHERE:
        # unordered: a NaN is not 0, so that it holds
        return builder.select(builder.fcmp_unordered("!=", values[0], _all(typ, 0.0)), values[1], values[2])
    if op is Op.NEG:
        return builder.fneg(values[0])
    if op is Op.COPYSIGN:  # a NaN's sign bit may be either, and counts as clear
        ordered = builder.fcmp_ordered("==", values[1], values[1])
        values = [values[0], builder.select(ordered, values[1], _all(typ, 0.0))]
    if op in INTRINSICS:
        return _intrinsic(builder, op, values)
    if op is Op.BFLOAT16:
        return _bfloat16(builder, values[0])
    if op not in ARITHMETIC:
        raise Unsupported(f"it has the operation {op.value}, for which no instruction is known")
    result = getattr(builder, ARITHMETIC[op])(*values)
    if by_mode():
        return result
    if op in (Op.ADD, Op.SUB):  # exact where it is subnormal
        return flushed(builder, result)
    # tiny is what is below LEAST once it is rounded to 24 bits, as the same of a larger number is
    raised = builder.fmul(values[0], _all(typ, RAISED))
    return _without_tiny(builder, result, getattr(builder, ARITHMETIC[op])(raised, values[1]), LEAST * RAISED)


@cache
def by_mode() -> bool:
    """Whether the processor flushes subnormals while code runs."""
    return bool(native.library().sim_flushes())


def flushed(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """A subnormal becomes the zero of its sign."""
    return _without_tiny(builder, value, value, LEAST)


def _bfloat16(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The value, rounded to bfloat16; see `hwgen.spec.numerics.bfloat16`."""
    typ = value.type
    whole = ir.VectorType(I32, typ.count) if isinstance(typ, ir.VectorType) else I32

    def number(bits: int) -> ir.Constant:
        return ir.Constant(whole, [I32(bits)] * typ.count if isinstance(typ, ir.VectorType) else bits)

    # also where the processor flushes: these are integers, and a value may come from a page
    bits = builder.bitcast(flushed(builder, value), whole)
    odd = builder.and_(builder.lshr(bits, number(16)), number(1))
    rounded = builder.and_(builder.add(bits, builder.add(odd, number(0x7FFF))), number(0xFFFF0000))
    # the carry could make a number of a NaN
    ordered = builder.fcmp_ordered("==", value, value)
    return builder.select(ordered, builder.bitcast(rounded, typ), value)


def _without_tiny(builder: ir.IRBuilder, value: ir.Value, compared: ir.Value, least: float) -> ir.Value:
    """The value, or the zero of its sign where the magnitude of `compared` is below `least`."""
    typ = value.type
    tiny = builder.fcmp_ordered("<", _intrinsic(builder, Op.ABS, [compared]), _all(typ, least))
    return builder.select(tiny, _intrinsic(builder, Op.COPYSIGN, [_all(typ, 0.0), value]), value)


def _intrinsic(builder: ir.IRBuilder, op: Op, values: Sequence[ir.Value]) -> ir.Value:
    typ = values[0].type
    kind = f"v{typ.count}f32" if isinstance(typ, ir.VectorType) else "f32"
    name = f"llvm.{INTRINSICS[op]}.{kind}"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(typ, [typ] * len(values)), name)
    return builder.call(function, values)


@cache
def mask(lanes: tuple[int, ...]) -> ir.Constant:
    """Which lane of two vectors each lane of a shuffle is; cached, as LLVM's text of it is."""
    return ir.Constant(ir.VectorType(I32, len(lanes)), [I32(lane) for lane in lanes])


def _all(typ: ir.Type, number: float) -> ir.Value:
    if isinstance(typ, ir.VectorType):
        return ir.Constant(typ, [FLOAT(number)] * typ.count)
    return FLOAT(number)
