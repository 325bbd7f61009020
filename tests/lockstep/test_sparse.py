"""Rows of tables chosen by a column of numbers: interpreter = simulator = compiled code = RTL, cycles included."""

from __future__ import annotations

import random

import pytest

from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.schema import TableSchema
from hwgen.harness import RtlMachine
from hwgen.spec.config import MachineConfig
from hwgen.spec.engine import Opcode
from hwgen.spec.strider import Fault
from tests.lockstep.cases import Case, assert_same, finished, interpret, run
from tests.lockstep.test_compiled_code import assert_compiled
from tests.scale import scaled
from tests.storage.schemas import attribute

LOGISTIC = """import dana
n = dana.dim({n})
w, b = dana.table([n], init=dana.normal(0, 1)), dana.model()
c, x, y = dana.input([{k}]), dana.input([{k}]), dana.output()
r = dana.algo(w, b, c, x, y)
p = dana.sigmoid(dana.sigma(w[c] * x) + b)
r.setLoss(-(y * dana.log(p) + (1 - y) * dana.log(1 - p)))
r.minimize(dana.optimizers.sgd, rate=0.3, batch={batch})
r.setEpochs(2)
"""
ADDED = """import dana
w = dana.table([{n}], init=dana.normal(0, 1))
v = dana.table([{n}], init=dana.normal(0, 1))
c, d, x, y = dana.input([{k}]), dana.input([{k}]), dana.input([{k}]), dana.output()
r = dana.algo(w, v, c, d, x, y)
e = dana.sigma(w[c] * x) - dana.sigma(v[d] + v[c] * x) - y
r.addRows(w[c], e * x, {batch}, "mean")
r.addRows(v[d], x - y, {batch}, "+")
r.setLoss(e * e)
r.setEpochs(2)
"""
SAME = """import dana
w = dana.table([{n}], init=dana.normal(0, 1))
v = dana.table([{n}])
c, x, y = dana.input([{k}]), dana.input([{k}]), dana.output()
r = dana.algo(w, v, c, x, y)
e = dana.sigma(w[c] * (x + v[c])) - y
r.addRows(w[c], -0.1 * e * x, {batch}, "mean")
r.addRows(v[c], e * w[c], {batch}, "mean")
r.setEpochs(3)
"""
RULES = (LOGISTIC, ADDED, SAME)
NUMBERS = ("smallint", "integer", "real")
VALUES = ("real", "double precision")


def sparse_case(rng: random.Random, config: MachineConfig, rule: str, *, wrong: bool = False) -> Case:
    """A few of many features, or nearly all of few: features twice in a row, padding, the table's last row."""
    k, n = rng.choice([2, 3, 7, 8, 9, 14, 17]), rng.choice([1, 2, 5, 30, 200])
    batch = rng.choice([2, 3, 8, 16])
    kinds = [rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(VALUES)]
    columns = [attribute(name, f"{kind}[]", array_length=k) for name, kind in zip("cdx", kinds, strict=True)]
    columns.append(attribute("y", "real"))
    rng.shuffle(columns)
    schema = TableSchema(relation="t", attributes=tuple(columns))

    def numbers() -> list[int]:
        own = [rng.choice([0, n - 1, rng.randrange(n)]) for _ in range(rng.randint(0, k))]
        return own + [0] * (k - len(own))

    def row() -> dict[str, object]:
        c = numbers()
        x = [rng.gauss(0, 1) if rng.random() < 0.8 else rng.choice([0.0, -0.0, 1e-39]) for _ in c]
        return {"c": c, "d": numbers(), "x": x, "y": float(rng.randrange(2))}

    rows = [row() for _ in range(rng.choice([1, 5, 40, 150]))]
    if wrong:
        for _ in range(2):
            rng.choice(rows)[rng.choice("cd")][rng.randrange(k)] = rng.choice([n, -1, 30000])
    pages = build_pages(schema, [[one[a.name] for a in schema.attributes] for one in rows])
    return finished(config, rule.format(n=n, k=k, batch=batch), schema, pages)


def config_of(rng: random.Random) -> MachineConfig:
    return MachineConfig(
        threads=rng.choice([1, 1, 2, 4]),
        clusters=rng.choice([1, 2]),
        index_depth=512,
        scratch_depth=4096,
        tuple_depth=4096,
        striders=rng.choice([1, 4]),
        queue_depth=rng.choice([4, 32]),
        converters=rng.choice([1, 8]),
        crossed=rng.choice([0, 1]),
    )


@pytest.mark.parametrize("seed", range(scaled(40)))
def test_random_shapes(seed: int) -> None:
    """All that needs no hardware, for any machine that may be built."""
    rng = random.Random(f"sparse {seed}")
    case = sparse_case(rng, config_of(rng), rng.choice(RULES))
    used = [one for one in case.bundle.program if one.each]
    assert any(one.op is Opcode.SETX for one in used)
    assert any(one.ordered for one in used)
    assert assert_compiled(case)
    plain = Simulator(case.bundle.config, plain=True)
    assert_same(run(case, plain), run(case, Simulator(case.bundle.config)), case.source)


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_numbers_without_a_row(seed: int) -> None:
    """The fault names the table and the column, whoever finds it."""
    rng = random.Random(f"wrong {seed}")
    case = sparse_case(rng, config_of(rng), ADDED, wrong=True)
    expected = interpret(case)
    assert expected.fault is not None
    assert expected.fault[0] is Fault.INDEX
    assert assert_compiled(case)


MACHINES = {
    "one cluster": MachineConfig(index_depth=512, striders=2, scratch_depth=2048, tuple_depth=2048),
    "two threads of two clusters": MachineConfig(
        threads=2, clusters=2, index_depth=512, striders=2, converters=4, queue_depth=4, scratch_depth=2048,
        tuple_depth=2048,
    ),
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_on_the_hardware(machine: str) -> None:
    """Rows wait for one another, and the simulator knows how long."""
    config = MACHINES[machine]
    rtl = RtlMachine(config)
    for seed in range(scaled(12)):
        rng = random.Random(f"{machine} {seed}")
        case = sparse_case(rng, config, RULES[seed % len(RULES)], wrong=seed % 5 == 4)
        found = run(case, rtl)
        assert_same(found, interpret(case), case.source)
        assert_same(found, run(case, Simulator(config)), case.source)
