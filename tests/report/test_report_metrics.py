"""Metrics as tables; no server."""

from __future__ import annotations

from typing import Any

from dana.report.metrics import by_class, by_output, confusion, left_out, single

TWO = {"auc": 0.9, "rows": 10, "f1": 0.5, "confusion": {"tp": 1, "fp": 2, "fn": 3, "tn": 4}, "not_finite": 0}
MANY: dict[str, Any] = {
    "f1": 0.75,
    "accuracy": 0.9,
    "classes": [
        {"f1": None, "rows": 1234, "class": "ash", "recall": 5 / 6},
        {"class": "oak", "rows": 6, "recall": 1, "f1": 0.5},
    ],
    "confusion": [[5, 1], [0, 6]],
}


def test_single_numbers_come_in_their_order_and_unknown_ones_last() -> None:
    assert single(TWO | {"new_one": 1234}) == [("AUC", "0.9"), ("F1", "0.5"), ("new one", "1,234")]
    assert single(MANY) == [("accuracy", "0.9"), ("mean F1", "0.75")]
    assert single({"mae": 1.0, "r2": None, "rmse": 0.25, "rows": 3}) == [
        ("R²", "none"),
        ("RMSE", "0.25"),
        ("mean absolute error", "1"),
    ]


def test_confusion() -> None:
    found = confusion(TWO, ("no", "yes"))
    assert found is not None
    assert (found.names, found.counts) == (("no", "yes"), ((4, 2), (3, 1)))
    assert found.share(0, 1) == 1 / 3
    found = confusion(MANY, ("no", "yes"))
    assert found is not None
    assert (found.names, found.counts) == (("ash", "oak"), ((5, 1), (0, 6)))
    assert confusion({"classes": MANY["classes"]}, ("no", "yes")) is None  # too many of them
    assert confusion({"r2": 1.0}, ("no", "yes")) is None


def test_each_class() -> None:
    titles, rows = by_class(MANY)
    assert titles == ["rows", "recall", "F1"]
    assert rows == [("ash", ["1,234", "0.8333", "none"]), ("oak", ["6", "1", "0.5"])]
    assert by_class(TWO) == ([], [])
    outputs = [{"r2": 0.5, "mae": 1.0}, {"r2": None, "mae": 2.5}]
    assert single({"r2": 0.5, "outputs": outputs}) == [("R²", "0.5")]
    assert by_output({"outputs": outputs}) == (
        ["R²", "mean absolute error"],
        [("1", ["0.5", "1"]), ("2", ["none", "2.5"])],
    )


def test_what_is_left_out() -> None:
    assert left_out(TWO) == ""
    said = left_out(TWO | {"not_finite": 3, "other_labels": 1, "unseen_categories": 7, "not_predicted": 5})
    assert "7 have a category that the training did not have." in said
    assert "5 with a NULL in a feature, which the model does not predict." in said
    assert "3 with a prediction that is NaN or infinite." in said
    assert "1 with a label that the model does not know." in said
