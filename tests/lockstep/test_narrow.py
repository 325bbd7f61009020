"""Random rules with numbers of bfloat16 on machines with narrow rows: interpreted, simulated, compiled."""

from __future__ import annotations

import random
from dataclasses import replace

from dana.compiler import compile_bundle
from dana.compiler.binding.precision import narrowed
from dana.simulator import Simulator
from dsl.hdfg.graph import Op
from hwgen.spec.bundle import Bundle, Symbol
from tests.lockstep.cases import Case, assert_same, interpret, random_case, run
from tests.lockstep.compiled import CompiledSimulator
from tests.lockstep.test_compiled_code import axes, chosen, counting, elements, losses, parts, row_states, tables
from tests.scale import scaled


def random_rows(rng: random.Random) -> Case:
    return random_case(rng, losses(rng).bundle.config)


def narrow_case(case: Case) -> Case:
    """The case with numbers of bfloat16, its models in narrow rows as far as they can be."""
    binding = replace(case.binding, graph=narrowed(case.binding.graph))
    config = replace(case.bundle.config, ultra=0)
    bundle = compile_bundle(binding, case.schema, config=config, max_tuples=1 << 16)
    first = min((one.row for one in narrow_models(binding.graph.narrow_models, bundle)), default=config.scratch_depth)
    wide = -(-first // 16) * 16
    if wide < config.scratch_depth:
        config = replace(config, wide_depth=wide)
        bundle = compile_bundle(binding, case.schema, config=config, max_tuples=1 << 16)
    return replace(case, binding=binding, bundle=bundle)


def narrow_models(names: frozenset[str], bundle: Bundle) -> list[Symbol]:
    """The models of these names that lie in scratchpads."""
    return [one for one in bundle.of_kind("model") if one.name in names and not one.table]


def test_numbers_of_bfloat16() -> None:
    narrow = rounded = 0
    for make in (random_rows, losses, axes, elements, parts, row_states, chosen, counting, tables):
        for seed in range(scaled(3)):
            case = narrow_case(make(random.Random(f"narrow {make.__name__} {seed}")))
            expected = interpret(case)
            assert_same(run(case, Simulator(case.bundle.config)), expected, case.source)
            machine = CompiledSimulator(case)
            assert_same(run(case, machine), expected, case.source)
            machine.close()
            models = narrow_models(case.binding.graph.narrow_models, case.bundle)
            if expected.fault is None:
                assert all(not (expected.models[one.name] & 0xFFFF).any() for one in models)
            lanes, wide = case.bundle.config.lanes, case.bundle.config.wide_depth
            narrow += any(one.row + one.rows(lanes) > wide > 0 for one in models)
            rounded += any(node.op is Op.BFLOAT16 for node in case.binding.graph.nodes)
    assert rounded == scaled(3) * 9
    assert narrow >= scaled(3)
