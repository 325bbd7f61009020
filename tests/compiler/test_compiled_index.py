"""Operations on rows that a tuple's number chooses: scheduled and encoded, they are what docs/machine.md allows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dana.compiler.check.verify import find_problems
from dana.compiler.schedule.allocate import MemoryMap
from dana.compiler.schedule.encode import encode
from dana.compiler.schedule.list_scheduling import Schedule, schedule
from dana.compiler.select.ops import Access, Buffer, Home, Index, VectorOp
from dana.simulator import Simulator
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Mask, Opcode, Section
from hwgen.spec.engine_text import disassemble
from hwgen.spec.strider import Fault
from tests.oracles.machine import Machine
from tests.simulator.bundles import bits, fed, row_pages

GROUP, USERS, ITEMS, ROWS = 4, 5, 3, 2
CONFIG = MachineConfig(index_depth=4, scratch_depth=128, tuple_depth=64, program_depth=32)

FILE = Buffer(name="index", rows=GROUP, home=Home.INDEX)
TUPLES = Buffer(name="tuples", rows=2 * GROUP, home=Home.TUPLE)
U = Buffer(name="u", rows=USERS * ROWS, home=Home.IMAGE)
V = Buffer(name="v", rows=ITEMS * ROWS, home=Home.IMAGE)
USER = Index(buffer=FILE, bound=USERS, stride=ROWS, tag=1)
ITEM = Index(buffer=FILE, bound=ITEMS, stride=ROWS, tag=2)
MINE, OTHER, CHANGED = (Buffer(name=name, rows=ROWS * GROUP, home=Home.TEMP) for name in ("mine", "other", "changed"))
MEMORY = MemoryMap(
    address={U: 0, V: 10, MINE: 16, OTHER: 24, CHANGED: 32},
    image=16,
    state=0,
    block=0,
    stack=0,
    temporaries=24,
    narrow=0,
)


def setx(index: Index, column: int) -> VectorOp:
    return VectorOp(
        op=Opcode.SETX,
        dst=Access(buffer=FILE, outer=1, index=index),
        a=Access(buffer=TUPLES, base=column, outer=2),
        outer=GROUP,
        mask=Mask.SINGLE,
    )


def each(op: Opcode, dst: Access, *sources: Access, mask: Mask = Mask.NONE) -> VectorOp:
    b = sources[1] if len(sources) > 1 else None
    return VectorOp(op=op, dst=dst, a=sources[0], b=b, inner=ROWS, outer=GROUP, mask=mask)


def rows(buffer: Buffer) -> Access:
    return Access(buffer=buffer, inner=1, outer=ROWS)


def chosen(model: Buffer, index: Index) -> Access:
    return Access(buffer=model, inner=1, index=index)


FACTORS = [
    setx(USER, 0),
    each(Opcode.MOV, rows(MINE), chosen(U, USER)),
    setx(ITEM, 1),
    each(Opcode.ADD, rows(CHANGED), chosen(V, ITEM), rows(MINE)),
    each(Opcode.MUL, rows(OTHER), chosen(V, ITEM), rows(MINE)),
    each(Opcode.MOV, chosen(V, ITEM), rows(CHANGED), mask=Mask.SINGLE),
    setx(USER, 0),
    each(Opcode.MOV, chosen(U, USER), rows(OTHER), mask=Mask.SINGLE),
]
"""Both models' rows are read, both get new ones, and one read of an entry's row is after another one's SETX."""


def program(found: Schedule) -> Bundle:
    made = encode({Section.TUPLE: found}, MEMORY)
    image = np.random.default_rng(1).normal(size=(16, CONFIG.lanes)).astype(np.float32)
    return Bundle(
        config=CONFIG,
        program=made.instructions,
        sections=made.sections,
        strider=(),
        constants=(),
        columns=(),
        batch=GROUP,
        group=GROUP,
        tuple_rows=2,
        level_stride=0,
        levels=0,
        image=image.view(np.uint32),
        symbols=(),
    )


def test_an_order_that_keeps_every_dependence() -> None:
    for reorder in (True, False):
        bundle = program(schedule(FACTORS, reorder=reorder))
        problems = find_problems(
            bundle.program, bundle.sections, CONFIG, group=GROUP, tuple_rows=2, level_stride=0, levels=0, image_rows=16
        )
        assert list(problems) == [], disassemble(bundle.program, bundle.sections)
        tagged = [(i.b, i.dst, i.dst_outer) for i in bundle.program if i.op is Opcode.SETX]
        assert tagged == [(1, USERS, ROWS), (2, ITEMS, ROWS), (1, USERS, ROWS)]


def test_what_it_computes() -> None:
    rng = np.random.default_rng(2)
    bundle = program(schedule(FACTORS))
    tuples = np.zeros((9, 2, CONFIG.lanes), dtype=np.float32)
    tuples[:, 0] = rng.integers(0, USERS, (9, 1))
    tuples[:, 1] = rng.integers(0, ITEMS, (9, 1))
    image = bundle.image.view(np.float32)
    u, v = image[:10].reshape(USERS, ROWS, -1).copy(), image[10:].reshape(ITEMS, ROWS, -1).copy()
    for first in range(0, 9, GROUP):
        batch = tuples[first : first + GROUP, :, 0].astype(int)
        values = [(u[i] * v[j], v[j] + u[i]) for i, j in batch]
        for (i, j), (new_u, new_v) in zip(batch, values, strict=True):
            u[i], v[j] = new_u, new_v
    simulator = Simulator(CONFIG)
    simulator.load(fed(bundle))
    assert simulator.run_epoch(row_pages(tuples, CONFIG)).fault is Fault.NONE
    np.testing.assert_array_equal(
        simulator.read_rows(0, 16), bits(np.concatenate([u.reshape(10, -1), v.reshape(6, -1)]))
    )
    oracle = Machine(bundle)
    oracle.halves[:] = 0.0
    oracle.epoch(tuples)
    np.testing.assert_array_equal(simulator.read_rows(0, 64), bits(oracle.scratch[0, :64]))


def test_waits_of_indices_are_tight() -> None:
    """A cycle less before any instruction that waits is a breach."""
    bundle = program(schedule(FACTORS))
    waiting = [k for k, instruction in enumerate(bundle.program) if instruction.wait]
    assert len(waiting) == 4
    for k in waiting:
        words = list(bundle.program)
        words[k] = replace(words[k], wait=words[k].wait - 1)
        assert list(
            find_problems(
                words, bundle.sections, CONFIG, group=GROUP, tuple_rows=2, level_stride=0, levels=0, image_rows=16
            )
        )


def problems_of(op: VectorOp) -> list[str]:
    bundle = program(schedule([setx(USER, 0), op], reorder=False))
    return list(
        find_problems(
            bundle.program, bundle.sections, CONFIG, group=GROUP, tuple_rows=2, level_stride=0, levels=0, image_rows=16
        )
    )


def test_a_row_is_added_to_where_it_lies() -> None:
    """Of one tuple; of several the next one may read the row before it is there."""
    added = VectorOp(
        op=Opcode.ADD, dst=chosen(U, USER), a=chosen(U, USER), b=Access(buffer=TUPLES, base=1), inner=ROWS, outer=1
    )
    assert problems_of(added) == []
    (found,) = problems_of(replace(added, outer=GROUP))
    assert "may read a row that it writes (a)" in found
    # its own second row is written before it is read
    (found,) = problems_of(replace(added, a=Access(buffer=U, base=1, inner=1, index=USER)))
    assert "may read a row that it writes (a)" in found
