"""When a training ends, and which model it keeps: by the loss of its epochs, or on rows held out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import stochastic
from benchmarks.accuracy.data import CARRIED
from dana import rules
from dana.compiler import bind
from dana.compiler.binding.weights import weighted
from dana.storage.builder import build_pages
from dana.trainer.arrays import train as train_arrays
from dana.trainer.constant import constant_loss, weighs_loss
from dana.trainer.contract import Constant, EpochReport, HeldOut, Level, Notice, TrainingError, TrainRequest
from dana.trainer.loop import NONE_LEFT_OUT, Outcome, run
from dana.trainer.losses import loss_graph
from dana.trainer.machine_code import VARIABLE
from dana.trainer.stopping import Stopping
from dana.trainer.trainer import MachineTrainer
from dana.trainer.training import MachineTraining
from dana.trainer.verdict import _risen, _still_falls
from dsl import compile_rule
from dsl.hdfg.graph import Graph
from dsl.hdfg.interpreter import Interpreter
from dsl.hdfg.text import graph_text, parse_graph
from hwgen.cache import CacheFolder
from hwgen.spec import numerics
from tests.guarded import consumed
from tests.trainer.test_training import feed, relation, request

PASSING = """
import dana
w = dana.model()
x = dana.input()
y = dana.output()
turn = dana.meta(5)
count = dana.state(w)
passing = dana.algo(w, x, y)
far = w - turn
dana.setState(count, count + passing.merge(1 + 0 * x, 512, "+"))
passing.setModel(w, w + passing.merge(1 + 0 * x, 512, "+") / passing.merge(1 + 0 * y, 512, "+"))
passing.setLoss(far * far)
passing.setEpochs(60)
"""
"""Its model is the number of epochs, and its loss falls until it is `turn` and rises from there."""
TABLE = relation([("x", "real"), ("y", "real")], pages=1)
PAGES = build_pages(TABLE.schema, [[1.0, float(k % 2)] for k in range(40)])


def passed(**changes: Any) -> Outcome:
    asked = request(TABLE, **{"rule": "passing", "text": PASSING, **changes})
    return trained(asked, PAGES)


def trained(
    asked: TrainRequest, pages: bytes, held_out: HeldOut | None = None, told: list[Notice] | None = None
) -> Outcome:
    training = MachineTrainer().open(asked, lambda notice: None)
    notify = (lambda notice: None) if told is None else told.append
    try:
        return run(training, asked, feed=lambda sink: feed(training, sink, pages), notify=notify, held_out=held_out)
    finally:
        training.close()


def model(outcome: Outcome, name: str = "w") -> Any:
    (found,) = (one.values for one in outcome.result.parameters if one.name == name)
    return found


@pytest.mark.parametrize("machine", ["sim", "interp"])
@pytest.mark.parametrize(
    ("changes", "epochs", "kept", "converged"),
    [
        ({}, 36, 6, False),  # the loss of an epoch is that of the model before it, and rises from there
        ({"patience": 3}, 9, 6, False),
        ({"patience": 0}, 60, 60, False),
        ({"patience": 3, "epochs": 8}, 8, 6, False),
        ({"epochs": 4}, 4, 4, False),
        ({"patience": 3, "tolerance": 0.9}, 4, 4, True),  # 25, 16, 9, 4: improvements, but none to a tenth
    ],
)
def test_the_best_model_is_kept(machine: str, changes: Any, epochs: int, kept: int, converged: bool) -> None:
    outcome = passed(machine=machine, **changes)
    assert (len(outcome.reports), outcome.converged) == (epochs, converged)
    assert outcome.result.metadata["epoch"] == model(outcome) == kept
    assert outcome.kept == replace(outcome.reports[kept - 1], loss=float((kept - 5) ** 2))


def test_states_are_the_best_model_s() -> None:
    outcome = passed(patience=3)
    (state,) = (one.values for one in outcome.result.parameters if one.name != "w")
    assert float(state) == 6 * 40
    warm = {one.name: one.values for one in outcome.result.parameters}
    again = passed(patience=3, warm_start_from=warm)
    assert (len(again.reports), again.result.metadata["epoch"], model(again)) == (4, 1, 7)


def test_a_loss_that_stands_still_has_converged() -> None:
    def ends(losses: list[float]) -> int | None:
        stopping = Stopping(patience=20, tolerance=1e-3)
        for epoch, loss in enumerate(losses, start=1):
            stopping.better(loss, 0.01)
            if stopping.over:
                return epoch
        return None

    assert ends([1.0, 0.5, *[0.3 + 1e-5 * (k % 3) for k in range(20)]]) == 13
    assert ends([-1.0, -1.5, *[-1.7 + 1e-5 * (k % 3) for k in range(20)]]) == 13, "of a log likelihood"
    assert ends([0.0] * 20) == 11
    assert ends([1 + 0.1 * (k % 4) for k in range(20)]) is None, "it swings"
    assert ends([1 + 0.1 * (k % 4) for k in range(30)]) == 21
    assert ends([-1.0 - k for k in range(100)]) is None


@pytest.mark.parametrize(
    "changes", [{"patience": -1}, {"tolerance": -0.5}, {"tolerance": float("nan")}, {"tolerance": float("inf")}]
)
def test_what_is_no_patience(changes: Any) -> None:
    with pytest.raises(TrainingError, match="must be at least 0") as caught:
        passed(**changes)
    assert caught.value.sqlstate == "22023"


# rows held out


def held(asked: TrainRequest, pages: bytes, trainer: MachineTrainer, most: int = 1 << 20) -> HeldOut:
    held_out = trainer.held_out(asked)
    assert held_out is not None
    held_out.begin(most)
    assert consumed(held_out.sink.function, held_out.sink.context, pages) == 0
    return held_out


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_rows_held_out_choose_the_model(machine: str) -> None:
    asked = request(TABLE, rule="passing", text=PASSING, machine=machine, patience=4, validates=True)
    outcome = trained(asked, PAGES, held(asked, PAGES, MachineTrainer()))
    assert [one.validation_loss for one in outcome.reports] == [float((k - 5) ** 2) for k in range(1, 10)]
    assert outcome.result.metadata["epoch"] == 5
    assert (model(outcome), outcome.kept.validation_loss) == (5, 0.0)


@pytest.mark.parametrize(("validates", "kept"), [(True, 5), (False, 9)])
def test_a_loss_measured_on_the_way_alone_has_a_margin(validates: bool, kept: int) -> None:
    """Losses of 1,000 to 1,016, mostly within a hundredth of the least: of those on rows left out the least counts."""
    text = PASSING.replace("far * far)", "1000 + far * far)")
    asked = request(TABLE, rule="passing", text=text, patience=4, tolerance=0.0, validates=validates)
    outcome = trained(asked, PAGES, held(asked, PAGES, MachineTrainer()) if validates else None)
    assert outcome.result.metadata["epoch"] == model(outcome) == kept


def test_rows_held_out_choose_the_model_of_a_rule_that_is_solved() -> None:
    """Of 24 rows of noise in 20 columns and one that counts: the solution is the worst on other rows."""
    random = np.random.default_rng(1)
    table = relation([*((f"x{k}", "real") for k in range(21)), ("y", "real")], pages=1)

    def pages(rows: int) -> bytes:
        x = random.normal(size=(rows, 21))
        return build_pages(table.schema, np.column_stack([x, x[:, 0] + random.normal(size=rows)]).tolist())

    asked = request(table, rule="linear", text=rules.text("linear"), validates=True)
    outcome = trained(asked, pages(24), held(asked, pages(400), MachineTrainer()))
    losses = [one.validation_loss for one in outcome.reports]
    kept = outcome.result.metadata["epoch"]
    assert 1 < kept < len(losses) - 3
    assert outcome.kept.validation_loss == losses[kept - 1] == min(losses, key=lambda one: one or 0)


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_a_model_whose_loss_is_no_number_is_an_error(machine: str) -> None:
    """The loss of its only epoch is that of the model before."""
    text = PASSING.replace("w + passing.merge(", "w + 1e25 * passing.merge(")
    with pytest.raises(TrainingError, match="the loss of the model is"):
        passed(text=text, machine=machine, epochs=1)


@pytest.mark.parametrize("rule", ["linear", "logistic", "softmax", "mlp", "huber", "poisson", "quantile", "linear_svm"])
def test_the_validation_loss_is_what_the_rule_says(rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter, which knows of no judge, finds the same loss of the same models, bit for bit."""
    random = np.random.default_rng(5)
    table = relation([("a", "real"), ("b", "real"), ("y", "real")], pages=2)
    rows = np.column_stack([random.normal(3, 2, (150, 2)), np.arange(150) % 2]).astype(np.float32)
    pages = build_pages(table.schema, rows.tolist())
    extents = {"k": 2} if rule in ("softmax", "mlp") else {}
    trainer = MachineTrainer(CacheFolder(path=tmp_path, limit=1 << 24))
    losses = []
    for machine, code in (("sim", "never"), ("sim", "always"), ("interp", "never")):
        monkeypatch.setenv(VARIABLE, code)
        asked = request(table, rule=rule, text=rules.text(rule), machine=machine, epochs=3, hyper=dict(extents))
        outcome = trained(asked, pages, held(asked, pages, trainer))
        losses.append([(one.loss, one.validation_loss) for one in outcome.reports])
    assert losses[0] == losses[1] == losses[2]
    graph = bind(compile_rule(rules.text(rule), filename=rule).hdfg, table.schema, None, "y", extents).graph
    models = {one.name: one.values for one in outcome.result.parameters}
    still = Interpreter(replace(graph, updates=(), convergence=None), numerics)
    expected = still.train({"x": rows[:, :2], "y": rows[:, 2]}, models, epochs=1)
    # the rows are the same, but the loss of an epoch is that of models that change
    assert outcome.kept.loss == outcome.kept.validation_loss == expected.losses[0]
    assert rule in ("linear", "logistic", "softmax", "poisson") or outcome.kept.loss != outcome.reports[-1].loss


def test_models_beside_the_chip_are_judged_there(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    table = relation([("i", "integer"), ("j", "integer"), ("y", "real")], pages=2)
    rows = [[int(random.integers(600_000)), int(random.integers(300)), float(random.normal())] for _ in range(150)]
    pages = build_pages(table.schema, rows)
    sizes = {"m": 600_000, "n": 300}
    losses = []
    for machine, code in (("sim", "never"), ("sim", "always"), ("interp", "never")):
        monkeypatch.setenv(VARIABLE, code)
        asked = request(table, rule="lrmf", text=rules.text("lrmf"), machine=machine, epochs=3, hyper=sizes)
        held_out = held(asked, pages, MachineTrainer())
        assert held_out.design["config"]["record_depth"] > 0
        losses.append([(one.loss, one.validation_loss) for one in trained(asked, pages, held_out).reports])
    assert losses[0] == losses[1] == losses[2]


def test_rows_held_out_that_are_none_or_too_many() -> None:
    asked = request(TABLE, rule="passing", text=PASSING, patience=3, validates=True)
    empty = build_pages(TABLE.schema, [[None, None]] * 3)
    for held_out in (held(asked, empty, MachineTrainer()), held(asked, PAGES, MachineTrainer(), most=8000)):
        outcome = trained(asked, PAGES, held_out)
        assert [one.validation_loss for one in outcome.reports] == [None] * 9
        assert outcome.result.metadata["epoch"] == 6
    for validates, told in ((True, [NONE_LEFT_OUT]), (False, [])):
        said: list[Notice] = []
        trained(replace(asked, validates=validates), PAGES, held(asked, empty, MachineTrainer()), said)
        assert [one for one in said if "usable" in one.message] == told, "rows that only judge choose no epoch"


def test_a_rule_without_a_loss_runs_all_epochs() -> None:
    source = PASSING.replace("passing.setLoss(far * far)\n", "")
    assert MachineTrainer().held_out(request(TABLE, rule="passing", text=source)) is None
    outcome = trained(request(TABLE, rule="passing", text=source), PAGES)
    assert (len(outcome.reports), outcome.converged, outcome.kept.loss) == (60, False, None)
    assert model(outcome) == 60


# no better than a constant


def said(rule: str, label: Any, machine: str = "sim", **changes: Any) -> list[str]:
    random = np.random.default_rng(3)
    table = relation([("a", "real"), ("b", "real"), ("y", "real")], pages=8)
    features = random.normal(50, 9, (700, 2))
    pages = build_pages(table.schema, [[*row, float(label(random, row))] for row in features])
    told: list[Notice] = []
    trained(request(table, rule=rule, text=stochastic.text(rule), machine=machine, **changes), pages, told=told)
    return [one.message for one in told]


NOISE = {
    "logistic": lambda random, row: random.random() < 0.3,
    "linear_svm": lambda random, row: random.random() < 0.3,
    "softmax": lambda random, row: random.integers(3),
    "mlp": lambda random, row: random.integers(3),
    "poisson": lambda random, row: random.poisson(3),
    **dict.fromkeys(
        ["linear", "ridge", "lasso", "elastic_net", "huber", "quantile"],
        lambda random, row: random.normal() * 1000 + 1e6,
    ),
}
SIGNAL = {
    **dict.fromkeys(NOISE, lambda random, row: row[0] > 50),
    **dict.fromkeys(["softmax", "mlp"], lambda random, row: (row[0] > 47) + int(row[0] > 53)),
    "poisson": lambda random, row: random.poisson(np.exp((row[0] - 50) / 9)),
}
CLASSES = {rule: {"classes": ("a", "b", "c")} for rule in ("softmax", "mlp")}


@pytest.mark.parametrize("rule", NOISE)
def test_noise_is_no_better_than_a_constant(rule: str) -> None:
    epochs = {"mlp": 1, "linear_svm": 3}.get(rule)  # a perceptron learns noise by heart
    (message,) = said(rule, NOISE[rule], epochs=epochs, **CLASSES.get(rule, {}))
    assert message.startswith("the model is no better than a constant prediction: its loss is ")
    assert not said(rule, SIGNAL[rule], **CLASSES.get(rule, {}))


def test_rows_left_out_say_it_too() -> None:
    """What is learnt by heart of some rows is no better than a constant on others."""
    table = relation([("a", "real"), ("b", "real"), ("y", "real")], pages=8)
    random = np.random.default_rng(3)
    features = random.normal(50, 9, (700, 2))
    pages = build_pages(table.schema, [[*row, float(row[0] + random.normal() > 50)] for row in features])
    others = build_pages(table.schema, [[*row, float(row[0] < 50)] for row in features[:200]])
    asked = request(table, rule="logistic", text=rules.text("logistic"))
    for rows, warned in ((pages, 0), (others, 1)):
        told: list[Notice] = []
        trained(asked, pages, held(asked, rows, MachineTrainer()), told)
        assert ["on the held-out rows the model is worse" in one.message for one in told] == [True] * warned


def test_rows_left_out_compare_the_best_epoch_with_a_constant() -> None:
    """The first epochs may be far worse."""
    table = relation([("a", "real"), ("b", "real"), ("y", "real")], pages=8)
    features = np.random.default_rng(3).normal(50, 9, (700, 2))
    pages = build_pages(table.schema, [[*row, 5.0 + 4 * float(row[0] > 50)] for row in features])
    asked = request(table, rule="poisson", text=stochastic.text("poisson"))
    told: list[Notice] = []
    outcome = trained(asked, pages, held(asked, pages, MachineTrainer()), told)
    first, kept = outcome.reports[0].loss, outcome.kept.loss
    assert first is not None
    assert kept is not None
    assert first > 5 * kept
    assert told == []


@pytest.mark.parametrize("rule", ["lasso", "quantile"])
def test_the_interpreter_says_the_same(rule: str) -> None:
    assert said(rule, NOISE[rule], "interp", epochs=2) == said(rule, NOISE[rule], epochs=2) != []


@pytest.mark.parametrize(
    ("rule", "class_weight"),
    [("linear", None), *(("linear_svm", given) for given in (None, {"0": 3, "1": 0.5}, "balanced"))],
)
def test_the_constant_is_weighted_as_the_loss_is(rule: str, class_weight: Any) -> None:
    random = np.random.default_rng(8)
    y, weight = (random.random(900) < 0.3).astype(np.float32), random.integers(0, 4, 900).astype(np.float32)
    columns = {"a": random.normal(size=900).astype(np.float32), "weight": weight, "y": y}
    told: dict[str, list[str]] = {"sim": [], "interp": []}
    for machine, texts in told.items():
        train_arrays(
            stochastic.text(rule),
            columns,
            features=["a"],
            label="y",
            weight="weight",
            class_weight=class_weight,
            epochs=3,
            machine=machine,
            hyper={"lr": 0.001},
            notify=lambda notice, texts=texts: texts.append(notice.message),
        )
    assert told["sim"] == told["interp"]
    (message,) = told["sim"]
    each = weight.astype(float)
    if class_weight == "balanced":
        each = each * np.where(y == 1, each.sum() / 2 / each[y == 1].sum(), each.sum() / 2 / each[y == 0].sum())
    elif class_weight is not None:
        each = each * np.where(y == 1, 0.5, 3)
    grid = np.linspace(-1, 1, 20001)
    share = float(each[y == 1].sum() / 900), float(each[y == 0].sum() / 900)
    # the squared hinge of both classes, the squared error
    loss = (
        share[0] * (1 - grid) ** 2 + share[1] * (1 + grid) ** 2
        if rule == "linear_svm"
        else share[0] * (1 - grid) ** 2 + share[1] * grid**2
    )
    assert f"that of a constant {loss.min():.5g}"[:-1] in message


def test_what_random_columns_explain_is_no_better_than_a_constant() -> None:
    random = np.random.default_rng(6)
    x = random.normal(size=(90, 8))
    told: list[Notice] = []
    for strength in (0.0, 1.0):
        columns = {f"x{k}": values for k, values in enumerate(x.T)} | {"y": strength * x[:, 0] + random.normal(size=90)}
        train_arrays(rules.text("linear"), columns, label="y", notify=told.append)
    (one,) = told
    assert one.message.endswith(", and 8 columns of random numbers explain as much")


def test_a_weight_that_does_not_multiply_the_loss_has_no_constant() -> None:
    source = rules.text("lasso")
    assert weighs_loss(source, "lasso")
    assert weighs_loss(rules.text("softmax"), "softmax")
    changed = source.replace("lasso.setLoss(loss", "lasso.setLoss(weight * loss")
    assert changed != source
    assert not weighs_loss(changed, "lasso")


def test_arrays_in_another_order_give_the_loss_of_the_kept_model() -> None:
    columns, _ = plane()
    columns = {**columns, "y": columns["y"] + np.random.default_rng(2).normal(0, 9, len(columns["y"])).astype("f4")}
    found = train_arrays(stochastic.text("linear"), columns, label="y", epochs=4, hyper={"lr": 0.02})
    error = found.predict(columns) - columns["y"]
    assert found.loss == pytest.approx(float((error.astype(float) ** 2).mean()), rel=1e-5)
    assert found.loss != found.losses[found.kept - 1]


def unweighted(graph: Graph) -> Graph:
    return weighted(graph, column=False, classes=False)


def constant_and_chance(rule: str, labels: Any, dims: dict[str, int] | None = None, **metas: float) -> Constant | None:
    graph = unweighted(compile_rule(rules.text(rule), filename=rule).hdfg.bind({"n": 2, **(dims or {})}))
    loss = loss_graph(graph)
    assert loss is not None
    values, counts = np.unique(np.float64(labels), return_counts=True)
    defaults = {str(graph.nodes[k].name): float(graph.nodes[k].value or 0) for k in graph.metas}
    return constant_loss(parse_graph(graph_text(loss)), values, counts.astype(float), {**defaults, **metas})


def best_constant(rule: str, labels: Any, dims: dict[str, int] | None = None, **metas: float) -> float | None:
    found = constant_and_chance(rule, labels, dims, **metas)
    return None if found is None else found.loss


def test_what_a_random_column_saves() -> None:
    """Half of a row's likelihood; of absolute errors, a number that does not depend on outliers."""
    random = np.random.default_rng(5)
    labels = random.normal(3e4, 700, 9000)
    outliers = np.concatenate([labels, random.normal(0, 1e8, 90)])
    density = 1 / np.sqrt(2 * np.pi) / 700
    expected = {
        "linear": (labels, 490_000.0, {}),
        "quantile": (labels, 0.25 / density / 2, {}),
        "poisson": (random.poisson(900, 2000), 0.5, {}),
        "logistic": ([0.0] * 700 + [1.0] * 300, 0.5, {}),
    }
    for rule, (given, chance, metas) in expected.items():
        found = constant_and_chance(rule, given, **metas)
        assert found is not None
        assert found.chance == pytest.approx(chance, rel=0.1), rule
    found = constant_and_chance("quantile", outliers)
    assert found is not None
    assert found.chance == pytest.approx(0.25 / density / 2, rel=0.1)
    assert found.loss > 300 * found.chance


def test_outliers_hide_no_model_of_absolute_errors() -> None:
    """They own the loss, and the columns explain nearly all of the other labels."""
    random = np.random.default_rng(7)
    x = random.normal(size=(3000, 2))
    y = x @ [2.0, -1.0] + random.normal(size=3000) / 10
    y[::50] += 1e3 * random.normal(size=60)
    columns = {"a": x[:, 0], "b": x[:, 1], "y": y}
    for rule in ("quantile", "huber"):
        told: list[Notice] = []
        train_arrays(rules.text(rule), columns, label="y", notify=told.append)
        assert not told, rule
        noise = {**columns, "y": random.permutation(y)}
        train_arrays(rules.text(rule), noise, label="y", notify=told.append)
        assert ["no better than a constant" in one.message for one in told] == [True], rule


def test_the_loss_of_a_constant_is_what_the_books_say() -> None:
    random = np.random.default_rng(5)
    prices = random.lognormal(10, 1, 3000).astype(np.float32).astype(float)
    counts = random.poisson(4, 2000)
    bits, shares = [0.0] * 70 + [1.0] * 30, np.array([0.1, 0.2, 0.7])
    assert best_constant("linear", prices) == pytest.approx(prices.var(), rel=1e-5)
    spread = prices.std()
    errors = abs(prices[:, None] - np.quantile(prices, np.linspace(0.4, 0.7, 1001))) / spread
    huber = np.where(errors < 1.35, errors**2, 2.7 * errors - 1.35**2).mean(axis=0).min()
    assert best_constant("huber", prices, spread=spread) == pytest.approx(spread * (1 + huber) / 2, rel=1e-5)
    level = prices - np.quantile(prices, 0.9)
    pinball = np.maximum(0.9 * level, -0.1 * level).mean()
    assert best_constant("quantile", prices, q=0.9) == pytest.approx(pinball, rel=1e-4)
    deviance = (counts * np.log(np.maximum(counts, 1) / counts.mean())).mean()
    assert best_constant("poisson", counts) == pytest.approx(deviance, rel=1e-5)
    assert best_constant("logistic", bits) == pytest.approx(-0.3 * np.log(0.3) - 0.7 * np.log(0.7), rel=1e-5)
    assert best_constant("linear_svm", bits) == pytest.approx(4 * 0.3 * 0.7, rel=1e-5)
    for rule in ("softmax", "mlp"):
        entropy = -(shares * np.log(shares)).sum()
        assert best_constant(rule, [0] * 10 + [1] * 20 + [2] * 70, {"k": 4}) == pytest.approx(entropy, rel=1e-5)
    assert best_constant("linear", [1.0] * 100) is best_constant("linear", [1.0, 2.0]) is None
    assert best_constant("linear_svm", [0.0] * 100_000 + [1.0] * 12) is None, "twelve labels tell too little"


def test_a_rare_class_is_not_a_constant() -> None:
    """What a column saves by chance is more than the mean loss, where one row in a thousand is of a class."""
    random = np.random.default_rng(6)
    x = random.standard_normal(100_000)
    y = random.random(100_000) < 0.001 * np.exp(x / 2)
    notices: list[Notice] = []
    train_arrays(rules.text("logistic"), {"x": x, "y": y.astype(float)}, label="y", notify=notices.append)
    assert not notices


def test_a_score_may_be_any_operation() -> None:
    """A rule without an intercept ends its score with a reduction, one without features begins it with a model."""
    source = rules.text("linear").replace("dana.sigma(w * z, 1) + b", "dana.sigma(w * z, 1)")
    for text in (source, rules.text("linear").replace("dana.sigma(w * z, 1) + b", "b + 0 * dana.sigma(w * z, 1)")):
        loss = loss_graph(unweighted(compile_rule(text, filename="linear").hdfg.bind({"n": 2})))
        assert loss is not None
        found = constant_loss(parse_graph(graph_text(loss)), np.arange(4.0), np.full(4, 20.0), {})
        assert found is not None
        assert found.loss == pytest.approx(1.25)


def test_a_loss_that_a_label_does_not_judge_has_no_constant() -> None:
    for rule in ("kmeans", "pca", "lrmf_dense"):
        assert loss_graph(compile_rule(rules.text(rule), filename=rule).hdfg.bind({"n": 2, "k": 2})) is None


def test_labels_are_counted_all_of_them_roughly_where_there_are_many() -> None:
    random = np.random.default_rng(1)
    labels = np.float32([*random.normal(1e3, 300, 20000), *random.integers(0, 3, 5000)])
    table = relation([("x", "real"), ("y", "real")], pages=200)
    asked = request(table, rule="linear", text=rules.text("linear"), epochs=1)
    training = MachineTrainer().open(asked, lambda notice: None)
    assert isinstance(training, MachineTraining)
    run(
        training,
        asked,
        feed=lambda sink: feed(training, sink, build_pages(table.schema, [[1.0, float(one)] for one in labels])),
        notify=lambda notice: None,
    )
    values, counts = training._surveyed.values
    assert 1000 < len(values) <= 4096
    assert counts.sum() == len(labels)
    assert values @ counts == pytest.approx(labels.astype(float).sum(), rel=1e-12)
    assert [counts[values == k][0] for k in range(3)] == [np.count_nonzero(labels == k) for k in range(3)]
    found = training.constant(())
    assert found is not None
    assert found.loss == pytest.approx(labels.astype(float).var(), rel=1e-5)
    training.close()


# losses that rise, and losses that still fall


def losses(values: list[float], test: list[float] | None = None) -> list[EpochReport]:
    tests: list[float | None] = [*(test or [None] * len(values))]
    return [
        EpochReport(loss=one, converged=False, tuples=9, skipped=0, cycles=None, validation_loss=other)
        for one, other in zip(values, tests, strict=True)
    ]


@pytest.mark.parametrize(
    ("values", "kept", "risen"),
    [
        ([0.3, 0.2, 0.5, 2e8, 4.0], 2, 4),
        ([0.3, 0.2, 0.39], 2, 0),
        ([0.3, 0.2, 0.41], 2, 3),
        ([0.3, 0.9, 0.2], 3, 0),  # it has fallen again
        ([0.7, 1e-9, 0.06], 2, 0),  # nothing, of what it fell by
        ([0.7, 1e-9, 0.08], 2, 3),
        ([-2.0, -3.0, -0.1], 2, 0),
        ([-2.0, -3.0, 0.1], 2, 3),
    ],
)
def test_a_loss_that_rises_far_above_the_kept_one(values: list[float], kept: int, risen: int) -> None:
    assert _risen(losses(values), kept) == risen


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_a_loss_that_rises_is_told_and_is_not_converged(machine: str) -> None:
    """Rows that come region by region, of which the rule's momentum makes an avalanche."""
    place = np.arange(800)
    columns = {f"r{k}": (k == place * 9 // 800).astype(np.float32) for k in range(9)}
    columns |= {"a": np.sin(place * 12.9898) * 1.4, "b": np.cos(place * 78.233) * 1.4}
    columns["y"] = columns["a"] + 0.5 * columns["b"] + np.random.default_rng(3).normal(0, 3, 9)[place * 9 // 800]
    told: list[Notice] = []
    asked: dict[str, Any] = {"label": "y", "epochs": 8, "patience": 4, "machine": machine, "notify": told.append}
    found = train_arrays(stochastic.text("linear"), columns, shuffle=False, **asked)
    (risen,) = (one for one in told if "rose" in one.message)
    assert not found.converged
    least = min(found.losses)
    assert max(found.losses) > 100 * least
    assert f"the loss rose from {least:.6g} in epoch {found.losses.index(least) + 1} to " in risen.message
    assert f"to {max(found.losses):.6g} in epoch {found.losses.index(max(found.losses)) + 1}; the" in risen.message
    assert risen.hint == ('Train in another order, shuffle=True, or lower the learning rate, as in hyper={"lr": 0.05}.')
    told.clear()
    assert train_arrays(stochastic.text("linear"), columns, label="y", notify=told.append).converged
    assert not told


def test_a_loss_that_still_falls_when_the_rule_s_epochs_are_over() -> None:
    falls = [1 / k for k in range(1, 101)]
    assert _still_falls(losses([10 - k / 20 for k in range(100)]), 10.0) == (10, 5.55, 5.05)
    assert _still_falls(losses(falls), 1.0) is None, "by a thousandth of a constant's loss"
    assert _still_falls(losses([*falls[:90], *[0.5] * 10]), 1.0) is None
    assert _still_falls(losses([1 - k / 110 for k in range(100)]), 1.05) is None, "little is left"
    assert _still_falls(losses([9.0 - k / 100 for k in range(100)]), 3.0) is None, "of itself a hundredth"
    assert _still_falls(losses([9.0 - k / 10 for k in range(49)]), 9.0) is None, "an author's choice"
    assert _still_falls(losses(falls, [2 - k / 100 for k in range(100)]), 1.0, validates=True) == (10, 2 - 0.89, 1.01)
    assert _still_falls(losses([-k / 10 for k in range(100)]), None) == (10, -8.9, -9.9)


def test_few_rows_of_many_columns_need_more_epochs() -> None:
    random = np.random.default_rng(1)
    features = random.normal(size=(48, 200)) + 3 * random.normal(size=(48, 1))
    columns = {f"x{k}": column.astype(np.float32) for k, column in enumerate(features.T)}
    columns["y"] = (features[:, :5] @ [3, -3, 2, -2, 1]).astype(np.float32)
    told: list[Notice] = []
    train_arrays(stochastic.text("linear"), columns, label="y", hyper={"lr": 0.1}, notify=told.append)
    (one,) = told
    assert one.message.startswith("the loss was still falling when the rule's 100 epochs were over: from ")
    assert one.hint == "Train for more epochs, as in epochs=1000; the training ends earlier if the loss settles."
    told.clear()
    train_arrays(stochastic.text("linear"), columns, label="y", hyper={"lr": 0.1}, epochs=100, notify=told.append)
    assert not told, "somebody chose the number"


def test_rows_in_order_and_a_model_no_better_than_a_constant_are_both_reported() -> None:
    columns = {"a": np.random.default_rng(1).normal(size=8000), "y": np.float32(np.arange(8000) >= 7900)}
    told: list[Notice] = []
    train_arrays(stochastic.text("logistic"), columns, label="y", notify=told.append, epochs=3, shuffle=False)
    for one, text in zip(told, ("lie together", "no better than a constant"), strict=True):
        assert text in one.message


# the whole table as one batch

SOLVED = """
import dana
from dana.optimizers import conjugate_gradients
w, b = dana.model([2]), dana.model()
x, y = dana.input([2]), dana.output()
solved = dana.algo(w, b, x, y)
error = w @ x + b - y
solved.setLoss(error * error)
gain = solved.minimize(conjugate_gradients)
solved.setConvergence(dana.rows * gain < {bound})
solved.setEpochs(100)
"""


def plane() -> tuple[dict[str, Any], Any]:
    """Columns that lie in order, and the exact models."""
    random = np.random.default_rng(4)
    columns = {"a": np.arange(900) / 300 - 1.5, "b": random.normal(size=900)}
    columns["y"] = 3 * columns["a"] - columns["b"] + 2 + random.normal(size=900)
    columns = {name: values.astype(np.float32) for name, values in columns.items()}
    features = np.stack([columns["a"], columns["b"], np.ones(900)], axis=1)
    return columns, np.linalg.lstsq(features.astype(float), columns["y"].astype(float), rcond=None)[0]


@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_a_rule_s_own_test_decides_on_a_plateau(machine: str) -> None:
    """Losses that hardly differ do not end it, and the order of rows is not reported."""
    columns, exact = plane()
    told: list[Notice] = []
    found = train_arrays(SOLVED.format(bound=1e-4), columns, label="y", machine=machine, notify=told.append)
    assert found.converged
    assert not told
    np.testing.assert_allclose([*found.models["w"], found.models["b"]], exact, atol=1e-4)
    text = SOLVED.format(bound=-1)
    assert len(train_arrays(text, columns, label="y", machine=machine, notify=told.append).losses) == 100
    assert [one.message for one in told] == ["rule 'solved' has not converged in 100 epochs"]
    # the rule has neither classes nor a penalty
    assert "classes" not in str(told[0].hint)
    assert "penalty" not in str(told[0].hint)
    assert len(train_arrays(text, columns, label="y", machine=machine, patience=6).losses) < 20


def test_one_epoch_of_conjugate_gradients_is_a_warning() -> None:
    columns, _ = plane()
    told: list[Notice] = []
    found = train_arrays(rules.text("linear"), columns, label="y", epochs=1, notify=told.append)
    assert next(one.message for one in told if one.level is Level.WARNING).startswith("the model is still where it ")
    assert not found.models["w"].any()


def test_a_warm_start_finds_its_own_direction() -> None:
    """The last direction belongs to other rows: along it the first step would go the wrong way."""
    columns, _ = plane()
    first = train_arrays(rules.text("linear"), columns, label="y")
    other = {**columns, "y": -columns["y"]}
    again = train_arrays(rules.text("linear"), other, label="y", models=first.models, epochs=3)
    fresh = {name: values for name, values in first.models.items() if "." not in name or name.startswith("x.")}
    expected = train_arrays(rules.text("linear"), other, label="y", models=fresh, epochs=3)
    np.testing.assert_array_equal(again.models["w"], expected.models["w"])


@pytest.mark.parametrize(("changes", "kept"), [({"epochs": 2}, 2), ({"epochs": 3}, 3), ({"patience": 4}, None)])
@pytest.mark.parametrize("machine", ["sim", "interp"])
def test_the_loss_is_that_of_the_kept_model(machine: str, changes: Any, kept: int | None) -> None:
    columns, _ = plane()
    table = relation([("a", "real"), ("b", "real"), ("y", "real")], pages=8)
    pages = build_pages(table.schema, np.stack(list(columns.values()), axis=1).tolist())
    asked = request(table, rule="solved", text=SOLVED.format(bound=-1), machine=machine, **changes)
    outcome = trained(asked, pages)
    assert kept is None or outcome.result.metadata["epoch"] == len(outcome.reports) == kept
    w, b = model(outcome).astype(float), float(model(outcome, "b"))
    error = w[0] * columns["a"].astype(float) + w[1] * columns["b"] + b - columns["y"]
    assert outcome.kept.loss == pytest.approx((error**2).mean(), rel=1e-5)
    assert outcome.kept.loss != outcome.reports[outcome.result.metadata["epoch"] - 1].loss or kept is None
    assert outcome.result.metadata["ended"] == ("epochs" if kept else "loss no longer improved")
    assert (outcome.result.metadata["optimizers"], outcome.result.metadata["batch"]) == (["conjugate_gradients"], "all")


# the shipped rules


@pytest.mark.parametrize("rule", ["linear_svm", "linear"])
def test_shipped_rules_lose_nothing(rule: str) -> None:
    random = np.random.default_rng(11)
    columns = {f"x{k}": random.lognormal(k, 1, 2000).astype(np.float32) for k in range(4)}
    score = np.log(columns["x0"]) - np.log(columns["x1"]) + 1 + random.normal(0, 2, 2000)
    columns["y"] = (score > 0 if rule == "linear_svm" else columns["x0"] + score).astype(np.float32)
    ended = train_arrays(stochastic.text(rule), columns, label="y", shuffle=False)
    full = train_arrays(stochastic.text(rule), columns, label="y", patience=0, shuffle=False)
    assert ended.losses[-1] <= full.losses[-1] + 0.01 * abs(full.losses[-1])
    assert ended.converged
    assert len(ended.losses) < len(full.losses)


def test_components_that_are_not_orthonormal_yet_are_not_the_best() -> None:
    """Sanger's rule passes through matrices that leave less of some rows than any subspace would."""
    features = CARRIED["iris"]()[0]
    columns = {f"x{k}": column.astype(np.float32) for k, column in enumerate(features.T)}
    standard = (features - features.mean(axis=0)) / features.std(axis=0)

    def rest(**changes: Any) -> float:
        w = train_arrays(rules.text("pca"), columns, **changes).models["W"].astype(float)
        return float(((standard - standard @ np.linalg.pinv(w) @ w) ** 2).sum(axis=1).mean())

    assert rest() <= rest(patience=0) * 1.01


def test_a_model_near_the_best_is_kept_where_its_loss_was_measured_on_the_way() -> None:
    stopping = Stopping()
    assert stopping.better(1.0, 0.01)
    assert stopping.better(1.009, 0.01)
    assert not stopping.better(1.011, 0.01)
    assert not stopping.better(1.001, 0.0)
    assert stopping.better(1.0, 0.0)
    below = Stopping()
    assert [below.better(loss, 0.01) for loss in (-1.0, -0.991, -0.989, -1.0)] == [True, True, False, True]
