"""Drawings of a model, as SVG text: its losses, and its predictions against the labels.

In: a `Run`, its `Scores`. Out: as in `dana.report.charts`.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.ticker import MaxNLocator

from dana.report.colours import EDGE, LINE, OTHER
from dana.report.figure import WIDTH, drawn, named
from dana.report.history import Run, thinned
from dana.report.scores import Ranking, Scores

HALF = WIDTH / 2


def loss_chart(run: Run) -> str | None:
    """The losses of each epoch, on the training rows and on the held-out rows; None for a rule without a loss."""
    lines = [
        ("training, as the model changes", LINE, [(one.epoch, one.loss) for one in run.curve if one.loss is not None]),
        (
            "validation",
            OTHER,
            [(one.epoch, one.validation_loss) for one in run.curve if one.validation_loss is not None],
        ),
    ]
    lines = [(name, colour, points) for name, colour, points in lines if points]
    if not lines:
        return None
    out: list[str] = []
    with drawn(2.6, f"{named(run)}: loss of each epoch", out) as axes:
        for name, colour, points in lines:
            shown = thinned(points)
            marker = "o" if len(shown) <= 60 else None
            axes.plot(
                [x for x, _ in shown], [y for _, y in shown], color=colour, marker=marker, markersize=3, label=name
            )
        axes.axvline(run.kept, color=EDGE, linewidth=0.8, linestyle="--", label=f"kept: epoch {run.kept}")
        axes.set_xlabel("epoch")
        axes.set_ylabel("mean loss")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
        axes.legend()
    return out[0]


def score_charts(run: Run, scores: Scores) -> list[str]:
    """ROC and thresholds for two classes, predictions and residuals for numbers; else none."""
    ranking = scores.ranking
    if ranking is not None and ranking.positives and ranking.negatives:
        return [_roc_chart(run, scores, ranking), _threshold_chart(run, scores, ranking)]
    return [_pairs_chart(run, scores.pairs), _residuals_chart(run, scores.pairs)] if scores.pairs else []


def _roc_chart(run: Run, scores: Scores, ranking: Ranking) -> str:
    out: list[str] = []
    heading = f"ROC curve: AUC {scores.metrics['auc']:.4f}"
    with drawn(3.0, f"{named(run)}: ROC curve", out, heading=heading, width=HALF) as axes:
        # the curve begins at 0, 0: the threshold above all predictions
        shares = [(0.0, 0.0)] + [
            (p.negative / ranking.negatives, p.positive / ranking.positives) for p in ranking.points
        ]
        axes.plot([0, 1], [0, 1], color=EDGE, linewidth=0.8, linestyle="--")
        axes.plot([x for x, _ in shares], [y for _, y in shares], color=LINE, clip_on=False)
        chosen = scores.metrics.get("confusion")
        # a model with more classes has a list here
        if isinstance(chosen, dict) and {"tp", "fp"} <= chosen.keys():
            at = (chosen["fp"] / ranking.negatives, chosen["tp"] / ranking.positives)
            axes.plot([at[0]], [at[1]], marker="o", color=OTHER, clip_on=False)
            axes.annotate(f"threshold {scores.threshold:g}", at, xytext=(8, -12), textcoords="offset points")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.set_aspect("equal")
        axes.set_xlabel("false positives, share of the negative")
        axes.set_ylabel("true positives, share of the positive")
        axes.grid()
    return out[0]


def _threshold_chart(run: Run, scores: Scores, ranking: Ranking) -> str:
    out: list[str] = []
    with drawn(3.0, f"{named(run)}: thresholds", out, heading="Precision and recall by threshold", width=HALF) as axes:
        points = ranking.points
        at = [p.threshold for p in points]
        # never 0: a point has at least the row with its prediction
        axes.plot(at, [p.positive / (p.positive + p.negative) for p in points], color=LINE, label="precision")
        axes.plot(at, [p.positive / ranking.positives for p in points], color=OTHER, label="recall")
        if scores.threshold is not None:
            axes.axvline(scores.threshold, color=EDGE, linewidth=0.8, linestyle="--")
        axes.set_ylim(0, 1.03)
        axes.set_xlabel("least prediction that counts as positive")
        axes.grid()
        axes.legend(loc="lower left")
    return out[0]


def _pairs_chart(run: Run, pairs: Sequence[tuple[float, float]]) -> str:
    out: list[str] = []
    with drawn(3.0, f"{named(run)}: predictions", out, heading="Predicted and actual", width=HALF) as axes:
        low, high = min(map(min, pairs)), max(map(max, pairs))
        axes.plot([low, high], [low, high], color=EDGE, linewidth=0.8, linestyle="--")
        axes.plot(
            *zip(*pairs, strict=True), color=LINE, marker="o", markersize=3, linestyle="", alpha=0.6, markeredgewidth=0
        )
        axes.set_xlabel("actual")
        axes.set_ylabel("predicted")
        axes.grid()
    return out[0]


def _residuals_chart(run: Run, pairs: Sequence[tuple[float, float]]) -> str:
    out: list[str] = []
    with drawn(3.0, f"{named(run)}: residuals", out, heading="Residuals: actual less predicted", width=HALF) as axes:
        axes.hist([actual - predicted for actual, predicted in pairs], bins=20, color=LINE)
        axes.axvline(0, color=EDGE, linewidth=0.8, linestyle="--")
        axes.set_xlabel("residual")
        axes.set_ylabel("rows")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
    return out[0]
