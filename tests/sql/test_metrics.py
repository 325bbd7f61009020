"""`dana_classification_metrics`, `dana_regression_metrics` and `dana.dana_class` against scikit-learn and training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import psycopg
import pytest

from dana.metrics import METRICS, ordered
from tests.sql.conftest import Session, weights

metrics = pytest.importorskip("sklearn.metrics")
calibration = pytest.importorskip("sklearn.calibration")

Pairs = Iterable[Sequence[float | None]]

BOTH = "dana_regression_metrics(y, p) || coalesce(dana_classification_metrics(y, p), '{}')"


def fill(session: Session, rows: Pairs) -> None:
    session.execute("DROP TABLE IF EXISTS t")
    session.execute("CREATE TABLE t (k serial, y float8, p float8)")
    with session.cursor().copy("COPY t (y, p) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def one(session: Session, expression: str, rest: str = "FROM t") -> Any:
    row = session.execute(f"SELECT {expression} {rest}").fetchone()
    assert row is not None
    return row[0]


def deviance(y: Any, p: Any, power: int) -> float | None:
    """Poisson's deviance of power 1, and gamma's of power 2."""
    if (p <= 0).any() or (y < 0).any() or (power == 2 and (y == 0).any()):
        return None
    return float(metrics.mean_tweedie_deviance(y, p, power=power))


def calibrated(truth: Any, p: Any) -> list[dict[str, Any]]:
    """scikit-learn's curve, with the number of rows."""
    observed, predicted = calibration.calibration_curve(truth, p, n_bins=10)
    rows = np.bincount(np.searchsorted(np.linspace(0, 1, 11)[1:-1], p), minlength=10)
    names = ("rows", "predicted", "observed")
    numbers = zip(rows[rows > 0].tolist(), predicted, observed, strict=True)
    return [pytest.approx(dict(zip(names, each, strict=True))) for each in numbers]


def expected(y: Any, p: Any, threshold: float) -> dict[str, Any]:
    chosen = p >= threshold
    truth = y > 0
    tn, fp, fn, tp = metrics.confusion_matrix(truth, chosen, labels=[False, True]).ravel().tolist()
    probable = bool(((p >= 0) & (p <= 1)).all())
    spread = len(set(y)) > 1
    table = {"calibration": calibrated(truth, p)} if probable else {}
    return {
        **table,
        "rows": len(y),
        "mae": metrics.mean_absolute_error(y, p),
        "rmse": metrics.mean_squared_error(y, p) ** 0.5,
        "r2": metrics.r2_score(y, p) if spread else None,
        "poisson_deviance": deviance(y, p, 1),
        "gamma_deviance": deviance(y, p, 2),
        "accuracy": metrics.accuracy_score(truth, chosen),
        "precision": tp / (tp + fp) if tp + fp else None,
        "recall": tp / (tp + fn) if tp + fn else None,
        "f1": metrics.f1_score(truth, chosen) if 2 * tp + fp + fn else None,
        "log_loss": -np.log(np.maximum(np.where(truth, p, 1 - p), 2**-24)).mean() if probable else None,
        "brier": metrics.mean_squared_error(truth, p) if probable else None,
        "auc": metrics.roc_auc_score(truth, p) if spread else None,
        "average_precision": metrics.average_precision_score(truth, p) if truth.any() else None,
        "confusion": {"tp": tp, "fp": fp, "fn": fn, "tn": tn},
        "not_finite": 0,
    }


def same(found: Any, other: dict[str, Any], rel: float = 1e-12) -> None:
    for table in ("confusion", "calibration"):
        assert found.pop(table, None) == other.pop(table, None)
    assert found.keys() == other.keys()
    for name, value in other.items():
        assert found[name] == (None if value is None else pytest.approx(value, rel=rel, abs=1e-12)), name


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize(
    ("rows", "decimals"), [(1, 2), (2, 0), (17, 0), (500, 1), (5000, 12)], ids=["one", "two", "few", "ties", "many"]
)
def test_two_classes(session: Session, rows: int, decimals: int, signs: bool) -> None:
    rng = np.random.default_rng(rows)
    y = rng.integers(0, 2, rows).astype(float)
    p = np.round(np.clip(rng.normal(0.4 + 0.2 * y, 0.3), 0, 1), decimals)
    if signs:
        y, p = 2 * y - 1, 4 * p - 2
    signs = signs and -1 in y
    fill(session, np.stack([y, p], axis=1).tolist())
    same(one(session, BOTH), expected(y, p, 0.0 if signs else 0.5))
    third = expected(y, p, 0.3)
    found = one(session, "dana_regression_metrics(y, p) || dana_classification_metrics(y, p, 0.3)")
    same(found, third)
    assert one(session, "dana_classification_metrics(y, p, NULL) = dana_classification_metrics(y, p)") is True
    backwards = one(session, "dana_classification_metrics(y, p ORDER BY k DESC) = dana_classification_metrics(y, p)")
    assert backwards is True, "to the last digit"


@pytest.mark.parametrize("label", [0.0, 1.0, -1.0])
def test_one_class(session: Session, label: float) -> None:
    p = np.array([0.25, 0.75, 0.5, 0.5])
    fill(session, [(label, value) for value in p])
    same(one(session, BOTH), expected(np.full(4, label), p, 0.0 if label < 0 else 0.5))


@pytest.mark.parametrize("rows", [[], [(None, None)], [(None, 1), (1, None)]])
def test_no_row(session: Session, rows: Pairs) -> None:
    fill(session, rows)
    assert one(session, "dana_regression_metrics(y, p)") is None
    assert one(session, "dana_classification_metrics(y, p)") is None
    assert one(session, "dana_classification_metrics(y, p, 0.5)") is None


@pytest.mark.parametrize("label", [2.0, 0.5, -1.0, float("nan"), float("inf")])
def test_other_labels(session: Session, label: float) -> None:
    """Also where they come late, and with 0 among them: -1 alone goes with 1."""
    fill(session, [(k % 2, 0.5) for k in range(100)] + [(label, 0.5)] + [(1, 0.5)] * 50)
    assert one(session, "dana_classification_metrics(y, p)") is None
    assert one(session, "dana_regression_metrics(y, p)")["rows"] == 150 + np.isfinite(label)


def test_groups_filters_and_windows(session: Session) -> None:
    rng = np.random.default_rng(3)
    y, p = rng.integers(0, 2, 300).astype(float), np.round(rng.random(300), 2)
    fill(session, [(None if k % 7 == 3 else y[k], None if k % 11 == 5 else p[k]) for k in range(300)])
    used = np.array([k for k in range(300) if k % 7 != 3 and k % 11 != 5])
    groups = session.execute(
        f"SELECT (k - 1) % 5, {BOTH}, dana_classification_metrics(y, p) FILTER (WHERE k <= 100) FROM t GROUP BY 1"
    ).fetchall()
    assert len(groups) == 5
    for key, found, filtered in groups:
        mine = used[used % 5 == key]
        same(found, expected(y[mine], p[mine], 0.5))
        first = mine[mine < 100]
        assert filtered["auc"] == pytest.approx(metrics.roc_auc_score(y[first], p[first]))
    running = session.execute(
        "SELECT k, dana_classification_metrics(y, p) OVER w, dana_regression_metrics(y, p) OVER w,"
        " dana_classification_metrics(y, p) OVER (ORDER BY k ROWS 49 PRECEDING) FROM t WINDOW w AS (ORDER BY k)"
        " ORDER BY k"
    ).fetchall()
    for k, classes, numbers, last in running[60:]:
        mine = used[used < k]
        same(numbers | classes, expected(y[mine], p[mine], 0.5))
        mine = mine[mine >= k - 50]
        assert last["auc"] == pytest.approx(metrics.roc_auc_score(y[mine], p[mine]))


def test_regression_of_any_size(session: Session) -> None:
    rng = np.random.default_rng(5)
    for offset, scale in ((0, 1), (1e9, 1), (1e15, 1e3), (0, 1e-200), (0, 1e300), (1e300, 1e290)):
        y = rng.normal(0, 1, 400) * scale + offset
        p = y + rng.normal(0, 0.3, 400) * scale
        fill(session, np.stack([y, p], axis=1).tolist())
        found = one(session, "dana_regression_metrics(y, p)")
        error, spread = (y - p) / scale, (y - offset) / scale
        assert found["mae"] == pytest.approx(np.abs(error).mean() * scale, rel=1e-12)
        assert found["rmse"] == pytest.approx((error**2).mean() ** 0.5 * scale, rel=1e-12)
        assert found["r2"] == pytest.approx(metrics.r2_score(spread, spread - error), rel=1e-7)
    fill(session, [(0.1, 0.1)] * 1000)
    assert one(session, "dana_regression_metrics(y, p)") == {
        "rows": 1000,
        "mae": 0,
        "rmse": 0,
        "r2": None,
        "poisson_deviance": 0,
        "gamma_deviance": 0,
        "not_finite": 0,
    }


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.95])
def test_quantiles(session: Session, quantile: float) -> None:
    rng = np.random.default_rng(4)
    y, p = rng.normal(size=(2, 300))
    fill(session, np.stack([y, p], axis=1).tolist())
    found = one(session, f"dana_regression_metrics(y, p, {quantile})")
    assert found.pop("pinball_loss") == pytest.approx(metrics.mean_pinball_loss(y, p, alpha=quantile))
    assert found == one(session, "dana_regression_metrics(y, p)") == one(session, "dana_regression_metrics(y, p, NULL)")
    for other in ("0", "1", "'NaN'", "-0.5"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match='"quantile" must be between 0 and 1'):
            one(session, f"dana_regression_metrics(y, p, {other})")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="must be the same for all rows"):
        one(session, "dana_regression_metrics(y, p, 1.0 / (1 + k))", "FROM t WHERE k > 1")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="must be the same for all rows"):
        one(session, "dana_regression_metrics(y, 'NaN', 1.0 / (1 + k))", "FROM t WHERE k > 1")


@pytest.mark.parametrize("least", [0, 1])
def test_deviances(session: Session, least: int) -> None:
    rng = np.random.default_rng(6)
    mean = rng.gamma(2, 3, 400) + 0.1
    y = np.maximum(rng.poisson(mean), least).astype(float)
    fill(session, np.stack([y, mean], axis=1).tolist())
    found = one(session, "dana_regression_metrics(y, p)")
    assert found["poisson_deviance"] == pytest.approx(metrics.mean_poisson_deviance(y, mean))
    gamma = metrics.mean_gamma_deviance(y, mean) if least else None
    assert found["gamma_deviance"] == (None if gamma is None else pytest.approx(gamma))


def test_a_metric_is_a_row_of_one_table(session: Session) -> None:
    """What the server computes is in the table, in each direction."""
    fill(session, [(1, 0.75), (0, 0.25)])
    numbers = one(session, "dana_regression_metrics(y, p, 0.5)")
    several = one(session, "dana_regression_metrics(ARRAY[y, y]::real[], ARRAY[p, p]::real[])")
    two = one(session, "dana_classification_metrics(y, p)")
    many = one(session, "dana_classification_metrics(y, ARRAY[1 - p, p, 0]::real[])")
    listed = session.execute("SELECT name, predictions, better FROM dana.metric WHERE better IS NOT NULL").fetchall()
    assert listed == [(each.name, each.of, "less" if each.less else "greater") for each in METRICS]
    computed = numbers | several | two | many
    others = {name for (name,) in session.execute("SELECT name FROM dana.metric WHERE better IS NULL")}
    assert computed.keys() - {"rows"} - others == {each.name for each in METRICS}
    assert ordered(computed)[0] == "rows"


def test_what_is_no_number(session: Session) -> None:
    """A prediction that is not finite has no metrics, and is counted."""
    nan, inf = float("nan"), float("inf")
    good: list[Sequence[float | None]] = [(1, 0.75), (0, 0.5), (1, 0.25)]
    fill(session, good)
    found = one(session, BOTH)
    fill(session, [(1, nan), *good, (0, nan), (1, inf), (0, -inf)])
    assert one(session, BOTH) == found | {"not_finite": 4}
    fill(session, [(1, nan), (0, nan)])
    assert found.pop("calibration")
    assert one(session, BOTH) == dict.fromkeys(found) | {
        "rows": 0,
        "not_finite": 2,
        "confusion": dict.fromkeys(("tp", "fp", "fn", "tn"), 0),
    }
    each = "dana_classification_metrics(y, ARRAY[p, 1 - p, 0]::real[])"
    assert one(session, each)["not_finite"] == 2


def expected_of_classes(y: Any, each: Any) -> dict[str, Any]:
    chosen = np.argmax(each, axis=1)
    precision, recall, f1, rows = metrics.precision_recall_fscore_support(
        y, chosen, labels=range(each.shape[1]), zero_division=np.nan
    )
    macro = metrics.precision_recall_fscore_support(y, chosen, average="macro", zero_division=0)

    def known(value: float) -> float | None:
        return None if np.isnan(value) else value

    return {
        "rows": len(y),
        "accuracy": metrics.accuracy_score(y, chosen),
        "precision": macro[0],
        "recall": macro[1],
        "f1": macro[2],
        "log_loss": -np.log(np.maximum(each[np.arange(len(y)), y], 2**-24)).mean(dtype=np.float64),
        "brier": metrics.brier_score_loss(y, each, labels=range(each.shape[1])),
        "not_finite": 0,
        "classes": [
            {"rows": rows[k], "precision": known(precision[k]), "recall": known(recall[k]), "f1": known(f1[k])}
            for k in range(each.shape[1])
        ],
        "confusion": metrics.confusion_matrix(y, chosen, labels=range(each.shape[1])).tolist(),
    }


@pytest.mark.parametrize(("rows", "classes"), [(400, 3), (400, 9), (7, 5), (1, 4)])
def test_several_classes(session: Session, rows: int, classes: int) -> None:
    """Probabilities, or the numbers that they choose; some classes occur in neither labels nor predictions."""
    rng = np.random.default_rng(rows + classes)
    y = rng.integers(0, classes - 1, rows)
    each = rng.random((rows, classes)) + 1.5 * np.eye(classes)[y] * (rng.random((rows, 1)) < 0.7)
    each[:, -1] = 0
    each[::3, :2] = each[::3].max(axis=1, keepdims=True)  # of equal ones the first is chosen
    each = (each / each.sum(axis=1, keepdims=True)).astype(np.float32)
    session.execute("DROP TABLE IF EXISTS t; CREATE TABLE t (y float8, each real[], chosen float8)")
    with session.cursor().copy("COPY t FROM STDIN") as copy:
        for label, row in zip(y.tolist(), each.tolist(), strict=True):
            copy.write_row((label, row, int(np.argmax(row))))
    other = expected_of_classes(y, each)
    found = one(session, "dana_classification_metrics(y, each)")
    assert [one["class"] for one in found["classes"]] == [str(k) for k in range(classes)]
    for mine, theirs in zip(found.pop("classes"), other.pop("classes"), strict=True):
        assert {name: mine[name] for name in theirs} == pytest.approx(theirs)
    assert found.pop("confusion") == other.pop("confusion")
    assert found == pytest.approx(other, rel=1e-6)
    if rows > 100 and classes > 3:  # else only two occur
        numbers = one(session, "dana_classification_metrics(y, chosen)")
        names = ("accuracy", "precision", "recall", "f1")
        assert {name: numbers[name] for name in names} == pytest.approx({name: other[name] for name in names})
        assert numbers["log_loss"] is None, "nobody knows"
        named = one(session, "dana_classification_metrics(y, each, '{zero,one}', NULL)")
        assert [one["class"] for one in named["classes"]][:3] == ["zero", "one", "2"]
    scores = one(session, "dana_classification_metrics(y, ARRAY(SELECT 10 * p FROM unnest(each) p)::real[])")
    assert scores["log_loss"] is None, "these are no probabilities"
    assert scores["accuracy"] == pytest.approx(other["accuracy"])


def test_as_many_classes_as_a_training_takes(session: Session) -> None:
    """Without a matrix of confusion, which nobody reads."""
    session.execute(
        "CREATE TABLE t AS SELECT (i % 10000)::float8 AS y, CASE WHEN i % 4 = 0 THEN i % 10000 ELSE 0 END AS chosen"
        " FROM generate_series(1, 40) i; UPDATE t SET y = 9999, chosen = 9999 WHERE y = 40"
    )
    scores = "ARRAY(SELECT (k = chosen)::int::real FROM generate_series(0, {}) AS k)"
    found = one(session, f"dana_classification_metrics(y, {scores.format(9999)})")
    assert (found["rows"], found["accuracy"], len(found["classes"])) == (40, 0.25, 10000)
    assert found["classes"][9999] == {"class": "9999", "rows": 1, "precision": 1, "recall": 1, "f1": 1}
    assert "confusion" not in found
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="same 1 to 10000 classes"):
        one(session, f"dana_classification_metrics(y, {scores.format(10000)})")


def test_two_classes_with_a_number_for_each(session: Session) -> None:
    """As with one number, the probability of the second."""
    rng = np.random.default_rng(2)
    fill(session, np.stack([rng.integers(0, 2, 300), rng.random(300).astype(np.float32)], axis=1).tolist())
    for threshold in ("NULL", "0.3"):
        alike = f"dana_classification_metrics(y, ARRAY[1 - p, p]::real[], NULL, {threshold})"
        assert one(session, alike) == one(session, f"dana_classification_metrics(y, p, {threshold})")
    assert one(session, "dana_classification_metrics(y, ARRAY[p]::real[])") == one(
        session, "dana_classification_metrics(y, p)"
    )
    for array in ("ARRAY[]::real[]", "ARRAY[p, NULL]::real[]", "CASE WHEN k > 5 THEN ARRAY[p, p, p] ELSE ARRAY[p] END"):
        with pytest.raises(
            psycopg.errors.InvalidParameterValue, match="a number for each of the same 1 to 10000 classes"
        ):
            one(session, f"dana_classification_metrics(y, ({array})::real[])")


def test_all_digits(session: Session) -> None:
    """Whatever extra_float_digits says, which shortens what a cast to text writes."""
    session.execute("SET extra_float_digits = 0")
    fill(session, [(0, 1), (1, 1), (0, 0)])
    assert str(one(session, "dana_classification_metrics(y, p)->>'accuracy'")) == repr(2 / 3)


def test_a_threshold_is_one(session: Session) -> None:
    fill(session, [(0, 0.25), (1, 0.75), (None, 0.5)])
    for threshold in ("p", "nullif(p, 0.25)", "CASE WHEN p > 0.6 THEN 'NaN' ELSE 0.5 END"):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="must be the same for all rows"):
            one(session, f"dana_classification_metrics(y, p, {threshold})")
    assert one(session, "dana_classification_metrics(y, p, 'NaN')")["recall"] == 0


def test_a_million_rows(session: Session) -> None:
    session.execute("SELECT setseed(0.5)")
    session.execute(
        "CREATE TABLE t AS SELECT y, round((random() * 0.8 + y * 0.2)::numeric, 4)::float8 AS p"
        " FROM (SELECT (random() < 0.3)::int::float8 AS y FROM generate_series(1, 1000000)) s"
    )
    y, p = np.array(session.execute("SELECT y, p FROM t").fetchall()).T
    found = one(session, BOTH)
    assert found["log_loss"] == pytest.approx(metrics.log_loss(y, p), rel=1e-6), "2^-24 where a prediction is certain"
    same(found, expected(y, p, 0.5), rel=1e-9)


LABELS = {
    "text": ("text", "{no,yes}", "no"),
    "char(5)": ("char(5)", '{"no   ","yes  "}', "no"),
    "enum": ("mood", "{no,yes}", "no"),
    "boolean": ("boolean", "{f,t}", "no"),
    "numeric": ("numeric(4,2)", "{1.00,2.00}", "1"),
    "date": ("date", "{2024-02-29,2024-03-01}", "2024-02-29"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_classes_are_those_of_a_training(session: Session, kind: str) -> None:
    written, classes, first = LABELS[kind]
    second = {"1": "2", "2024-02-29": "2024-03-01"}.get(first, "yes")
    session.execute("CREATE TYPE mood AS ENUM ('no', 'yes', 'perhaps')")
    session.execute(
        f"CREATE TABLE t AS SELECT i::real AS x, (ARRAY['{first}', '{second}'])[1 + i % 2]::{written} AS y"
        " FROM generate_series(1, 99) i"
    )
    session.execute("CREATE TABLE plain AS SELECT x, (x::int % 2)::real AS y FROM t")
    assert weights(session, f"'t', classes => '{classes}'") == weights(session, "'plain'")
    numbers = f"dana.dana_class(y, '{classes}')"
    assert one(session, f"bool_and({numbers} = x::int % 2)") is True
    assert (
        one(session, f"bool_and(dana.dana_class(y, CASE WHEN x > 0 THEN '{classes}'::text[] END) = x::int % 2)") is True
    )
    assert one(session, "count(dana.dana_class(y, ARRAY[NULL, 'nothing']))") == 0
    assert one(session, f"count(dana.dana_class(NULL::{written}, '{classes}'))") == 0
    assert one(session, "dana.dana_class('yes', '{no,yes}')", "") == 1


def test_no_cast_of_somebody_else_is_called(session: Session) -> None:
    session.execute("CREATE TYPE mood AS ENUM ('no', 'yes')")
    session.execute("CREATE FUNCTION other(mood) RETURNS text LANGUAGE sql AS $$SELECT 'no'$$")
    session.execute("CREATE CAST (mood AS text) WITH FUNCTION other(mood)")
    assert one(session, "'yes'::mood::text", "") == "no"
    assert one(session, "dana.dana_class('yes'::mood, '{no,yes}')", "") == 1


def test_labels_that_are_no_numbers_are_counted_not_judged(session: Session) -> None:
    (found,) = session.execute(
        "SELECT dana_regression_metrics(y, 2) FROM (VALUES (1.0::float8), (3), ('NaN'), ('Infinity')) AS r (y)"
    ).fetchall()[0]
    assert (found["rows"], found["mae"], found["not_finite"]) == (2, 1, 2)
