"""Pages that are handed over a few at a time: code reads their rows in place, where it can."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.workload import array_table, compiled_rule, filled_pages, with_code
from dana.server.places import PAPER
from dana.simulator import Simulator
from tests.guarded import guarded


def trained(machine: Simulator, heap: NDArray[np.uint8], at_once: int) -> tuple[bytes, int]:
    """The model after an epoch, and how many columns were packed in it."""
    machine.begin_epoch()
    for first in range(0, len(heap), at_once):
        pages = guarded(heap[first : first + at_once].tobytes())
        assert machine.consume(pages)
        pages[:] = 0x7F
    machine.end_epoch()
    return machine.read_rows(0, machine.config.scratch_depth).tobytes(), machine.packed_columns


def test_full_blocks_of_wide_rows_are_not_packed() -> None:
    """A row fills a page: 64 pages are four blocks of 16 tuples, and the last tuple waits for the end of its batch."""
    request, design = compiled_rule("logistic", array_table(2000), pages=320, folder=PAPER)
    heap = filled_pages(array_table(2000), 2000, pages=320)
    models = []
    for at_once in (64, 320):
        machine = with_code(request, design)
        trained(machine, heap, at_once)  # the first epoch compares code with the program
        models.append(trained(machine, heap, at_once))
        assert machine.proved
        machine.close()
    (model, packed), (expected, once) = models
    assert model == expected
    assert (packed, once) == (5, 1)
