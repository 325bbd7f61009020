"""CP-SAT's model of a section has the hazards of the machine: no more, no less than the compiler's schedule shows."""

from __future__ import annotations

import pytest

from benchmarks.speed.scheduling import begins_of, distances_of, issued, results_of, sections_of
from hwgen.spec.cycles import MIN_INSTRUCTION


def test_results_are_runs_of_adjacent_cycles() -> None:
    assert list(results_of(0b1_0110_0000)) == [(5, 2), (8, 1)]
    assert list(results_of(0b111)) == [(0, 3)]


@pytest.mark.parametrize("rule", ["kmeans", "lrmf"])
def test_an_operation_begins_as_early_as_the_model_lets_it(rule: str) -> None:
    """In the compiler's schedule each begins when the model lets it, and a cycle earlier breaks the model."""
    sections = sections_of(rule)
    assert len(sections) == 2
    for section in sections:
        begins = begins_of(section)
        assert len(begins) == len(section.ops)
        apart = distances_of(section.ops)
        taken: set[int] = set()
        end = 0
        for k in sorted(begins, key=begins.__getitem__):
            op, begin = section.ops[k], begins[k]
            bounds = [begins[before] + cycles for (before, after), cycles in apart.items() if after == k]
            earliest = max([end + max(0, MIN_INSTRUCTION - op.busy), *bounds])
            results = [at + more for at, size in results_of(op.writes) for more in range(size)]
            while taken.intersection(earliest + at for at in results):
                earliest += 1
            assert begin == earliest
            taken.update(begin + at for at in results)
            end = begin + op.busy
        assert issued([(op, begins[k]) for k, op in enumerate(section.ops)]) == section.found.length


def test_an_operation_that_begins_too_early_is_found() -> None:
    section = sections_of("kmeans")[1]
    begins = [(op, begins_of(section)[k]) for k, op in enumerate(section.ops)]
    last = max(range(len(begins)), key=lambda k: begins[k][1])
    begins[last] = begins[last][0], begins[last][1] - 1
    with pytest.raises(RuntimeError, match=r"begins in cycle \d+ of the model, and on the machine in \d+$"):
        issued(begins)
