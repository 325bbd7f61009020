"""What a user should know of a training: rows that are left out, numbers that have run away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from dana.compiler.binding.columns import crossed
from dana.storage.types import ALL_ARRAYS
from dana.training.contract import (
    EpochReport,
    Level,
    Notice,
    Notify,
    Parameter,
    SqlState,
    TrainingError,
    TrainRequest,
)
from dana.training.messages.page_errors import ARRAYS, QUERY
from dsl import compile_rule
from dsl.hdfg.choice import choosing_inputs
from dsl.hdfg.graph import Graph, Op
from dsl.hdfg.init import InitKind
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import EpochCounters

ROWS_TO_CHOOSE = 64
"""Of fewer rows of a model, neighbours choose the same one in any order."""

TUPLES_TO_CHECK = 1000

MAX_CHECKED = 1 << 18
"""Numbers of a model that are looked at together: the answers take memory, too."""


def skipped_notice(request: TrainRequest, report: EpochReport) -> Notice:
    """That rows are left out, and what helps but where numbers choose rows: no mean is one of them."""
    relation, rows = request.relation, report.tuples + report.skipped
    arrays = any(one.type_oid in ALL_ARRAYS for one in relation.attributes)  # whose NULLs have no mean
    hint = "With nulls => 'mean' a NULL counts as the mean of its column."
    return Notice(
        level=Level.NOTICE,
        message=f"{report.skipped:,} of {rows:,} rows of {relation.name} are left out: "
        "a column in use is null, NaN or infinite",
        hint="" if arrays or request.metadata.get("categories") else hint,
    )


def notify_crossed(request: TrainRequest, fills: Iterable[tuple[str, str]], notify: Notify) -> None:
    """Say of columns and the inputs that they fill where a column has the name of another input."""
    pairs = list(fills)
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
    """Say of a machine that is larger than any that could be built."""
    if config.is_hardware:
        return
    megabytes = 4 * config.threads * config.lanes * config.scratch_depth / 1e6
    notify(
        Notice(
            level=Level.NOTICE,
            message=f"the rule's models take {megabytes:,.0f} MB of a simulated machine's scratchpad, and no hardware "
            "has so much",
            hint="The model is as it should be; cycles and modelled seconds are those of no device.",
        )
    )


def another_order(request: TrainRequest) -> str:
    """How to have it."""
    arrays = request.relation.name == ARRAYS
    queried = request.relation.name == QUERY
    return "shuffle the arrays" if arrays else "ORDER BY hashint8(id) in the query" if queried else "shuffle => true"


def notify_chosen_again(request: TrainRequest, bundle: Bundle, counters: EpochCounters, notify: Notify) -> None:
    """Say of tuples that might run side by side where most choose a row that the one before them chose."""
    fewest = min((choice["rows"] for choice in bundle.notes["indices"]), default=0)
    if not bundle.cut or fewest < ROWS_TO_CHOOSE or counters.tuples < TUPLES_TO_CHECK:
        return
    together = counters.tuples / counters.batches
    if together >= 2:
        return
    notify(
        Notice(
            level=Level.NOTICE,
            message=f"most rows of {request.relation.name} choose the same row of a model as the row before them, "
            f"as in a sorted table: {together:.2f} are trained side by side, where {bundle.batch} might be",
            hint="Hardware takes such rows one after the other, and several at a time in another order: "
            f"{another_order(request)}.",
        )
    )


def diverged_error(what: str, request: TrainRequest, kept: str = "") -> TrainingError:
    """The SQL error for a training that came to a NaN or an infinity; `kept` are the columns that hold some already."""
    if kept:
        return TrainingError(
            f"the training came to no number: {what}",
            sqlstate=SqlState.DATA_EXCEPTION,
            detail=f"Columns of {request.relation.name} hold NaN or infinite values, which are kept: {kept}.",
            hint="Leave such rows out with nonfinite => 'skip', or have the rule put numbers in their place.",
        )
    return TrainingError(
        f"the training diverged: {what}",
        sqlstate=SqlState.DATA_EXCEPTION,
        hint=f"Lower the learning rate, {_steadier(request)}.",
    )


def risen_notice(request: TrainRequest, epochs: tuple[int, int], losses: Sequence[float | None]) -> Notice:
    """That the loss rose far above that of the epoch whose model is kept."""
    (kept, risen), (least, most) = epochs, losses
    rate = _rate_of(request, compile_rule(request.source, filename=request.rule).hdfg)
    return Notice(
        level=Level.WARNING,
        message=f"the loss rose from {least:.6g} in epoch {kept} to {most:.6g} in epoch {risen}; the model of epoch "
        f"{kept} is kept",
        hint=f"Train in another order, {another_order(request)}, or lower the learning rate, {rate}.",
    )


def unfinished_notice(request: TrainRequest, epochs: int, last: int, before: float, now: float) -> Notice:
    """That the rule's own number of epochs is too small for these rows."""
    given = "epochs=" if request.relation.name == ARRAYS else "epochs => "
    return Notice(
        level=Level.NOTICE,
        message=f"the loss was still falling when the rule's {epochs} epochs were over: from {before:.6g} to {now:.6g} "
        f"in the last {last}",
        hint=f"Train for more of them, as in {given}{10 * epochs}: it ends before where the loss has settled.",
    )


def _steadier(request: TrainRequest) -> str:
    """What helps a training that diverges: the rate, and what can be scaled, which categories cannot."""
    graph = compile_rule(request.source, filename=request.rule).hdfg
    names = {str(graph.nodes[k].name) for k in graph.inputs if graph.nodes[k].op is Op.INPUT}
    rate = _rate_of(request, graph)
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


def _rate_of(request: TrainRequest, graph: Graph) -> str:
    """Where the learning rate is found: a meta, as an argument that makes it a tenth; else the text of the rule."""
    for node in (graph.nodes[k] for k in graph.metas):
        name = str(node.name)
        if re.search("(^|_)(lr|rate|eta)($|_)", name):
            lower = float(request.hyper.get(name, node.value or 0.0)) / 10
            written = f'{{"{name}": {lower:g}}}'
            return f"as in hyper={written}" if request.relation.name == ARRAYS else f"as in hyper => '{written}'"
    return "which is a number in the rule's text"


def check_finite(parameters: Iterable[Parameter], request: TrainRequest, kept: str) -> None:
    """Raise where a model holds a NaN or an infinity: it would predict nothing of use, and is not kept."""
    for parameter in parameters:
        flat = parameter.values.reshape(-1)
        parts = (flat[first : first + MAX_CHECKED] for first in range(0, flat.size, MAX_CHECKED))
        bad = sum(one.size - int(np.count_nonzero(np.isfinite(one))) for one in parts)
        if bad:
            what = f"{bad} of {parameter.values.size} elements of {parameter.name} are NaN or infinite"
            raise diverged_error(what, request, kept)
