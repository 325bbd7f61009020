"""Notices and errors about the course of a training: skipped rows, unusual order, divergence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from dana.compiler.binding.columns import crossed
from dana.trainer.contract import (
    EpochReport,
    Level,
    Notice,
    Notify,
    Parameter,
    SqlState,
    TrainingError,
    TrainRequest,
)
from dana.trainer.messages.page_errors import ARRAYS
from dsl import compile_rule
from dsl.hdfg.choice import choosing_inputs
from dsl.hdfg.graph import Graph, Op
from dsl.hdfg.init import InitKind
from hwgen.spec.bundle import Bundle, Fill
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters

ROWS_TO_CHOOSE = 64
"""Rows of a model below which neighbours choose the same row in any order."""

TUPLES_TO_CHECK = 1000

MAX_CHECKED = 1 << 18
"""Numbers of a model that are checked at a time, which bounds the memory of the result."""


def skipped_notice(request: TrainRequest, report: EpochReport) -> Notice:
    """Report skipped rows; most of the rows are a WARNING. Categories have no mean, and no hint."""
    relation, rows = request.relation, report.tuples + report.skipped
    hint = "With nulls => 'mean' a NULL counts as the mean of its column."
    return Notice(
        level=Level.WARNING if report.skipped > report.tuples else Level.NOTICE,
        message=f"{report.skipped:,} of {rows:,} rows of {relation.name} are left out: "
        "a column in use is null, NaN or infinite",
        hint="" if request.metadata.get("categories") else hint,
    )


def notify_crossed(request: TrainRequest, fills: Iterable[Fill], notify: Notify) -> None:
    """Report a column that fills an input but has the name of another input."""
    pairs = [(one.column, one.input) for one in fills]
    if not crossed(pairs):
        return
    inputs = list(dict.fromkeys(name for _, name in pairs))
    listed = [f"{', '.join(column for column, name in pairs if name == one)} to {one}" for one in inputs]
    notify(
        Notice(
            level=Level.NOTICE,
            message=f"columns of {request.relation.name} are taken in the order of features, not by name: "
            + "; ".join(listed),
            hint=f"The rule's inputs are, in order, {', '.join(inputs)}: name the columns in that order.",
        )
    )


def notify_simulated(config: MachineConfig, notify: Notify) -> None:
    """Report a machine that is too large for hardware."""
    if config.is_hardware:
        return
    # every thread has a copy of the models
    megabytes = 4 * config.threads * config.lanes * config.scratch_depth / 1e6
    notify(
        Notice(
            level=Level.NOTICE,
            message=f"the rule's models take {megabytes:,.0f} MB of a simulated machine's scratchpad, and no hardware "
            "has so much",
            hint="The model is correct, but cycles and modelled seconds correspond to no device.",
        )
    )


def another_order(request: TrainRequest) -> str:
    """Return how to change the order of the rows."""
    return "shuffle=True" if request.relation.name == ARRAYS else "shuffle => true"


def notify_chosen_again(request: TrainRequest, bundle: Bundle, counters: EpochCounters, notify: Notify) -> None:
    """Report that few tuples run side by side because most choose the same row as the one before."""
    fewest = min((choice.rows for choice in bundle.choices), default=0)
    # with few rows to choose from, or few tuples, neighbours share a row by chance
    if not bundle.cut or fewest < ROWS_TO_CHOOSE or counters.tuples < TUPLES_TO_CHECK:
        return
    together = counters.tuples / counters.batches
    if together >= 2:
        return
    notify(
        Notice(
            level=Level.NOTICE,
            message=f"most rows of {request.relation.name} choose the same row of a model as the row before them, "
            f"as in a sorted table: {together:.2f} are trained side by side instead of up to {bundle.batch}",
            hint="The accelerator trains such rows one after another. To train several at a time, change the order: "
            f"{another_order(request)}.",
        )
    )


def diverged_error(what: str, request: TrainRequest, kept: str = "") -> TrainingError:
    """Return the error for a NaN or an infinity in a result; `kept` are columns that contained such values."""
    if kept:
        return TrainingError(
            f"the training gave no finite result: {what}",
            sqlstate=SqlState.DATA_EXCEPTION,
            detail=f"Columns of {request.relation.name} hold NaN or infinite values, which are kept: {kept}.",
            hint="Exclude such rows with nonfinite => 'skip', or replace the values in the rule.",
        )
    return TrainingError(
        f"the training diverged: {what}",
        sqlstate=SqlState.DATA_EXCEPTION,
        hint=_steadier(request) + ".",
    )


def risen_notice(
    request: TrainRequest, epochs: tuple[int, int], losses: Sequence[float | None], *, heap_order: bool
) -> Notice:
    """Report that the loss rose far above that of the kept epoch, perhaps because of the order of rows."""
    (kept, risen), (least, most) = epochs, losses
    rate = _lower(request, compile_rule(request.text, filename=request.rule).hdfg)
    return Notice(
        level=Level.WARNING,
        message=f"the loss rose from {least:.6g} in epoch {kept} to {most:.6g} in epoch {risen}; the model of epoch "
        f"{kept} is kept",
        hint=(
            f"Train in another order, {another_order(request)}, or {rate[0].lower()}{rate[1:]}."
            if heap_order
            else f"{rate}."
        ),
    )


def unfinished_notice(request: TrainRequest, epochs: int, last: int, before: float, now: float) -> Notice:
    """Report that the number of epochs of the rule is too small for these rows."""
    given = "epochs=" if request.relation.name == ARRAYS else "epochs => "
    return Notice(
        level=Level.NOTICE,
        message=f"the loss was still falling when the rule's {epochs} epochs were over: from {before:.6g} to {now:.6g} "
        f"in the last {last}",
        hint=f"Train for more epochs, as in {given}{10 * epochs}; the training ends earlier if the loss settles.",
    )


def unsolved_notice(request: TrainRequest, epochs: int) -> Notice:
    """Report that the convergence test of a rule that takes the whole table as one batch did not hold."""
    given = "epochs=" if request.relation.name == ARRAYS else "epochs => "
    graph = compile_rule(request.text, filename=request.rule).hdfg
    why = "Columns may depend on each other" + ("" if graph.classes is None else ", or separate the classes")
    # by name, as the learning rate
    penalised = any("penalty" in str(graph.nodes[k].name) for k in graph.metas)
    instead = "Remove such columns, use a stronger penalty, or train" if penalised else "Remove such columns, or train"
    return Notice(
        level=Level.NOTICE,
        message=f"rule {request.rule!r} has not converged in {epochs} epochs",
        hint=f"{why}, so that more than one model fits. {instead} for more epochs, as in {given}{5 * epochs}.",
    )


def _steadier(request: TrainRequest) -> str:
    """Return the hint for a training that diverges: lower the rate, and scale what can be scaled."""
    graph = compile_rule(request.text, filename=request.rule).hdfg
    names = {str(graph.nodes[k].name) for k in graph.inputs if graph.nodes[k].op is Op.INPUT}
    rate = _lower(request, graph)
    # row numbers cannot be scaled, so the advice is for inputs that hold numbers
    if not names <= choosing_inputs(graph):
        return (
            f"{rate}, standardise the rule's inputs with dana.functions.standardized, or look for very large values in "
            "the columns in use"
        )
    labels = {str(graph.nodes[k].name) for k in graph.inputs if graph.nodes[k].op is Op.OUTPUT}
    scaled = {graph.nodes[k].init.of for k in graph.models if graph.nodes[k].init.kind is InitKind.SCALE}
    if graph.classes is None and labels - scaled:
        return (
            f"{rate}, or scale the label so that its values are of size 1 or so: in the rule with "
            "init=dana.column_scale, or by a division in a query or a view"
        )
    return rate


def _lower(request: TrainRequest, graph: Graph) -> str:
    """Return what to lower: the learning rate, with a tenth of its value, else what the caller set, or the text."""
    for node in (graph.nodes[k] for k in graph.metas):
        name = str(node.name)
        # by name: nothing else marks the learning rate of a rule
        if re.search("(^|_)(lr|rate|eta)($|_)", name):
            # a tenth of the value in use, which the caller may have set already
            return f"Lower the learning rate, {_tenth(request, name, node.value or 0.0)}"
    if request.hyper:
        name = max(request.hyper, key=lambda one: abs(float(request.hyper[one])))
        return f"Lower {name}, {_tenth(request, name, 0.0)}"
    return "Lower the learning rate, if the rule's text has one"


def _tenth(request: TrainRequest, name: str, default: float) -> str:
    written = f'{{"{name}": {float(request.hyper.get(name, default)) / 10:g}}}'
    return f"as in hyper={written}" if request.relation.name == ARRAYS else f"as in hyper => '{written}'"


def check_finite(parameters: Iterable[Parameter], request: TrainRequest, kept: str) -> None:
    """Raise TrainingError if a model contains a NaN or an infinity; it would be useless and is not stored."""
    for parameter in parameters:
        flat = parameter.values.reshape(-1)
        parts = (flat[first : first + MAX_CHECKED] for first in range(0, flat.size, MAX_CHECKED))
        bad = sum(one.size - int(np.count_nonzero(np.isfinite(one))) for one in parts)
        if bad:
            what = f"{bad} of {parameter.values.size} elements of {parameter.name} are NaN or infinite"
            raise diverged_error(what, request, kept)
