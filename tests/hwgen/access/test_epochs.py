"""Random epochs under Verilator against the oracle: what is written, handed over and requested, and when."""

from __future__ import annotations

import random

import pytest

from hwgen.spec.strider import Fault
from tests.hwgen.access import generate
from tests.hwgen.access.bench import Bench
from tests.hwgen.access.compare import check, check_meaning
from tests.hwgen.access.oracle import expect
from tests.oracles import strider
from tests.scale import multiplied


def test_tuples_from_anywhere(bench: Bench) -> None:
    rnd = random.Random(1)
    tuples = faults = 0
    for _ in range(multiplied(25)):
        case = generate.walking(rnd, bench.config, pages=rnd.randint(1, 9))
        expected = check(case, bench)
        faults += expected.fault is not None
        tuples += sum(r.count for r in expected.rounds)
    assert tuples > 500
    assert faults <= multiplied(5)


def test_batches_end_where_a_row_comes_again(bench: Bench) -> None:
    """On a machine that compares rows; another one has no such columns."""
    rnd = random.Random(6)
    ended = long = 0
    for _ in range(multiplied(25)):
        case = generate.walking(rnd, bench.config, pages=rnd.randint(1, 9), watched=rnd.choice([1, 2, 3]), noise=2)
        expected = check(case, bench)
        check_meaning(expect(case), bench.run(case, stall=0.5, seed=7))
        if not bench.config.watch_depth:
            assert not expected.rounds
            continue
        full = min(case.batch, bench.config.threads << case.group_log2)
        ended += sum(r.batch_last and not r.epoch_last and r.count < full for r in expected.rounds)
        long += sum(r.count == full > 1 for r in expected.rounds)
    assert not bench.config.watch_depth or min(ended, long) > 50


def test_random_stalls_change_cycles_and_nothing_else(bench: Bench) -> None:
    rnd = random.Random(2)
    for k in range(multiplied(8)):
        case = generate.walking(rnd, bench.config, pages=rnd.randint(1, 6))
        check_meaning(expect(case), bench.run(case, stall=rnd.choice([0.1, 0.5, 0.9]), seed=k + 1))


def test_tuples_over_several_pages(bench: Bench) -> None:
    rnd = random.Random(4)
    tuples = 0
    for _ in range(multiplied(4)):
        case = generate.parted(rnd, bench.config, rows=rnd.randint(0, 9))
        tuples += sum(r.count for r in check(case, bench).rounds)
        check_meaning(expect(case), bench.run(case, stall=0.5, seed=5))
    assert tuples > 4


def test_parts_that_make_no_tuple(bench: Bench) -> None:
    """Whichever is missing, double or elsewhere; and the epoch behind it knows nothing of it."""
    rnd = random.Random(5)
    faults = 0
    for _ in range(multiplied(6)):
        case = generate.parted(rnd, bench.config, rows=3, damaged=True)
        found = check(case, bench)
        assert found.fault is None or found.fault.code is Fault.TUPLE_PARTS
        faults += found.fault is not None
        check(generate.parted(rnd, bench.config, rows=1), bench)
    assert faults > 3


def test_any_program_ends(bench: Bench) -> None:
    rnd = random.Random(3)
    kinds = set()
    for _ in range(multiplied(80)):
        case = generate.wild(rnd, bench.config, pages=rnd.randint(1, 3), loops=False)
        expected = check(case, bench)
        kinds.add(expected.fault.code if expected.fault else None)
    assert {None, Fault.BAD_INSTRUCTION, Fault.OUT_OF_PAGE} <= kinds


def test_programs_with_loops(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that end: `test_an_endless_loop_is_stopped` waits for the watchdog, once."""
    rnd = random.Random(4)
    ended = 0
    while ended < multiplied(10):
        case = generate.wild(rnd, bench.config, pages=1, loops=True)
        model = strider.StriderModel(bench.config, case.program, case.constants)
        with monkeypatch.context() as patch:
            patch.setattr(strider, "STRIDER_BOUND", 1)
            endless = any(push.fault is Fault.RUNAWAY for push in model.run(case.pages[0]))
        if not endless:
            check(case, bench)
            ended += 1
