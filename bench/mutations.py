"""Lines of the hardware with a fault put into them, and the test that is to notice each.

In: nothing. Out: `MUTATIONS`. A mutation names its text in the file, which stands there once; a test looks that it
does, so that the list follows the hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RTL = "hwgen/rtl"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault.

    Attributes
    ----------
    file
        Below `hwgen/rtl`.
    old, new
        Text, and what takes its place.
    what
        The fault, for people.
    tests
        Arguments of pytest that choose the quick test.
    """

    file: str
    old: str
    new: str
    what: str
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The file, from the checkout's top."""
        return Path(RTL) / self.file

    def applied(self, text: str) -> str:
        """The file's text with the fault.

        Raises
        ------
        ValueError
            The old text does not stand there once.
        """
        found = text.count(self.old)
        if found != 1:
            raise ValueError(
                f"{self.path} must hold {self.old!r} once, but holds it {found} times: follow the hardware"
            )
        return text.replace(self.old, self.new)


def _tests(name: str, *more: str) -> tuple[str, ...]:
    return (f"tests/hwgen/{name}", *more)


ADD, MUL, DIVIDE, SELECT, FUNCTION = (
    _tests(f"arith/test_{name}.py") for name in ("add", "mul", "divide", "select", "function")
)
SIGMOID, EXP, LOG = (
    _tests(f"arith/test_function.py::test_every_function[{name}]") for name in ("sigmoid", "exp", "log")
)
ENGINE = _tests("engine/test_engine.py", "-k", "one or missing or levels")
INDEX = _tests("engine/test_engine.py", "-k", "number_without")
PLAIN = _tests("access/test_pages.py")
COLUMNS = (
    *_tests("access/test_columns.py::test_conversions"),
    *_tests("access/test_columns.py::test_every_alignment_lane_and_length[rows as wide as the link]"),
)
EPOCHS = _tests("access/test_epochs.py", "-k", "four")
FAULTS = _tests("access/test_faults.py", "-k", "each_fault or endless or (without and as)")
EDGE = _tests("access/test_faults.py", "-k", "may_end")
MACHINE = _tests("harness/test_machine.py")
RING, CONVERGED, QUIET, REFUSED = (
    _tests("board/test_board.py", "-k", name)
    for name in ("pages_that_come", "ends_where", "nothing_moves", "no_effect")
)
QUEUE = _tests("formal/test_queue.py")
WITHIN = _tests("formal/test_strider.py")
LOADED, WORDS = (_tests("formal/test_buffers.py", "-k", name) for name in ("wanted", "back and Strider"))

MUTATIONS = (
    Mutation("arith/add.py", "up = normal[3] & (normal[4] | normal[:3].any())", "up = normal[3]", "ties go up", ADD),
    Mutation("arith/add.py", "(exponent < count + 2)", "(exponent < count + 1)", "one binade of tiny sums stays", ADD),
    Mutation("arith/mul.py", "after(rest | upper[:5].any() |", "after(upper[:5].any() |", "no sticky bit", MUL),
    Mutation("arith/divide.py", "after(remainder.any() | (", "after((", "remainder does not round", DIVIDE),
    Mutation("arith/select.py", "sign.eq(a[31] | b[31])", "sign.eq(a[31])", "min(+0, -0) is +0", SELECT),
    Mutation("arith/reduce.py", "exponent >= 132", "exponent >= 131", "sigmoid is 1 from 16 on", SIGMOID),
    Mutation("arith/table.py", "Mux(complement, ONE - c0, c0)", "c0", "1 - y forgets the table", SIGMOID),
    Mutation("arith/normalize.py", "up = rest[-1] & (fraction[0] | ", "up = rest[-1] & (", "ties go down", LOG),
    Mutation("arith/function.py", "(scale == -126) & ~above", "scale == -126", "least exponentials are 0", FUNCTION),
    Mutation("engine/lane.py", "(~self.conditional | holds)", "1", "a conditional move always writes", ENGINE),
    Mutation("engine/lane.py", "b.eq(arriving)", "b.eq(self.b)", "no exchange", ENGINE),
    Mutation("engine/lane.py", "Mux(self.swap, other, own)", "own", "no lane swaps its operands", ENGINE),
    Mutation("engine/cluster.py", "delayed(m, swap, 3", "delayed(m, swap, 2", "LOW by another row's lanes", ENGINE),
    Mutation("engine/cluster.py", "tail[:LANE_BITS] <= k", "tail[:LANE_BITS] < k", "a tail is a lane late", ENGINE),
    Mutation("engine/thread.py", "number >= before", "number >= present", "PAIR's b has a's tuple", ENGINE),
    Mutation("engine/thread.py", "both & (number >= p", "both & (number > p", "SINGLE sends a tuple more", ENGINE),
    Mutation("engine/engine.py", "Mux(self.rows.half, half_base, 0)", "0", "tuples lie in one half", ENGINE),
    Mutation(
        "engine/sequencer.py",
        "row.valid & instruction.tail_b & row.last_inner",
        "row.valid & instruction.tail_b",
        "tails of all rows",
        ENGINE,
    ),
    Mutation("engine/issue.py", "outer_last.eq(outer == 2)", "outer_last.eq(outer == 1)", "a round too many", ENGINE),
    Mutation("engine/sections.py", "q & ~(q + 1)", "q", "merges beyond the first clear bit", ENGINE),
    Mutation("engine/sections.py", ">= self.settings.levels", "> self.settings.levels", "a level too many", ENGINE),
    Mutation("engine/index.py", "bad[2] | (number >= self.bound)", "bad[2]", "no bound of a row number", INDEX),
    Mutation("engine/special.py", "self.side == Side.DIVIDE", "0", "quotients are lost", ENGINE),
    Mutation("access/loader.py", "with m.If(request & ~self.release):", "with m.If(request):", "buffers leak", LOADED),
    Mutation("access/queue.py", "self.room.eq(level != depth)", "self.room.eq(1)", "a queue without an end", QUEUE),
    Mutation("access/buffers.py", "after.eq(number + 1)", "after.eq(number)", "bytes across two words", WORDS),
    Mutation("access/buffers.py", "rotate_right(8 << k)", "rotate_left(8 << k)", "rows turn the wrong way", PLAIN),
    Mutation("access/strider.py", "exceeds(a[:2] + control.extra, 3)", "0", "readB beyond the page's end", WITHIN),
    Mutation("access/strider.py", "executed.eq(executed + 1)", "executed.eq(executed)", "loops without an end", FAULTS),
    Mutation("access/registers.py", "writer.en.eq(self.clear | ", "writer.en.eq(", "registers keep a page's", EPOCHS),
    Mutation("access/translate.py", "_constant(c), b[3:].any()", "_constant(c), b[4:].any()", "cln of 8 bits", FAULTS),
    Mutation("access/intake.py", "entry.address > known.limit", "entry.address >= known.limit", "last byte", EDGE),
    Mutation("access/intake.py", "Mux(turn[-1], 0, current + 1)", "current + 1", "Striders out of turn", EPOCHS),
    Mutation("access/descriptors.py", "known.beats.eq(beats)", "known.beats.eq(rows)", "beats of elements", COLUMNS),
    Mutation("access/unpacker.py", "some.eq(0)]", "some.eq(some)]", "an empty epoch after a full one", FAULTS),
    Mutation("access/places.py", "Mux(new & self.batch_done, ", "Mux(new, ", "batches end with rounds", EPOCHS),
    Mutation("access/convert.py", "unshifted.eq(magnitude + plus)", "unshifted.eq(magnitude)", "integers < 0", COLUMNS),
    Mutation(
        "host.py",
        "busy.eq(self.start), done.eq(0), code.eq(0)",
        "busy.eq(self.start), done.eq(0)",
        "old fault",
        MACHINE,
    ),
    Mutation("machine.py", "host.merging.eq(engine.merging)", "host.merging.eq(engine.busy)", "wrong counter", MACHINE),
    Mutation("board/pages.py", "slot == last_slot", "slot == self.slots", "a slot too many", RING),
    Mutation("board/training.py", "last | self.converged", "last", "convergence does not end it", CONVERGED),
    Mutation("board/front.py", "no_write | (self.busy & while_busy)", "no_write", "writes disturb", QUIET),
    Mutation("board/lite.py", "whole.eq(bus.wstrb == axi.ALL_BYTES)", "whole.eq(1)", "parts of words", REFUSED),
)


def listed() -> str:
    """The table of `docs/proof.md`."""
    lines = ["| file | fault | noticed by |", "|---|---|---|"]
    lines += [
        f"| {mutation.file} | {mutation.what} | {mutation.tests[0].partition('::')[0].removeprefix('tests/hwgen/')} |"
        for mutation in MUTATIONS
    ]
    return "\n".join(lines)
