"""Rows chosen by data on the whole machine: cycles, bits and faults are the simulator's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwgen.spec import cycles
from hwgen.spec.bundle import Bundle
from hwgen.spec.counters import UNKNOWN_PAGE
from hwgen.spec.strider import Fault
from tests.assembly.engine import assemble
from tests.hwgen.engine.programs import random_bundle, random_tuples
from tests.hwgen.harness.test_rtl_machine import CONFIG, everything, pair
from tests.simulator.bundles import fed, row_pages


def test_random_programs_with_indices() -> None:
    rng = np.random.default_rng(4)
    for _ in range(12):
        bundle = random_bundle(rng, CONFIG, batch=int(rng.choice([1, 3, 20])), size=20)
        tuples = random_tuples(rng, bundle, int(rng.integers(1, 60)))
        # new ones: programs may read what no tuple of theirs wrote
        rtl, simulator = pair()
        for machine in (rtl, simulator):
            machine.load(fed(bundle))
        for _ in range(2):
            pages = row_pages(tuples, CONFIG)
            assert rtl.run_epoch(pages) == simulator.run_epoch(pages)
            np.testing.assert_array_equal(everything(rtl), everything(simulator))


def setting(section: str) -> Bundle:
    """A SETX of each tuple's number in `tuple`, or of row 0 in another section, as late as may be before its end."""
    end = f"end wait={cycles.INDEX_LATENCY - 2}\n"
    text = f"tuple:\n setx x9 <- t0, s500 wait=1\n {end}"
    if section != "tuple":
        text = f"tuple:\n end wait=1\n{section}:\n setx x9 <- s0, s500 wait=1\n {end}"
    program, sections = assemble(text)
    random = random_bundle(np.random.default_rng(1), CONFIG, batch=1)
    image = np.full((1, CONFIG.lanes), 9.0, dtype=np.float32).view(np.uint32)
    return fed(replace(random, program=program, sections=sections, group=1, tuple_rows=1, levels=0, image=image))


@pytest.mark.parametrize("section", ["init", "tuple", "batch", "epoch"])
def test_the_fault_of_a_number_without_a_row(section: str) -> None:
    """The last section of an epoch has it in its last cycles, and the epoch still ends with the fault."""
    bundle = setting(section)
    numbers = np.zeros((40, 1, CONFIG.lanes), dtype=np.float32)
    for wrong in (0, 17, 39):
        tuples = numbers.copy()
        tuples[wrong] = 9.0
        for machine in pair():
            machine.load(bundle)
            found = machine.run_epoch(row_pages(tuples, CONFIG))
            assert (found.fault, found.fault_page, found.fault_pointer) == (Fault.INDEX, UNKNOWN_PAGE, 500)
            machine.load(bundle)
            machine.write_rows(0, np.zeros((1, CONFIG.lanes), dtype=np.uint32))
            assert machine.run_epoch(row_pages(numbers, CONFIG)).fault is Fault.NONE


def test_the_fault_of_init_without_pages() -> None:
    for machine in pair():
        machine.load(setting("init"))
        assert machine.run_epoch(b"").fault is Fault.INDEX
