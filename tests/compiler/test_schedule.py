"""Schedules: the order keeps every dependence, waits are filled where they can be, no room is shared by mistake."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest

import dana.compiler.schedule.list_scheduling as scheduling
from dana.compiler.fit import draft_for
from dana.compiler.passes import Draft, place, plan_of
from dana.compiler.schedule.allocate import LINE, allocate
from dana.compiler.schedule.list_scheduling import schedule
from dana.compiler.select.ops import Access, Buffer, Home, Index, VectorOp
from dana.compiler.target import Target
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
        written += [now + wait + cycle for cycle in range(o.writes.bit_length()) if o.writes >> cycle & 1]
        now += wait + o.rows * o.interval
    assert len(set(written)) == len(written)
    assert now + found.end_wait >= max(written)


def random_draft(seed: int, *, reorder: bool, rows: bool = False) -> Draft:
    rng = random.Random(seed)
    # rows that tuples choose are updated by one thread in one round
    threads, batch, group = (1, 2, 2) if rows else (2, 16, 8)
    graph = RandomRule(seed, merges=rng.random() < 0.8, matrices=seed % 2 == 0, rows=rows).graph(batch=batch, size=25)
    plan = plan_of(graph)
    group = 1 if plan.single else group
    target = Target(threads=threads, lanes=8, group=group, divide_interval=3, crossed=True)
    return draft_for(place(plan, target), reorder=reorder)


@pytest.mark.parametrize("rows", [False, True], ids=["", "rows"])
@pytest.mark.parametrize("seed", range(40))
def test_every_dependence_is_kept(seed: int, rows: bool) -> None:
    """Each row reads what the same rows wrote as in the order of selection, and overwrites what the same rows read."""
    draft = random_draft(seed, reorder=True, rows=rows)
    for section, ops in draft.selection.ops.items():
        issued = [o for o, _ in draft.schedules[section].issue]
        assert histories(issued) == histories(ops)


@pytest.mark.parametrize("rows", [False, True], ids=["", "rows"])
def test_the_second_order_keeps_every_dependence(rows: bool) -> None:
    """It cuts operations where gaps end."""
    cut, indexed = 0, 0
    for seed in range(40):
        for ops in random_draft(seed, reorder=False, rows=rows).selection.ops.values():
            issued = [o for o, _ in scheduling._in_gaps(ops).issue]
            assert histories(issued) == histories(ops)
            cut += len(issued) > len(ops)
            indexed += any(o.a.indexed or o.dst.indexed for o in ops)
    assert cut > 0
    assert bool(indexed) == rows


def test_what_is_cut_is_whole_for_those_who_read_rows_by_number() -> None:
    model, number, row = buffer("model", 40), buffer("number"), buffer("row")
    file = Buffer(name="index", rows=1, home=Home.INDEX)
    index = Index(buffer=file, bound=40, stride=1)
    chain = [op(number, X, X), *(op(number, number, number) for _ in range(8))]
    setter = VectorOp(op=Opcode.SETX, dst=Access(buffer=file, outer=1, index=index), a=Access(buffer=number))
    gather = VectorOp(op=Opcode.MOV, dst=Access(buffer=row), a=Access(buffer=model, index=index))
    ops = [op(model, buffer("y", 40), rows=40), *chain, setter, gather]
    issued = [o for o, _ in scheduling._in_gaps(ops).issue]
    parts = [o for o in issued if o.dst.buffer is model]
    assert len(parts) > 1
    assert sorted(row for part in parts for row in touched(part, part.dst)) == list(range(40))
    assert histories(issued) == histories(ops)


def touched(o: VectorOp, access: Access) -> Integers:
    """Rows of an operand's buffer in the order in which they are used; with an index, shape [numbers, rows]."""
    outer = np.arange(o.outer)[:, None] * access.outer
    rows = np.asarray(access.base + (outer + np.arange(o.inner)[None, :] * access.inner).ravel())
    if access.index is None or not access.indexed:
        return rows
    return np.asarray(rows + np.arange(access.index.bound)[:, None] * access.index.stride)


Integers = npt.NDArray[np.int64]
Place = tuple[Buffer, int]


def histories(ops: list[VectorOp]) -> dict[tuple[object, ...], tuple[object, ...]]:
    """For each row of each operation: who wrote the rows that it reads and writes, and who has read what it writes.

    A row that a tuple chooses stands for all those that it may choose.
    """
    writer: dict[Place, object] = {}
    readers: dict[Place, frozenset[object]] = {}
    seen: dict[tuple[object, ...], tuple[object, ...]] = {}
    for o in ops:
        places = [_places(o, access) for access in (o.dst, *o.reads())]
        for targets, *operands in zip(*places, strict=True):
            # a row that is computed twice is first of all the first one
            key = (o.op, o.source, o.distance, targets, *operands, writer.get(targets[0]))
            assert key not in seen
            read = [place for operand in operands for place in operand]
            seen[key] = (
                *(writer.get(place) for place in read),
                *((writer.get(target), readers.get(target)) for target in targets),
            )
            for one in read:
                readers[one] = readers.get(one, frozenset()) | {key}
            for target in targets:
                writer[target], readers[target] = key, frozenset()
    return seen


def _places(o: VectorOp, access: Access) -> list[tuple[Place, ...]]:
    """Rows that each row of an operation touches."""
    return [tuple((access.buffer, row) for row in rows) for rows in np.atleast_2d(touched(o, access)).T.tolist()]


@pytest.mark.parametrize("seed", range(40))
def test_live_buffers_never_overlap(seed: int) -> None:
    """Follow every row: whoever reads it finds what its own buffer's last writer left."""
    draft = random_draft(seed, reorder=seed % 2 == 0)
    memory = allocate(draft.plan, draft.selection, draft.schedules, above=0)
    owner: dict[int, tuple[Buffer, int]] = {}
    ops = [o for section in LINE if section in draft.schedules for o, _ in draft.schedules[section].issue]
    checked = 0
    for o in ops:
        order = np.arange(o.rows)
        for access in o.reads():
            if access.buffer.home is Home.TEMP:
                for row in touched(o, access)[order]:
                    assert owner[memory.address[access.buffer] + row] == (access.buffer, row)
                    checked += 1
        for row in touched(o, o.dst):
            owner[memory.address[o.dst.buffer] + row] = (o.dst.buffer, row)
    assert checked or not any(o.dst.buffer.home is Home.TEMP for o in ops)
    assert max((memory.address[o.dst.buffer] + o.dst.buffer.rows for o in ops), default=0) <= memory.rows


def test_rows_of_the_epoch_and_of_the_image_are_nobody_elses() -> None:
    for seed in range(20):
        draft = random_draft(seed, reorder=True)
        memory = draft.memory
        fixed = [*draft.selection.literals.values(), *draft.selection.ranges.values(), *draft.selection.metas.values()]
        fixed += [*(model.buffer for model in draft.selection.models.values()), *draft.selection.state]
        taken: set[int] = set()
        for b in fixed:
            rows = set(range(memory.address[b], memory.address[b] + b.rows))
            assert not rows & taken
            taken |= rows
        assert taken == set(range(memory.image + memory.state))
        temporaries = [b for b in memory.address if b.home is Home.TEMP]
        assert all(memory.address[b] >= len(taken) for b in temporaries)
        assert Section.TUPLE in draft.schedules
