"""Random machines, rules, tables and bus stalls: interpreter, simulator and RTL agree bit for bit.

Each machine is generated and compiled; on each train random rules over tables in every state, some of them damaged,
with the link of the cycle contract and with one that stalls at random. `DANA_MACHINES` says how many (20), `DANA_SEED`
which (0). A minute for each, or less.
"""

from __future__ import annotations

import os
import random
import sys

from benchmarks.measure import Figure, main
from tests.lockstep.cases import assert_same, interpret, random_case
from tests.lockstep.cases import run as train
from tests.lockstep.machines import random_config

UNITS = 64
"""Of a machine at most: the rest of the shapes differ in nothing but time."""
TABLES = 10
"""For each machine."""


def run() -> list[Figure]:
    """Compare."""
    first, machines = int(os.environ.get("DANA_SEED", "0")), int(os.environ.get("DANA_MACHINES", "20"))
    differing = faults = 0
    for seed in range(first, first + machines):
        wrong, stopped = _compare(seed)
        differing += wrong
        faults += stopped
    return [
        Figure(
            what=f"{machines} random machines (from seed {first}), {TABLES} trainings on each, with and without stalls",
            measured=f"{differing} differences; {faults} tables damaged, the fault the same",
            reference="interpreter, simulator",
            ratio=float(differing),
            target=0.0,
        )
    ]


def _compare(seed: int) -> tuple[int, int]:
    """Trainings of one machine that differ, and those that end with a fault."""
    from dana.simulator import Simulator
    from hwgen.harness import RtlMachine

    config = random_config(random.Random(f"machine {seed}"), units=UNITS)
    simulator, rtl, stalling = Simulator(config), RtlMachine(config), RtlMachine(config, stall_seed=seed)
    differing = faults = 0
    for table in range(TABLES):
        case = random_case(random.Random(f"machine {seed} {table}"), config, rough=table % 3 != 0)
        expected, simulated = interpret(case), train(case, simulator)
        stalled = train(case, stalling)
        stalled.counters.clear()  # cycles are the link's
        faults += expected.fault is not None
        try:
            assert_same(simulated, expected, case.source)
            assert_same(train(case, rtl), simulated, case.source)
            assert_same(stalled, expected, case.source)
        except AssertionError as error:
            differing += 1
            print(f"machine {seed}, table {table}: {config}\n{error}", file=sys.stderr)
    simulator.close()
    print(f"machine {seed}: {config.fingerprint()}, {TABLES} tables", file=sys.stderr, flush=True)
    return differing, faults


if __name__ == "__main__":
    main(run)
