"""`hwgen.rtl.delay`: a value of any shape, so many cycles later, through registers of the names that were asked for."""

from __future__ import annotations

import pytest
from amaranth.hdl import Fragment, Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hwgen.rtl.delay import delayed

ENTRY = data.StructLayout({"number": signed(5), "valid": 1})


class Late(wiring.Component):
    def __init__(self, cycles: int) -> None:
        self._cycles = cycles
        super().__init__({"entry": In(ENTRY), "seen": Out(ENTRY)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        late = delayed(m, self.entry, self._cycles, name="entry")
        m.d.comb += [self.seen.number.eq(late.number), self.seen.valid.eq(late.valid)]
        return m


@pytest.mark.parametrize("cycles", [1, 4])
def test_a_structure_comes_so_many_cycles_later(cycles: int) -> None:
    late = Late(cycles)
    simulator = Simulator(late)
    simulator.add_clock(1e-6)
    given = [{"number": number % 32 - 16, "valid": number % 3 == 0} for number in range(0, 60, 7)]
    seen = []

    async def drive(context) -> None:  # type: ignore[no-untyped-def]
        for entry in given:
            context.set(late.entry, entry)
            seen.append({"number": context.get(late.seen.number), "valid": context.get(late.seen.valid)})
            await context.tick()

    simulator.add_testbench(drive)
    simulator.run()
    assert seen == [{"number": 0, "valid": 0}] * cycles + given[: len(given) - cycles]


def test_registers_have_no_reset_unless_they_are_to() -> None:
    m, entry = Module(), Signal(ENTRY)
    assert delayed(m, entry, 0, name="none") is entry
    free, reset = (delayed(m, entry.number, 2, name="n", reset_less=less) for less in (True, False))
    assert (free.name, free.reset_less, free.shape()) == ("n_2", True, signed(5))
    assert not reset.reset_less
    assert set(Fragment.get(m, None).statements) == {"sync"}
