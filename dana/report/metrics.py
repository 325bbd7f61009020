"""Metrics as tables: what `dana_evaluate` gives, by name.

In: metrics, names of two classes. Out: texts. Single numbers come in an order that is usual, and those that nobody
knows here last, under their own names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

NAMES = {
    "auc": "AUC",
    "accuracy": "accuracy",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "log_loss": "log loss",
    "r2": "R²",
    "rmse": "RMSE",
    "mae": "mean absolute error",
}
MEANS = ("precision", "recall", "f1")
"""Of more than two classes these are means over the classes."""
COUNTS = ("rows", "not_finite", "other_labels")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """How many rows of a class (a row of `counts`) are predicted to be of which (a column)."""

    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def share(self, row: int, column: int) -> float:
        """Of the class's rows."""
        return self.counts[row][column] / max(1, sum(self.counts[row]))


def single(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Metrics that are one number, and their names; counts of rows are none."""
    return [
        (f"mean {_title(name)}" if name in MEANS and "classes" in metrics else _title(name), number(metrics[name]))
        for name in _ordered(metrics)
        if name not in COUNTS and not isinstance(metrics[name], Mapping | list)
    ]


def left_out(metrics: Mapping[str, Any]) -> str:
    """What is not in the metrics, as sentences."""
    said = ""
    if metrics.get("not_finite"):
        said += f" Left out: {number(metrics['not_finite'])} whose prediction is NaN or infinite."
    if metrics.get("other_labels"):
        said += f" Left out: {number(metrics['other_labels'])} with a label that the model does not know."
    return said


def by_class(metrics: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Metrics of each class against the others: their names, and for each class their numbers."""
    return _table({str(one["class"]): one for one in metrics.get("classes") or ()})


def by_output(metrics: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The same of each of several numbers that are predicted, from 1."""
    return _table({str(k): one for k, one in enumerate(metrics.get("outputs") or (), start=1)})


def _table(parts: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    names = _ordered(name for name in next(iter(parts.values()), ()) if name != "class")
    rows = [(part, [number(one[name]) for name in names]) for part, one in parts.items()]
    return [_title(name) for name in names], rows


def confusion(metrics: Mapping[str, Any], two: tuple[str, str]) -> Confusion | None:
    """The matrix; ``two`` are names of two classes. There is none of very many."""
    found = metrics.get("confusion")
    if isinstance(found, Mapping):
        return Confusion(names=two, counts=((found["tn"], found["fp"]), (found["fn"], found["tp"])))
    if found is None:
        return None
    return Confusion(
        names=tuple(str(one["class"]) for one in metrics["classes"]), counts=tuple(tuple(row) for row in found)
    )


def number(value: Any) -> str:
    """A number as people read it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else "none" if value is None else str(value)


def _ordered(names: Iterable[str]) -> list[str]:
    """Rows first, then the usual order; jsonb has another."""
    usual = ["rows", *NAMES]
    return sorted(names, key=lambda name: usual.index(name) if name in usual else len(usual))


def _title(name: str) -> str:
    return NAMES.get(name, name.replace("_", " "))
