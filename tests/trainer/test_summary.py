"""Standard errors, p-values, dependent columns and separation of solved models, against statsmodels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy import stats

from dana import rules
from dana.trainer import loop, passes
from dana.trainer.arrays import Trained, train
from dana.trainer.contract import Level, Notice
from dana.trainer.data.likelihood import Basis, Family
from dana.trainer.distributions import critical, two_sided
from dana.trainer.equations import solved
from dana.trainer.warm import remembered

Doubles = NDArray[np.float64]


def rounded(values: Doubles) -> Doubles:
    """What the machine is given, in binary64."""
    return values.astype(np.float32).astype(np.float64)


def fitted(rule: str, x: Doubles, y: Doubles, **options: Any) -> tuple[Trained, list[Notice]]:
    columns = {f"x{k + 1}": column for k, column in enumerate(x.T)} | {"y": y}
    notices: list[Notice] = []
    changes: dict[str, Any] = {"label": "y", "notify": notices.append, **options}
    if "weight" in changes:
        columns["weight"] = changes["weight"]
        changes |= {"weight": "weight", "features": [f"x{k + 1}" for k in range(x.shape[1])]}
    return train(changes.pop("text", rules.text(rule)), columns, **changes), notices


def theirs(rule: str, x: Doubles, y: Doubles, weight: Doubles | None = None) -> Any:
    design = sm.add_constant(x)
    if rule == "linear":
        return sm.OLS(y, design).fit() if weight is None else sm.WLS(y, design, weight).fit()
    family = sm.families.Binomial() if rule == "logistic" else sm.families.Poisson()
    return sm.GLM(y, design, family=family, freq_weights=weight).fit(tol=1e-12, maxiter=100)


def table(rule: str, rows: int, columns: int, alike: float, seed: int) -> tuple[Doubles, Doubles]:
    """Columns on unlike scales, of which the last is the sum of the others and a bit of its own."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, columns))
    x[:, -1] = x[:, :-1].sum(axis=1) / np.sqrt(columns) + alike * x[:, -1]
    score = x @ random.standard_normal(columns) / 2
    x = rounded(x * 10.0 ** random.integers(-2, 4, columns) + 10.0 ** random.integers(-1, 3, columns))
    if rule == "linear":
        return x, rounded(score + random.standard_normal(rows))
    if rule == "logistic":
        return x, (random.random(rows) < 1 / (1 + np.exp(-score))).astype(np.float64)
    return x, random.poisson(np.exp(score / 2 + 1)).astype(np.float64)


SHAPES = [(60, 2, 1.0, 1), (400, 5, 0.3, 2), (1500, 12, 0.05, 3)]


@pytest.mark.parametrize(
    ("rows", "columns", "alike", "seed", "machine"), [*((*shape, "sim") for shape in SHAPES), (*SHAPES[0], "interp")]
)
@pytest.mark.parametrize("rule", ["linear", "logistic", "poisson"])
def test_as_statsmodels(rule: str, rows: int, columns: int, alike: float, seed: int, machine: str) -> None:
    x, y = table(rule, rows, columns, alike, seed)
    found, notices = fitted(rule, x, y, machine=machine)
    expected = theirs(rule, x, y)
    assert found.coefficients is not None
    assert found.summary is not None
    assert not notices
    learnt = np.array([*found.coefficients["intercepts"], *found.coefficients["values"][0]])
    assert np.abs((learnt - expected.params) / expected.bse).max() < 1e-3
    np.testing.assert_allclose(found.coefficients["errors"][0], expected.bse, rtol=1e-4)
    # at 30 standard errors p moves by a percent when the estimate moves by 1e-4 of its size
    np.testing.assert_allclose(found.coefficients["p_values"][0], expected.pvalues, rtol=0.05, atol=1e-12)
    interval = learnt[1] + np.array([-1, 1]) * found.coefficients["critical"] * found.coefficients["errors"][0][1]
    np.testing.assert_allclose(interval, expected.conf_int()[1], rtol=1e-3)
    assert found.summary["log_likelihood"] == pytest.approx(expected.llf, rel=1e-6)
    assert found.summary["aic"] == pytest.approx(expected.aic, rel=1e-6)
    assert found.summary["freedom"] == expected.df_resid
    if rule == "linear":
        assert found.summary["r2"] == pytest.approx(expected.rsquared, abs=1e-6)
        assert found.summary["adjusted_r2"] == pytest.approx(expected.rsquared_adj, abs=1e-6)
        assert found.summary["residual_error"] == pytest.approx(np.sqrt(expected.scale), rel=1e-6)
    else:
        assert found.summary["deviance"] == pytest.approx(expected.deviance, rel=1e-6)
        assert found.summary["null_deviance"] == pytest.approx(expected.null_deviance, rel=1e-6)
    # the model itself has the coefficients, to binary32
    assert found.predict({f"x{k + 1}": one for k, one in enumerate(x.T)}).astype(np.float64) == pytest.approx(
        expected.predict(), rel=1e-4, abs=1e-4
    )


def test_longley() -> None:
    """Six columns that nearly depend on each other: condition 2.4e7 of the columns, 1e4 of their correlations."""
    data = sm.datasets.longley.load_pandas()
    x, y = rounded(data.exog.to_numpy(np.float64)), rounded(data.endog.to_numpy(np.float64))
    found, _ = fitted("linear", x, y)
    expected = theirs("linear", x, y)
    assert found.coefficients is not None
    np.testing.assert_allclose(found.coefficients["values"][0], expected.params[1:], rtol=1e-4)
    np.testing.assert_allclose(found.coefficients["intercepts"], expected.params[:1], rtol=1e-4)
    np.testing.assert_allclose(found.coefficients["errors"][0], expected.bse, rtol=1e-4)


@pytest.mark.parametrize("rule", ["linear", "logistic", "poisson"])
def test_a_row_of_weight_2_is_two_rows(rule: str) -> None:
    x, y = table(rule, 300, 3, 0.5, 4)
    weight = np.where(np.arange(300) < 100, 2.0, 1.0)
    found, _ = fitted(rule, x, y, weight=weight)
    twice = np.repeat(np.arange(300), weight.astype(int))
    again, _ = fitted(rule, x[twice], y[twice])
    assert found.coefficients is not None
    assert again.coefficients is not None
    assert found.summary is not None
    assert again.summary is not None
    np.testing.assert_allclose(found.coefficients["errors"][0], again.coefficients["errors"][0], rtol=1e-5)
    assert found.summary["rows"] == again.summary["rows"] == 400
    assert found.summary["aic"] == pytest.approx(again.summary["aic"], rel=1e-6)


@pytest.mark.parametrize("rule", ["logistic", "poisson"])
def test_standard_errors_of_rare_events(rule: str) -> None:
    """Their curvature is of few rows, and moves with each step: it has its digits where the steps end."""
    random = np.random.default_rng(6)
    x = np.column_stack([random.standard_normal(20_000), random.random(20_000) < 0.002])
    probability = 1 / (1 + np.exp(5.3 - rounded(x) @ [0.8, 1.5]))
    y = (random.random(20_000) < probability).astype(np.float64)
    found, _ = fitted(rule, x, y)
    assert found.coefficients is not None
    np.testing.assert_allclose(found.coefficients["errors"][0], theirs(rule, rounded(x), y).bse, rtol=1e-5)


@pytest.mark.parametrize("rule", ["linear", "logistic", "poisson"])
def test_dependent_columns_are_dropped_as_r_does(rule: str) -> None:
    """The later column; the model predicts the same."""
    x, y = table(rule, 300, 3, 0.5, 5)
    tens = np.round(x[:, 0] / x[:, 0].std() * 10)
    x = rounded(np.column_stack([tens, x[:, 1], 3 * tens - 2, np.full(300, 7.0), x[:, 2]]))
    found, notices = fitted(rule, x, y)
    assert [one.message for one in notices if one.level is Level.NOTICE and "depend" in one.message] == [
        "column x3 depends on the columns before: no coefficient of its own"
    ], "x4 is constant, which has a notice of its own"
    expected = theirs(rule, x[:, [0, 1, 4]], y)
    assert found.coefficients is not None
    assert found.summary is not None
    assert found.summary["dropped"] == [2, 3]
    values, errors = found.coefficients["values"][0], found.coefficients["errors"][0]
    assert (values[2], values[3], errors[3], errors[4]) == (0, 0, None, None)
    np.testing.assert_allclose([values[k] for k in (0, 1, 4)], expected.params[1:], rtol=1e-3)
    np.testing.assert_allclose([errors[k] for k in (0, 1, 2, 5)], expected.bse, rtol=1e-4)
    predicted = found.predict({f"x{k + 1}": one for k, one in enumerate(x.T)}).astype(np.float64)
    np.testing.assert_allclose(predicted, expected.predict(), rtol=1e-3, atol=1e-4)


def test_a_dependent_column_is_named_as_it_is() -> None:
    """Only the categories of a text, which always depend on each other, are not."""
    x, y = table("linear", 100, 2, 1.0, 14)
    notices: list[Notice] = []
    train(rules.text("linear"), {"a": x[:, 0], "A=b": x[:, 0], "y": y}, label="y", notify=notices.append)
    assert [one.message for one in notices] == ["column A=b depends on the columns before: no coefficient of its own"]


QUARTIC = """
import dana
from dana.optimizers import conjugate_gradients
n = dana.dim()
w, b = dana.model([n]), dana.model()
x, y = dana.input([n]), dana.output()
fourth = dana.meta(0.0)
mine = dana.algo(w, b, x, y)
s = w @ x + b
error = (s - y) * (s - y)
mine.setLoss(error + fourth * error * error)
gain = mine.minimize(conjugate_gradients)
mine.setConvergence(dana.rows * gain < 1e-9)
mine.setPrediction(s)
mine.setEpochs(100)
"""


def test_hyperparameters_decide_the_likelihood() -> None:
    x, y = table("linear", 200, 2, 1.0, 15)
    x = x / np.abs(x).max(axis=0)
    normal, other = (fitted("linear", x, y, text=QUARTIC, hyper={"fourth": k})[0] for k in (0.0, 0.5))
    assert normal.summary is not None
    assert normal.summary["family"] == "normal"
    assert other.summary is None


@pytest.mark.parametrize(
    "options",
    [
        {"standardize": False},
        {
            "text": "\n".join(
                (
                    "import dana",
                    "from dana.optimizers import conjugate_gradients",
                    "n = dana.dim()",
                    "w, b = dana.model([n]), dana.model()",
                    "x, y = dana.input([n]), dana.output()",
                    "mine = dana.algo(w, b, x, y)",
                    "s = w @ x + b",
                    "mine.setLoss((s - y) * (s - y))",
                    "gain = mine.minimize(conjugate_gradients)",
                    "mine.setConvergence(dana.rows * gain < 1e-9)",
                    "mine.setPrediction(s)",
                    "mine.setEpochs(100)",
                )
            )
        },
    ],
)
def test_columns_far_from_0_that_are_not_standardised(options: dict[str, Any]) -> None:
    random = np.random.default_rng(6)
    x = rounded(random.standard_normal((200, 2)) + np.array([4000, 0]))
    y = rounded(x @ [1, 2] - 4000 + random.standard_normal(200))
    found, _ = fitted("linear", x, y, epochs=None, **options)
    expected = theirs("linear", x, y)
    assert found.coefficients is not None
    np.testing.assert_allclose(found.coefficients["errors"][0], expected.bse, rtol=1e-4)
    np.testing.assert_allclose(found.coefficients["values"][0], expected.params[1:], rtol=1e-3)


def separated(notices: list[Notice]) -> list[str]:
    return [one.message for one in notices if one.level is Level.WARNING and "separate" in one.message]


def test_separated_rows() -> None:
    random = np.random.default_rng(7)
    x = rounded(random.standard_normal((80, 3)))
    apart = (x[:, 1] > 0).astype(np.float64)
    found, notices = fitted("logistic", x, apart)
    assert separated(notices) == [
        "column x2 separates rows by their label: the better the model fits, the larger its coefficients, without end"
    ]
    assert found.summary is not None
    assert found.summary["separated"]
    assert "errors" not in (found.coefficients or {})
    assert len(found.losses) < 200, "the number of passes has a bound"
    apart[np.abs(x[:, 1]) < 0.3] = random.integers(0, 2, (np.abs(x[:, 1]) < 0.3).sum())
    assert not separated(fitted("logistic", x, apart)[1]), "nearly"
    (message,) = separated(fitted("softmax", x, np.where(x[:, 1] > 1, 1.0, (x[:, 1] > 0) * 2.0))[1])
    assert message.startswith("column x2 separates rows by their label")
    (message,) = separated(fitted("softmax", x, (x[:, 1] + x[:, 0] > 0) + (x[:, 1] + x[:, 0] > 1) * 1.0)[1])
    assert message.startswith("a combination of columns separates rows by their label")
    assert not separated(fitted("softmax", x, random.integers(0, 3, 80) * 1.0)[1])


def test_categories_that_separate_end_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one with the most rows is named."""
    random = np.random.default_rng(18)
    row = np.arange(3000)
    x = np.column_stack([random.standard_normal(3000), row < 6, (row >= 6) & (row < 160)]).astype(np.float64)
    y = np.where(row < 160, 1.0, random.random(3000) < 1 / (1 + np.exp(-x[:, 0])))
    families: list[Family] = []
    # ends before Newton's steps with the penalty, which are no part of it
    monkeypatch.setattr(loop, "newton", lambda *of, **more: families.clear())
    opened = passes.LikelihoodObserver
    monkeypatch.setattr(
        passes, "LikelihoodObserver", lambda **given: families.append(given["family"]) or opened(**given)
    )
    _, notices = fitted("logistic", x, y)
    assert [one.split(":")[0] for one in separated(notices)] == ["column x3 separates rows by their label"]
    # the second of columns that are centred where the curvature is left
    assert families == [Family.BINOMIAL, Family.BINOMIAL, Family.BOUNDS]


def test_rows_that_only_several_columns_separate() -> None:
    random = np.random.default_rng(15)
    x = rounded(random.standard_normal((200, 3)))
    message = "a combination of columns x1, x2 separates rows by their label"
    for part in (1, 0.05):
        notices = fitted("logistic", x, (x[:, 0] + part * x[:, 1] > 0).astype(np.float64))[1]
        assert [one.split(":")[0] for one in separated(notices)] == [message]


def test_a_narrow_gap_separates() -> None:
    """A whole step of Newton's method leads beyond all numbers there."""
    x = np.array([7131, 8482, 8559, 8762, 9026, 9034, 9104, 9104.25, 9104.25, 9104.25, *np.linspace(2.4, 135.6, 34)])
    steps = np.repeat([5.0, 7.0, 10.0, 15.0], [10, 15, 10, 9])
    _, notices = fitted("logistic", np.column_stack([steps, x]), (x < 9104.25) * 1.0)
    assert [one.split(":")[0] for one in separated(notices)] == ["column x2 separates rows by their label"]


def test_a_class_that_is_separated_from_the_others() -> None:
    random = np.random.default_rng(16)
    x = rounded(random.standard_normal((300, 2)))
    y = np.where(x[:, 0] > 1, 2.0, random.integers(0, 2, 300))
    found, notices = fitted("softmax", x, y)
    assert separated(notices)
    assert (found.summary or {})["separated"]


def close(distance: float, away: float = 0.0) -> tuple[Doubles, Doubles]:
    """Return columns, of which two differ by a distance, and that difference in distances."""
    random = np.random.default_rng(17)
    x = random.standard_normal((600, 3))
    difference = x[:, 1].copy()
    x[:, 1] = x[:, 0] + distance * difference
    return x + away, difference


@pytest.mark.parametrize("rule", ["ridge", "lasso", "elastic_net"])
def test_what_a_penalty_hides_is_reported(rule: str) -> None:
    """An effect of the difference of close columns; not the penalty's usual price, nor an effect by chance."""
    x, difference = close(0.01)
    messages = []
    for label in (difference + x[:, 2], x[:, 0] + x[:, 2], np.random.default_rng(19).standard_normal(600)):
        _, notices = fitted(rule, x, label)
        messages.append([one.message.split(": R²")[0] for one in notices if "penalty hides" in one.message])
    assert messages == [["the penalty hides an effect of the difference of close columns"], [], []]


def test_least_squares_of_few_rows_are_adjusted_for_their_columns() -> None:
    x, difference = close(0.01)
    x, noise = rounded(x[:30]), np.random.default_rng(24).standard_normal(30)
    label = rounded(difference[:30] + x[:, 2] + noise)
    _, notices = fitted("ridge", x, label)
    (message,) = [one.message for one in notices if "penalty hides" in one.message]
    least = float(message.rpartition("least squares ")[2])
    assert least == pytest.approx(theirs("linear", x, label).rsquared_adj, abs=1e-3)


@pytest.mark.parametrize(("rule", "distance"), [("huber", 1e-5), ("quantile", 1e-4)])
def test_an_effect_of_close_columns_is_found_without_a_likelihood(
    rule: str, distance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training begins again from least squares, where these explain more; where outliers rule, it is reported."""
    x, difference = close(distance)
    noise = np.random.default_rng(23).standard_normal(600)
    label = difference + x[:, 2] + 0.1 * noise
    found, notices = fitted(rule, x, label)
    assert not [one for one in notices if "may be missing" in one.message]
    outliers = label + np.where(np.arange(600) % 40 == 0, 100 * noise, 0)
    _, reported = fitted(rule, x, outliers)
    assert [one for one in reported if "may be missing" in one.message]
    monkeypatch.setattr(loop, "least_squares", lambda *_, **__: None)
    before, _ = fitted(rule, x, label)
    assert found.loss is not None
    assert before.loss is not None
    assert found.loss < 0.5 * before.loss
    # most of the label is explained without the effect, and the number of epochs is given
    monkeypatch.undo()
    steep = label + 20 * x[:, 0]
    found, _ = fitted(rule, x, steep, epochs=600)
    monkeypatch.setattr(loop, "least_squares", lambda *_, **__: None)
    before, _ = fitted(rule, x, steep, epochs=600)
    assert found.loss is not None
    assert before.loss is not None
    assert found.loss < 0.5 * before.loss


def adopted_by(training: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Doubles]]:
    """What the training goes on from, from now on."""
    found: list[dict[str, Doubles]] = []
    kind, adopt = type(training), type(training).adopt

    def spy(self: Any, parameters: Any) -> None:
        found.append({one.name: one.values.copy() for one in parameters})
        adopt(self, parameters)

    monkeypatch.setattr(kind, "adopt", spy)
    return found


def test_what_begins_again_has_the_rule_s_first_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The width of the kink, for one, is that of a model that lacks an effect."""
    x, difference = close(1e-4)
    label = difference + x[:, 2] + 0.1 * np.random.default_rng(23).standard_normal(600)
    adopted: list[dict[str, Doubles]] = []
    begin = loop.least_squares

    def spy(passes: Any) -> Any:
        nonlocal adopted
        adopted = adopted_by(passes.training, monkeypatch)
        return begin(passes)

    monkeypatch.setattr(loop, "least_squares", spy)
    fitted("quantile", x, label)
    assert adopted[0]["width"] == 1
    assert adopted[0]["w"].all()


def test_what_began_again_in_vain_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(25)
    x = rounded(random.standard_normal((200, 2)))
    label = rounded(x @ [1.0, 2.0] + random.standard_normal(200))
    before, _ = fitted("quantile", x, label)
    assert before.converged
    monkeypatch.setattr(
        loop,
        "least_squares",
        lambda passes: [
            replace(one, values=one.values + np.float32(5)) if one.name == "w" else one
            for one in passes.model.parameters
        ],
    )
    found, _ = fitted("quantile", x, label, epochs=before.kept + 1)
    assert len(found.losses) == before.kept + 1
    assert (found.kept, found.loss) == (before.kept, before.loss)
    np.testing.assert_array_equal(found.models["w"], before.models["w"])


@pytest.mark.parametrize(("distance", "away"), [(0.4, 0.0), (1e-2, 100.0), (1e-3, 0.0), (1e-4, 0.0)])
def test_the_penalty_of_several_classes_is_removed(distance: float, away: float) -> None:
    x, difference = close(distance, away)
    scores = np.column_stack([0 * difference, 2 * difference + x[:, 2] - away, x[:, 0] - away - 2 * difference])
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    y = (np.random.default_rng(18).random((600, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    found, notices = fitted("softmax", x, y.astype(np.float64))
    assert not notices
    exact = sm.MNLogit(y, sm.add_constant(np.column_stack([x[:, 0] - away, difference, x[:, 2] - away])))
    assert found.loss == pytest.approx(-exact.fit(disp=0, tol=1e-12, maxiter=100).llf / 600, abs=1e-4)


def test_many_weights_of_classes_keep_the_penalty() -> None:
    x, _ = close(1e-3)
    y = np.random.default_rng(19).integers(0, 80, 600).astype(np.float64)
    _, notices = fitted("softmax", x, y)
    assert [one.message.split(":")[0] for one in notices] == ["a column nearly depends on the others"]


@pytest.mark.parametrize("rule", ["linear", "poisson", "logistic"])
@pytest.mark.parametrize("distance", [1e-3, 1e-5])
def test_a_small_difference_of_columns_counts(rule: str, distance: float) -> None:
    x, difference = close(distance)
    random = np.random.default_rng(20)
    y = {
        "linear": difference + random.standard_normal(600),
        "poisson": random.poisson(np.exp(difference)).astype(np.float64),
        "logistic": (random.random(600) < 1 / (1 + np.exp(-difference))).astype(np.float64),
    }[rule]
    found, notices = fitted(rule, x, y)
    assert not notices
    assert found.coefficients is not None
    expected = theirs(rule, np.column_stack([x[:, 0], difference, x[:, 2]]), y)
    learnt, errors = found.coefficients["values"][0], found.coefficients["errors"][0]
    assert abs(learnt[1] * distance - expected.params[2]) < expected.bse[2] / 20
    assert errors[2] * distance == pytest.approx(expected.bse[2], rel=0.01)


@pytest.mark.parametrize("rule", ["linear", "logistic", "poisson"])
@pytest.mark.parametrize("distance", [1e-3, 6e-5])
def test_columns_are_centred_where_their_difference_loses_digits(rule: str, distance: float) -> None:
    """Each column by itself keeps enough of them, and the second distance is only some roundings."""
    random = np.random.default_rng(11)
    opened = 1000 + random.standard_normal(2000)
    x = np.column_stack([opened, opened + distance * random.exponential(size=2000)])
    own = (x[:, 1] - x[:, 0]) / distance
    y = {
        "linear": 1000 + 2 * own + 0.01 * random.standard_normal(2000),
        "logistic": (random.random(2000) < 1 / (1 + np.exp(-8 * own + 4))).astype(np.float64),
        "poisson": random.poisson(np.exp(own / 2)).astype(np.float64),
    }[rule]
    found, notices = fitted(rule, x, y)
    assert not notices
    assert found.coefficients is not None
    assert found.centres.features == (1000, 1000)
    expected = theirs(rule, np.column_stack([opened - 1000, own]), y)
    learnt, errors = found.coefficients["values"][0], found.coefficients["errors"][0]
    assert abs(learnt[1] * distance - expected.params[2]) < expected.bse[2] / 10
    assert errors[2] * distance == pytest.approx(expected.bse[2], rel=0.02)


def test_rounding_that_no_centre_mends_is_reported() -> None:
    random = np.random.default_rng(11)
    opened = random.standard_normal(2000)
    x = np.column_stack([opened, opened + 1e-5 * random.exponential(size=2000)])
    y = 2e5 * (x[:, 1] - x[:, 0]) + 0.005 * random.standard_normal(2000)
    _, notices = fitted("linear", x, y)
    assert [one.message.split(":")[0] for one in notices if one.level is Level.WARNING] == [
        "columns x1, x2 are rounded to binary32, and coefficients depend on the digits that are lost"
    ]


@pytest.mark.parametrize("rule", ["linear", "logistic", "poisson"])
@pytest.mark.parametrize(("base", "distance"), [(0.0, 2e-6), (1000.0, 6e-5)])
def test_the_summary_is_of_the_model_without_a_dropped_column(rule: str, base: float, distance: float) -> None:
    """Where the little that the column has of its own decides the label."""
    random = np.random.default_rng(31)
    opened, own = base + random.standard_normal(2000), random.exponential(size=2000)
    x, score = np.column_stack([opened, opened + distance * own]), own - 1 + (opened - base) / 4
    # what is rounded already loses nothing
    x = x.astype(np.float32)
    y = {
        "linear": rounded(score + random.standard_normal(2000)),
        "logistic": (random.random(2000) < 1 / (1 + np.exp(-2 * score))).astype(np.float64),
        "poisson": random.poisson(np.exp(score / 2)).astype(np.float64),
    }[rule]
    found, notices = fitted(rule, x, y)
    assert found.summary is not None
    assert found.coefficients is not None
    assert found.summary["dropped"] == [1]
    assert [one.message for one in notices if one.level is Level.NOTICE and "depend" in one.message] == [
        "column x2 depends on the columns before: no coefficient of its own"
    ]
    expected = theirs(rule, rounded(x[:, :1]) - base, y)
    assert found.summary["log_likelihood"] == pytest.approx(expected.llf, rel=1e-6)
    assert found.coefficients["errors"][0][1] == pytest.approx(expected.bse[1], rel=1e-4)
    predicted = found.predict({"x1": x[:, 0], "x2": x[:, 1]}).astype(np.float64)
    np.testing.assert_allclose(predicted, expected.predict(), rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("rule", ["linear", "poisson", "logistic"])
def test_a_difference_that_binary32_hides(rule: str) -> None:
    """The model is that of the table of coefficients: without the column."""
    x, difference = close(3e-6, 100.0)
    y = (difference > 0.5) + (np.random.default_rng(21).random(600) > 0.5) * 1.0
    found, notices = fitted(rule, x, y.clip(0, 1))
    assert [
        one.message.split(":")[0] for one in notices if one.level is Level.WARNING and "binary32" in one.message
    ] == ["columns x1 and x2 differ by little more than their rounding to binary32"]
    assert found.coefficients is not None
    assert (found.summary or {})["dropped"] == [1]
    assert found.models["w"][1] == found.coefficients["values"][0][1] == 0


@pytest.mark.parametrize("rule", ["logistic", "poisson"])
def test_rows_that_a_column_separates_in_part(rule: str) -> None:
    """All rows with a flag have label 0, those without have any."""
    random = np.random.default_rng(8)
    x = rounded(np.column_stack([random.random(300) < 0.2, random.standard_normal(300)]).astype(np.float64))
    score = x[:, 1]
    y = random.poisson(np.exp(score)) if rule == "poisson" else random.random(300) < 1 / (1 + np.exp(-score))
    y = np.where(x[:, 0] > 0, 0, y).astype(np.float64)
    found, notices = fitted(rule, x, y)
    assert [one.split(":")[0] for one in separated(notices)] == ["column x1 separates rows by their label"]
    assert found.summary is not None
    assert found.summary["separated"]


def test_many_columns_and_separation(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 100 columns are summarised as long as rows times columns squared are few."""
    random = np.random.default_rng(9)
    x = rounded(random.standard_normal((300, 101)))
    y = x[:, 0] + random.standard_normal(300)
    each, notices = fitted("linear", x, y)
    assert not notices
    assert each.coefficients is not None
    np.testing.assert_allclose(each.coefficients["errors"][0], theirs("linear", x, y).bse, rtol=1e-4)
    monkeypatch.setattr(passes, "MAX_PRODUCTS", 300 * 101**2 - 1)
    found, notices = fitted("logistic", x, (x[:, 0] > 0).astype(np.float64))
    assert separated(notices)
    assert found.summary is not None
    assert found.summary["no_errors"] == "101 columns are too many for 300 rows"
    again, _ = fitted("linear", x, y)
    assert again.summary == {"separated": False, "no_errors": "101 columns are too many for 300 rows"}


@pytest.mark.parametrize(
    ("rule", "hyper", "reason"),
    [
        ("ridge", {}, "a penalty"),
        ("elastic_net", {"penalty": 0.1, "l1_ratio": 0.0}, "a penalty"),
        ("elastic_net", {"penalty": 0.1, "l1_ratio": 1.0}, "a penalty"),
        ("logistic", {"penalty": 0.1}, "a penalty"),
        ("softmax", {}, "the coefficients of several classes"),
    ],
)
def test_where_there_are_no_standard_errors(rule: str, hyper: dict[str, float], reason: str) -> None:
    x, y = table("linear" if rule in ("ridge", "elastic_net") else "logistic", 100, 3, 1.0, 10)
    found, notices = fitted(rule, x, y, hyper=hyper)
    assert not notices
    assert found.summary is not None
    assert found.summary["no_errors"].startswith(reason)
    assert "errors" not in (found.coefficients or {})


def test_class_weights_are_no_likelihood() -> None:
    random = np.random.default_rng(13)
    x = rounded(random.standard_normal((200, 2)))
    found, notices = fitted("logistic", x, (x[:, 0] > 1).astype(np.float64), class_weight="balanced")
    assert separated(notices)
    assert found.summary == {"separated": True, "no_errors": "with class_weight the loss is no likelihood"}


def test_few_rows_and_no_error() -> None:
    random = np.random.default_rng(11)
    x = rounded(random.standard_normal((4, 4)))
    found, _ = fitted("linear", x, np.arange(4.0))
    assert (found.summary or {})["no_errors"] == "there are no more rows than coefficients"
    x = rounded(random.standard_normal((50, 2)))
    exact, notices = fitted("linear", x, x @ np.array([1.0, 2.0]) + 3)
    assert not notices
    assert (exact.summary or {})["no_errors"] == "the model leaves no error but rounding"
    assert exact.coefficients is not None
    np.testing.assert_allclose(exact.coefficients["values"][0], [1, 2], rtol=1e-5)
    penalised = fitted("lasso", *table("linear", 100, 3, 1.0, 10))[0].summary or {}
    assert penalised["no_errors"] == "a penalty keeps the model from the maximum of its likelihood"
    assert fitted("quantile", *table("linear", 100, 3, 1.0, 10))[0].summary is None, "it has no likelihood"


@pytest.mark.parametrize(("rule", "penalty"), [("logistic", 1e-6), ("logistic", 1e-3), ("poisson", 1e-6)])
def test_slow_conjugate_gradients_end_by_newton_s_method(
    rule: str, penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rare categories of one class have no finite coefficient without the penalty."""
    random = np.random.default_rng(4)
    kind, z = random.integers(0, 14, 1500), random.standard_normal((1500, 4))
    z[:, 3] = z[:, 0] + 0.01 * z[:, 3]
    x = rounded(np.column_stack([kind[:, None] == np.arange(1, 14), z @ np.diag([1, 10, 100, 1])]).astype(float))
    rate = np.exp(z[:, 0] + (kind % 5) / 3 - 1) * (kind > 1)
    y = (random.random(1500) < rate / (1 + rate)) if rule == "logistic" else random.poisson(rate)
    options: dict[str, Any] = {"hyper": {"penalty": penalty}}
    fast, _ = fitted(rule, x, y.astype(float), **options)
    monkeypatch.setattr(loop, "newton", lambda *args, **more: None)
    slow, _ = fitted(rule, x, y.astype(float), **options)
    assert fast.converged
    assert loop.SLOW < len(fast.losses) <= loop.SLOW + 6 < len(slow.losses)
    assert fast.loss is not None
    assert slow.loss is not None
    if penalty == 1e-6:
        assert fast.loss <= slow.loss + 1e-6 * abs(slow.loss)
    else:
        score = (x - x.mean(axis=0)) / x.std(axis=0) @ fast.models["w"] + fast.models["b"]
        slope = ((1 / (1 + np.exp(-score)) - y) @ ((x - x.mean(axis=0)) / x.std(axis=0))) / 1500
        np.testing.assert_allclose(slope + penalty * fast.models["w"], 0, atol=2e-5)


@pytest.mark.parametrize("rule", ["logistic", "poisson", "softmax"])
def test_newton_s_method_knows_the_penalty_of_the_rule_s_own_weights(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a rule scales its columns, the weights of its penalty are not those of standardised ones."""
    random = np.random.default_rng(36)
    x = rounded(random.standard_normal((200, 3)) * [1, 10, 0.1] + [0, 5, 1])
    y = {
        "logistic": x[:, 0] + random.standard_normal(200) > 0,
        "poisson": random.poisson(np.exp(x[:, 0] / 2)),
        "softmax": random.integers(0, 2, 200) + (x[:, 0] > 0),
    }[rule].astype(np.float64)
    found: list[Any] = []
    newton = loop.newton
    monkeypatch.setattr(loop, "SLOW", 3)
    adopted: list[dict[str, Doubles]] = []

    def spy(passes: Any) -> Any:
        nonlocal adopted
        found.append(newton(passes))
        adopted = adopted_by(passes.training, monkeypatch)
        return found[0]

    monkeypatch.setattr(loop, "newton", spy)
    text = rules.text(rule).replace("* standardized(x)", "* (3 * standardized(x))")
    fitted(rule, x, y, text=text, hyper={"penalty": 0.1})
    models = {one.name: one.values.astype(np.float64) for one in found[0]}
    z = 3 * (x - x.mean(axis=0)) / x.std(axis=0)
    weights = models["W" if rule == "softmax" else "w"]
    score = z @ weights.T + models["b"]
    if rule == "softmax":
        error = np.exp(score) / np.exp(score).sum(axis=1, keepdims=True) - (y[:, None] == np.arange(3))
    else:
        error = (np.exp(score) if rule == "poisson" else 1 / (1 + np.exp(-score))) - y
    np.testing.assert_allclose(error.T @ z / 200 + 0.1 * weights, 0, atol=1e-4)
    # the directions found before are forgotten
    own = [name for name in adopted[0] if not name.startswith("dana.")]
    states = [adopted[0][name] for name in own if remembered(name, own)]
    assert states
    # 0, or 1e30 for what the passes before gained
    assert all(np.isin(values, np.array([0, 1e30], np.float32)).all() for values in states)


def test_models_are_those_of_every_machine() -> None:
    x, y = table("logistic", 60, 4, 0.05, 12)
    # half of the rows have one label, and columns are alike: conjugate gradients do not end before Newton's method
    y[x[:, 0] > np.median(x[:, 0])] = 1
    sim, interp = (fitted("logistic", x, y, machine=machine)[0] for machine in ("sim", "interp"))
    assert len(sim.losses) == len(interp.losses) > loop.SLOW
    for name, values in sim.models.items():
        np.testing.assert_array_equal(values, interp.models[name])
    assert sim.coefficients == interp.coefficients
    assert sim.summary == interp.summary


def test_distributions() -> None:
    for freedom in (1.0, 2.5, 10.0, 1e6):
        for statistic in (0.0, 0.3, 2.0, 40.0):
            expected = 2 * stats.t.sf(statistic, freedom)
            assert two_sided(statistic, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-300)
        assert critical(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)
    assert two_sided(3.0, None) == pytest.approx(2 * stats.norm.sf(3), rel=1e-12)
    assert critical(None) == pytest.approx(stats.norm.ppf(0.975), rel=1e-12)


def test_a_hundred_categories_are_the_constant() -> None:
    """The last one depends on the others, although their sums over many rows are rounded in the thirteenth digit."""
    random = np.random.default_rng(34)
    kinds = random.integers(0, 150, 6000)
    x = np.column_stack([np.ones(6000), kinds[:, None] == np.arange(150)]).astype(np.float64)
    matrix = x.T @ x
    matrix[np.diag_indices(151)] *= 1 + 3e-13 * random.random(151)
    found = solved(matrix, np.zeros(151), Basis(centre=np.zeros(150), scale=np.ones(150)))
    assert found.dropped == [150]
    assert found.weakest > 1e-3


def test_newton_s_method_ends_the_training_of_close_columns() -> None:
    """The summary steps to the maximum; passes in binary32 until the last epoch of the rule brought it no nearer."""
    x, difference = close(1e-5)
    y = difference + np.random.default_rng(35).standard_normal(600)
    found, notices = fitted("linear", x, y)
    assert not notices
    assert found.converged
    assert len(found.losses) == 2 * loop.SLOW
    given, _ = fitted("linear", x, y, epochs=3 * loop.SLOW)
    assert len(given.losses) == 3 * loop.SLOW, "who gives the number of epochs wants no other method"
    assert found.coefficients is not None
    expected = theirs("linear", np.column_stack([x[:, 0], difference, x[:, 2]]), y)
    assert found.coefficients["values"][0][1] * 1e-5 == pytest.approx(expected.params[2], rel=1e-3)
