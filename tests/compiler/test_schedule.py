"""Schedules: the order keeps every dependence, waits are filled where they can be, no room is shared by mistake."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dana.compiler.allocate import LINE, allocate
from dana.compiler.engine import draft_for, prepare
from dana.compiler.layout import tuple_layout
from dana.compiler.ops import Access, Buffer, Home, VectorOp
from dana.compiler.schedule import schedule
from hwgen.spec import cycles
from hwgen.spec.engine import Opcode, Section
from tests.compiler.rules import RandomRule

WAIT = cycles.RESULT_LATENCY


def buffer(name: str, rows: int = 1) -> Buffer:
    return Buffer(name=name, rows=rows, home=Home.TEMP)


def op(target: Buffer, *sources: Buffer, code: Opcode = Opcode.ADD, rows: int = 1) -> VectorOp:
    step = int(rows > 1)
    operands = [Access(buffer=b, inner=step) for b in sources]
    return VectorOp(
        op=code,
        dst=Access(buffer=target, inner=step),
        a=operands[0],
        b=operands[1] if len(operands) > 1 else None,
        inner=rows,
        scalar=code.special,
    )


X, A, B, C, D = (buffer(name, 8) for name in "xabcd")


def text(ops: list[VectorOp], *, reorder: bool = True) -> str:
    found = schedule(ops, reorder=reorder)
    return " ".join(f"{o.dst.buffer.name}+{wait}" for o, wait in found.issue) + f" end+{found.end_wait}"


def test_a_chain_waits_for_each_result() -> None:
    # the least turn is two cycles, and a row's result can be read ten cycles after its issue
    assert text([op(A, X, X), op(B, A, A), op(C, B, B)]) == f"a+1 b+{WAIT - 1} c+{WAIT - 1} end+{WAIT - 2}"


def test_rows_of_one_operation_cover_the_latency_of_the_next() -> None:
    assert text([op(A, X, rows=8), op(B, A, rows=8)]) == f"a+0 b+{WAIT - 8} end+{WAIT - 2}"


def test_independent_operations_fill_a_wait() -> None:
    assert text([op(A, X, X), op(B, A, A), op(C, X, rows=8)]) == f"a+1 c+0 b+{WAIT - 9} end+{WAIT - 2}"
    in_order = text([op(A, X, X), op(B, A, A), op(C, X, rows=8)], reorder=False)
    assert in_order == f"a+1 b+{WAIT - 1} c+0 end+{WAIT - 2}"


def test_the_longest_chain_goes_first() -> None:
    assert text([op(D, X, X), op(A, X, X), op(B, A, A)]).startswith("a+1 d+1 b+")


def test_a_reader_comes_before_the_next_writer() -> None:
    found = text([op(A, X, X), op(B, A, A), op(A, X, X), op(C, A, A)])
    assert [part.split("+")[0] for part in found.split()] == ["a", "b", "a", "c", "end"]


def test_results_of_two_units_never_meet() -> None:
    latency = cycles.SPECIAL_LATENCY[Opcode.SIGMOID]
    # the sigmoid's result comes out in cycle `latency`; an addition issued WAIT cycles before would meet it
    ops = [op(A, X, code=Opcode.SIGMOID)] + [op(buffer(f"t{k}"), X, X) for k in range(latency)]
    found = schedule(ops)
    now, written = 0, []
    for o, wait in found.issue:
        written += list(now + wait + o.write_cycles())
        now += wait + o.rows * o.interval
    assert len(set(written)) == len(written)
    assert now + found.end_wait >= max(written)


def random_draft(seed: int, *, reorder: bool):  # type: ignore[no-untyped-def]
    rng = random.Random(seed)
    graph = RandomRule(seed, merges=rng.random() < 0.8, matrices=seed % 2 == 0).graph(batch=16, size=25)
    layout = tuple_layout(graph, 8)
    plan, _ = prepare(graph)
    return draft_for(
        plan,
        layout,
        threads=2,
        group=1 if plan.single else 8,
        levels=0,
        divide_interval=3,
        crossed=True,
        reorder=reorder,
    )


@pytest.mark.parametrize("seed", range(40))
def test_every_dependence_is_kept(seed: int) -> None:
    """Each row reads what the same rows wrote as in the order of selection, and overwrites what the same rows read."""
    draft = random_draft(seed, reorder=True)
    for section, ops in draft.selection.ops.items():
        issued = [o for o, _ in draft.schedules[section].issue]
        assert histories(issued) == histories(ops)


def histories(ops: list[VectorOp]) -> dict[tuple[object, ...], tuple[object, ...]]:
    """For each row of each operation: who wrote the rows that it reads and writes, and who has read what it writes."""
    writer: dict[object, object] = {}
    readers: dict[object, frozenset[object]] = {}
    seen: dict[tuple[object, ...], tuple[object, ...]] = {}
    for o in ops:
        places = [[(access.buffer, row) for row in o.touched(access)] for access in (o.dst, *o.reads())]
        for target, *operands in zip(*places, strict=True):
            # a row that is computed twice is first of all the first one
            key = (o.op, o.source, o.distance, target, *operands, writer.get(target))
            assert key not in seen
            seen[key] = (*(writer.get(place) for place in operands), readers.get(target))
            for place in operands:
                readers[place] = readers.get(place, frozenset()) | {key}
            writer[target], readers[target] = key, frozenset()
    return seen


@pytest.mark.parametrize("seed", range(40))
def test_live_buffers_never_overlap(seed: int) -> None:
    """Follow every row: whoever reads it finds what its own buffer's last writer left."""
    draft = random_draft(seed, reorder=seed % 2 == 0)
    memory = allocate(draft.selection, draft.schedules)
    owner: dict[int, tuple[Buffer, int]] = {}
    ops = [o for section in LINE if section in draft.schedules for o, _ in draft.schedules[section].issue]
    checked = 0
    for o in ops:
        order = np.arange(o.rows)
        for access in o.reads():
            if access.buffer.home is Home.TEMP:
                for row in o.touched(access)[order]:
                    assert owner[memory.address[access.buffer] + row] == (access.buffer, row)
                    checked += 1
        for row in o.touched(o.dst):
            owner[memory.address[o.dst.buffer] + row] = (o.dst.buffer, row)
    assert checked or not any(o.dst.buffer.home is Home.TEMP for o in ops)
    assert max((memory.address[o.dst.buffer] + o.dst.buffer.rows for o in ops), default=0) <= memory.rows


def test_rows_of_the_epoch_and_of_the_image_are_nobody_elses() -> None:
    for seed in range(20):
        draft = random_draft(seed, reorder=True)
        memory = draft.memory
        fixed = [*draft.selection.literals.values(), *draft.selection.ranges.values(), *draft.selection.metas.values()]
        fixed += [*draft.selection.models.values(), *draft.selection.state]
        taken: set[int] = set()
        for b in fixed:
            rows = set(range(memory.address[b], memory.address[b] + b.rows))
            assert not rows & taken
            taken |= rows
        assert taken == set(range(memory.image + memory.state))
        temporaries = [b for b in memory.address if b.home is Home.TEMP]
        assert all(memory.address[b] >= len(taken) for b in temporaries)
        assert Section.TUPLE in draft.schedules
