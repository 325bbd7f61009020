"""Metrics of `dana_evaluate` as tables.

In: metrics, names of two classes. Out: texts. Single numbers are in the usual order; metrics unknown here follow under
their own names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dana.metrics import BY_NAME, COUNTS, ordered
from dana.records import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion:
    """Numbers of rows by class (a row of ``counts``) and predicted class (a column)."""

    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def share(self, row: int, column: int) -> float:
        """A cell as a share of its class's rows."""
        return self.counts[row][column] / max(1, sum(self.counts[row]))


def single(metrics: Mapping[str, object]) -> list[tuple[str, str]]:
    """Names and texts of metrics that are one number, without counts of rows."""
    return [
        (f"mean {_title(name)}" if _averaged(name) and "classes" in metrics else _title(name), number(metrics[name]))
        for name in ordered(metrics)
        if name not in ("rows", *COUNTS) and not isinstance(metrics[name], Mapping | list)
    ]


def left_out(metrics: Mapping[str, object]) -> str:
    """The rows left out of the metrics, as sentences."""
    said = ""
    if metrics.get("not_finite"):
        said += f" Left out: {number(metrics['not_finite'])} with a prediction that is NaN or infinite."
    if metrics.get("other_labels"):
        said += f" Left out: {number(metrics['other_labels'])} with a label that the model does not know."
    if metrics.get("unseen_categories"):
        said += f" {number(metrics['unseen_categories'])} have a category that the training did not have."
    if metrics.get("not_predicted"):
        said += (
            f" Left out: {number(metrics['not_predicted'])} with a NULL in a feature, which the model does not predict."
        )
    return said


def by_class(metrics: Metrics) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Metrics of each class against the others: their names, and for each class their numbers."""
    return _table({str(one["class"]): one for one in metrics.get("classes") or ()})


def by_output(metrics: Metrics) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The same for each output, numbered from 1."""
    return _table({str(k): one for k, one in enumerate(metrics.get("outputs") or (), start=1)})


def _table(parts: Mapping[str, Mapping[str, object]]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    # all parts have the same metrics, so the first one's names serve
    names = ordered(name for name in next(iter(parts.values()), ()) if name != "class")
    rows = [(part, [number(one[name]) for name in names]) for part, one in parts.items()]
    return [_title(name) for name in names], rows


def confusion(metrics: Metrics, two: tuple[str, str]) -> Confusion | None:
    """The confusion matrix; ``two`` names two classes. The server omits it for very many classes."""
    found = metrics.get("confusion")
    if found is None:
        return None
    # a list has a row for each class; two classes have four counts by name
    if isinstance(found, list):
        names = tuple(one["class"] for one in metrics["classes"])
        return Confusion(names=names, counts=tuple(tuple(row) for row in found))
    return Confusion(names=two, counts=((found["tn"], found["fp"]), (found["fn"], found["tp"])))


def number(value: object) -> str:
    """A number as text, for display."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else "none" if value is None else str(value)


def _averaged(name: str) -> bool:
    return name in BY_NAME and BY_NAME[name].averaged


def _title(name: str) -> str:
    return BY_NAME[name].title if name in BY_NAME else name.replace("_", " ")
