"""What the RTL did beside what the oracle expects."""

from __future__ import annotations

from hwgen.spec import cycles
from tests.hwgen.access.bench import Bench
from tests.hwgen.access.case import Case, Outcome
from tests.hwgen.access.oracle import expect


def check_meaning(expected: Outcome, found: Outcome) -> None:
    """All but the cycles. Under a fault what was done before it is done, or not: the epoch is of no use."""
    assert found.fault == expected.fault
    if expected.fault:
        assert len(found.rounds) <= len(expected.rounds)
        assert found.empty is None
        return
    assert [(w.thread, w.half, w.row, w.lanes) for w in found.writes] == [
        (w.thread, w.half, w.row, w.lanes) for w in expected.writes
    ]
    assert [(r.count, r.batch_last, r.epoch_last) for r in found.rounds] == [
        (r.count, r.batch_last, r.epoch_last) for r in expected.rounds
    ]
    assert (found.empty is None) == (expected.empty is None)
    assert found.skipped == expected.skipped
    assert len(found.requests) == len(expected.requests)


def check_cycles(expected: Outcome, found: Outcome) -> None:
    """Under the modelled link."""
    if expected.fault:
        assert found.rounds == expected.rounds[: len(found.rounds)]
        common = min(len(found.requests), len(expected.requests))
        assert found.requests[:common] == expected.requests[:common]
        return
    assert found.requests == expected.requests
    assert found.rounds == expected.rounds
    assert found.empty == expected.empty
    # so that a round decided in the cycle after its last beat is not handed over before its last write
    for write, beat in zip(found.writes, expected.writes, strict=True):
        assert 0 < write.cycle - beat.cycle <= cycles.UNPACK_LATENCY + 1


def check(case: Case, bench: Bench) -> Outcome:
    expected, found = expect(case), bench.run(case)
    check_meaning(expected, found)
    check_cycles(expected, found)
    return expected
