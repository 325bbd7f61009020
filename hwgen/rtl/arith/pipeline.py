"""Registers of a free-running pipeline: values delayed by a number of clock edges, without reset.

In: values and a count of edges. Out: signals. Pipelines have no valid bit here: what they show before the first
operands have come through means nothing, so they need no reset either.
"""

from amaranth.hdl import Module, Shape, Signal, ValueLike
from amaranth.hdl import Value as _Value


class Pipeline:
    """Adds registers to a module's ``sync`` domain."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def after(self, value: ValueLike, edges: int = 1, *, name: str | None = None) -> Signal:
        """``value`` as it was ``edges`` clock edges ago.

        Parameters
        ----------
        value : any Amaranth value
        edges : int
            At least one.
        name : str, optional
            Of the registers, in the generated Verilog.
        """
        if edges < 1:
            raise ValueError(f"a register delays by at least one edge, not {edges}")
        delayed = _Value.cast(value)
        for _ in range(edges):
            register = Signal(Shape(len(delayed)), reset_less=True, name=name or "stage")
            self._module.d.sync += register.eq(delayed)
            delayed = register
        return register
