"""The worker's trainer: pages in, models out; what cannot be trained is refused with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dana import rules
from dana.storage.builder import build_pages
from dana.trainer import training
from dana.trainer.contract import (
    Level,
    Notice,
    OutOfLine,
    Relation,
    Sink,
    Training,
    TrainingError,
    TrainRequest,
    TrainResult,
)
from dana.trainer.data.classes import prediction_kind
from dana.trainer.loop import run
from dana.trainer.trainer import MachineTrainer
from dsl import compile_rule
from tests.guarded import consumed
from tests.storage.schemas import attribute

LOGISTIC = """
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.1)
size = dana.meta(8)
logistic = dana.algo(w, x, y)
p = dana.sigmoid(dana.sigma(w * x, 1))
grad = logistic.merge((p - y) * x, size, "+")
logistic.setModel(w - lr * grad / 8)
logistic.setLoss((p - y) * (p - y))
logistic.setPrediction(p)
logistic.setEpochs(3)
"""


def relation(columns: Sequence[tuple[str, str]], pages: int = 1, **more: Any) -> Relation:
    attributes = tuple(attribute(name, kind, **(more if kind == "real[]" else {})) for name, kind in columns)
    return Relation(name="public.t", pages=pages, page_size=8192, attributes=attributes)


def request(table: Relation, **changes: Any) -> TrainRequest:
    fields: dict[str, Any] = {
        "rule": "logistic",
        "text": LOGISTIC,
        "relation": table,
        "features": None,
        "label": "y",
        "epochs": None,
        "hyper": {},
        "machine": "sim",
        "design": {},
    }
    return TrainRequest(**{**fields, **changes})


def feed(training: Training, sink: Sink, pages: bytes) -> int:
    if status := consumed(sink.function, sink.context, pages):
        raise training.failure(status)
    return len(pages) // 8192


def train(
    asked: TrainRequest,
    pages: bytes,
    notify: Callable[[Notice], None] = lambda notice: None,
    trainer: MachineTrainer | None = None,
) -> TrainResult:
    training = (trainer or MachineTrainer()).open(asked, notify)
    try:
        return run(training, asked, feed=lambda sink: feed(training, sink, pages), notify=notify).result
    finally:
        training.close()


REALS = [*((f"x{k}", "real") for k in range(5)), ("y", "real")]


def rows(count: int, seed: int = 1) -> list[list[Any]]:
    random = np.random.default_rng(seed)
    return [[*random.standard_normal(5), float(k % 2)] for k in range(count)]


def test_simulator_equals_interpreter() -> None:
    table = relation(REALS, pages=2)
    pages = build_pages(table.schema, rows(150))
    results = [train(request(table, machine=machine), pages) for machine in ("sim", "interp")]
    left, right = (result.parameters[0].values.view(np.uint32) for result in results)
    np.testing.assert_array_equal(left, right, strict=True)
    assert results[0].predictor == results[1].predictor is not None
    assert results[0].modelled_seconds is not None


def test_hyperparameters_change_the_model_and_the_batch_size() -> None:
    table = relation(REALS, pages=1)
    pages = build_pages(table.schema, rows(40))
    for hyper in ({"lr": 0.5}, {"size": 16}, {"lr": 0.01, "size": 1}):
        found = [train(request(table, machine=b, hyper=hyper), pages).parameters[0].values for b in ("sim", "interp")]
        assert found[0].tobytes() == found[1].tobytes() != train(request(table), pages).parameters[0].values.tobytes()


def test_what_a_loss_measures_is_found_once_for_a_rule_and_its_metas(monkeypatch: pytest.MonkeyPatch) -> None:
    table = relation(REALS, pages=1)
    pages = build_pages(table.schema, rows(40))
    found, asked = training.minimised, list[dict[str, float]]()
    monkeypatch.setattr(training, "minimised", lambda graph, metas: asked.append(metas) or found(graph, metas))
    training._minimised.cache_clear()
    for share in (0.3, 0.3, 0.7, 0.3):
        hyper = {"q": share}
        result = train(request(table, rule="quantile", text=rules.text("quantile"), epochs=1, hyper=hyper), pages)
        assert result.metadata["quantile"] == share
    assert [metas["q"] for metas in asked] == [0.3, 0.7]


@pytest.mark.parametrize("machine", ["sim", "interp"])
@pytest.mark.parametrize(
    ("columns", "content", "words"),
    [
        (REALS, [], "public.t has no row to train on"),
        (REALS, [[None] * 6] * 3, "all 3 have a NULL"),
        (
            [("x", "real[]"), ("y", "real")],
            [[np.ones(3), 1.0], [np.ones(3), 0.0], [np.ones(4), 1.0]],
            "an array in use has another length than the first row's.*page 0 of public.t, line pointer 3",
        ),
    ],
)
def test_tables_that_cannot_be_trained_on(
    machine: str, columns: list[tuple[str, str]], content: list[list[Any]], words: str
) -> None:
    table = relation(columns, array_length=3)
    pages = build_pages(table.schema, content) or bytes(8192)
    with pytest.raises(TrainingError, match=words) as caught:
        train(request(table, machine=machine), pages)
    assert caught.value.sqlstate == "22000"


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_damaged_page_stops_the_training(machine: str) -> None:
    table = relation(REALS)
    page = bytearray(build_pages(table.schema, rows(30)))
    page[24 + 4 * 6 : 24 + 4 * 6 + 4] = (8190 | 1 << 15 | 500 << 17).to_bytes(4, "little")
    with pytest.raises(
        TrainingError, match=r"line pointer points outside.*page 0 of public\.t, line pointer 7"
    ) as caught:
        train(request(table, machine=machine), bytes(page))
    assert caught.value.sqlstate == "XX001"
    assert "pg_amcheck" in caught.value.hint


@pytest.mark.parametrize("machine", ["sim", "interp"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_asked_for_as_rows_or_end_the_training(machine: str, bad: float) -> None:
    table = relation(REALS)
    content = rows(10)
    content[3][2] = bad
    pages = build_pages(table.schema, content)
    with pytest.raises(OutOfLine, match="NaN or infinite"):
        train(request(table, machine=machine), pages)
    lossless = LOGISTIC.replace("logistic.setLoss((p - y) * (p - y))\n", "")
    told: list[Notice] = []
    with pytest.raises(TrainingError, match="the training gave no finite result: 5 of 5 elements of w") as raised:
        train(request(table, machine=machine, nonfinite="keep", text=lossless), pages, told.append)
    assert raised.value.sqlstate == "22000"
    assert raised.value.detail == "Columns of public.t hold NaN or infinite values, which are kept: x2 (1)."
    assert "rate" not in raised.value.hint
    assert "columns of public.t hold NaN or infinite values, which are kept: x2 (1)" in [one.message for one in told]
    with pytest.raises(TrainingError, match="the training gave no finite result: the loss of epoch 1 is nan") as raised:
        train(request(table, machine=machine, nonfinite="keep"), pages)
    assert "x2 (1)" in raised.value.detail


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_a_training_that_runs_away_though_all_values_are_numbers(machine: str) -> None:
    table = relation(REALS)
    source = LOGISTIC.replace("dana.sigmoid(dana.sigma(w * x, 1))", "dana.sigma(w * x, 1)")
    asked = request(table, machine=machine, nonfinite="keep", hyper={"lr": 1e38}, text=source)
    with pytest.raises(TrainingError, match="the training diverged: ") as raised:
        train(asked, build_pages(table.schema, rows(10)))
    assert raised.value.hint.startswith("Lower the learning rate, as in hyper => '{\"lr\": 1e+37}', standardise")
    for text, said in (
        (source.replace("lr = dana.meta(0.1)", "lr = dana.meta(0.1)\nquarter = dana.meta(1e38)"), '{"lr": 1e+37}'),
        (source.replace("lr", "rate"), '{"rate": 1e+37}'),
        (source.replace("lr", "quarter"), "Lower quarter, as in hyper => '{\"quarter\": 1e+37}', "),
    ):
        hyper = {name: 1e38 for name in ("lr", "rate", "quarter") if f"{name} = dana.meta" in text}
        with pytest.raises(TrainingError) as raised:
            train(replace(asked, text=text, hyper=hyper), build_pages(table.schema, rows(10)))
        assert said in raised.value.hint


STANDARDIZED = LOGISTIC.replace("p = dana", "z = dana.functions.standardized(x)\np = dana").replace("w * x", "w * z")


@pytest.mark.parametrize("machine", ["sim", "interp"])
@pytest.mark.parametrize(
    "columns",
    [REALS, [("x", "real[]"), ("y", "real")], [("x0", "bigint"), ("x1", "double precision"), ("y", "boolean")]],
)
def test_statistics_of_the_columns_start_the_states(columns: list[tuple[str, str]], machine: str) -> None:
    table = relation(columns, array_length=3)
    rng = np.random.default_rng(2)
    wide = columns[0][1] == "real[]"
    values = (rng.standard_normal((300, 3 if wide else len(columns) - 1)) * 1e6 + 3e7).astype(np.float32)
    values[:, 0] = 5.0
    labels = [float(k % 2) for k in range(300)]
    kinds = {"bigint": int, "boolean": bool}
    content = [
        [list(map(float, row)), label]
        if wide
        else [kinds.get(kind, float)(value) for (_, kind), value in zip(columns, [*row, label], strict=True)]
        for row, label in zip(values, labels, strict=True)
    ]
    notices: list[Notice] = []
    pages = build_pages(table.schema, content)
    asked = request(replace(table, pages=len(pages) // 8192), text=STANDARDIZED, machine=machine)
    found = {one.name: one.values for one in train(asked, pages, notices.append).parameters}
    seen = values.astype(np.int64) if columns[0][1] == "bigint" else values
    np.testing.assert_array_equal(found["x.mean"], seen.astype(np.float64).mean(axis=0).astype(np.float32))
    np.testing.assert_allclose(found["x.scale"][1:], 1 / values[:, 1:].std(axis=0, dtype=np.float64), rtol=1e-6)
    assert found["x.scale"][0] == 1
    assert [one.message for one in notices if one.level is Level.NOTICE] == (
        [] if wide else ["column x0 of public.t has a single value in all rows"]
    )
    same = {one.name: one.values for one in train(replace(asked, machine="interp"), pages).parameters}
    assert all(np.array_equal(found[name].view(np.uint32), same[name].view(np.uint32)) for name in found)
    plain = {one.name: one.values for one in train(replace(asked, standardize=False), pages).parameters}
    assert not plain["x.mean"].any()
    assert (plain["x.scale"] == 1).all()
    warm = {name: np.full_like(value, 2) for name, value in found.items()}
    kept = {one.name: one.values for one in train(replace(asked, warm_start_from=warm), pages).parameters}
    assert (kept["x.mean"] == 2).all()


SOURCE_OF_OPTIMISER = """
import dana
n = dana.dim()
w, x, y = dana.model([n]), dana.input([n]), dana.output()
line = dana.algo(w, x, y)
line.setLoss((w @ x - y) * (w @ x - y))
line.minimize(dana.optimizers.{}, batch=4)
line.setPrediction(w @ x)
"""


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_a_warm_start_with_another_optimiser(machine: str) -> None:
    """What only one of them remembers is left, or begins as the rule says; what both do is carried over."""
    schema = relation(REALS)
    pages = build_pages(schema.schema, rows(100), page_size=8192)
    asked = {
        name: request(schema, text=SOURCE_OF_OPTIMISER.format(name), machine=machine, epochs=2)
        for name in ("sgd", "adam")
    }
    first = {one.name: one.values for one in train(asked["adam"], pages).parameters}
    assert len(first) > 1
    for name in asked:
        warm = replace(asked[name], warm_start_from=first)
        found = {one.name: one.values for one in train(warm, pages).parameters}
        cold = {one.name: one.values for one in train(asked[name], pages).parameters}
        assert not np.array_equal(found["w"], cold["w"])
        assert set(found) == set(cold)
    plain = {one.name: one.values for one in train(asked["sgd"], pages).parameters}
    train(replace(asked["adam"], warm_start_from=plain), pages)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"machine": "gpu"}, 'argument "machine" must be one of sim, rtl, interp, not ' + "'gpu'"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"hyper": {"rate": 1}}, "no hyperparameter 'rate'; it has: lr, size"),
        ({"hyper": {"lr": "big"}}, 'must be a finite number, not "big"'),
        ({"hyper": {"size": 2.5}}, "whole number from 1 to 16,777,216, not 2.5"),
        ({"features": ("x0", "nope")}, "column 'nope' of public.t does not exist"),
        ({"design": {"threads": 3}}, "threads must be a power of two"),
        ({"design": {"cores": 3}}, "no 'cores'"),
        ({"text": "import os"}, "os"),
        ({"warm_start_from": {"w": np.zeros(3, np.float32)}}, "on this table: w has shape [3], not [5]"),
        (
            {"warm_start_from": {k: np.zeros(5, np.float32) for k in ("w", *"abcde")}},
            "on this table: it has a, b, c and 2 more, which the rule does not have",
        ),
        (
            {"warm_start_from": {"v": np.zeros(5, np.float32)}},
            "does not fit rule 'logistic' on this table: it has no w; it has v, which the rule does not have",
        ),
        (
            {"warm_start_from": {"w": np.zeros(5, np.float32), "x.mean": np.zeros(5, np.float32)}},
            "on this table: it has x.mean, which the rule does not have",
        ),
    ],
)
def test_requests_that_cannot_be_met(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TrainingError) as caught:
        MachineTrainer().open(request(relation(REALS), **changes), lambda notice: None)
    assert words in caught.value.message


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_a_start_of_other_row_counts_names_the_dims(machine: str) -> None:
    table = relation([("i", "integer"), ("j", "integer"), ("y", "real")])
    shapes = {"U": (40, 3), "V": (10, 3), "a": (40,), "b": (10,), "mean": (), "deviation": (), "scale": ()}
    start = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    asked = request(
        table,
        text=rules.text("lrmf"),
        rule="lrmf",
        label="y",
        features=("i", "j"),
        warm_start_from=start,
        machine=machine,
        hyper={"m": 30, "n": 10, "k": 3},
    )
    with pytest.raises(TrainingError, match=r"U has shape \[40, 3\], not \[30, 3\]") as caught:
        MachineTrainer().open(asked, lambda notice: None)
    assert """Use hyper => '{"m": 40}', the number of rows""" in caught.value.hint
    with pytest.raises(TrainingError) as caught:
        MachineTrainer().open(replace(asked, hyper={"m": 30, "n": 10, "k": 4}), lambda notice: None)
    assert caught.value.hint.startswith("Train on columns like those")


CLASSES = """
import dana
n = dana.dim()
k = dana.dim(3)
W = dana.model([k, n])
x = dana.input([n])
y = dana.output()
classes = dana.algo(W, x, y)
error = dana.sigma(W * x, 2) - (dana.arange(k) == y)
classes.setModel(W - 0.1 * classes.merge(dana.expand(error, 2) * x, 8, "+") / 8)
"""


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_labels_say_how_many_classes_there_are(machine: str) -> None:
    table = relation(REALS)
    pages = build_pages(table.schema, rows(40))
    source = CLASSES.replace("dim(3)", "dim()").replace("output()", "output(classes=k)")
    four = ("a", "b", "c", "d")

    def trained(**asked: Any) -> TrainResult:
        return train(request(table, text=source, machine=machine, **asked), pages)

    assert trained().parameters[0].values.shape == (2, 5), "nobody says it"
    result = trained(classes=four)
    assert result.parameters[0].values.shape == (4, 5)
    assert (result.metadata["dims"], result.metadata["predicts"]) == ({"k": 4}, "number")
    assert trained(classes=four, hyper={"k": 6}).parameters[0].values.shape == (6, 5)
    with pytest.raises(TrainingError, match="the labels have 4 classes, more than hyper gives to 'k': 3"):
        trained(classes=four, hyper={"k": 3})
    two = source.replace("k = dana.dim()", "k = 2")
    for names, count in ((four, "4 classes"), (("a",), "1 class")):
        with pytest.raises(TrainingError, match=f"have {count}, but rule 'logistic' has 2"):
            train(request(table, text=two, machine=machine, classes=names), pages)


@pytest.mark.parametrize(
    ("prediction", "kind"),
    [
        ("dana.softmax(score)", "probability"),
        ("power / dana.sigma(power, 1)", "probability"),
        ("power * (1 / dana.sigma(power, 1))", "probability"),
        ("(1 / dana.sigma(power, 1)) * power", "probability"),
        ("power * (2 / dana.sigma(power, 1))", "score"),
        ("power / dana.sigma(score, 1)", "score"),
        ("dana.sigmoid(score)", "score"),
        ("score", "score"),
        ("dana.sigmoid(dana.sigma(score, 1))", "probability"),
        ("dana.sigma(score, 1)", "score"),
    ],
)
def test_what_a_prediction_is(prediction: str, kind: str) -> None:
    lines = CLASSES.splitlines()
    lines += ["score = dana.sigma(W * x, 2)", "power = dana.exp(score)", f"classes.setPrediction({prediction})"]
    text = "\n".join(lines)
    assert prediction_kind(compile_rule(text.replace("output()", "output(classes=k)")).hdfg) == kind
    if "sigma(score, 1)" in prediction and "power" not in prediction:
        assert prediction_kind(compile_rule(text).hdfg) == "number"


def test_an_extent_is_a_hyperparameter_that_makes_another_design() -> None:
    table = relation(REALS)
    pages = build_pages(table.schema, rows(40))
    for hyper, count in (({}, 3), ({"k": 4}, 4)):
        results = [train(request(table, text=CLASSES, machine=b, hyper=hyper), pages) for b in ("sim", "interp")]
        left, right = (result.parameters[0].values for result in results)
        assert left.shape == (count, 5)
        assert left.tobytes() == right.tobytes()
        assert results[0].metadata["dims"] == {"k": count}
    with pytest.raises(TrainingError, match="'k' is an extent of the rule and must be a whole number"):
        train(request(table, text=CLASSES, hyper={"k": 2.5}), pages)
    with pytest.raises(TrainingError, match="no hyperparameter 'm'; it has: k"):
        train(request(table, text=CLASSES, hyper={"m": 2}), pages)


@pytest.mark.parametrize("machine", ["sim", "interp"])
@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([float(k >= 150) for k in range(300)], True),
        ([float(k >= 2700) for k in range(3000)], True),
        ([float(k) for k in range(300)], True),
        ([float(-k) for k in range(256)], True),
        ([float(k % 2) for k in range(300)], False),
        ([float(k * 7919 % 300) for k in range(300)], False),
        ([1.0] * 300, False),
        ([0.0, 1.0], False),
        ([3.0], False),
    ],
)
def test_rows_in_the_order_of_their_labels_are_said(labels: list[float], said: bool, machine: str) -> None:
    """Whose last batches are all alike: a model may be bad, and its loss does not show it."""
    table = relation([("x0", "real"), ("y", "real")])
    draw = np.random.default_rng(5)
    pages = build_pages(table.schema, [[float(draw.normal()), label] for label in labels])
    notices: list[Notice] = []
    asked = request(replace(table, pages=len(pages) // 8192), text=STANDARDIZED, machine=machine, shuffle=False)
    train(asked, pages, notices.append)
    assert any("alike in column y lie together" in one.message for one in notices) is said


@pytest.mark.parametrize(
    ("rows", "users", "sorted_by_user", "said"),
    [(1000, 70, True, True), (1000, 70, False, False), (999, 70, True, False), (1000, 60, True, False)],
)
def test_neighbours_that_choose_the_same_row_are_said(rows: int, users: int, sorted_by_user: bool, said: bool) -> None:
    """A table of ratings, sorted by user: the last ratings of each have the last word, and hardware waits."""
    table = relation([("i", "real"), ("j", "real"), ("y", "real")])
    ratings = [(k * users // rows if sorted_by_user else k % users, k * 7 % 90, k % 5) for k in range(rows)]
    pages = build_pages(table.schema, ratings, page_size=8192)
    told: list[Notice] = []
    asked = request(table, rule="lrmf", text=rules.text("lrmf"), epochs=2, hyper={"m": users}, shuffle=False)
    train(asked, pages, told.append)
    of_order = [one for one in told if "choose the same row of a model as the row before them" in one.message]
    assert len(of_order) == said
    if said:
        assert "1.07 are trained side by side instead of up to 32" in of_order[0].message
        assert of_order[0].hint.endswith(": shuffle => true.")


ROWS_OF_BOTH = """
import dana
n = dana.dim()
x = dana.input([n])
i = dana.input()
y = dana.output()
w = dana.model([n])
b = dana.model([9])
rule = dana.algo(w, b, x, i, y)
e = w @ x + b[i] - y
rule.setModel(w, w - 0.1 * e * x)
rule.setModel(b[i], b[i] - 0.1 * e)
rule.setLoss(e * e)
"""


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_columns_that_have_the_name_of_another_input(machine: str) -> None:
    table = relation([("i", "real"), ("u", "real"), ("v", "real"), ("y", "real")])
    pages = build_pages(table.schema, [(k % 9, k / 10, -k / 7, k / 5) for k in range(20)], page_size=8192)
    asked = request(table, rule="both", text=ROWS_OF_BOTH, machine=machine, epochs=1)
    with pytest.raises(TrainingError) as raised:
        train(asked, pages)
    assert raised.value.message == (
        "column 'i' of public.t would fill input x, though the rule has an input i: "
        "columns are taken in the table's order (x would take i, u; i would take v)"
    )
    assert raised.value.hint.startswith("Name them in the order of the rule's inputs (x, i)")
    told: list[Notice] = []
    train(replace(asked, features=("u", "v", "i")), pages, told.append)
    assert not told
    swapped = request(
        relation([("i", "real"), ("j", "real"), ("y", "real")]),
        rule="lrmf",
        text=rules.text("lrmf"),
        machine=machine,
        epochs=1,
        features=("j", "i"),
    )
    pages = build_pages(swapped.relation.schema, [(1, 2, 3), (2, 1, 4)], page_size=8192)
    train(swapped, pages, told.append)
    assert [one.message for one in told] == [
        "columns of public.t are taken in the order of features, not by name: j to i; i to j"
    ]
    assert told[0].hint == "The rule's inputs are, in order, i, j: name the columns in that order."
    told.clear()
    train(replace(swapped, features=None), pages, told.append)
    assert not told
