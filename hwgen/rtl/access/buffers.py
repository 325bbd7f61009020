"""The page buffers: what the loader writes once is read in two ways.

`PageStore` holds the pages of all Striders in one memory for the unpacker: a row (4 bytes for each lane) a cycle, from
any byte. Two banks hold the even and the odd rows of a page, so the two rows that an unaligned row touches come at
once; a rotation by the address puts the first byte first. There is one store because only one page is unpacked at a
time and only one beat arrives at a time: its block RAMs are used to their depth.

`PageWords` is a Strider's own copy, narrow: 1 to 4 bytes from any byte. Its banks hold even and odd 4-byte words.

Neither checks an address: what lies behind the page's end is read from its beginning, and is for others to ignore.
"""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hwgen.rtl.access.layouts import bits_for, exceeds, line_bits, page_bits, row_bytes, window_layout
from hwgen.rtl.access.loader import beat_write
from hwgen.rtl.delay import delayed
from hwgen.rtl.engine.control import choose
from hwgen.rtl.interfaces import UNSHARED, ultra_style
from hwgen.spec.config import MachineConfig, Ultra

WORD = 4
WINDOW_LATENCY = 5
"""Cycles from the address to the row: block RAM, its word's register, choice of bank, rotation in two; of rows of 64
bytes and more, rotation in three without that register."""


class PageStore(wiring.Component):
    """All pages, a row of bytes a cycle."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "write": In(beat_write(config)),
                "window": In(window_layout(config)),  # what to read
                "row": Out(unsigned(8 * row_bytes(config))),  # its bytes, WINDOW_LATENCY cycles later
            }
        )

    def elaborate(self, platform: object) -> Module:
        config = self._config
        m = Module()
        size = row_bytes(config)
        banks = self._banks(m)
        offset_bits = (size - 1).bit_length()

        place = self.window.at[: offset_bits + 1]
        stages = 2 if offset_bits <= 5 else 3
        waits = WINDOW_LATENCY - 1 - stages
        place = delayed(m, place, waits, name="place")
        banks = [delayed(m, word, waits - 1, name=f"kept_{bank}") for bank, word in enumerate(banks)]
        offset, far, odd = place[: offset_bits - 1], place[offset_bits - 1], place[offset_bits]

        # byte j of the row lies in row `at` div size if j is at or behind the offset, else in the one after it. If the
        # offset is `far`, in the second half, all are rotated by half a row, which makes that the same question again
        # for the first half, and none for the second: one choice among four, of the bank and of the half
        value = Signal(8 * size, name="chosen", reset_less=True)
        for j in range(size):
            behind = Signal(name=f"behind_{j}")
            m.d.comb += behind.eq(~exceeds(offset, j) if j < size // 2 else ~far)
            here, there = (slice(8 * k, 8 * k + 8) for k in (j, j ^ size // 2))
            even, other = (Mux(far, bank[there], bank[here]) for bank in banks)
            m.d.sync += value[here].eq(Mux(behind == odd, other, even))

        amount = delayed(m, offset, 1, name="amount")
        done = 0
        for stage in range(stages):
            bits = (offset_bits - 1 - done + stages - stage - 1) // (stages - stage)
            for k in range(done, done + bits):
                value = Mux(amount[k], value.rotate_right(8 << k), value)
            value, amount = delayed(m, value, 1, name="rotated"), delayed(m, amount, 1, name="amount")
            done += bits
        m.d.comb += self.row.eq(value)
        return m

    def _banks(self, m: Module) -> list[Value]:
        """Write the beats; read both banks in the cycle after the window's."""
        config = self._config
        size = row_bytes(config)
        # a beat fills part of a row, a row, or a row of both banks
        piece = min(config.link_bytes, size)
        pieces = size // piece
        rows = config.page_size // (2 * size)
        place = self.write.line if config.link_bytes <= size else Cat(0, self.write.line)
        step = bits_for(pieces) if pieces > 1 else 0
        row_bits = (rows - 1).bit_length()
        offset_bits = (size - 1).bit_length()
        attributes = UNSHARED | ultra_style(config, Ultra.PAGES)
        into = Cat(place[step + 1 :], self.write.strider)
        outputs: list[Value] = []
        for bank in range(2):
            address = self.window.at if bank else self.window.ahead
            words = []
            for k in range(pieces):
                memory = Memory(shape=8 * piece, depth=rows * config.striders, init=[], attrs=attributes)
                m.submodules[f"bank_{bank}_{k}"] = memory
                writer, reader = memory.write_port(), memory.read_port()
                here = place[:step] == k if step else 1
                # a beat as wide as two rows goes to both banks, each its half
                both = config.link_bytes > size
                part = self.write.data[8 * size * bank : 8 * size * (bank + 1)] if both else self.write.data
                m.d.comb += [
                    writer.en.eq(self.write.valid & here & (1 if both else place[step] == bank)),
                    writer.addr.eq(into),
                    writer.data.eq(part),
                    reader.addr.eq(Cat(address[offset_bits + 1 :], self.window.strider)),
                ]
                words.append(reader.data)
            outputs.append(Cat(*words))
        assert row_bits == page_bits(config) - offset_bits - 1
        return outputs


class PageWords(wiring.Component):
    """One Strider's page, 4 bytes at a time."""

    def __init__(self, config: MachineConfig) -> None:
        self._config = config
        super().__init__(
            {
                "write": In(1),
                "line": In(line_bits(config)),
                "data": In(unsigned(8 * config.link_bytes)),
                # of the first byte. The bytes follow in `word` two cycles later, byte 0 at the address
                "address": In(page_bits(config)),
                "word": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        config = self._config
        m = Module()
        words = config.link_bytes // WORD  # words of a line
        choice_bits = (words - 1).bit_length()
        number = self.address[2:]
        after = Signal(len(number))
        m.d.comb += after.eq(number + 1)
        line: list[Value] = [C(0)] * words
        for bank in range(2):
            # the word of the address is in the bank of its parity, the next one in the other bank
            index = number if bank else after
            memory = Memory(shape=4 * config.link_bytes, depth=config.page_beats, init=[], attrs=UNSHARED)
            m.submodules[f"bank_{bank}"] = memory
            writer, reader = memory.write_port(), memory.read_port()
            m.d.comb += [
                writer.en.eq(self.write),
                writer.addr.eq(self.line),
                writer.data.eq(Cat(self.data.word_select(k, 8 * WORD) for k in range(bank, words, 2))),
                reader.addr.eq(index[choice_bits:]),
            ]
            line[bank::2] = [reader.data.word_select(k, 8 * WORD) for k in range(words // 2)]

        # byte k of a word comes from the word of the address, or from the next one if it lies before the address
        chosen = Signal(8 * WORD, reset_less=True)
        for k in range(WORD):
            place = Mux(exceeds(self.address[:2], k), after, number)
            choice = delayed(m, place[:choice_bits], 1, name=f"choice_{k}")
            m.d.sync += chosen.word_select(k, 8).eq(choose([word.word_select(k, 8) for word in line], choice))
        byte = delayed(m, self.address[:2], 2, name="byte")
        m.d.comb += self.word.eq(choose([chosen.rotate_right(8 * k) for k in range(WORD)], byte))
        return m
