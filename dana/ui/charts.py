"""Data of the charts, which ``static/app.js`` draws with uPlot.

In: epochs, losses, an explanation. Out: objects of JSON. A colour is a name: ``line`` for the training, ``other`` for
the rows for validation or a second model, ``edge`` for limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dana.client.activity import Curve
from dana.printable import printable
from dana.records import Plan
from dana.report.history import Run, thinned
from dana.report.roofline import roofline
from hwgen.spec.config import MachineConfig

Chart = dict[str, object]


def live_chart(curve: Curve) -> Chart:
    """Losses of a running training."""
    return _chart("epoch", "mean loss", [epoch for epoch, _ in curve], [("loss", "line", [loss for _, loss in curve])])


def loss_chart(*runs: tuple[str, Run]) -> Chart | None:
    """Losses of the epochs of one run, training and validation, or of several, each by a name; None without losses."""
    curves: list[tuple[str, str, dict[int, float | None]]] = []
    for (name, run), colour in zip(runs, ("line", "other"), strict=False):
        shown = thinned(run.curve)
        loss: dict[int, float | None] = {one.epoch: one.loss for one in shown}
        validation = {one.epoch: one.validation_loss for one in shown}
        tested = any(each is not None for each in validation.values())
        if len(runs) > 1:
            curves.append((name, colour, validation if tested else loss))
            continue
        curves.append(("training, as the model changes", "line", loss))
        if tested:
            curves.append(("validation", "other", validation))
    if not any(each is not None for _, _, curve in curves for each in curve.values()):
        return None
    epochs = sorted({epoch for _, _, curve in curves for epoch in curve})
    lines = [(name, colour, [curve.get(epoch) for epoch in epochs]) for name, colour, curve in curves]
    return _chart("epoch", "mean loss", epochs, lines) | ({"kept": runs[0][1].kept} if len(runs) == 1 else {})


def roofline_chart(plan: Plan) -> Chart:
    """The roofline of a plan of ``dana_explain``."""
    cycles = plan["cycles"]
    names = MachineConfig.__dataclass_fields__
    config = MachineConfig.from_json({name: each for name, each in plan["machine"].items() if name in names})
    found = roofline(config, cycles["busy"]["units"] * cycles["page"], cycles["page"])
    # the axes are logarithmic: a plan without computation has no place
    places = sorted({*found.xs, *([found.intensity] if found.intensity > 0 else [])})
    rate = config.page_rate
    lines: list[tuple[str, str, Sequence[float | None]]] = [
        ("limit of link and units", "edge", [min(x * rate, config.units) for x in places]),
        ("this training", "other", [found.reached if x == found.intensity else None for x in places]),
    ]
    return _chart("operations for each byte of a page", "operations a cycle", places, lines) | {"log": True}


def _chart(x: str, y: str, places: Sequence[float], lines: Sequence[tuple[str, str, Sequence[float | None]]]) -> Chart:
    # JSON has no NaN and no infinity
    return {
        "x": x,
        "y": y,
        "places": list(places),
        "lines": [
            {
                "name": printable(name),
                "colour": colour,
                "values": [each if each is not None and math.isfinite(each) else None for each in values],
            }
            for name, colour, values in lines
        ],
    }
