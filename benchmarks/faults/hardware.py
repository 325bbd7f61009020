"""Faults for the hardware, its driver, and the rules for what is loaded. `docs/proof.md` lists them."""

from __future__ import annotations

from benchmarks.faults.fault import Mutation

RTL = "hwgen/rtl"
BESIDE = "hwgen"
"""What is no hardware, and as much trusted: the driver, the rules for what is loaded."""


def _tests(name: str, *more: str) -> tuple[str, ...]:
    return (f"tests/hwgen/{name}", *more)


ADD, MUL, DIVIDE, SELECT, FUNCTION = (
    _tests(f"arith/test_{name}.py") for name in ("add", "mul", "divide", "select", "function")
)
SIGMOID, EXP, LOG = (
    _tests(f"arith/test_function.py::test_every_function[{name}]") for name in ("sigmoid", "exp", "log")
)
ENGINE = _tests("engine/test_engine.py", "-k", "one or missing or levels")
CLUSTERS = _tests("engine/test_engine.py", "-k", "four")
INDEX = _tests("engine/test_engine.py", "-k", "number_without")
PLAIN = _tests("access/test_pages.py")
COLUMNS = (
    *_tests("access/test_columns.py::test_conversions"),
    *_tests("access/test_columns.py::test_every_alignment_lane_and_length[rows as wide as the link]"),
)
EPOCHS = _tests("access/test_epochs.py", "-k", "four")
FAULTS = _tests("access/test_faults.py", "-k", "each_fault or in_turn or endless or (without and as)")
EDGE = _tests("access/test_faults.py", "-k", "may_end")
MACHINE = _tests("harness/test_machine.py")
RING, CONVERGED, QUIET, REFUSED, SILENT = (
    _tests("board/test_board.py", "-k", name)
    for name in ("pages_that_come", "ends_where", "nothing_moves", "no_effect", "does_not_answer")
)
QUEUE = _tests("formal/test_queue.py")
WITHIN = _tests("formal/test_strider.py")
STORE = _tests("formal/test_buffers.py", "-k", "back and unpacker")
DRIVER = "board/test_driver.py"
STREAMS, IDLE, OTHERS, GONE, ANOTHER, NEVER_ALL, OLDEST, FILES, PLACES = (
    _tests(DRIVER, "-k", name)
    for name in (
        "streams", "left_idle", "of_another_is", "gone", "for_another", "announced", "oldest", "are_none", "map_says"
    )
)  # fmt: skip
NAMED = _tests(DRIVER, "-k", "is_named")
MOVES, LATE = (_tests("harness/test_machine.py", "-k", name) for name in ("moves", "as_late"))
CLEARED = _tests("text/test_load.py")
WATCHED = _tests("access/test_epochs.py", "-k", "comes_again and as")
SHORT_ROUNDS = _tests("engine/test_engine.py", "-k", "random_programs and short")
FIRST_WRONG = _tests("engine/test_engine.py", "-k", "of_several")
HALVES = _tests("formal/test_rounds.py")
ROUNDS = _tests("formal/test_sections.py")
RECORDS, IN_TURN, NO_RECORD, BEHIND = (
    _tests("harness/test_records.py", "-k", name) for name in ("stalls", "waits", "names_no_record", "is_behind")
)
PORT = _tests("formal/test_port.py", "-k", "where_the_loop or met")
LEGAL = _tests("text/test_legal.py")
LOADED, WORDS = (_tests("formal/test_buffers.py", "-k", name) for name in ("wanted", "back and Strider"))

HARDWARE = (
    Mutation("arith/add.py", "up = normal[3] & (normal[4] | normal[:3].any())", "up = normal[3]", "ties go up", ADD),
    Mutation("arith/add.py", "(exponent < count)", "(exponent + 1 < count)", "one binade of tiny sums stays", ADD),
    Mutation("arith/mul.py", "after(rest | upper[:5].any() |", "after(upper[:5].any() |", "no sticky bit", MUL),
    Mutation("arith/divide.py", "after(remainder.any() | (", "after((", "remainder does not round", DIVIDE),
    Mutation("arith/select.py", "sign.eq(a[31] | b[31])", "sign.eq(a[31])", "min(+0, -0) is +0", SELECT),
    Mutation("arith/reduce.py", "exponent >= 132", "exponent >= 131", "sigmoid is 1 from 16 on", SIGMOID),
    Mutation("arith/table.py", "(flipped + added)", "Cat(c0, Const(0, 1))", "1 - y forgets the table", SIGMOID),
    Mutation("arith/normalize.py", "up = rest[-1] & (fraction[0] | ", "up = rest[-1] & (", "ties go down", LOG),
    Mutation("arith/function.py", "(scale == -126) & ~above", "scale == -126", "least exponentials are 0", FUNCTION),
    Mutation("engine/lane.py", "(~self.conditional | holds)", "1", "a conditional move always writes", ENGINE),
    Mutation("engine/lane.py", "delayed(m, arriving, 1", "delayed(m, self.b, 1", "no exchange", ENGINE),
    Mutation("engine/lane.py", "Mux(self.swap, other, own)", "own", "no lane swaps its operands", ENGINE),
    Mutation("engine/cluster.py", "delayed(m, swap, 4", "delayed(m, swap, 3", "LOW by another row's lanes", ENGINE),
    Mutation("engine/cluster.py", "arriving.swap_all | (", "(", "threads do not swap", CLUSTERS),
    Mutation(
        "engine/cluster.py", "(arriving.swap_clusters & self.number)", "Const(0)", "clusters do not swap", CLUSTERS
    ),
    Mutation(
        "engine/thread.py",
        "(held.swap_threads & self.number)",
        "held.swap_threads",
        "every thread swaps",
        CLUSTERS,
    ),
    Mutation(
        "engine/sequencer.py",
        "(instruction.op == Opcode.LOW) | (instruction.op == Opcode.HIGH)",
        "instruction.op == Opcode.LOW",
        "HIGH does not choose",
        ENGINE,
    ),
    Mutation(
        "arith/select.py",
        "Mux(operation == Operation.SECOND, b_nan, nan)",
        "nan",
        "HIGH of a NaN is not canonical",
        SELECT,
    ),
    Mutation("engine/cluster.py", "tail[:LANE_BITS] <= k", "tail[:LANE_BITS] < k", "a tail is a lane late", ENGINE),
    Mutation("engine/thread.py", "number >= before", "number > before", "PAIR's b has a's tuple", ENGINE),
    Mutation("engine/thread.py", "both & (number > last", "both & (number >= last", "SINGLE sends one less", ENGINE),
    Mutation("engine/engine.py", "Mux(self.rows.half, sequencer.half_base, 0)", "0", "tuples lie in one half", ENGINE),
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
    Mutation("engine/sections.py", "r_en.eq(self._pop)", "r_en.eq(self.section_end)", "rounds begin twice", ROUNDS),
    Mutation("engine/index.py", "no_number | (number >= self.bound)", "no_number", "no bound of a row number", INDEX),
    Mutation("engine/special.py", "self.side == Side.DIVIDE", "0", "quotients are lost", ENGINE),
    Mutation("access/loader.py", "with m.If(request & ~self.release):", "with m.If(request):", "buffers leak", LOADED),
    Mutation("access/queue.py", "self.room.eq(level != depth)", "self.room.eq(1)", "a queue without an end", QUEUE),
    Mutation("access/buffers.py", "after.eq(number + 1)", "after.eq(number)", "bytes across two words", WORDS),
    Mutation("access/buffers.py", "Mux(behind == odd,", "Mux(behind,", "odd rows in the even bank", STORE),
    Mutation("access/buffers.py", "rotate_right(8 << k)", "rotate_left(8 << k)", "rows turn the wrong way", PLAIN),
    Mutation(
        "access/strider.py", "layouts.exceeds(a[:2] + control.extra, 3)", "0", "readB beyond the page's end", WITHIN
    ),
    Mutation("access/strider.py", "executed.eq(executed + 1)", "executed.eq(executed)", "loops without an end", FAULTS),
    Mutation("access/registers.py", "writer.en.eq(self.clear | ", "writer.en.eq(", "registers keep a page's", EPOCHS),
    Mutation("access/translate.py", "_constant(c), b[3:].any()", "_constant(c), b[4:].any()", "cln of 8 bits", FAULTS),
    Mutation("access/intake.py", "entry.address > known.limit", "entry.address >= known.limit", "last byte", EDGE),
    Mutation("access/intake.py", "Mux(turn[-1], 0, current + 1)", "current + 1", "Striders out of turn", EPOCHS),
    Mutation("access/intake.py", "known.follows & ~in_turn", "0", "parts of tuples out of turn", FAULTS),
    Mutation("access/unpacker.py", "self._epoch_end & opened", "0", "an epoch ends in a tuple", FAULTS),
    Mutation("access/descriptors.py", "known.beats.eq(beats)", "known.beats.eq(rows)", "beats of elements", COLUMNS),
    Mutation("access/unpacker.py", "some.eq(0),", "some.eq(some),", "an empty epoch after a full one", FAULTS),
    Mutation("access/places.py", "left.eq(Mux(batch_done, ", "left.eq(Mux(full, ", "batches end with rounds", EPOCHS),
    Mutation("access/places.py", "starts & ~self.half_release", "starts", "a half that is freed is lost", HALVES),
    Mutation("access/places.py", "~self.full & count.any()", "~self.full", "a round of no tuple is cut", HALVES),
    Mutation("access/watch.py", "self.valid & earlier & ", "self.valid & ", "rows of rounds before", WATCHED),
    Mutation("access/watch.py", "earlier.eq(own | ", "earlier.eq(1 | ", "rows that are not written", WATCHED),
    Mutation("access/unpacker.py", "~free) | unknown", "~free)", "a tuple that does not wait", WATCHED),
    Mutation("access/unpacker.py", "half.eq(~late.half)", "half.eq(late.half)", "rows ahead that stay", WATCHED),
    Mutation("access/unpacker.py", "cut & ~opened & ", "cut & ", "a round begins with a part of a tuple", WATCHED),
    Mutation("access/places.py", "count - self.late", "count", "a tuple of two rounds", HALVES),
    Mutation(
        "access/records.py", "(link.decided | pending) & ~busy", "link.decided | pending", "an early fetch", IN_TURN
    ),
    Mutation("access/records.py", "oldest.opens & ~first", "oldest.opens", "records a place too far", RECORDS),
    Mutation("access/records.py", "slot == last_slot", "0", "records of the first thread alone", RECORDS),
    Mutation("access/records.py", "[delayed(m, here.thread", "[0 & delayed(m, here.thread", "one outbox", RECORDS),
    Mutation("access/unpacker.py", "fetched.eq(~handing)", "fetched.eq(1)", "records that are not there yet", RECORDS),
    Mutation("access/records.py", "bad | (number >= bound)", "bad", "records behind the last", NO_RECORD),
    Mutation("access/unpacker.py", "Cat(wrong, waiting)", "wrong.replicate(14)", "faults before a number's", BEHIND),
    Mutation("engine/sections.py", "rounds.count <= tuples", "rounds.count < tuples", "rounds too long", SHORT_ROUNDS),
    Mutation("engine/engine.py", "(number < first)", "(number > first)", "the last wrong number", FIRST_WRONG),
    Mutation("access/convert.py", "(magnitude + plus)[:64]", "magnitude[:64]", "integers < 0", COLUMNS),
    Mutation(
        "host.py",
        "busy.eq(self.start), done.eq(0), code.eq(0)",
        "busy.eq(self.start), done.eq(0)",
        "old fault",
        MACHINE,
    ),
    Mutation(
        "machine.py",
        "host.engine_busy.eq(engine.busy)",
        "host.engine_busy.eq(engine.merging)",
        "wrong counter",
        MACHINE,
    ),
    Mutation("board/pages.py", "slot == last_slot", "slot == self.slots", "a slot too many", RING),
    Mutation(
        "board/pages.py",
        "comes = self.bus.rvalid & under_way.any()",
        "comes = self.bus.rvalid",
        "beats without a request are a page's",
        _tests("formal/test_pages.py"),
    ),
    Mutation("board/training.py", "last | self.converged", "last", "convergence does not end it", CONVERGED),
    Mutation("board/training.py", "self.idle | (stopping & timed_out)", "self.idle", "a stop waits for ever", SILENT),
    Mutation("board/front.py", "no_slots | self.owed", "no_slots", "late beats go to the next training", SILENT),
    Mutation(
        "driver/board.py", "if status & BoardStatus.UNANSWERED:", "if False:", "silence is not named", NAMED, BESIDE
    ),
    Mutation("board/front.py", "always | (if_busy & self.busy)", "always", "writes disturb", QUIET),
    Mutation("board/lite.py", "whole.eq(bus.wstrb == axi.ALL_BYTES)", "whole.eq(1)", "parts of words", REFUSED),
    Mutation(
        "board/lite.py",
        "free & write_at & write_word & ~bus.bvalid",
        "free & write_at & write_word",
        "a write is carried out again until its answer is taken",
        _tests("formal/test_lite.py", "-k", "once"),
    ),
    Mutation("board/front.py", "& ~self.taken & ~asked", "& ~asked", "accesses are lost", PORT),
    Mutation(
        "board/board.py",
        "Mux(taken, loop.port.addr, front.port.addr)",
        "Mux(loop.port.read, loop.port.addr, front.port.addr)",
        "the loop writes where the bus reads",
        PORT,
    ),
    Mutation("driver/board.py", "read + slots)", "ready + slots)", "pages are written over", STREAMS, BESIDE),
    Mutation(
        "driver/board.py", "page % count * size", "page % slots * size", "the ring turns as slots do", STREAMS, BESIDE
    ),
    Mutation(
        "driver/board.py",
        "                self.stop()\n",
        "                pass\n",
        "an error leaves it running",
        IDLE,
        BESIDE,
    ),
    Mutation(
        "driver/board.py",
        "elif not status & BoardStatus.TRAINED:",
        "elif False:",
        "a stop looks like an end",
        OTHERS,
        BESIDE,
    ),
    Mutation(
        "driver/board.py", "if status & ~KNOWN_STATUS:", "if False:", "a board that is gone is busy", GONE, BESIDE
    ),
    Mutation(
        "driver/board.py", "if wanted != found and", "if False and", "a Bundle for another machine", ANOTHER, BESIDE
    ),
    Mutation(
        "driver/board.py",
        "return pages - (",
        "return pages - 0 * (",
        "all pages are announced too soon",
        NEVER_ALL,
        BESIDE,
    ),
    Mutation(
        "driver/board.py",
        "np.roll(losses, -epochs",
        "np.roll(losses, epochs",
        "losses begin in the middle",
        OLDEST,
        BESIDE,
    ),
    Mutation("driver/watch.py", "if state != self._state:", "if not self._state:", "all is a hang", MOVES, BESIDE),
    Mutation(
        "spec/load.py",
        "last += max(0, bundle.levels - 1)",
        "last += 0 * max(0, bundle.levels - 1)",
        "an old merge stack stays",
        CLEARED,
        BESIDE,
    ),
    Mutation("spec/cycles.py", "READER_LATENCY = 3", "READER_LATENCY = 2", "pages a cycle late", LATE, BESIDE),
    Mutation("driver/mapped.py", "fcntl.LOCK_EX |", "fcntl.LOCK_SH |", "two drivers at once", FILES, BESIDE),
    Mutation(
        "driver/mapped.py", "data, self.base + offset)", "data, offset)", "pages begin at the bus's 0", PLACES, BESIDE
    ),
    Mutation("spec/load.py", "    legal.check(bundle)\n", "", "nothing is rejected", LEGAL, BESIDE),
    Mutation(
        "spec/legal.py",
        "i.distance < _partners",
        "i.distance <= _partners",
        "partners beyond the last one",
        LEGAL,
        BESIDE,
    ),
    Mutation("spec/legal.py", "now = issue + instruction.rows", "now = issue + 0", "indices too early", LEGAL, BESIDE),
    Mutation(
        "export/dsp48e2.v",
        ".D({{2{D[24]}}, D})",
        ".D({2'b00, D})",
        "negative summands before the product of a DSP positive",
        ("tests/hwgen/export/test_netlist.py",),
        BESIDE,
    ),
)
