"""What is wrong stops the machine once, with the first fault in heap order; the next epoch knows nothing of it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hwgen.spec.columns import Column, ColumnType
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import Fault, Instruction
from tests.assembly.strider import assemble
from tests.hwgen.access import generate
from tests.hwgen.access.bench import Bench
from tests.hwgen.access.case import Case, Stop
from tests.hwgen.access.compare import check
from tests.hwgen.access.oracle import expect
from tests.scale import scaled

WHOLE = Column(count=4, row=0, type=ColumnType.FLOAT4, first=1, last=1)
OPEN = Column(count=1, row=0, type=ColumnType.INT2, first=1)
CLOSE = Column(count=1, row=1, type=ColumnType.INT2, last=1)
TABLE = (WHOLE, OPEN, CLOSE, Column(count=0, row=0, type=ColumnType.FLOAT4, first=1, last=1))
LANE = Column(count=1, row=0, lane=8, type=ColumnType.FLOAT4, first=1, last=1)


def case_of(config: MachineConfig, text: str | tuple[Instruction, ...], *, pages: int = 3, **more: object) -> Case:
    rnd = random.Random(6)
    values: dict[str, object] = {
        "config": config,
        "program": assemble(text) if isinstance(text, str) else text,
        "constants": (4, 100, config.page_size, config.page_size - 3, 0xFFFFFFFF, 0x10000),
        "columns": TABLE,
        "pages": tuple(generate.page(rnd, config.page_size) for _ in range(pages)),
        "tuple_rows": 2,
    }
    return Case(**(values | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("ad %t1, %cr3, %t1\nreadB %t1, 3, %t2\nreadB %t1, 4, %t2\nctl end", Fault.OUT_OF_PAGE),
        ("readB %cr2, 1, %t2\nctl end", Fault.OUT_OF_PAGE),
        ("readB %cr4, 1, %t2\nctl end", Fault.OUT_OF_PAGE),
        ("readB %cr5, 1, %t2\nctl end", Fault.OUT_OF_PAGE),
        ("writeB %cr2, 0\nctl end", Fault.OUT_OF_PAGE),
        ("writeB %cr3, 0\nctl end", Fault.OUT_OF_PAGE),
        ("writeB %cr5, 0\nctl end", Fault.OUT_OF_PAGE),
        ("writeB %cr1, 3\nctl end", Fault.BAD_INSTRUCTION),
        ("writeB %cr1, 15\nctl end", Fault.BAD_INSTRUCTION),
        ("writeB %cr1, 4095\nctl end", Fault.BAD_INSTRUCTION),
        ("writeB %cr1, 1\nwriteB %cr1, 1\nctl end", Fault.TUPLE_PARTS),
        ("writeB %cr1, 2\nctl end", Fault.TUPLE_PARTS),
        ("writeB %cr1, 0\nbentr", Fault.BAD_INSTRUCTION),
        ("jmp 255", Fault.BAD_INSTRUCTION),
        ("ctl fail, TOASTED", Fault.TOASTED),
        ("ins %t0, 77\nctl fail, COMPRESSED", Fault.COMPRESSED),
        ("ad %cr4, %cr3, %t0\nwriteB %cr3, 0", Fault.OUT_OF_PAGE),
        (".word 0x000140\nctl end", Fault.BAD_INSTRUCTION),
        (".word 0x180020\nctl end", Fault.BAD_INSTRUCTION),
        (".word 0x100201\nctl end", Fault.BAD_INSTRUCTION),
    ],
)
def test_each_fault(plain: Bench, text: str, fault: Fault) -> None:
    expected = check(case_of(plain.config, text), plain)
    assert expected.fault is not None
    assert (expected.fault.code, expected.fault.page) == (fault, 0)


PARTS = """
            readB %t1, 1, %t2
            ins %t3, 1
            ins %t4, 2
            beq %t2, %t3, second
            beq %t2, %t4, third
            writeB %cr1, 0
            ctl end
        second:
            writeB %cr1, 1
            ctl end
        third:
            writeB %cr1, 2
            ctl end
"""
"""Hands over the descriptor that a page begins with the number of."""


@pytest.mark.parametrize(
    ("numbers", "page"),
    [
        ((0, 1, 2, 0, 1, 2), None),
        ((0, 2), 1),
        ((0, 1, 1, 2), 2),
        ((0, 1, 0, 1, 2), 2),
        ((1, 2), 0),
        ((0, 1, 2, 2), 3),
        ((0, 1, 2, 1), 3),
        ((0, 1), 1),
        ((0, 1, 2, 0), 3),
    ],
)
def test_parts_of_a_tuple_in_turn(plain: Bench, numbers: tuple[int, ...], page: int | None) -> None:
    """Of three parts one is missing, double or out of place, or the epoch ends before the last; then all is well."""
    columns = (replace(OPEN, row=1), replace(CLOSE, last=0, follows=1, row=0), replace(CLOSE, follows=1))
    size = plain.config.page_size

    def case(numbers: tuple[int, ...]) -> Case:
        pages = tuple(bytes([number]) + bytes(size - 1) for number in numbers)
        return replace(case_of(plain.config, PARTS, columns=columns, pages=0), pages=pages)

    expected = check(case(numbers), plain)
    assert expected.fault == (None if page is None else Stop(Fault.TUPLE_PARTS, page, 0))
    assert [done.count for done in check(case((0, 1, 2)), plain).rounds] == [1]


@pytest.mark.parametrize("kind", ColumnType)
def test_a_column_may_end_with_the_page(plain: Bench, kind: ColumnType) -> None:
    """At the last address where all of its bytes are in the page it is read; a byte further on it is refused."""
    column = Column(count=3, row=0, type=kind, first=1, last=1)
    last = plain.config.page_size - 3 * kind.bytes
    for address, fault in ((last, None), (last + 1, Stop(Fault.OUT_OF_PAGE, 0, 0))):
        case = case_of(plain.config, "writeB %cr0, 0\nctl end", columns=(column,), constants=(address,))
        assert check(case, plain).fault == fault


def test_lane_beyond_the_last(plain: Bench) -> None:
    expected = check(case_of(plain.config, "writeB %cr1, 0\nctl end", columns=(LANE,)), plain)
    assert expected.fault == Stop(Fault.BAD_INSTRUCTION, 0, 0)


def test_the_first_fault_in_heap_order_is_reported(bench: Bench) -> None:
    """The first page fails late, the second at once: the first one's fault is the epoch's."""
    text = """
            readB %cr0, 1, %t1
            extrB %t1, 0, 1
            beq %t1, %t2, slow
            ctl fail, ARRAY_NULLS
        slow:
            ins %t3, 500
            bentr
            ad %t0, %cr0, %t0
            bexit ge, %t0, %t3
            ctl fail, ARRAY_SHAPE
    """
    slow, fast = bytes(bench.config.page_size), b"\1" * bench.config.page_size
    case = case_of(bench.config, text, pages=0)
    for pages, stop in (
        ((slow, fast, fast), Stop(Fault.ARRAY_SHAPE, 0, 500)),
        ((fast, slow, fast), Stop(Fault.ARRAY_NULLS, 0, 0)),
    ):
        mixed = Case(config=case.config, program=case.program, constants=case.constants, pages=pages)
        assert check(mixed, bench).fault == stop


def test_an_endless_loop_is_stopped(plain: Bench) -> None:
    text = "ins %t0, 9\nbentr\nctl skip\n" + "ad %t1, %t2, %t3\n" * 4000 + "writeB %cr1, 0\njmp 2"
    expected = check(case_of(plain.config, text, pages=1), plain)
    assert expected.fault == Stop(Fault.RUNAWAY, 0, 9)


def test_epochs_after_a_fault_or_a_stop_are_as_if_it_had_not_been(bench: Bench) -> None:
    rnd = random.Random(7)
    bad = case_of(bench.config, "writeB %cr1, 1\nbentr\nwriteB %cr3, 2\nctl end", pages=6)
    for _ in range(scaled(5)):
        good = generate.walking(rnd, bench.config, pages=rnd.randint(1, 6))
        while expect(good).fault:
            good = generate.walking(rnd, bench.config, pages=rnd.randint(1, 6))
        check(bad, bench)
        check(good, bench)
        bench.run(good, stop_at=rnd.randint(1, 800), grace=0)
        check(good, bench)


def test_pages_without_tuples(bench: Bench) -> None:
    """Also behind an epoch that had some."""
    full = case_of(bench.config, "writeB %cr1, 0\nctl end")
    for pages in range(4):
        assert check(full, bench).rounds
        expected = check(case_of(bench.config, "ctl skip\nctl end", pages=pages), bench)
        assert expected.empty is not None
        assert expected.skipped == pages


def test_a_fault_fits_the_status_register() -> None:
    assert max(Fault) < 256
