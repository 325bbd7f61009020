"""The coefficient table and its quadratic: the datapath that all table-and-polynomial functions share.

In: a row and a position in it. Out: ``y`` or ``1 - y`` in 2**-28; formats are those of ``hwgen.spec.numerics.layout``.
A ROM and two multipliers of 18 × 18 bits at most.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Module, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hwgen.rtl.delay import pipeline
from hwgen.spec.numerics import coefficients, layout

VALUE_BITS = layout.C0_FRACTION + 1


class TablePolynomial(wiring.Component):
    """``c0 + (((c2 * t >> INNER_SHIFT) + c1) * t >> OUTER_SHIFT)``, or with ``complement`` 1 less that.

    ``rows``: how many arguments can reach, from row 0 on.
    """

    LATENCY = 6

    def __init__(self, *, rows: int = layout.ROWS) -> None:
        self._rows = rows
        row_bits = (max(rows, layout.SHARED_ROWS) - 1).bit_length()
        super().__init__(
            {"row": In(row_bits), "t": In(signed(layout.T_BITS)), "complement": In(1), "y": Out(VALUE_BITS)}
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        after = pipeline(m)
        m.submodules.rows = table = Memory(
            shape=layout.C0_BITS + layout.C1_BITS + layout.C2_BITS,
            depth=self._rows,
            init=_words(self._rows),
            attrs={"ram_style": "block"},
        )
        port = table.read_port()
        m.d.comb += [port.addr.eq(self.row), port.en.eq(1)]

        # 1 and 2: the row; a block RAM's output is slow, so it gets a register of its own
        row = after(port.data)
        c0 = row[: layout.C0_BITS]
        c1 = row[layout.C0_BITS : layout.C0_BITS + layout.C1_BITS].as_signed()
        c2 = row[layout.C0_BITS + layout.C1_BITS :].as_signed()
        t = after(self.t, 2).as_signed()

        # 3 and 4: the inner sum, which fits 18 bits for every row and t; 1 - c0 if that is what is asked for
        bend = after(c2 * t).as_signed()
        inner = after((after(c1).as_signed() + (bend >> layout.INNER_SHIFT))[: layout.C1_BITS]).as_signed()
        complement = after(self.complement, 3)
        c0 = after(c0)
        # 1 - c0 is 1 + ~c0 + the last place: an exclusive or for each bit, where a choice takes an inverter too
        flipped = Cat(c0, Const(0, 1)) ^ complement.replicate(layout.C0_BITS + 1)
        added = Cat(complement, Const(0, layout.C0_FRACTION - 1), complement)
        c0 = after((flipped + added)[: layout.C0_BITS + 1].as_signed())

        # 5 and 6: the outer sum; -p is ~p + 1
        slope = after(inner * after(t, 2).as_signed()).as_signed()
        complement = after(complement, 2)
        part = slope[layout.OUTER_SHIFT :]
        part = (part ^ complement.replicate(len(part))).as_signed()
        total = after(c0).as_signed() + part + Cat(complement, Const(0, 1))
        m.d.comb += self.y.eq(after(total[:VALUE_BITS]))
        return m


def _words(rows: int) -> list[int]:
    words = []
    for c0, c1, c2 in zip(coefficients.C0, coefficients.C1, coefficients.C2, strict=True):
        upper = (c2 % (1 << layout.C2_BITS)) << layout.C1_BITS | c1 % (1 << layout.C1_BITS)
        words.append(upper << layout.C0_BITS | c0)
    return words[:rows]
