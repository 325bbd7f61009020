"""The HTML page of a run: one file that needs nothing else.

In: a `Run` and its `Machine`, or why there is none. Out: HTML. Every text that came from the database is escaped; the
only markup that is put in as it is are the drawings of `charts`.
"""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dana.report.charts import COLOURS, loss_chart, measured_chart, roofline_chart, schedule_chart, use_chart
from dana.report.history import Run
from dana.report.machine import Machine
from dana.terminal import printable

WHEN = {
    "init": "at the start of each epoch",
    "tuple": "for each round of tuples",
    "merge": "to join two rounds of a batch",
    "push": "to keep a round of a batch",
    "batch": "at the end of each batch",
    "epoch": "at the end of each epoch",
}


def render(run: Run, made: Machine | str) -> str:
    """The page; ``made`` is what `dana.report.machine.machine_of` gives."""
    machine, why = (None, made) if isinstance(made, str) else (made, "")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_finalize
    )
    template = environment.from_string(files("dana.report").joinpath("page.html").read_text(encoding="utf-8"))
    loss, measured = loss_chart(run), measured_chart(run)
    return template.render(
        run=run,
        machine=machine,
        why=why,
        colours=COLOURS,
        loss=None if loss is None else Markup(loss),
        measured=None if measured is None else Markup(measured),
        use=None if machine is None else Markup(use_chart(machine)),
        roofline=None if machine is None else Markup(roofline_chart(machine)),
        sections=[] if machine is None else [_section(machine, name) for name, _, _ in machine.sections],
    )


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
        "chart": Markup(schedule_chart(machine, name)) if bars else None,
    }
