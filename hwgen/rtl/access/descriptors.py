"""The column descriptors, worked out as the host writes them: what of a column does not depend on where it is.

In: 32-bit words of `hwgen.spec.columns`, the lower one of a descriptor first. Out: what the unpacker needs to know of a
column, a cycle after its number. Nothing is computed between the memory and the unpacker.
"""

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.hdl._ast import Assign
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from hwgen.rtl.access.layouts import bits_for, group_bits, lane_bits, page_bits, row_bytes
from hwgen.rtl.delay import delayed
from hwgen.rtl.interfaces import UNSHARED, image_write
from hwgen.spec import columns
from hwgen.spec.columns import ColumnType
from hwgen.spec.config import MachineConfig

COLUMN = data.StructLayout({field.name: field.width for field in columns.FIELDS})
"""A descriptor as the host writes it."""

COUNT_BITS = COLUMN["count"].width
ROW_BITS = COLUMN["row"].width
SIZE_LOG2 = {kind: exact_log2(kind.bytes) for kind in ColumnType}


def watched(config: MachineConfig) -> dict[str, int]:
    """Fields of a watched column, and their widths, on machines that have some."""
    return {name: COLUMN[name].width for name in ("table", "writes") if config.watch_depth}


def known_layout(config: MachineConfig) -> data.StructLayout:
    """What is known of a column."""
    return data.StructLayout(
        {
            "unusable": 1,  # the descriptor is not valid
            "never": 1,  # it fits in no page
            "limit": page_bits(config),  # the last address at which it does
            "beats": COUNT_BITS,  # cycles
            "single": 1,  # it is one
            "element": 1,  # values are converted; else rows are
            "group": config.lanes.bit_length(),  # lanes of a beat; all, where an element goes to all
            "step": row_bytes(config).bit_length(),  # their bytes
            "back": (row_bytes(config) - 1).bit_length(),  # bytes before the column in which the first beat begins
            "ahead": row_bytes(config).bit_length(),  # from the column's address to that of the row after it
            "low": lane_bits(config),
            "high": lane_bits(config),  # the lane behind the last
            "spread": 1,
            "type": COLUMN["type"].width,
            "first": 1,
            "last": 1,
            "follows": 1,  # never set together with `first`
            "row": ROW_BITS,
            **watched(config),
        }
    )


class Descriptors(wiring.Component):
    """Memory of descriptors; what is `known` of one is there in the cycle after its number."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        number = bits_for(config.descriptor_depth)
        super().__init__(
            {
                "image": In(image_write(config)),
                "number": In(number),  # a descriptor, looked up in a cycle with `step`
                "step": In(1),
                "known": Out(known_layout(config)),  # of the descriptor that was looked up last
            }
        )

    def elaborate(self, platform: object) -> Module:
        config = self._config
        m = Module()
        write, word = self.image.column, self.image.data
        upper, place = self.image.address[0], self.image.address[1 : 1 + len(self.number)]
        lower = Signal(32, reset_less=True)
        column = Signal(COLUMN, reset_less=True)
        m.d.sync += column.eq(Cat(lower, word))
        with m.If(write & ~upper):
            m.d.sync += lower.eq(word)

        lanes = lane_bits(config)
        size = row_bytes(config)
        watches = column.table.any()
        row = (column.type == ColumnType.FLOAT4) & ~column.scalar & ~watches
        unwatchable = watches & ((column.count != 1) | column.first | column.last | column.follows)
        if not config.watch_depth:
            unwatchable = watches
        size_log2 = Signal(range(max(SIZE_LOG2.values()) + 1))
        exists = Signal()
        with m.Switch(column.type):
            for kind, value in SIZE_LOG2.items():
                with m.Case(kind):
                    m.d.comb += [size_log2.eq(value), exists.eq(1)]
        length = column.count << size_log2
        group, before, beats = (
            Signal(shape, name=name)
            for name, shape in (("group", config.lanes.bit_length()), ("before", lanes), ("beats", COUNT_BITS))
        )

        def grouped(bits: int) -> list[Assign]:
            more = Cat(column.lane[:bits], C(0, 1)) + C((1 << bits) - 1, bits + 1)
            return [group.eq(1 << bits), before.eq(column.lane[:bits]), beats.eq((column.count + more) >> bits)]

        apart = column.scalar & ~watches  # each element has a row of its own
        with m.If(row):
            m.d.comb += grouped(lanes)
        with m.Elif(column.scalar | watches):
            m.d.comb += grouped(0)
        with m.Elif(size_log2 == SIZE_LOG2[ColumnType.FLOAT8]):
            m.d.comb += grouped(group_bits(config, ColumnType.FLOAT8.bytes))
        with m.Else():
            m.d.comb += grouped(group_bits(config, ColumnType.INT4.bytes))
        back = Signal(self.known.back.shape())
        m.d.comb += back.eq(before << size_log2)
        # registered once more: sums and shifts of a whole descriptor take longer than anything behind the table
        known = Signal(self.known.shape(), reset_less=True)
        m.d.sync += [
            known.unusable.eq(~exists | ~column.count.any() | column.lane[lanes:].any() | unwatchable),
            # the length may pass the page's, of which the difference would wrap around
            known.never.eq(length > config.page_size),
            known.limit.eq(config.page_size - length),
            known.beats.eq(beats),
            known.single.eq(beats == 1),
            known.element.eq(~row),
            known.group.eq(Mux(apart, config.lanes, group)),
            known.step.eq(group << size_log2),
            known.back.eq(back),
            known.ahead.eq(size - back),
            known.low.eq(column.lane),
            known.high.eq(column.lane + column.count),
            known.spread.eq(column.scalar),
            known.follows.eq(column.follows & ~column.first),
            *(known[name].eq(column[name]) for name in ("type", "first", "last", "row", *watched(config))),
        ]
        m.submodules.table = table = Memory(
            shape=known_layout(config), depth=config.descriptor_depth, init=[], attrs=UNSHARED
        )
        writer, reader = table.write_port(), table.read_port()
        m.d.comb += [
            writer.en.eq(delayed(m, write & upper, 2, name="stored", reset_less=False)),
            writer.addr.eq(delayed(m, place, 2, name="number")),
            writer.data.eq(known),
            reader.en.eq(self.step),
            reader.addr.eq(self.number),
            self.known.eq(reader.data),
        ]
        return m
