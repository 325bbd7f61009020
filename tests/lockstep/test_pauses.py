"""Several machines on parts of the rows, which pause for their hosts: the bits of one machine; simulator = RTL."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dana.compiler import bind, compile_bundle
from dana.simulator import Simulator
from dana.storage.columns import column_pages
from dana.storage.declared import declared
from dana.trainer.joining import Joining
from dsl import compile_rule
from hwgen.driver import BoardError
from hwgen.harness import RtlMachine
from hwgen.spec.aperture import address
from hwgen.spec.board import BoardStatus
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Section
from hwgen.spec.registers import Region
from hwgen.spec.strider import Fault
from tests.lockstep.cases import Case, Outcome, assert_same, interpret, run

SECONDS = 60
"""After which a part waits in vain."""
PAUSE = 20_000
"""Cycles of a pause: more than the host's accesses take."""
BLOCK = 16
"""Tuples of a part in a batch."""
DEPTHS = {"scratch_depth": 512, "tuple_depth": 16, "descriptor_depth": 64}
MACHINES = {
    "one round": MachineConfig(pause=1, tuple_depth=256, scratch_depth=512),
    "rounds": MachineConfig(pause=1, threads=2, clusters=2, striders=3, link_bytes=64, **DEPTHS),
}
COLUMNS = 11
RULE = f"""
import dana
w, low, high, both = dana.model([{COLUMNS}]), dana.model(), dana.model(), dana.model()
W = dana.model([3, {COLUMNS}], init=dana.normal(0, 0.5))
x, y = dana.input([{COLUMNS}]), dana.output()
rule = dana.algo(w, low, high, both, W, x, y)
error = dana.sigma(w * x, 1) - y
hidden = dana.sigma(W * x, 2)
rule.setModel(w, w - 0.1 * rule.merge(error * x, SIZE, "mean"))
rule.setModel(low, dana.min(low, rule.merge(error, SIZE, "min")))
rule.setModel(high, rule.merge(error, SIZE, "max"))
rule.setModel(both, both / 2 + rule.merge(dana.exp(-error * error), SIZE, "*"))
step = rule.merge(dana.expand(hidden - y, 2) * x, SIZE, "+")
rule.setModel(W, W - 0.001 * step)
rule.setLoss(error * error)
rule.setEpochs(2)
rule.setConvergence(dana.sigma(w * w, 1) < 0)
"""


class Hub:
    """What carries merges between parts."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count, timeout=SECONDS)
        self.merges = [b""] * count

    def exchange(self, place: int) -> Callable[[bytes], bytes]:
        def exchanged(merges: bytes) -> bytes:
            self.merges[place] = merges
            self.barrier.wait()
            every = b"".join(self.merges)
            self.barrier.wait()
            return every

        return exchanged


class Joined:
    """A machine with a hub: what `tests.lockstep.cases.run` takes."""

    def __init__(self, machine: Simulator | RtlMachine, hub: Hub, place: int) -> None:
        self._machine, self._hub, self._place = machine, hub, place
        self.write_rows, self.read_rows = machine.write_rows, machine.read_rows

    def load(self, bundle: Any) -> None:
        self._machine.load(bundle)
        exchange = self._hub.exchange(self._place)
        if isinstance(self._machine, Simulator):
            self._machine.join(exchange, len(self._hub.merges))
        else:
            self._joining = Joining(exchange, bundle.merges)

    def run_epoch(self, pages: bytes) -> Any:
        if isinstance(self._machine, Simulator):
            return self._machine.run_epoch(pages)
        self._joining.begin()
        counters = self._machine.run_epoch(pages, self._joining)
        self._joining.finish()
        return counters


def drawn(rows: int, seed: int) -> NDArray[np.float32]:
    """Features and label of some rows."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=(rows, COLUMNS + 1)).astype(np.float32)


def case_of(config: MachineConfig, rows: NDArray[np.float32], batch: int) -> Case:
    schema = declared(f"x float4[{COLUMNS}], y float4")
    binding = bind(compile_rule(RULE.replace("SIZE", str(batch))).hdfg, schema, label="y")
    pages = column_pages({"x": rows[:, :COLUMNS], "y": rows[:, COLUMNS]}, page_size=config.page_size).tobytes()
    bundle = compile_bundle(binding, schema, config, max_tuples=len(rows))
    return Case(source=RULE, schema=schema, binding=binding, pages=pages, bundle=bundle, epochs=2)


def in_turn(parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    starts = range(0, max(map(len, parts)), BLOCK)
    return np.concatenate([part[start : start + BLOCK] for start in starts for part in parts])


def together(cases: Sequence[Case], machines: Sequence[Simulator | RtlMachine]) -> list[Outcome]:
    """What each part comes to."""
    hub = Hub(len(cases))

    def one(place: int) -> Outcome:
        try:
            return run(cases[place], Joined(machines[place], hub, place))
        except BaseException:
            hub.barrier.abort()
            raise

    with ThreadPoolExecutor(len(cases)) as pool:
        return list(pool.map(one, range(len(cases))))


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", MACHINES)
def test_boards_have_the_bits_of_one_machine(name: str, count: int) -> None:
    config = MACHINES[name]
    parts = [drawn(5 * BLOCK - 3 * (k == count - 1), k) for k in range(count)]
    cases = [case_of(config, part, BLOCK) for part in parts]
    assert (Section.MERGE in cases[0].bundle.sections) == (name == "rounds")
    one = interpret(case_of(config, in_turn(parts), count * BLOCK))
    found = together(cases, [RtlMachine(config, pause=PAUSE) for _ in parts])
    # every pause takes as long, from an interrupt to a write over the board's bus
    pauses = {each.paused / each.batches for outcome in found for each in outcome.counters}
    (pause,) = pauses
    assert pause >= PAUSE
    assert pause == int(pause)
    simulated = together(cases, [Simulator(config, pause=int(pause)) for _ in parts])
    for outcome, other in zip(found, simulated, strict=True):
        assert_same(outcome, other, RULE)
        # the loss of each is that of all rows
        rows = outcome.counters[0].tuples
        losses = [loss * rows / len(np.concatenate(parts)) for loss in outcome.losses]
        np.testing.assert_allclose(losses, one.losses, rtol=1e-15)
        assert_same(replace(outcome, losses=one.losses, counters=[]), one, RULE)


def test_a_pause_takes_as_long_as_its_host() -> None:
    """A board with nothing to join goes on at once, or after so many cycles; the engine works as long."""
    config = MACHINES["one round"]
    case = case_of(config, drawn(3 * BLOCK, 1), BLOCK)
    slow, quick = (together([case], [RtlMachine(config, pause=pause)])[0] for pause in (3 * PAUSE, 0))
    assert_same(replace(slow, counters=[]), interpret(case), RULE)
    for late, early in zip(slow.counters, quick.counters, strict=True):
        assert late.paused >= 9 * PAUSE > early.paused > 0
        assert late.engine_busy == early.engine_busy
        assert late.cycles - early.cycles >= 0.9 * (late.paused - early.paused)
    # with no host to join sums there is no pause
    alone = run(case, RtlMachine(config))
    assert_same(alone, run(case, Simulator(config)), RULE)
    assert {counters.paused for counters in alone.counters} == {0}


def test_a_host_that_is_silent_for_long_is_no_hang() -> None:
    config = MACHINES["one round"]
    case = case_of(config, drawn(2 * BLOCK, 1), BLOCK)
    patient = RtlMachine(config, pause=30 * PAUSE, patience=PAUSE)
    (found,) = together([case], [patient])
    assert_same(replace(found, counters=[]), interpret(case), RULE)


class Refused(Exception):
    """Of a host."""


@pytest.mark.parametrize("how", ["error", "stop"])
def test_what_is_stopped_in_a_pause_trains_again(how: str) -> None:
    config = MACHINES["one round"]
    case = case_of(config, drawn(3 * BLOCK, 1), BLOCK)
    machine = RtlMachine(config)
    machine.load(case.bundle)

    def stops(own: NDArray[np.float32], last: bool) -> NDArray[np.float32]:
        if how == "error":
            raise Refused("the host refuses")
        machine.stop()  # as another process would
        return own

    with pytest.raises((Refused, BoardError), match="the host refuses" if how == "error" else "was stopped or reset"):
        machine.run_epoch(case.pages, stops)
    assert not machine._status() & (BoardStatus.PAUSED | BoardStatus.BUSY)
    assert_same(replace(run(case, machine), counters=[]), interpret(case), RULE)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (lambda own: None, "None"),
        (lambda own: 1.0, r"float64 of shape \[\]"),
        (lambda own: own[1:], r"float32 of shape \[{less}\]"),
        (lambda own: own[None], r"float32 of shape \[1, {count}\]"),
        (lambda own: own * 1j, r"complex64 of shape \[{count}\]"),
        (lambda own: [own, own[1:]], r"object of shape \[2\]"),
    ],
)
def test_what_is_not_a_number_for_each_is_an_error(answer: Callable[[Any], Any], found: str) -> None:
    config = MACHINES["one round"]
    case = case_of(config, drawn(3 * BLOCK, 1), BLOCK)
    machine = RtlMachine(config)
    machine.load(case.bundle)
    count = sum(int(np.prod(one.shape)) for one in case.bundle.merges)
    names = ", ".join(f"{int(np.prod(one.shape))} of '{one.name}'" for one in case.bundle.merges)
    text = f"`join` must return {count} real numbers in a vector ({names}, in this order), but it returned "
    with pytest.raises(ValueError, match=re.escape(text) + found.format(count=count, less=count - 1) + "; "):
        machine.run_epoch(case.pages, lambda own, last: answer(own))
    with pytest.raises(ValueError, match="must be loaded"):
        machine.run_epoch(case.pages)
    # lists and numbers of other sizes are as good as vectors of binary32
    machine.load(case.bundle)
    machine.run_epoch(case.pages, lambda own, last: own.tolist())  # type: ignore[arg-type, return-value]
    assert_same(replace(run(case, machine), counters=[]), interpret(case), RULE)


def test_a_join_that_would_never_be_called_is_an_error() -> None:
    config = MACHINES["one round"]
    for changed, text in (
        (replace(config, pause=0), "its machine has pause = 0: export it with --design pause=1"),
        (config, "this one has none: its rule has batches of one row, uses"),
    ):
        case = case_of(changed, drawn(3 * BLOCK, 1), BLOCK)
        machine = RtlMachine(changed)
        machine.load(replace(case.bundle, symbols=tuple(s for s in case.bundle.symbols if s.kind != "merge")))
        with pytest.raises(ValueError, match=text):
            machine.run_epoch(case.pages, lambda own, last: own)
        assert_same(run(case, machine), run(case, Simulator(changed)), RULE)


def test_scratchpads_are_the_hosts_in_a_pause_alone() -> None:
    config = MACHINES["one round"]
    case = case_of(config, drawn(3 * BLOCK, 1), BLOCK)
    machine = RtlMachine(config)
    machine.load(case.bundle)
    looked: list[int] = []

    def looks(own: NDArray[np.float32], last: bool) -> NDArray[np.float32]:
        looked.append(int(last))
        # of the map, a pause opens nothing else
        for region, offset in ((Region.PROGRAM, 0), (Region.CONTROL, 1)):
            with pytest.raises(BoardError, match="but the board said SLVERR"):
                machine.rtl.write(address(region, offset, config), np.array([2], np.uint32))
        return own

    counters = machine.run_epoch(case.pages, looks)
    assert looked == [0, 0, 1]
    assert counters.batches == 3


def test_a_link_that_stalls_changes_no_bit() -> None:
    config = MACHINES["rounds"]
    parts = [drawn(3 * BLOCK, k) for k in range(2)]
    cases = [case_of(config, part, BLOCK) for part in parts]
    one = interpret(case_of(config, in_turn(parts), 2 * BLOCK))
    for outcome in together(cases, [RtlMachine(config, stall_seed=k) for k in range(2)]):
        assert_same(replace(outcome, losses=one.losses, counters=[]), one, RULE)


def test_a_board_that_waits_for_one_with_a_fault_is_stopped() -> None:
    """Its host is told, and it trains again."""
    config = MACHINES["one round"]
    cases = [case_of(config, drawn(4 * BLOCK, k), BLOCK) for k in range(2)]
    damaged = bytearray(cases[1].pages)
    damaged[12:14] = b"\xff\xff"
    hub, machines = Hub(2), [RtlMachine(config) for _ in cases]
    joined = [Joined(machine, hub, place) for place, machine in enumerate(machines)]
    for one, case in zip(joined, cases, strict=True):
        one.load(case.bundle)

    def fails() -> Fault:
        found = machines[1].run_epoch(bytes(damaged), joined[1]._joining).fault
        hub.barrier.abort()
        return Fault(found)

    with ThreadPoolExecutor(1) as pool:
        fault = pool.submit(fails)
        with pytest.raises(threading.BrokenBarrierError):
            joined[0].run_epoch(cases[0].pages)
    assert fault.result() is not Fault.NONE
    hub.barrier.reset()
    assert not machines[0]._status() & (BoardStatus.PAUSED | BoardStatus.BUSY)
    assert_same(replace(run(cases[0], machines[0]), counters=[]), interpret(cases[0]), RULE)


def test_a_fault_of_one_board_is_its_own() -> None:
    """A page that is found damaged while the machine is paused: the fault is reported, and nothing is joined after."""
    config = MACHINES["one round"]
    rows = drawn(40 * BLOCK, 1)
    case = case_of(config, rows, BLOCK)
    damaged = bytearray(case.pages)
    last = len(damaged) - config.page_size
    damaged[last + 12 : last + 14] = b"\xff\xff"  # where its line pointers end
    seen: list[bool] = []

    def join(own: NDArray[np.float32], last: bool) -> NDArray[np.float32]:
        seen.append(last)
        return own

    machine = RtlMachine(config, pause=PAUSE)
    machine.load(case.bundle)
    counters = machine.run_epoch(bytes(damaged), join)
    simulator = Simulator(config)
    simulator.load(case.bundle)
    expected = simulator.run_epoch(bytes(damaged))
    assert counters.fault is expected.fault is not Fault.NONE
    assert (counters.fault_page, counters.fault_pointer) == (expected.fault_page, expected.fault_pointer)
    assert not any(seen)
    assert_same(replace(run(case, machine), counters=[]), interpret(case), RULE)
