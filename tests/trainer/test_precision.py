"""Precision bfloat16: the same bits everywhere, what is rounded and what is not, what is reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dana import rules
from dana.codesign.area import area_of
from dana.compiler.binding.precision import narrow_inputs, narrow_models, narrowed
from dana.storage.declared import declared
from dana.trainer.arrays import Trained, train
from dana.trainer.contract import Level, Notice, TrainingError
from dana.trainer.designs import compile_design
from dana.trainer.streams import declared_request
from dsl import compile_rule
from dsl.hdfg.graph import Op
from dsl.hdfg.text import graph_text, parse_graph
from hwgen.spec import numerics

BATCHES = """
import dana
from dana.functions import standardized
from dana.optimizers import adam, momentum
n = dana.dim()
w = dana.model([n], init=dana.normal(0, 1))
x = dana.input([n])
y = dana.output()
b = dana.model(init=dana.column_mean(y))
rule = dana.algo(w, b, x, y)
p = dana.sigma(w * standardized(x), 1) + b
e = p - y
rule.setModel(w, adam(w, rule.merge(e * standardized(x), 16, "mean"), 0.05))
rule.setModel(b, momentum(b, rule.merge(e, 16, "mean"), 0.05))
rule.setLoss(e * e)
rule.setPrediction(p)
"""
RAW = BATCHES.replace("w * standardized(x)", "w * x").replace("e * standardized(x)", "e * x")
ADDED = """
import dana
w = dana.table([400])
b = dana.model()
c = dana.input([3])
x = dana.input([3])
y = dana.output()
rule = dana.algo(w, b, c, x, y)
e = dana.sigma(w[c] * x, 1) + b - y
rule.addRows(w[c], -0.1 * e * x, 8, "mean")
rule.setModel(b, b - 0.1 * rule.merge(e, 8, "mean"))
rule.setLoss(e * e)
"""
RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(203, 5)) + np.arange(5)
Y = X @ RANDOM.normal(size=5) + 0.1 * RANDOM.normal(size=203)
COLUMNS = {"x": X.astype(np.float32), "y": Y.astype(np.float32)}
CLASSES = {"x": COLUMNS["x"], "y": (Y.mean() < Y).astype(np.float32)}
RATINGS = {
    "i": RANDOM.integers(0, 600, 203).astype(np.float32),
    "j": RANDOM.integers(0, 300, 203).astype(np.float32),
    "y": Y.astype(np.float32),
}
LISTS = {"c": RANDOM.integers(250, 400, (203, 3)).astype(np.float32), "x": COLUMNS["x"][:, :3], "y": COLUMNS["y"]}


def trained(text: str, columns: Any, **options: Any) -> tuple[Trained, list[Notice]]:
    told: list[Notice] = []
    options = {"epochs": 3, "stored_as": "bfloat16", "shuffle": False, **options}
    return train(text, columns, notify=told.append, **options), told


def bits(made: Trained) -> dict[str, Any]:
    return {name: values.view(np.uint32).tolist() for name, values in made.models.items()}


def is_narrow(values: Any) -> bool:
    return bool((np.asarray(values).view(np.uint32) & 0xFFFF == 0).all())


@pytest.mark.parametrize(
    ("text", "columns", "hyper"),
    [
        (BATCHES, COLUMNS, {}),
        (RAW, COLUMNS, {}),
        (ADDED, LISTS, {}),
        (rules.text("linear_svm"), CLASSES, {}),
        (rules.text("mlp"), CLASSES, {"k": 2, "h": 3}),
        (rules.text("lrmf"), RATINGS, {}),
        (rules.text("lrmf_dense"), {"i": np.arange(203.0), "x": COLUMNS["x"]}, {"k": 2}),
        (rules.text("kmeans"), {"x": COLUMNS["x"]}, {"k": 3}),
    ],
    ids=["batches", "raw", "added", "linear_svm", "mlp", "lrmf", "lrmf_dense", "kmeans"],
)
def test_the_simulator_is_the_interpreter(text: str, columns: Any, hyper: dict[str, float]) -> None:
    graph = compile_rule(text).hdfg
    named = {str(graph.nodes[k].name) for k in narrow_models(graph)}
    made = {machine: trained(text, columns, hyper=hyper, machine=machine)[0] for machine in ("sim", "interp")}
    assert bits(made["sim"]) == bits(made["interp"])
    assert made["sim"].losses == made["interp"].losses
    assert named
    assert all(is_narrow(values) for name, values in made["sim"].models.items() if name in named)
    others = trained(text, columns, hyper=hyper, stored_as="binary32")[0]
    assert not all(is_narrow(others.models[name]) for name in named)


def test_the_hardware_is_the_interpreter() -> None:
    design = {"threads": 2, "clusters": 1}
    made = [trained(RAW, COLUMNS, machine=name, design=design)[0] for name in ("rtl", "sim", "interp")]
    assert bits(made[0]) == bits(made[1]) == bits(made[2])
    assert made[0].cycles == made[1].cycles


def test_models_in_narrow_rows() -> None:
    """Factors on the chip, in rows without a lower half: the same as in rows of binary32."""
    text, few = rules.text("lrmf"), {name: values[:60] % 40 for name, values in RATINGS.items()}
    design = {"record_depth": 0, "threads": 1, "clusters": 1, "scratch_depth": 1024}
    plain = trained(text, few, machine="interp")[0]
    for name, wide in (("sim", 0), ("sim", 256), ("rtl", 256)):
        made = trained(text, few, machine=name, design={**design, "wide_depth": wide})[0]
        assert bits(made) == bits(plain)
    with pytest.raises(TrainingError, match=r"and the machine has 16\nHint: Set wide_depth to 32"):
        trained(text, few, design={**design, "wide_depth": 16})
    with pytest.raises(TrainingError, match=r"takes .* rows of binary32 .* the machine has 32"):
        trained(text, few, design={**design, "wide_depth": 32}, stored_as="binary32")


def test_the_default_machine_has_narrow_rows() -> None:
    """Where they save block RAM: behind all that is binary32."""
    rule = compile_rule(rules.text("lrmf"), filename="lrmf")
    extents = {"m": 4000, "n": 4000}
    asked = declared_request(rule, declared("i int4, j int4, y float4", "y"), design={"record_depth": 0}, hyper=extents)
    plain, made = (
        compile_design(replace(asked, stored_as=numbers), extents=extents).bundle for numbers in (None, "bfloat16")
    )
    assert plain.config.wide_depth == 0
    assert made.config.wide_depth == 256
    assert area_of(made.config, "xcup").block_rams < 0.6 * area_of(plain.config, "xcup").block_rams
    models = made.of_kind("model")
    last = max(one.row for one in models if one.name not in ("U", "V", "a", "b"))
    assert all(one.row > last for one in models if one.name in ("U", "V", "a", "b"))
    starts = {one.name: one.collect(made.image[one.row :][: one.rows(made.config.lanes)].view("f4")) for one in models}
    assert is_narrow(starts["U"])
    assert starts["U"].any()


def test_features_are_rounded_as_they_are_read() -> None:
    """And labels are not."""
    before = {"x": numerics.bfloat16(COLUMNS["x"]), "y": COLUMNS["y"]}
    raw = RAW.replace("init=dana.column_mean(y)", "")
    assert bits(trained(raw, before)[0]) == bits(trained(raw, COLUMNS)[0])
    after = {"x": COLUMNS["x"], "y": numerics.bfloat16(COLUMNS["y"])}
    assert bits(trained(raw, after)[0]) != bits(trained(raw, COLUMNS)[0])


def test_states_keep_their_digits() -> None:
    made = trained(BATCHES, COLUMNS)[0]
    assert is_narrow(made.models["w"])
    for name in ("w.mean", "w.square", "w.faded", "b.velocity", "x.mean"):
        assert not is_narrow(made.models[name]), name


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_what_models_start_with_is_rounded(machine: str) -> None:
    """By the rule, by the columns, by another model."""
    still = BATCHES.replace("0.05", "0.0")
    graph = compile_rule(still).hdfg.bind({"n": 5})
    made = trained(still, COLUMNS, machine=machine, epochs=1)[0]
    plain = trained(still, COLUMNS, machine=machine, epochs=1, stored_as=None)[0]
    for name in ("w", "b"):
        np.testing.assert_array_equal(made.models[name], numerics.bfloat16(plain.models[name]))
        assert not is_narrow(plain.models[name])
    start = {"w": np.float32([0.1, 0.2, 0.3, 0.4, 0.7])}
    made = trained(still, COLUMNS, machine=machine, epochs=1, models=start)[0]
    np.testing.assert_array_equal(made.models["w"], numerics.bfloat16(start["w"]))
    assert graph.narrow_models == frozenset()


def test_predictions_round_what_they_read() -> None:
    raw = RAW.replace("init=dana.column_mean(y)", "")
    made = trained(raw, COLUMNS)[0]
    rounded = {"x": numerics.bfloat16(COLUMNS["x"])}
    assert made.predict(COLUMNS).tolist() == made.predict(rounded).tolist()
    plain = trained(raw, COLUMNS, stored_as=None)[0]
    assert plain.predict(COLUMNS).tolist() != plain.predict(rounded).tolist()


def test_row_numbers_are_not_rounded() -> None:
    """257 is no bfloat16, and would choose the row of 256."""
    columns = {"i": np.full(64, 257.0), "j": np.arange(64.0), "y": np.arange(64.0)}
    made = trained(rules.text("lrmf"), columns)[0]
    assert made.models["a"][257] != 0
    assert made.models["a"][256] == 0


def test_what_is_narrow() -> None:
    graph = compile_rule(ADDED).hdfg.bind({})
    assert narrow_inputs(graph) == {"x"}
    assert {graph.nodes[k].name for k in narrow_models(graph)} == {"b"}
    made = narrowed(graph)
    assert made.narrow_models == {"b"}
    assert parse_graph(graph_text(made)) == made
    chooses = ADDED.replace("w[c]", "w[dana.floor(c)]")
    assert narrow_inputs(compile_rule(chooses).hdfg) == {"x"}
    assert sum(node.op is Op.BFLOAT16 for node in made.nodes) == 2


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_columns_far_from_0_are_centred(machine: str) -> None:
    """Of features that a rule standardises, and of labels with an intercept; others are reported."""
    away = {"x": COLUMNS["x"] + np.float32(1000), "y": COLUMNS["y"] + np.float32(1000)}
    near = trained(BATCHES, COLUMNS, machine=machine, epochs=40)[0]
    made, told = trained(BATCHES, away, machine=machine, epochs=40)
    assert made.centres.features
    assert made.centres.label
    assert not [one for one in told if one.level is Level.WARNING]
    assert made.loss == pytest.approx(near.loss, rel=0.3)
    constant = RAW.replace("0.05", "0.0")
    (warned,) = [one.message for one in trained(constant, away, machine=machine)[1] if "bfloat16" in one.message]
    assert "as large as those of array x differ by more than 4% of the standard deviation" in warned
    assert not [one for one in trained(constant, away, stored_as=None)[1] if "bfloat16" in one.message]


def test_numbers_that_there_are_not() -> None:
    with pytest.raises(TrainingError, match="stored_as must be one of binary32, bfloat16, not 'float16'"):
        trained(BATCHES, COLUMNS, stored_as="float16")


@pytest.mark.parametrize("name", ["linear", "logistic", "lasso"])
@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_rules_that_are_solved_need_binary32(name: str, machine: str) -> None:
    with pytest.raises(TrainingError, match=f"rule '{name}' takes steps of .*_gradients, .* must not be 'bfloat16'"):
        trained(rules.text(name), CLASSES, machine=machine)
    trained(rules.text(name), CLASSES, machine=machine, stored_as="binary32", epochs=1)
