"""Random graphs on the simulator, from pages: a wider range of rules than text generates, on a third machine.

The simulator refuses programs that break the contract, so every Bundle is checked here by rules that the compiler does
not share; its models must be the interpreter's.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from dana.codesign.default import default_bundle
from dana.compiler import bind
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.schema import TableSchema
from hwgen.spec.strider import Fault
from tests.compiler.rules import RandomRule, Trained, assert_same, random_columns
from tests.scale import scaled
from tests.storage.schemas import attribute


@pytest.mark.parametrize("seed", range(scaled(60)))
def test_models_are_the_interpreters(seed: int) -> None:
    rng = random.Random(seed)
    rule = RandomRule(seed, merges=rng.random() < 0.8)
    graph = rule.graph(batch=rng.choice([1, 2, 5, 8, 33, None]), size=rng.choice([4, 10, 25]))
    columns = random_columns(graph, rng.choice([1, 3, 16, 50]), seed)
    flat = [values.reshape(len(values), -1) for values in (columns[str(graph.nodes[k].name)] for k in graph.inputs)]
    table = np.concatenate(flat, axis=1)
    schema = TableSchema(relation="t", attributes=tuple(attribute(f"c{k}", "real") for k in range(table.shape[1])))
    binding = bind(graph, schema)
    design = {} if seed % 2 else {"threads": rng.choice([1, 2, 4]), "clusters": rng.choice([1, 2])}
    bundle = default_bundle(binding, schema, max_tuples=len(table), design=design)
    pages = bytes(build_pages(schema, [list(map(float, row)) for row in table], page_size=bundle.config.page_size))
    simulator = Simulator(bundle.config)
    simulator.load(bundle)
    trained = Trained(models=[], losses=[], converged=[], bundle=bundle)
    for _ in range(graph.epochs):
        counters = simulator.run_epoch(pages)
        assert counters.fault is Fault.NONE
        assert counters.tuples == len(table)

        def read(kind: str) -> dict[str, np.ndarray]:
            found = {}
            for symbol in bundle.of_kind(kind):
                words = simulator.read_rows(symbol.row, symbol.rows(bundle.config.lanes))
                found[symbol.name] = symbol.collect(words.view(np.float32))
            return found

        trained.models.append(read("model"))
        trained.losses.extend(float(value) for value in read("loss").values())
        trained.converged.extend(float(value) for value in read("convergence").values())
    assert_same(graph, columns, trained)
