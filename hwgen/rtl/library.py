"""Modules that are generated once and instantiated many times.

In: components. Out: instances of them, and one text of Verilog in which each kind of component is one module. Amaranth
alone would write a copy of a module for each place where it stands, which makes both generation and simulation of a
machine with many units slow. Names are chosen by the caller: equal names must mean equal hardware.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from amaranth.back import rtlil, verilog
from amaranth.hdl import ClockSignal, Instance, ResetSignal, Value, ValueLike
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring
from amaranth.lib.wiring import In

_AMARANTHS = rtlil.ModuleEmitter.emit_memory


def ports(component: wiring.Component | wiring.PureInterface) -> dict[str, tuple[Value, PortDirection]]:
    """The ports of a component by their names in Verilog: the members' names joined by an underscore.

    Two would be what Amaranth takes, but Verilator spells those in its own way.
    """
    found: dict[str, tuple[Value, PortDirection]] = {}
    for path, member, value in component.signature.flatten(component):
        name = "_".join(map(str, path))
        if name in found:
            raise ValueError(f"ports of {type(component).__name__} must have different names, but two are {name!r}")
        found[name] = (Value.cast(value), PortDirection.Input if member.flow == In else PortDirection.Output)
    return found


class Placed(wiring.Component):
    """One instance of a module of a `Library`, with the ports of the component that it was made from.

    Attributes
    ----------
    reset
        What resets it; the reset of the module that it stands in, unless something else is put there.
    """

    def __init__(self, name: str, signature: wiring.Signature, *, clock: bool, reset: bool) -> None:
        self._name = name
        self._clock = clock
        self._has_reset = reset
        self.reset: ValueLike = ResetSignal()
        super().__init__(signature)

    def elaborate(self, platform: object) -> Instance:
        connections: dict[str, Any] = {}
        if self._clock:
            connections["i_clk"] = ClockSignal()
        if self._has_reset:
            connections["i_rst"] = self.reset
        for name, (value, direction) in ports(self).items():
            connections[f"{'i' if direction is PortDirection.Input else 'o'}_{name}"] = value
        return Instance(self._name, **connections)


class Library:
    """The modules of one design, in the order in which they were first wanted.

    With ``wide_multipliers``, products are built for 27 × 18 bits instead of 18 × 18. Same bits, same cycles. All
    names of modules begin with ``prefix``.
    """

    def __init__(self, *, wide_multipliers: bool = False, prefix: str = "") -> None:
        self.wide_multipliers = wide_multipliers
        self._prefix = prefix
        self._texts: dict[str, str] = {}
        self._signatures: dict[str, wiring.Signature] = {}

    def add(self, name: str, make: Callable[[], wiring.Component]) -> None:
        """Generate module `name` from `make()`, unless that was done before."""
        if name not in self._texts:
            with _quickly():
                component = make()
                # what it places itself goes before it
                full = self._prefix + name
                text = str(rtlil.convert(component, name=full, ports=ports(component), emit_src=False))
            self._signatures[name] = component.signature
            self._texts[name] = text

    def place(self, name: str, make: Callable[[], wiring.Component]) -> Placed:
        """One more instance of module `name`, which is `make()`."""
        self.add(name, make)
        header, full = self._texts[name], self._prefix + name
        return Placed(
            full, self._signatures[name], clock=_has_port(header, full, "clk"), reset=_has_port(header, full, "rst")
        )

    def verilog(self) -> str:
        """All modules as Verilog 2001; the same text for the same design."""
        # Amaranth's own converter; its public entry takes one component only
        return str(verilog._convert_rtlil_text("\n".join(self._texts.values()), strip_internal_attrs=True))


@contextmanager
def _quickly() -> Iterator[None]:
    """Amaranth makes millions of objects, most of which stay, while Python looks for garbage after every 700; and one
    for each bit of a memory's zeros.

    Modules are made inside each other: what was set is put back where the outermost ends.
    """
    before, emit = gc.get_threshold(), rtlil.ModuleEmitter.emit_memory
    gc.set_threshold(20_000, *before[1:])
    rtlil.ModuleEmitter.emit_memory = _set_memory
    try:
        yield
    finally:
        gc.set_threshold(*before)
        rtlil.ModuleEmitter.emit_memory = emit


def _set_memory(emitter: Any, cell_idx: int, cell: Any) -> None:
    """What Amaranth's own does, but for zeros, on which no board relies: a line of Verilog for each word is most of a
    large machine's text, simulators make code of it for each instance, and no UltraRAM can be set."""
    if any(cell.init):
        _AMARANTHS(emitter, cell_idx, cell)


def _has_port(text: str, module: str, port: str) -> bool:
    """Whether a module of an RTLIL text has an input of one bit named `port`."""
    _, _, body = text.partition(f"module \\{module}\n")
    body, _, _ = body.partition("\nend\n")
    return any(
        words[0] == "wire" and "input" in words and words[-1] == f"\\{port}"
        for words in (line.split() for line in body.splitlines() if line.strip())
    )
