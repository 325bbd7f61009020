"""sigmoid, gaussian, exp and log have NumPy's bits, alone and in one unit, whatever follows what."""

import numpy as np
import pytest

from hwgen.rtl.arith.function import FUNCTIONS, FloatFunction, code
from hwgen.spec import numerics
from hwgen.spec.operations import Opcode
from tests.hwgen import vectors
from tests.hwgen.arith.harness import Unit
from tests.scale import sampled, scaled

LN2 = 0.6931471805599453
MEANING = {op: getattr(numerics, op.name.lower()) for op in FUNCTIONS}
LATENCY = {op: op.stages for op in FUNCTIONS}


UNITS = {
    "sigmoid": (Opcode.SIGMOID,),
    "exp": (Opcode.EXP,),
    "gaussian": (Opcode.GAUSSIAN,),
    "log": (Opcode.LOG,),
    "sigmoid, exp, gaussian": (Opcode.SIGMOID, Opcode.EXP, Opcode.GAUSSIAN),
    "all": FUNCTIONS,
}


@pytest.mark.parametrize("name", sampled(UNITS, "log", "all"))
def test_every_function(name: str) -> None:
    unit = Unit(FloatFunction(UNITS[name]), latency=0)
    for function in UNITS[name]:
        unit.latency = LATENCY[function]
        x = vectors.single(scaled(100_000), seed=int(function))
        vectors.same_bits(unit(a=x, function=code(function))["result"].view(np.float32), MEANING[function](x), x)


def test_wide_multipliers_give_the_same_bits() -> None:
    unit = Unit(FloatFunction((Opcode.LOG,), narrow=False), latency=LATENCY[Opcode.LOG])
    x = vectors.single(scaled(100_000), seed=9)
    vectors.same_bits(unit(a=x, function=code(Opcode.LOG))["result"].view(np.float32), numerics.log(x), x)


@pytest.mark.parametrize(("function", "bound"), [(Opcode.EXP, -126 * LN2), (Opcode.GAUSSIAN, (126 * LN2) ** 0.5)])
def test_where_results_become_tiny(function: Opcode, bound: float) -> None:
    center = int(np.float32(bound).view(np.uint32))
    x = vectors.floats(np.arange(center - 5000, center + 5000))
    got = Unit(FloatFunction(), latency=LATENCY[function])(a=x, function=code(function))["result"].view(np.float32)
    vectors.same_bits(got, MEANING[function](x), x)
    assert 0 < np.count_nonzero(got) < x.size


def test_functions_follow_each_other() -> None:
    """Operands of all functions mixed, one in each cycle but for those whose results would fall together."""
    component = FloatFunction()
    longest = max(LATENCY.values())
    rng = np.random.default_rng(5)
    cycles = scaled(20_000)
    x = np.resize(vectors.single(cycles, seed=5), cycles)
    rng.shuffle(x)
    functions = rng.choice(FUNCTIONS, cycles)
    due = np.array([cycle + LATENCY[Opcode(f)] for cycle, f in enumerate(functions)])
    starts = np.ones(cycles, dtype=bool)
    taken: set[int] = set()
    for cycle, at in enumerate(due):
        starts[cycle] = at not in taken
        taken.add(at)
    starts[cycles - longest :] = False
    shown = Unit(component, latency=0, strobe=False)(a=x, function=functions & 7, start=starts)["result"]
    got = shown.view(np.float32)[due[starts]]
    want = np.empty_like(got)
    for function, meaning in MEANING.items():
        chosen = functions[starts] == function
        want[chosen] = meaning(x[starts][chosen])
    vectors.same_bits(got, want, x[starts], functions[starts].astype(np.uint32))
    assert starts.mean() > 0.5
