"""Each operation of the language is instructions of LLVM, or said to be none."""

import pytest
from llvmlite import ir

from dana.jit import Unsupported
from dana.jit.arithmetic import operation
from dana.jit.plan import FUNCTIONS
from dsl.hdfg.ops import ELEMENTWISE, Op, operand_count


@pytest.mark.parametrize("op", sorted(ELEMENTWISE - set(FUNCTIONS)))
def test_every_operation_is_an_instruction(op: Op) -> None:
    """But for functions, which the core evaluates; another is not tried."""
    number = ir.FloatType()
    builder = ir.IRBuilder(ir.Function(ir.Module(), ir.FunctionType(number, []), "f").append_basic_block())
    assert operation(builder, op, [number(2.0)] * operand_count(op)).type == number
    with pytest.raises(Unsupported, match="the operation sigmoid, for which no instruction is known"):
        operation(builder, Op.SIGMOID, [number(2.0)])
