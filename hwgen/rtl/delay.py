"""Values as they were some cycles ago.

In: a value of any shape, a number of cycles. Out: the value at the end of so many registers, of the same shape.
"""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Module, Signal, Value, ValueLike


def delayed(m: Module, value: Any, cycles: int, *, name: str, reset_less: bool = True) -> Any:
    """`value` as it was `cycles` cycles ago, of those that count in the condition that this stands in; itself for 0.

    Parameters
    ----------
    value
        A signal, a view or an expression.
    name
        Of the registers, in the generated Verilog: `name_1`, `name_2`, …
    reset_less
        Registers without reset, which show anything in the first `cycles` cycles.
    """
    shape = value.shape()
    for k in range(cycles):
        stage = Signal(shape, name=f"{name}_{k + 1}", reset_less=reset_less)
        m.d.sync += stage.eq(value)
        value = stage
    return value


def pipeline(m: Module) -> Callable[..., Signal]:
    """`after(value, cycles=1)`: the bits of a value some cycles ago, in registers without reset.

    For free-running pipelines, which have no valid bit: what they show before the first operands have come through
    means nothing.
    """

    def after(value: ValueLike, cycles: int = 1) -> Any:
        return delayed(m, Value.cast(value).as_unsigned(), cycles, name="stage")

    return after
