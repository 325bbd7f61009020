"""The Python face of the simulator: what it refuses, how epochs are fed, what outlives them."""

from __future__ import annotations

import ctypes
import dataclasses
import gc

import numpy as np
import pytest

from dana.errors import InternalError, SetupError, UsageError
from dana.simulator import KERNELS, Simulator, headers, native
from hwgen.spec import cycles, numerics
from hwgen.spec.bundle import Bundle, BundleError
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Instruction, Opcode, Section, Source
from hwgen.spec.strider import Fault
from tests.oracles.machine import garbage
from tests.simulator.bundles import fed, row_pages

CONFIG = MachineConfig(threads=2, clusters=1, scratch_depth=32, tuple_depth=32, program_depth=32)
END = Instruction(op=Opcode.END, wait=cycles.RESULT_LATENCY)
ADD = Instruction(op=Opcode.ADD, wait=1, dst=0, a=0, b_tuple=1)
SIGMOID_LATENCY = cycles.SPECIAL_LATENCY[Opcode.SIGMOID]
APART = SIGMOID_LATENCY - cycles.RESULT_LATENCY - 1
"""Wait after a SIGMOID of an operation whose result comes in the same cycle."""
SINK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def bundle(*tuple_section: Instruction, **changes: object) -> Bundle:
    """Adds each tuple's first row to row 0; one tuple to a thread."""
    fields: dict[str, object] = {
        "config": CONFIG,
        "program": (*(tuple_section or (ADD,)), END),
        "sections": {Section.TUPLE: 0},
        "strider": (),
        "constants": (),
        "columns": (),
        "batch": 2,
        "group": 1,
        "tuple_rows": 2,
        "level_stride": 1,
        "levels": 2,
        "image": np.full((1, 8), 0x3F800000, dtype=np.uint32),
        "symbols": (),
    }
    return fed(Bundle(**(fields | changes)))  # type: ignore[arg-type]


def tuples(count: int) -> np.ndarray:
    return np.arange(count * 16, dtype=np.float32).reshape(count, 2, 8)


def loaded() -> Simulator:
    simulator = Simulator(CONFIG)
    simulator.load(bundle())
    return simulator


def test_a_core_of_other_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "digest", lambda: 1)
    with pytest.raises(SetupError, match="built from other sources: run make"):
        native.library.__wrapped__()


def test_image_is_loaded_and_the_rest_is_zero() -> None:
    simulator = loaded()
    simulator.run_epoch(row_pages(tuples(9), CONFIG))
    simulator.load(bundle())
    rows = simulator.read_rows(0, 32)
    assert (rows[0] == 0x3F800000).all()
    assert not rows[1:].any()


def test_rows_are_written_to_every_thread() -> None:
    """Thread 1's row, exchanged into thread 0, is what the host wrote."""
    swap = Instruction(op=Opcode.MAX, wait=1, dst=1, a=0, b=0, source=Source.THREAD_XOR)
    simulator = Simulator(CONFIG)
    simulator.load(bundle(swap))
    simulator.write_rows(0, np.arange(8, dtype=np.uint32).reshape(1, 8) + 0x40000000)
    simulator.run_epoch(row_pages(tuples(2), CONFIG))
    np.testing.assert_array_equal(simulator.read_rows(1, 1)[0], np.arange(8) + 0x40000000)


def test_every_nan_is_read_as_the_canonical_one() -> None:
    simulator = loaded()
    simulator.write_rows(
        3, np.array([[0xFFC00001, 0x7F800001, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 1, 2, 3]], np.uint32)
    )
    expected = [0x7FC00000] * 3 + [0x7F800000, 0xFF800000, 1, 2, 3]
    assert simulator.read_rows(3, 1)[0].tolist() == expected


@pytest.mark.parametrize(("row", "count"), [(-1, 1), (31, 2), (32, 1), (0, -1)])
def test_rows_outside_the_scratchpad_are_refused(row: int, count: int) -> None:
    simulator = loaded()
    with pytest.raises(IndexError, match="32 rows of a loaded machine"):
        simulator.read_rows(row, count)
    if count > 0:
        with pytest.raises(IndexError, match="32 rows of a loaded machine"):
            simulator.write_rows(row, np.zeros((count, 8), dtype=np.uint32))


def test_rows_of_another_shape_are_refused() -> None:
    with pytest.raises(IndexError, match=r"rows must have shape \(rows, 8\), not \(1, 9\)"):
        loaded().write_rows(0, np.zeros((1, 9), dtype=np.uint32))


def test_pages_may_come_in_any_pieces() -> None:
    pages = row_pages(tuples(300), CONFIG)
    whole = loaded()
    expected = whole.run_epoch(pages)
    assert expected.tuples == 300
    for step in (1, 2, 3):
        simulator = loaded()
        simulator.begin_epoch(len(pages) // 8192)
        for start in range(0, len(pages), step * 8192):
            assert simulator.consume(memoryview(pages)[start : start + step * 8192])
        assert simulator.end_epoch() == expected
        np.testing.assert_array_equal(simulator.read_rows(0, 4), whole.read_rows(0, 4))


def test_the_sink_takes_pages_in_place() -> None:
    pages = np.frombuffer(row_pages(tuples(40), CONFIG), dtype=np.uint8)
    expected = loaded().run_epoch(pages)
    simulator = loaded()
    function, context = simulator.sink
    simulator.begin_epoch()
    for page in pages.reshape(-1, 8192):
        assert SINK(function)(context, page.ctypes.data, 1) == 0
    assert simulator.end_epoch() == expected


def test_a_fault_stops_the_sink_and_the_next_epoch_is_sound() -> None:
    pages = bytearray(row_pages(tuples(600), CONFIG))
    good = bytes(pages)
    pages[8192 : 8192 + 4] = b"\xff\xff\xff\xff"
    simulator = loaded()
    simulator.begin_epoch()
    assert not simulator.consume(pages)
    assert not simulator.consume(good)
    found = simulator.end_epoch()
    assert (found.fault, found.fault_page) == (Fault.OUT_OF_PAGE, 1)
    simulator.load(bundle())
    assert simulator.run_epoch(good) == loaded().run_epoch(good)


def test_an_epoch_without_pages_runs_init_alone() -> None:
    simulator = Simulator(CONFIG)
    simulator.load(
        bundle(program=(ADD, END, replaced(ADD, b_tuple=0), END), sections={Section.TUPLE: 0, Section.EPOCH: 2})
    )
    assert simulator.run_epoch(b"").cycles == 1
    simulator.load(
        bundle(program=(ADD, END, replaced(ADD, b_tuple=0), END), sections={Section.TUPLE: 0, Section.INIT: 2})
    )
    counters = simulator.run_epoch(b"")
    length = 2 + 1 + END.wait
    assert counters.cycles == 1 + cycles.SECTION_START + length
    assert counters.engine_busy == cycles.SECTION_START + length
    assert simulator.read_rows(0, 1)[0, 0] == np.float32(2).view(np.uint32)


def replaced(instruction: Instruction, **changes: int) -> Instruction:
    return dataclasses.replace(instruction, **changes)


def test_an_epoch_begins_with_its_first_page() -> None:
    """What the host reads after `begin_epoch` is still the last epoch's."""
    program = (ADD, END, Instruction(op=Opcode.MOV, wait=1, dst=0, a=5), END)
    simulator = Simulator(CONFIG)
    simulator.load(bundle(program=program, sections={Section.TUPLE: 0, Section.INIT: 2}))
    simulator.run_epoch(row_pages(tuples(2), CONFIG))
    before = simulator.read_rows(0, 1)
    simulator.begin_epoch()
    np.testing.assert_array_equal(simulator.read_rows(0, 1), before)
    assert before.any()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (bundle(replaced(ADD, dst=32)), r"instruction 0 \(ADD in section tuple\) writes row 32 of a scratchpad of 32"),
        (bundle(replaced(ADD, dst=30, inner=3)), r"writes row 32 of a scratchpad of 32"),
        (bundle(replaced(ADD, a=20, outer=3, a_outer=8)), r"reads operand a from row 36 of 32"),
        (bundle(replaced(ADD, b=2)), r"reads operand b from row 2 of 2"),
        (bundle(replaced(ADD, wait=0)), r"takes 1 cycles, an instruction takes at least 2"),
        (bundle(program=(ADD, replaced(END, wait=3))), r"ends \d+ cycles before its last result can be read"),
        (
            bundle(replaced(ADD, op=Opcode.SIGMOID, scalar=1), replaced(ADD, wait=APART)),
            r"instruction 1 \(ADD in section tuple\) writes a result in cycle \d+ of the section, as another",
        ),
    ],
)  # fmt: skip
def test_bundles_that_the_machine_does_not_run_are_refused(broken: Bundle, message: str) -> None:
    simulator = loaded()
    with pytest.raises(BundleError, match=message):
        simulator.load(broken)
    with pytest.raises(InternalError, match="before a Bundle was loaded"):
        simulator.run_epoch(b"")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (bundle(group=3), r"must be a power of two, not 3"),
        (bundle(program=(ADD,)), r"section tuple has no END"),
        (bundle(replaced(ADD, tail=9, tail_a=1)), r"instruction 0 \(ADD in section tuple\) .*: `tail` is at most"),
    ],
)
def test_the_rules_of_all_machines_are_the_simulators_too(broken: Bundle, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        Simulator(CONFIG).load(broken)


def test_a_bundle_for_another_machine_is_refused() -> None:
    with pytest.raises(BundleError, match="for another machine"):
        Simulator(MachineConfig()).load(bundle())


def test_an_image_of_another_width_is_refused() -> None:
    with pytest.raises(BundleError, match=r"shape \(rows, 8\), not \(1, 16\)"):
        loaded().load(bundle(image=np.zeros((1, 16), np.uint32)))


def test_part_of_a_page_is_refused() -> None:
    with pytest.raises(ValueError, match="a multiple of 8192 bytes, not 100"):
        loaded().consume(bytes(100))


def test_unknown_kernels_are_refused() -> None:
    with pytest.raises(UsageError, match="not 'abacus'"):
        Simulator(CONFIG, kernels="abacus")
    Simulator(CONFIG, kernels=KERNELS[-1]).close()


def test_a_closed_simulator_is_refused() -> None:
    simulator = loaded()
    simulator.close()
    simulator.close()
    with pytest.raises(InternalError, match="closed"):
        simulator.read_rows(0, 1)


def test_arithmetic_flushes_and_the_process_does_not() -> None:
    """Subnormals are zeros within an epoch; afterwards the processor is in the mode that it was in."""
    tiny = np.full((2, 2, 8), 1e-39, dtype=np.float32)
    simulator = loaded()
    simulator.write_rows(0, np.zeros((1, 8), dtype=np.uint32))
    simulator.run_epoch(row_pages(tiny, CONFIG))
    assert not simulator.read_rows(0, 1).any()
    assert np.float32(1e-39) * np.float32(1.0) != 0


def test_simulators_do_not_share_state() -> None:
    first, second = loaded(), loaded()
    pages = row_pages(numerics.flush(garbage((50, 2, 8), 1)), CONFIG)
    first.begin_epoch()
    second.begin_epoch()
    for start in range(0, len(pages), 8192):
        first.consume(pages[start : start + 8192])
        second.consume(pages[start : start + 8192])
    assert first.end_epoch() == second.end_epoch()
    del first
    gc.collect()
    assert second.run_epoch(pages).tuples == 50
