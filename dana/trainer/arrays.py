"""Trainings over NumPy arrays in this process, without a server.

Pages are built from the arrays and streamed to the trainer as a backend does, so that exactly the same code trains as
in the database. Predictions are computed by the interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import repeat
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dana.codesign.sample import fits
from dana.errors import UsageError
from dana.predictor.centres import Centres, centred
from dana.storage.columns import column_pages, column_schema
from dana.storage.parts import build_part_pages
from dana.storage.permuted import PermutedPages, RowOrder, anonymous
from dana.trainer.contract import Json, Notify, Relation, Sink, Stream, Training, TrainRequest, once
from dana.trainer.data.centres import NeedsCentres
from dana.trainer.data.classes import prediction_kind
from dana.trainer.data.weights import bind_request
from dana.trainer.designs import chosen_extents, graph_of
from dana.trainer.extents import with_extents
from dana.trainer.loop import Outcome, run
from dana.trainer.machine import feed_pages
from dana.trainer.trainer import MachineTrainer
from dsl.hdfg.graph import Graph, Op
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics

Columns = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float32]

PAGE_SIZE = 8192
"""PostgreSQL's default BLCKSZ (pg_config.h)."""

TYPE_NAMES = {
    "bool": "boolean",
    **dict.fromkeys(("float16", "float32"), "real"),
    **dict.fromkeys(("int8", "uint8", "int16"), "smallint"),
    **dict.fromkeys(("uint16", "int32"), "integer"),
    **dict.fromkeys(("uint32", "int64", "uint64"), "bigint"),
}

MEMORY_STEP = 16 << 20
"""Bytes of memory that rows in another order take at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The result of a training.

    Attributes
    ----------
    graph
        The rule with bound dims.
    models
        Values by name, states included.
    metas, extents
        Values used in the training; extents are the dims that the caller may choose.
    loss
        Mean loss of the models over the rows, measured at the end; None for a rule without a loss.
    losses
        By epoch, measured while the models change; empty for a rule without a loss.
    kept
        Epoch of the models.
    cycles
        Of the machine, over all epochs; None for ``interp``.
    converged
        Whether the training ended because the rule converged or its loss no longer improved.
    features
        Columns that fill the inputs, in order.
    labels
        Values of the label in the order of their class numbers, texts or numbers as given; None: no classes.
    coefficients
        Coefficients of the columns, with standard errors after a solved training; None: the prediction has none.
    summary
        What is known at the maximum of the likelihood; None: the rule was not solved.
    centres
        What was subtracted from columns before they became binary32; the models belong to the smaller numbers.
    """

    graph: Graph
    models: dict[str, Floats]
    metas: dict[str, float]
    extents: dict[str, int]
    loss: float | None
    losses: tuple[float, ...]
    kept: int
    cycles: int | None
    converged: bool
    features: tuple[str, ...]
    labels: NDArray[Any] | None
    coefficients: Json | None
    summary: Json | None
    centres: Centres

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Texts of `labels`."""
        return None if self.labels is None else _texts(self.labels)

    def predict(self, columns: Columns) -> NDArray[np.floating[Any]]:
        """Return the predictions, shape (rows,), or (rows, k) for vectors; `columns` contain the features."""
        values: dict[str, Floats] = {}
        smaller = less_centres(columns, self.centres, self.features)
        each = [np.asarray(smaller[name], dtype=np.float32) for name in self.features]
        features = np.concatenate([column.reshape(len(column), -1) for column in each], axis=1)
        taken = 0
        # columns fill the inputs in the order of their declaration, not by name
        for node in (self.graph.nodes[k] for k in self.graph.inputs if self.graph.nodes[k].op is Op.INPUT):
            shape = self.graph.concrete_shape(node.id)
            values[str(node.name)] = features[:, taken : taken + prod(shape)].reshape(-1, *shape)
            taken += prod(shape)
        return self.centres.predicted(Interpreter(self.graph, numerics).predict(values, self.models, self.metas))

    def classify(self, predicted: NDArray[np.floating[Any]]) -> NDArray[Any]:
        """Return the label that each prediction selects, as ``dana_classify`` does.

        Raises
        ------
        UsageError
            The rule has no classes.
        """
        if self.labels is None:
            raise UsageError(
                f"rule {self.graph.name!r} has no classes", hint="Declare its output as dana.output(classes=…)."
            )
        if predicted.ndim > 1:
            return np.asarray(self.labels[np.argmax(predicted, axis=1)])
        # as in pg_extension/src/predict/predict.c; a score is a logit, so its threshold is 0
        least = 0.5 if prediction_kind(self.graph) == "probability" else 0
        return np.asarray(self.labels[(predicted >= least).astype(np.intp)])


def train(
    text: str,
    columns: Columns,
    *,
    features: Sequence[str] | None = None,
    label: str | None = None,
    epochs: int | None = None,
    patience: int | None = None,
    tolerance: float | None = None,
    hyper: Mapping[str, float] | None = None,
    machine: str = "sim",
    design: Mapping[str, object] | None = None,
    standardize: bool | None = None,
    stored_as: str | None = None,
    weight: str | None = None,
    class_weight: Mapping[str, float] | str | None = None,
    shuffle: bool | None = None,
    seed: int | None = None,
    models: Mapping[str, Floats] | None = None,
    notify: Notify = lambda notice: None,
) -> Trained:
    """Train a rule over columns of numbers, as ``dana_train`` does over a table of them.

    Parameters
    ----------
    text
        Text of the rule.
    columns
        Values of shape (rows,), or (rows, elements) for an array, by name; rounded to binary32. Labels of a rule with
        classes may be texts.
    models
        Initial values by model; other models are initialised by the rule.
    notify
        Receives the notices that a client of a server would receive.
    features, label, epochs, patience, tolerance, hyper, machine, design, standardize, stored_as, weight, class_weight,
    shuffle, seed
        As for ``dana_train``; a NaN or an infinity is an error.

    Raises
    ------
    TrainingError
        Rule, columns and arguments do not match.
    """
    graph = graph_of(text, "rule")
    columns, labels = _numbered(graph, columns, label, hyper or {})
    schema = column_schema(columns)
    # rows that exceed a page are streamed as frames, as by a backend
    rows = not fits(schema, page_size=PAGE_SIZE)
    pages = None if rows else column_pages(columns, page_size=PAGE_SIZE)
    attributes = zip(schema.attributes, columns.values(), strict=True)
    request = TrainRequest(
        rule=graph.name,
        text=text,
        relation=Relation(
            name=schema.relation,
            pages=None if pages is None else len(pages),
            page_size=PAGE_SIZE,
            attributes=tuple(replace(one, type_name=_type_name(values)) for one, values in attributes),
            rows=rows,
        ),
        features=None if features is None else tuple(features),
        label=label,
        epochs=epochs,
        patience=patience,
        tolerance=tolerance,
        hyper=dict(hyper or {}),
        machine=machine,
        design=dict(design or {}),
        classes=None if labels is None else _texts(labels),
        standardize=standardize,
        stored_as=stored_as,
        weight=weight,
        class_weight=class_weight,
        shuffle=shuffle,
        seed=seed,
        warm_start_from=models,
        warm_start_whole=False,
    )
    trainer = MachineTrainer()
    request = replace(request, largest={name: _largest(columns[name]) for name in trainer.categories(request).columns})
    notify, outcome = once(notify), None
    while outcome is None:
        try:
            outcome = _run(trainer, request, columns, pages, notify)
        except NeedsCentres as error:
            request = error.amended(request)
    result = outcome.result
    binding = bind_request(graph, request, chosen_extents(dict(graph.extents), with_extents(request).hyper))
    return Trained(
        graph=binding.graph,
        models={parameter.name: parameter.values for parameter in result.parameters},
        metas=dict(result.metadata["hyper"]),
        extents=dict(result.metadata["dims"]),
        loss=outcome.kept.loss,
        losses=tuple(report.loss for report in outcome.reports if report.loss is not None),
        kept=outcome.result.metadata["epoch"],
        cycles=outcome.cycles,
        converged=outcome.converged,
        features=binding.features,
        labels=labels,
        coefficients=result.metadata["coefficients"],
        summary=result.metadata.get("summary"),
        centres=request.centres,
    )


def _run(
    trainer: MachineTrainer, request: TrainRequest, columns: Columns, pages: NDArray[np.uint8] | None, notify: Notify
) -> Outcome:
    """Run a training, on pages unless it asks for frames."""
    training = trainer.open(request, notify)
    with ExitStack() as opened:
        opened.callback(training.close)
        if pages is None or training.stream is not None:
            named = (training.design["features"], training.design["labels"])
            pages = _frames(less_centres(columns, request.centres, *named), training.stream)
        taken = pages if training.order is None else opened.enter_context(closing(_permuted(training.order, pages)))
        return run(training, request, feed=lambda sink: _feed(training, sink, taken), notify=notify)


def less_centres(
    columns: Columns, centres: Centres, features: Sequence[str], labels: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """Subtract centres from columns in binary64; columns without a centre are as they are."""
    made = dict(columns)
    places = centres.of_features(sum(prod(np.shape(columns[name])[1:]) for name in features))
    for name in features:
        shape = np.shape(columns[name])[1:]
        made[name] = centred(columns[name], places[: prod(shape)].reshape(shape))
        places = places[prod(shape) :]
    for name in labels:
        made[name] = centred(columns[name], centres.label)
    return made


def _type_name(values: NDArray[Any]) -> str:
    """Return SQL's name of the type that holds an array's numbers."""
    kind = np.asarray(values).dtype
    name = TYPE_NAMES.get(kind.name, "double precision")
    return name if np.ndim(values) == 1 else f"{name}[]"


def _largest(values: NDArray[Any]) -> float | None:
    numbers = np.asarray(values, np.float32)
    finite = numbers[np.isfinite(numbers)]
    return float(finite.max()) if finite.size else None


def _texts(labels: NDArray[Any]) -> tuple[str, ...]:
    # PostgreSQL writes a whole float8 without a fraction, and class_weight names classes by these texts
    return tuple(str(one) if isinstance(one, str) else str(one).removesuffix(".0") for one in labels)


def _numbered(
    graph: Graph, columns: Columns, label: str | None, hyper: Mapping[str, float]
) -> tuple[Columns, NDArray[Any] | None]:
    """Number the classes from 0; return the columns and the labels in order (as pg_extension features/classes.c)."""
    if graph.classes is None or not columns:
        return columns, None
    output = next(str(graph.nodes[k].name) for k in graph.inputs if graph.nodes[k].op is Op.OUTPUT)
    name = label or (output if output in columns else list(columns)[-1])
    if name not in columns:
        return columns, None  # the binding reports the missing column
    if np.asarray(columns[name]).dtype.kind == "U":
        texts, places = np.unique(columns[name], return_inverse=True)  # code points: the order of UTF-8's bytes
        return {**columns, name: places.astype(np.float32)}, texts
    values = np.asarray(columns[name])
    if values.dtype.kind not in "iuf":
        values = values.astype(np.float32)
    found = np.unique(values[np.isfinite(values)])
    classes = graph.symbolic_classes
    # a rule with a dim as its number of classes takes that of `hyper`, else as many as there are
    wanted = classes if isinstance(classes, int) else hyper.get(str(classes), len(found))
    # labels that number classes already keep their numbers, also of classes without a row
    if len(found) and np.array_equal(found, np.floor(found)) and found[0] >= 0 and found[-1] < wanted:
        return columns, np.arange(int(found[-1]) + 1)
    # a NaN stays a NaN, which the survey reports; searchsorted would make it a class
    numbers = np.where(np.isfinite(values), np.searchsorted(found, values), values)
    return {**columns, name: numbers.astype(np.float32)}, found


def _frames(columns: Columns, stream: Stream | None) -> NDArray[np.uint8]:
    """Build the frames that a training requests."""
    assert stream is not None, "rows come as frames"
    names = list(columns)
    asked = {names[number - 1]: np.asarray(columns[names[number - 1]]) for number in stream.numbers}
    if not stream.part:
        return column_pages(asked, page_size=stream.page_size)
    schema = replace(column_schema(asked), part=stream.part)
    made = build_part_pages(schema, zip(*asked.values(), strict=True), page_size=stream.page_size)
    return np.frombuffer(made, dtype=np.uint8).reshape(-1, stream.page_size)


def _permuted(order: RowOrder, pages: NDArray[np.uint8]) -> PermutedPages:
    """Lay out the rows of pages in another order, in memory."""
    permuted = PermutedPages(
        page_size=pages.shape[1], order=order, memory=(anonymous(size) for size in repeat(MEMORY_STEP))
    )
    function, context = permuted.sink
    if feed_pages(Sink(function=function, context=context), pages):
        permuted.check()
        raise MemoryError("no room for the rows in another order")
    return permuted


def _feed(training: Training, sink: Sink, pages: NDArray[np.uint8] | PermutedPages) -> int:
    if isinstance(pages, PermutedPages):
        count, status = pages.feed(sink.again or sink.function, sink.context)
    else:
        count, status = len(pages), feed_pages(sink, pages)
    if status:
        raise training.failure(status)
    return count
