"""A scratchpad of more words than another region has: its last rows on the whole machine, and in a package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dana.cli.entry import OK, main
from dana.simulator import Simulator
from hwgen.devices import load_device
from hwgen.export.package import Check, package, write
from hwgen.harness import RtlMachine
from hwgen.spec.bundle import Bundle, Symbol
from hwgen.spec.config import Ultra
from hwgen.spec.engine import Opcode
from hwgen.spec.registers import REGION_SHIFT
from tests.hwgen.engine.programs import random_bundle, random_tuples
from tests.hwgen.harness.test_rtl_machine import CONFIG
from tests.simulator.bundles import fed, row_pages

LARGE = replace(CONFIG, scratch_depth=(1 << 17) + 272, ultra=int(Ultra.SCRATCH))
"""Rows, no power of two of them, of more words than a region but the scratchpad's has."""
assert LARGE.scratch_depth * LARGE.lanes > 1 << REGION_SHIFT
ROWS = CONFIG.scratch_depth
FIRST = LARGE.scratch_depth - ROWS


def at_the_end(bundle: Bundle) -> Bundle:
    """The Bundle of a small machine in the last rows of the large one, whose host has to write them."""
    program = []
    for instruction in bundle.program:
        moved = {
            name: getattr(instruction, name) + FIRST
            for name in ("dst", "a", "b")
            if not getattr(instruction, f"{name}_tuple", 0)
        }
        if instruction.op is Opcode.SETX:  # whose other two fields are no addresses
            del moved["dst"], moved["b"]
        program.append(instruction if instruction.op is Opcode.END else replace(instruction, **moved))
    image = np.zeros((0, LARGE.lanes), dtype=np.uint32)
    return replace(bundle, config=LARGE, program=tuple(program), image=image)


def test_models_and_cycles() -> None:
    """Random programs there, indices included; their models and cycles are those of the small machine, too."""
    rng = np.random.default_rng(5)
    for batch in (1, 20):
        small = fed(random_bundle(rng, CONFIG, batch=batch, size=20))
        tuples = random_tuples(rng, small, 40)
        large = at_the_end(small)
        machines = (RtlMachine(LARGE), Simulator(LARGE), Simulator(CONFIG))
        for machine, bundle in zip(machines, (large, large, small), strict=True):
            machine.load(bundle)
        for machine in machines[:2]:
            machine.write_rows(FIRST, small.image)
        pages = row_pages(tuples, CONFIG)
        rtl, simulated, known = (machine.run_epoch(pages) for machine in machines)
        assert rtl == simulated == known
        rows = [machine.read_rows(first, ROWS) for machine, first in zip(machines, (FIRST, FIRST, 0), strict=True)]
        np.testing.assert_array_equal(rows[0], rows[1])
        np.testing.assert_array_equal(rows[0], rows[2])
        assert rows[0].any()
        # no row is another one
        np.testing.assert_array_equal(machines[0].read_rows(0, ROWS), np.zeros_like(rows[0]))


def test_an_exported_package_finds_its_model_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the board of the other test: what must come is at addresses that the testbench has from the same file."""
    rng = np.random.default_rng(6)
    bundle = at_the_end(fed(random_bundle(rng, CONFIG, batch=1, size=20)))
    bundle = replace(bundle, symbols=(Symbol(kind="model", name="w", shape=(ROWS, LARGE.lanes), row=FIRST),))
    pages = row_pages(random_tuples(rng, bundle, 40), LARGE)
    simulator = Simulator(LARGE)
    simulator.load(bundle)
    counters = simulator.run_epoch(pages)
    found = simulator.read_rows(0, LARGE.scratch_depth)
    assert found[FIRST:].any()
    check = Check(pages=pages, epochs=1, scratchpad=found, losses=[0], converged=False, counters=counters)
    write(tmp_path, package(bundle, load_device("lfe5um5g-85"), check, name="large", title="t", notes="n", texts={}))
    assert main(["board", str(tmp_path)]) == OK, capsys.readouterr().err
