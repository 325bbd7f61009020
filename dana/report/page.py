"""The HTML page of a run: one file that needs nothing else, light and dark, a second page for the machine.

In: a `Run`, its `StoredModel` and `Scores` or why there are none, its `Machine` or why there is none. Out: HTML. Every
text that came from the database is escaped; the only markup that is put in as it is are the drawings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dana.report import figure, metrics
from dana.report.charts import measured_chart, roofline_chart, schedule_chart, use_chart
from dana.report.curves import loss_chart, score_charts, thinned
from dana.report.history import Run
from dana.report.machine import Machine
from dana.report.prepared import prepared
from dana.report.scores import Scores
from dana.report.stored import StoredModel
from dana.session.terminal import printable

WHEN = {
    "init": "at the start of each epoch",
    "tuple": "for each round of tuples",
    "merge": "to join two rounds of a batch",
    "push": "to keep a round of a batch",
    "batch": "at the end of each batch",
    "epoch": "at the end of each epoch",
}
INK = {figure.PAPER: "paper", figure.TEXT: "text", figure.LABEL: "label", figure.EDGE: "edge"}
INK |= {figure.GRID: "grid", figure.FAINT: "faint", figure.LINE: "line"}
"""Colours of a drawing that are others in the dark: variables of the page's style."""

MAX_TERMS = 100


def render(run: Run, made: Machine | str, model: StoredModel | None = None, scored: Scores | str = "") -> str:
    """The page.

    Parameters
    ----------
    made
        What `dana.report.machine.machine_of` gives.
    model, scored
        What `dana.report.stored.read_model` and `dana.report.scores.read_scores` give.
    """
    machine, why = (None, made) if isinstance(made, str) else (made, "")
    scores, unscored = (None, scored) if isinstance(scored, str) else (scored, "")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_finalize
    )
    environment.filters |= {"number": metrics.number}
    template = environment.from_string(files("dana.report").joinpath("page.html").read_text(encoding="utf-8"))
    loss, measured = loss_chart(run), measured_chart(run)
    return template.render(
        run=run,
        model=model,
        unscored=unscored,
        **({"scores": None} if scores is None else _scored(run, model, scores)),
        prepared=prepared(run, model),
        query=None if model is None else model.metadata.get("query"),
        terms=() if model is None else model.terms[:MAX_TERMS],
        heaviest=max((abs(one.effect or 0.0) for one in (() if model is None else model.terms)), default=0.0),
        loss=_inline(loss),
        epochs=thinned(run.curve),
        machine=machine,
        why=why,
        colours=figure.COLOURS,
        measured=_inline(measured),
        use=None if machine is None else _inline(use_chart(machine)),
        roofline=None if machine is None else _inline(roofline_chart(machine)),
        sections=[] if machine is None else [_section(machine, name) for name, _, _ in machine.sections],
    )


def _scored(run: Run, model: StoredModel | None, scores: Scores) -> dict[str, Any]:
    named: Sequence[Any] = (model.metadata.get("classes") if model else None) or ()
    two = (str(named[0]), str(named[1])) if len(named) == 2 else ("0", "1")
    if scores.ranking is not None and scores.ranking.least < 0:
        two = ("-1", "1")
    return {
        "scores": scores,
        "single": metrics.single(scores.metrics),
        "left_out": metrics.left_out(scores.metrics),
        "by_class": metrics.by_class(scores.metrics),
        "by_output": metrics.by_output(scores.metrics),
        "confusion": metrics.confusion(scores.metrics, two),
        "drawings": [_inline(drawing) for drawing in score_charts(run, scores)],
    }


def _inline(drawing: str | None) -> Markup | None:
    """A drawing whose colours are the page's; its texts are between tags, and stay."""
    if drawing is None:
        return None
    colours = re.compile("|".join(INK))
    return Markup(re.sub(r"<[^<>]*>", lambda tag: colours.sub(lambda one: f"var(--{INK[one[0]]})", tag[0]), drawing))


def _finalize(value: object) -> object:
    """What is not markup of ours is shown as it is: a name must not turn round what stands beside it."""
    return printable(value, lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def _section(machine: Machine, name: str) -> dict[str, object]:
    _, length, bars = next(found for found in machine.sections if found[0] == name)
    return {
        "name": name,
        "when": WHEN[name],
        "length": length,
        "count": len(bars),
        "chart": _inline(schedule_chart(machine, name)) if bars else None,
    }
