"""The engine's RTL against the NumPy executor of docs/machine.md, and its cycles against the recurrences there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwgen.spec import cycles, numerics
from hwgen.spec.bundle import WHOLE_EPOCH, Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import ROUNDS, Section
from tests.assembly.engine import assemble
from tests.hwgen.engine.bench import FINISHED, OVERFLOW, WRONG_INDEX, Delivery, EngineBench, Ran
from tests.hwgen.engine.programs import random_bundle, random_tuples
from tests.oracles.machine import Epoch, Machine, MachineFault, garbage, section_length
from tests.scale import sampled, scaled

SMALL = {"scratch_depth": 128, "tuple_depth": 128, "program_depth": 128}
MACHINES = {
    "one cluster": MachineConfig(threads=1, clusters=1, divide_interval=1, **SMALL),
    "four by two": MachineConfig(threads=4, clusters=2, index_depth=8, divide_interval=3, **SMALL),
    "no functions": MachineConfig(threads=2, clusters=1, functions=0, crossed=0, **SMALL),
    "short rounds": MachineConfig(index_depth=16, watch_depth=2, functions=0, **SMALL),
    "narrow rows": MachineConfig(threads=2, clusters=1, wide_depth=48, index_depth=8, functions=0, **SMALL),
    "shared words": MachineConfig(threads=4, clusters=4, functions=0b110101, **SMALL),
}
"""The last has more distances between clusters and threads than its lanes have words for them."""


def executor(bundle: Bundle, seed: int = 0) -> Machine:
    """The oracle, with nothing in its memories that the machine's own conversions would not let in."""
    oracle = Machine(bundle, seed=seed)
    oracle.halves = numerics.flush(oracle.halves)
    return oracle


def deliver(bundle: Bundle, oracle: Machine, tuples: np.ndarray, rng: np.random.Generator, *, gaps: int) -> Delivery:
    """The epoch as the access engine would hand it over, with idle cycles in between."""
    delivery = Delivery()
    lanes = bundle.config.lanes
    every = np.ones(lanes, dtype=bool)

    def gap() -> int:
        return int(rng.integers(0, gaps)) if gaps and rng.random() < 0.3 else 0

    # the engine may read what no tuple of the epoch wrote
    for half, thread, row in np.ndindex(oracle.halves.shape[:3]):
        words = oracle.halves[half, thread, row].view(np.uint32)
        delivery.row(thread=thread, half=half, row=row, words=words, enable=every)
    batch = len(tuples) if bundle.batch == WHOLE_EPOCH else bundle.batch
    rounds = []
    for start in range(0, len(tuples), max(batch, 1)):
        stop = min(start + batch, len(tuples))
        rounds += [
            (first, min(first + bundle.round_tuples, stop), stop) for first in range(start, stop, bundle.round_tuples)
        ]
    for number, (first, last, stop) in enumerate(rounds):
        if number >= 2:
            delivery.wait_released(number - 1)
        for j, rows in enumerate(tuples[first:last]):
            for r, words in enumerate(rows.view(np.uint32)):
                place = {"thread": j // bundle.group, "half": number % 2, "row": j % bundle.group * len(rows) + r}
                some = rng.random(lanes) < 0.5
                junk = rng.integers(0, 1 << 32, lanes, dtype=np.uint32)
                delivery.row(**place, words=np.where(some, words, junk), enable=some, gap=gap())
                delivery.row(**place, words=np.where(some, junk, words), enable=~some, gap=gap())
        delivery.round(count=last - first, batch_last=last == stop, epoch_last=last == len(tuples), gap=gap())
    if not rounds:
        delivery.empty(gap=gap())
    return delivery


def check_cycles(bundle: Bundle, epoch: Epoch, ran: Ran) -> None:
    """docs/machine.md, section 5, "Engine" and "Epoch"."""

    def cost(name: Section) -> int:
        return cycles.SECTION_START + section_length(bundle.section(name), bundle.config.divide_interval)

    idle = 1 + (cost(Section.INIT) if Section.INIT in bundle.sections else 0)
    sections = [name for name, _ in epoch.ran if name is not Section.INIT]
    waits = [wait for (name, _), wait in zip(epoch.ran, epoch.waits, strict=True) if name is not Section.INIT]
    starts = [k for k, name in enumerate(sections) if name in ROUNDS]
    for q, (first, last) in enumerate(zip(starts, [*starts[1:], len(sections)], strict=False)):
        start = max(ran.handed[q], idle) + cycles.ROUND_START + waits[first]
        assert ran.freed[q] == start + cost(sections[first])
        idle = start + sum(cost(name) for name in sections[first:last])
    assert ran.cycles == (idle if starts else max(idle, ran.handed[0]))
    assert ran.busy == epoch.busy
    assert ran.tuples == sum(epoch.rounds)


def check_rows(bench: EngineBench, oracle: Machine, bundle: Bundle) -> None:
    used = len(bundle.image)
    found = bench.read_rows(0, used)
    wanted = numerics.flush(oracle.scratch[0, :used]).view(np.uint32)
    np.testing.assert_array_equal(found, wanted)


@pytest.fixture(params=sampled(MACHINES, "one cluster", "four by two", "short rounds"))
def config(request: pytest.FixtureRequest) -> MachineConfig:
    return MACHINES[request.param]


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_random_programs(config: MachineConfig, seed: int) -> None:
    """Any program, several epochs, short rounds, gaps in the delivery: the same bits in thread 0, the same cycles."""
    rng = np.random.default_rng([seed, config.units])
    batch = int(rng.choice([1, 2, 5, 16, 37, 100, WHOLE_EPOCH]))
    bundle = random_bundle(rng, config, batch=batch)
    oracle = executor(bundle, seed)
    bench = EngineBench(config)
    bench.load(bundle)
    for _ in range(2):
        count = int(rng.integers(0, 3 * bundle.round_tuples + 2))
        tuples = random_tuples(rng, bundle, count)
        ran = bench.run(deliver(bundle, oracle, tuples, rng, gaps=int(rng.choice([0, 3, 40]))))
        epoch = oracle.epoch(tuples)
        assert ran.end == FINISHED
        check_cycles(bundle, epoch, ran)
        check_rows(bench, oracle, bundle)


@pytest.mark.parametrize(
    "absent", [(Section.INIT,), (Section.BATCH,), (Section.EPOCH,), (Section.BATCH, Section.EPOCH)]
)
def test_missing_sections_take_no_time(absent: tuple[Section, ...]) -> None:
    rng = np.random.default_rng(len(absent))
    config = MACHINES["one cluster"]
    bundle = random_bundle(rng, config, batch=3, absent=absent)
    oracle = executor(bundle)
    bench = EngineBench(config)
    bench.load(bundle)
    for count in (0, 1, 7):
        tuples = numerics.flush(garbage((count, bundle.tuple_rows, config.lanes), count))
        ran = bench.run(deliver(bundle, oracle, tuples, rng, gaps=0))
        check_cycles(bundle, oracle.epoch(tuples), ran)
        check_rows(bench, oracle, bundle)


def test_more_rounds_than_levels_is_a_fault() -> None:
    """The stack's levels bound a batch; the machine says so, and runs the next epoch as if nothing had been."""
    rng = np.random.default_rng(7)
    config = MACHINES["one cluster"]
    bundle = random_bundle(rng, config, batch=WHOLE_EPOCH, size=4)
    oracle = executor(bundle)
    bench = EngineBench(config)
    bench.load(bundle)
    rounds = 1 << bundle.levels
    tuples = numerics.flush(garbage((rounds * bundle.round_tuples + 1, bundle.tuple_rows, config.lanes), 1))
    assert bench.run(deliver(bundle, oracle, tuples, rng, gaps=0)).end == OVERFLOW
    with pytest.raises(MachineFault, match="STACK"):
        oracle.epoch(tuples)
    bench.load(bundle)
    oracle = executor(bundle)
    ran = bench.run(deliver(bundle, oracle, tuples[:-1], rng, gaps=0))
    assert ran.end == FINISHED
    check_cycles(bundle, oracle.epoch(tuples[:-1]), ran)
    check_rows(bench, oracle, bundle)


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_ordered_rows(seed: int) -> None:
    """Rows that are added to again before they can be read wait; few numbers and many, rounds that are not full."""
    rng = np.random.default_rng([seed, 7])
    threads, clusters = int(rng.choice([1, 1, 2])), int(rng.choice([1, 2]))
    config = MachineConfig(threads=threads, clusters=clusters, index_depth=64, functions=0, **SMALL)
    count, group, stride = int(rng.integers(1, 9)), int(rng.choice([1, 2, 4, 8])), int(rng.integers(1, 3))
    bound, rows, loops = int(rng.choice([1, 3, 12, 30])), count + 1, f"inner={count} outer={group}"
    late = cycles.ORDER_LATENCY - count * group
    program, sections = assemble(
        f"tuple:\n setx x{bound}+{stride}o <- t0+i+{rows}o, s7 {loops} mask=single wait=2 each=1\n"
        f" add s10+x <- s10+x, t{count}+{rows}o {loops} mask=single wait={max(0, late)} each=1 ordered=1\n"
        f" add s10+x <- s10+x, t{count}+{rows}o {loops} mask=single wait=10 each=1 ordered=1\n"
        f" mov s90+i+{count}o <- s10+x inner={count} outer={min(group, 4)} wait=10 each=1\n end wait=9\n"
    )
    bundle = replace(
        random_bundle(rng, config, batch=group),
        program=program, sections=sections, group=group, tuple_rows=rows, levels=0,
    )  # fmt: skip
    bench, oracle = EngineBench(config), executor(bundle, seed)
    bench.load(bundle)
    waited = 0
    for _ in range(3):
        tuples = rng.normal(size=(int(rng.integers(0, 5 * group)), rows, config.lanes)).astype(np.float32)
        tuples[:, :count] = rng.integers(0, bound, (len(tuples), count, 1))
        ran = bench.run(deliver(bundle, oracle, tuples, rng, gaps=int(rng.choice([0, 3]))))
        epoch = oracle.epoch(tuples)
        waited += sum(epoch.waits)
        assert ran.end == FINISHED
        check_cycles(bundle, epoch, ran)
        check_rows(bench, oracle, bundle)
    assert waited or bound > 1 or count * group == 1


def test_of_several_numbers_without_a_row_the_first_tuple_s_is_told() -> None:
    """Whichever SETX comes first, and in whichever thread."""
    config = MACHINES["four by two"]
    program, sections = assemble(
        "tuple:\n setx x4+2o <- t0+2o, s300 outer=2 mask=single\n"
        f" setx x4+2o <- t1+2o, s7 outer=2 mask=single wait={cycles.INDEX_LATENCY - 1}\n"
        f" mov s10+i+x <- s20+i wait={cycles.INDEX_LATENCY - 1} inner=2\n end wait={cycles.RESULT_LATENCY - 2}\n"
    )
    rng = np.random.default_rng(5)
    random = random_bundle(rng, config, batch=8)
    bundle = replace(random, program=program, sections=sections, group=2, tuple_rows=2, levels=0)
    bench = EngineBench(config)
    bench.load(bundle)
    for _ in range(scaled(20)):
        tuples = rng.choice([0, 1, 3, 4], size=(int(rng.integers(1, 20)), 2, config.lanes), p=[0.3, 0.3, 0.3, 0.1])
        wrong = np.argwhere(tuples[:, :, 0] == 4)
        ran = bench.run(deliver(bundle, executor(bundle), tuples.astype(np.float32), rng, gaps=0))
        assert ran.end == (WRONG_INDEX if len(wrong) else FINISHED)
        assert not len(wrong) or ran.cycles == (300, 7)[wrong[0][1]]


@pytest.mark.parametrize("number", [4.0, -1.0, 0.5, 3.0000002, np.nan, np.inf, -np.inf, 65536.0, 3e9, 1.1754944e-38])
def test_a_number_without_a_row_is_a_fault(number: float) -> None:
    """In any thread, with the tag of its SETX; the next epoch knows nothing of it."""
    config = MACHINES["four by two"]
    program, sections = assemble(
        "tuple:\n setx x4+2o <- t0+1o, s300 outer=2 mask=single\n"
        f" setx x4+2o <- t0+1o, s7 outer=2 mask=single wait={cycles.INDEX_LATENCY - 1}\n"
        f" mov s10+i+x <- s20+i wait={cycles.INDEX_LATENCY - 1} inner=2\n end wait={cycles.RESULT_LATENCY - 2}\n"
    )
    rng = np.random.default_rng(3)
    random = random_bundle(rng, config, batch=8)
    bundle = replace(random, program=program, sections=sections, group=2, tuple_rows=1, levels=0)
    bench = EngineBench(config)
    bench.load(bundle)
    good = np.zeros((8, 1, config.lanes), dtype=np.float32)
    good[:, 0, 0] = [0, 3, 1.0, -0.0, 2, 2, 1, 0]
    good[:, 0, 1:] = np.nan
    for wrong in (None, 0, 7, 3, None):
        oracle = executor(bundle)
        bench.write_rows(0, bundle.image)
        tuples = good.copy()
        if wrong is not None:
            tuples[wrong, 0, 0] = number
        ran = bench.run(deliver(bundle, oracle, tuples, rng, gaps=0))
        if wrong is None:
            assert ran.end == FINISHED
            check_cycles(bundle, oracle.epoch(tuples), ran)
            check_rows(bench, oracle, bundle)
        else:
            assert (ran.end, ran.cycles) == (WRONG_INDEX, 300)
            with pytest.raises(MachineFault, match="INDEX"):
                oracle.epoch(tuples)
