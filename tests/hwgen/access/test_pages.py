"""Real pages: programs that the compiler makes for a schema, on the RTL, against the reference reader."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from dana.compiler.place.rows import InputPlace, InputPlaces
from dana.compiler.strider.pages import StriderProgram
from dana.compiler.strider.program import compile_strider
from dana.storage.parts import PartReader
from dana.storage.reader import PageFault, read_page
from dana.storage.schema import TableSchema, Use
from hwgen.spec.config import MachineConfig
from tests.hwgen.access.bench import Bench
from tests.hwgen.access.case import Case, Outcome, Stop
from tests.hwgen.access.compare import check_cycles, check_meaning
from tests.hwgen.access.oracle import expect
from tests.scale import scaled
from tests.storage.parts import misplaced, part_pages, part_row, part_schema
from tests.storage.schemas import attribute, damage, random_page, random_schema, random_uses


def tuples_of(outcome: Outcome, case: Case) -> list[list[dict[int, int]]]:
    """The tuples that were in tuple memory as the rounds were handed over: for each, its rows, lane to bits."""
    memory: dict[tuple[int, int, int], dict[int, int]] = {}
    writes = iter(outcome.writes)
    pending = next(writes, None)
    found = []
    for number, done in enumerate(outcome.rounds):
        while pending is not None and pending.cycle <= done.cycle:
            memory.setdefault((pending.thread, pending.half, pending.row), {}).update(pending.lanes)
            pending = next(writes, None)
        for j in range(done.count):
            thread, slot = j >> case.group_log2, j & (1 << case.group_log2) - 1
            rows = range(slot * case.tuple_rows, (slot + 1) * case.tuple_rows)
            found.append([dict(memory.get((thread, number % 2, row), {})) for row in rows])
    return found


def expected_rows(values: list[np.ndarray], uses: list[Use], layout: InputPlaces) -> list[dict[int, int]]:
    rows: list[dict[int, int]] = [{} for _ in range(layout.rows)]
    for use, value in zip(uses, values, strict=True):
        place = layout.place(use.input)
        bits = value.view(np.uint32).tolist()
        if not place.shape:
            rows[place.row] = dict.fromkeys(range(layout.lanes), bits[0])
        else:
            for e, word in enumerate(bits, use.element):
                rows[place.row + e // layout.lanes][e % layout.lanes] = word
    return rows


def case_of(config: MachineConfig, program: StriderProgram, layout: InputPlaces, pages: list[bytes]) -> Case:
    return Case(
        config=config,
        program=program.instructions,
        constants=program.constants,
        columns=program.columns,
        pages=tuple(pages),
        tuple_rows=layout.rows,
    )


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_tuples_are_what_the_reference_reader_reads(plain: Bench, seed: int) -> None:
    rng = random.Random(seed)
    config = plain.config
    length = rng.randint(1, 20)
    schema = random_schema(rng, rng.choice([2, 5, 12, 40]))
    schema = TableSchema(relation="t", attributes=(*schema.attributes, attribute("last", "real")))
    uses, layout = random_uses(rng, schema, config.lanes, length)
    program = compile_strider(schema, uses, layout, config)
    pages = [random_page(rng, schema, length) for _ in range(6)]
    if seed % 3 == 2:
        pages = [damage(rng, page) if rng.random() < 0.5 else page for page in pages]
    case = replace(
        case_of(config, program, layout, pages),
        batch=rng.choice([1, 7, 0xFFFFFFFF]),
        group_log2=rng.randrange(3),
        delays=((rng.randint(1, 60), 3),),
    )
    expected, found = expect(case), plain.run(case)
    check_meaning(expected, found)
    check_cycles(expected, found)

    read: list[list[dict[int, int]]] = []
    skipped = 0
    for number, page in enumerate(pages):
        if found.fault is not None and found.fault.page == number:
            with pytest.raises(PageFault) as caught:
                read_page(page, schema, uses)
            assert found.fault == Stop(caught.value.fault, number, caught.value.pointer)
            return
        rows = read_page(page, schema, uses)
        read += [expected_rows(values, uses, layout) for values in rows.rows]
        skipped += rows.skipped
    assert found.skipped == skipped
    assert_tuples(found, case, read)


def assert_tuples(found: Outcome, case: Case, read: list[list[dict[int, int]]]) -> None:
    """Tuple memory held these; lanes behind a vector's end hold what they held before."""
    got = tuples_of(found, case)
    assert len(got) == len(read)
    for stored, wanted in zip(got, read, strict=True):
        for row, lanes in zip(stored, wanted, strict=True):
            assert {lane: row[lane] for lane in lanes} == lanes


def read_parts(schema: TableSchema, uses: list[Use], pages: list[bytes]) -> tuple[list[list[np.ndarray]], int] | Stop:
    """Rows and how many are skipped, or what the reference reader stops at."""
    reader = PartReader(schema, uses)
    rows, skipped = [], 0
    for number, page in enumerate(pages):
        try:
            found = reader.read(page)
            if number == len(pages) - 1:
                reader.finish()
        except PageFault as caught:
            return Stop(caught.fault, number, caught.pointer)
        rows += found.rows
        skipped += found.skipped
    return rows, skipped


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_rows_over_several_pages_are_what_the_reference_reader_reads(plain: Bench, seed: int) -> None:
    """Sound pages, with parts missing, double or elsewhere, and damaged ones: the same rows, the same fault."""
    rng = random.Random(seed)
    config = plain.config
    schema = part_schema(rng, longest=4000, page_size=config.page_size)
    uses, places, row = [], [], 0
    for k, a in enumerate(schema.attributes):
        uses.append(Use(attribute=k, input=a.name, element=0, count=a.array_length or 1))
        places.append(InputPlace(name=a.name, shape=(a.array_length,) if a.array_length else (), row=row))
        row += places[-1].rows(config.lanes)
    layout = InputPlaces(lanes=config.lanes, places=tuple(places))
    program = compile_strider(schema, uses, layout, config)
    pages = part_pages(rng, schema, [part_row(rng, schema) for _ in range(4)], page_size=config.page_size)
    if seed % 3:
        pages = misplaced(rng, schema, pages)
    if seed % 3 == 2:
        pages = [damage(rng, page) if rng.random() < 0.2 else page for page in pages]
    case = replace(case_of(config, program, layout, pages), batch=rng.choice([1, 2, 0xFFFFFFFF]))
    expected, found = expect(case), plain.run(case)
    check_meaning(expected, found)
    check_cycles(expected, found)
    read = read_parts(schema, uses, pages)
    if isinstance(read, Stop):
        assert found.fault == read
        return
    assert found.fault is None
    assert found.skipped == read[1]
    assert_tuples(found, case, [expected_rows(values, uses, layout) for values in read[0]])
