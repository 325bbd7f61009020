"""Interpreter = simulator, bit for bit, over rules generated from the whole language, not from familiar rules alone."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dana.simulator import Simulator
from dana.storage.schema import TableSchema
from hwgen.spec.config import MachineConfig
from tests.dsl.programs import rules
from tests.lockstep.cases import Case, assert_same, case_of, interpret, run
from tests.scale import randomised
from tests.storage.schemas import attribute


def generated(text: str, rng: random.Random, axes: int) -> Case:
    """A table and a machine for a generated rule of so many axes."""
    fixed = re.search(r"^n = (\d+)$", text, re.M)
    n = int(fixed[1]) if fixed else rng.choice([1, 3, 8, 17])
    k = int(re.findall(r"^k = (\d+)$", text, re.M)[0])
    columns = [attribute("x", "real[]", array_length=n)]
    columns += [attribute("z", "real[]", array_length=k)] if axes > 1 else []
    schema = TableSchema(relation="t", attributes=(*columns, attribute("y", "real")))
    config = MachineConfig(
        threads=rng.choice([1, 2, 4]),
        clusters=rng.choice([1, 2]),
        scratch_depth=4096,
        tuple_depth=1024,
        strider_depth=8192,
        descriptor_depth=1024,
    )
    return case_of(rng, config, text, schema)


@pytest.mark.parametrize("axes", [1, 2])
@randomised(40)
@given(data=st.data(), seed=st.integers(0, 1000))
def test_generated_rules_give_the_interpreter_s_bits(axes: int, data: st.DataObject, seed: int) -> None:
    text = data.draw(rules(axes=axes))
    case = generated(text, random.Random(seed), axes)
    assert_same(run(case, Simulator(case.bundle.config)), interpret(case), text)
