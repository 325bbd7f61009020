"""Trainings over NumPy arrays in this process: the worker's trainer without a server.

In: rule text and columns. Out: the models, each epoch's loss, and predictions for other rows, computed by the
interpreter. Pages are built and streamed as a backend would, so that what trains is what trains in the database. It
must not open a connection.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dana.compiler import bind
from dana.runtime.trainer import Json, Notice, Relation, SqlState, Training, TrainingError, TrainRequest
from dana.runtime.training import MachineTrainer
from dana.storage.columns import column_pages, column_schema
from dsl import compile_rule
from dsl.hdfg.graph import Graph, Op
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics

Columns = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float32]

PAGE_SIZE = 8192
"""PostgreSQL's default BLCKSZ (pg_config.h)."""

_CONSUME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a training gave.

    Attributes
    ----------
    graph
        The rule, its dims bound.
    models
        Values by name, states included.
    metas, extents
        Those that it trained with; extents are the dims that the caller may choose.
    losses
        By epoch; empty for a rule without a loss.
    cycles
        Of the machine, over all epochs; None for the backend ``interp``.
    converged
        Whether the rule's convergence test ended it.
    features
        Columns that fill the inputs, in order.
    """

    graph: Graph
    models: dict[str, Floats]
    metas: dict[str, float]
    extents: dict[str, int]
    losses: tuple[float, ...]
    cycles: int | None
    converged: bool
    features: tuple[str, ...]

    def predict(self, columns: Columns) -> Floats:
        """The rule's prediction for each row of a table that has the feature columns."""
        values: dict[str, Floats] = {}
        names = iter(self.features)
        for node in (self.graph.nodes[k] for k in self.graph.inputs if self.graph.nodes[k].op is Op.INPUT):
            shape = self.graph.concrete_shape(node.id)
            taken = [np.asarray(columns[next(names)], dtype=np.float32) for _ in range(prod(shape))]
            values[str(node.name)] = np.stack(taken, axis=1).reshape(-1, *shape)
        return Interpreter(self.graph, numerics).predict(values, self.models, self.metas)


def train(
    source: str,
    columns: Columns,
    *,
    features: Sequence[str] | None = None,
    label: str | None = None,
    epochs: int | None = None,
    hyper: Mapping[str, float] | None = None,
    backend: str = "sim",
    design: Mapping[str, Any] | None = None,
) -> Trained:
    """Train a rule over columns of numbers, as ``dana_train`` does over a table of them.

    Parameters
    ----------
    source
        Text of the rule.
    columns
        Values of shape (rows,) by name; rounded to binary32.
    features, label, epochs, hyper, backend, design
        As for ``dana_train``.

    Raises
    ------
    TrainingError
        Rule, columns and arguments do not go together.
    """
    schema = column_schema(list(columns))
    pages = column_pages(columns, page_size=PAGE_SIZE)
    request = TrainRequest(
        rule="rule",
        source=source,
        relation=Relation(name=schema.relation, pages=len(pages), page_size=PAGE_SIZE, attributes=schema.attributes),
        features=None if features is None else tuple(features),
        label=label,
        epochs=epochs,
        hyper=dict(hyper or {}),
        backend=backend,
        design=dict(design or {}),
    )
    training = MachineTrainer().open(request, _ignored)
    losses: list[float] = []
    cycles: int | None = 0
    try:
        _check_labels(columns, training.design["classes"])
        for _ in range(training.epochs):
            _feed(training, pages)
            report = training.end_epoch()
            losses += [] if report.loss is None else [report.loss]
            cycles = None if cycles is None or report.cycles is None else cycles + report.cycles
            if report.converged:
                break
        result = training.finish()
    finally:
        training.close()
    chosen = {name: extent for name, extent in result.metadata["dims"].items() if name in request.hyper}
    binding = bind(compile_rule(source, filename="rule").hdfg, schema, features, label, chosen)
    return Trained(
        graph=binding.graph,
        models={parameter.name: parameter.values for parameter in result.parameters},
        metas=dict(result.metadata["hyper"]),
        extents=dict(result.metadata["dims"]),
        losses=tuple(losses),
        cycles=cycles,
        converged=report.converged,
        features=binding.features,
    )


def _check_labels(columns: Columns, classes: Json | None) -> None:
    """Raise where a label is none of the rule's classes, as the backend does (pg_extension/src/frames.c)."""
    if classes is None:
        return
    name, count = classes["label"], classes["count"]
    values = np.asarray(columns[name], dtype=np.float32)
    (bad,) = np.nonzero(~((values >= 0) & (values < count) & (values == np.floor(values))))
    if len(bad):
        raise TrainingError(
            f"row {bad[0] + 1} has the label {values[bad[0]]:g} in column {name!r}, which is none of the rule's "
            f"classes 0 to {count - 1}",
            sqlstate=SqlState.DATA_EXCEPTION,
            hint="Number the labels from 0, give the rule more classes with hyper, or leave such rows out.",
        )


def _feed(training: Training, pages: NDArray[np.uint8]) -> None:
    sink = training.sink
    status = _CONSUME(sink.function)(sink.context, pages.ctypes.data, len(pages))
    if status:
        raise training.failure(status)


def _ignored(notice: Notice) -> None:
    """Nobody is told: what a notice warns of (values that are not finite) is in the models."""
