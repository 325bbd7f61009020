"""The HTML page of a run: one self-contained file, light and dark, with a second page for the machine.

In: a `Run`; its `StoredModel`, `Scores` and `Machine`, or the reason that one is missing. Out: HTML. All texts from the
database are escaped; only the style and the drawings are inserted as markup.
"""

from __future__ import annotations

from dana.report import figure, metrics
from dana.report.charts import measured_chart, roofline_chart, schedule_chart, use_chart
from dana.report.curves import loss_chart, score_charts
from dana.report.history import Run, thinned
from dana.report.machine import Machine
from dana.report.markup import inline
from dana.report.prepared import prepared
from dana.report.scores import Scores
from dana.report.stored import StoredModel
from dana.report.templates import environment, stylesheet

WHEN = {
    "init": "at the start of each epoch",
    "tuple": "for each round of tuples",
    "merge": "to join two rounds of a batch",
    "push": "to keep a round of a batch",
    "batch": "at the end of each batch",
    "epoch": "at the end of each epoch",
}
MAX_TERMS = 100


def render(run: Run, made: Machine | str, model: StoredModel | None = None, scored: Scores | str = "") -> str:
    """The page.

    Parameters
    ----------
    made
        The result of `dana.report.machine.machine_of`.
    model, scored
        Results of `dana.report.stored.read_model` and `dana.report.scores.read_scores`.
    """
    machine, why = (None, made) if isinstance(made, str) else (made, "")
    scores, unscored = (None, scored) if isinstance(scored, str) else (scored, "")
    template = environment("dana.report", {"number": metrics.number}).get_template("page.html")
    loss, measured = loss_chart(run), measured_chart(run)
    return template.render(
        style=stylesheet(),
        run=run,
        model=model,
        unscored=unscored,
        **({"scores": None} if scores is None else _scored(run, model, scores)),
        prepared=prepared(run, model),
        query=None if model is None else model.metadata.get("query"),
        terms=() if model is None else model.terms[:MAX_TERMS],
        # the longest bar of the table of terms has this effect
        heaviest=max((abs(one.effect or 0.0) for one in (() if model is None else model.terms)), default=0.0),
        loss=inline(loss),
        epochs=thinned(run.curve),
        machine=machine,
        why=why,
        colours=figure.COLOURS,
        measured=inline(measured),
        use=None if machine is None else inline(use_chart(machine)),
        roofline=None if machine is None else inline(roofline_chart(machine)),
        sections=[] if machine is None else [_section(machine, name) for name, _, _ in machine.sections],
    )


def _scored(run: Run, model: StoredModel | None, scores: Scores) -> dict[str, object]:
    # the names in the order of the class numbers; a label that is 0 or 1 has none
    named = (model.metadata.get("classes") if model else None) or []
    two = (named[0], named[1]) if len(named) == 2 else ("0", "1")
    # labels of a margin loss: -1 and 1
    if scores.ranking is not None and scores.ranking.least < 0:
        two = ("-1", "1")
    return {
        "scores": scores,
        "single": metrics.single(scores.metrics),
        "left_out": metrics.left_out(scores.metrics),
        "by_class": metrics.by_class(scores.metrics),
        "by_output": metrics.by_output(scores.metrics),
        "confusion": metrics.confusion(scores.metrics, two),
        "drawings": [inline(drawing) for drawing in score_charts(run, scores)],
    }


def _section(machine: Machine, name: str) -> dict[str, object]:
    _, length, bars = next(found for found in machine.sections if found[0] == name)
    return {
        "name": name,
        "when": WHEN[name],
        "length": length,
        "count": len(bars),
        "chart": inline(schedule_chart(machine, name)) if bars else None,
    }
