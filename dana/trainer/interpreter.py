"""Training in the interpreter, the reference for every machine: slow, with bit-identical models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dana.compiler.binding.weights import class_weights_name
from dana.predictor.program import encode_predictor
from dana.storage.parts import PartReader
from dana.storage.reader import PageFault, read_page
from dana.storage.schema import TableSchema, Use
from dana.trainer.constant import constant_of
from dana.trainer.contract import (
    EpochReport,
    Json,
    Notify,
    Observer,
    Parameter,
    Sink,
    SqlState,
    Statistic,
    Stream,
    Training,
    TrainingError,
    TrainRequest,
    TrainResult,
    TupleLayout,
)
from dana.trainer.data.centres import Centring
from dana.trainer.data.classes import classes_of, prediction_kind
from dana.trainer.data.coefficients import coefficients
from dana.trainer.data.likelihood import tuple_layout
from dana.trainer.data.order import kinds_to_count, notify_order, order_metadata, row_order
from dana.trainer.data.survey import clustered, started, statistics_of, survey_columns
from dana.trainer.data.survey_checks import check_labels, check_survey
from dana.trainer.data.weights import (
    BALANCED,
    balanced_class_weights,
    bind_request,
    given_class_weights,
    weight_metadata,
)
from dana.trainer.designs import chosen_extents, default_metas, rule_graph, rule_of
from dana.trainer.judge import Judged
from dana.trainer.losses import loss_graph, minimised
from dana.trainer.machine import NO_MEMORY, PageCollector
from dana.trainer.messages.notices import check_finite, notify_crossed
from dana.trainer.messages.page_errors import no_rows_error, page_error, row_dims
from dana.trainer.metas import meta_values
from dana.trainer.provenance import provenance, stored_as_metadata
from dana.trainer.warm import warm_values
from dsl.hdfg.evaluate import DataError
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@dataclass(slots=True)
class Columns:
    """Values of the inputs of a rule in heap order, arrays of shape [tuples, *shape]."""

    values: dict[str, Floats]
    tuples: int
    skipped: int


def read_columns(
    pages: memoryview, schema: TableSchema, uses: tuple[Use, ...], shapes: dict[str, tuple[int, ...]], page_size: int
) -> Columns:
    """Read the pages of a table with the reference reader.

    Raises
    ------
    FaultyPage
        At the first page with an invalid layout.
    """
    found: list[list[Floats]] = []
    skipped = 0
    reader = PartReader(schema, uses) if schema.part else None
    last = len(pages) // page_size - 1
    for number in range(last + 1):
        stored = bytes(pages[number * page_size : (number + 1) * page_size])
        try:
            page = _page(stored, schema, uses) if reader is None else reader.read(stored)
            # a row in parts may continue on the next page; after the last one it is incomplete
            if reader is not None and number == last:
                reader.finish()
        except PageFault as error:
            raise FaultyPage(error, number) from error
        found += page.rows
        skipped += page.skipped
    count = len(found)
    values = {name: np.zeros((count, max(1, int(np.prod(shape)))), np.float32) for name, shape in shapes.items()}
    for at, use in enumerate(uses):
        for number, row in enumerate(found):
            values[use.input][number, use.element : use.element + use.count] = row[at]
    return Columns(
        values={name: value.reshape(count, *shapes[name]) for name, value in values.items()},
        tuples=count,
        skipped=skipped,
    )


_page = lru_cache(maxsize=64)(read_page)  # the epochs of a small table read the same pages


class FaultyPage(Exception):
    """A page fault and its page."""

    def __init__(self, fault: PageFault, page: int) -> None:
        super().__init__(f"page {page}: {fault}")
        self.fault = fault
        self.page = page


class InterpretedTraining(Judged):
    """One training in the interpreter; implements `dana.trainer.contract.Training`."""

    def __init__(
        self,
        request: TrainRequest,
        notify: Notify,
        stream: Stream | None = None,
        *,
        judge: Callable[[], Training] | None = None,
    ) -> None:
        super().__init__(judge)
        self._notify = notify
        self.stream = stream
        self.not_finite = ""
        rule = rule_graph(request)
        chosen = chosen_extents(dict(rule.extents), request.hyper)
        self._binding = bind_request(rule, request, chosen)
        self._extents = self._binding.extents
        graph = self._binding.graph
        self._loss = loss_graph(self._binding.unweighted.judging)
        self._request = request
        self._fills = self._binding.fills(request.relation.schema)
        columns = [one.column for one in self._fills]
        self.order = row_order(request, rule, columns, whole_table=self.whole_table)
        notify_crossed(request, [one for one in self._fills if one.column in self._binding.features], notify)
        self._collector = PageCollector(request.relation.page_size)
        self._interpreter = Interpreter(graph, numerics)
        self._metas = meta_values(default_metas(graph), request.hyper, self._extents)
        self._models = self._interpreter.start()
        shapes = {name: values.shape for name, values in self._models.items()}
        self._row_dims = row_dims(rule)
        self._class_weights = None if request.class_weight is None else class_weights_name(rule)
        warm = warm_values(
            request, shapes, self._class_weights, self._row_dims, self._binding.features, self._models.__getitem__
        )
        self._models = {**self._models, **warm}
        self._classes = 0
        if self._class_weights is not None:
            # unpacking checks that the model has one axis
            (self._classes,) = shapes[self._class_weights]
            self._models[self._class_weights] = given_class_weights(request, self._classes)
        self._observer: Observer | None = None
        self._shapes = {str(graph.nodes[k].name): graph.concrete_shape(k) for k in graph.inputs}

    @property
    def design(self) -> Json:
        return {
            "features": list(self._binding.features),
            "labels": list(self._binding.labels),
            "classes": classes_of(self._binding.graph, self._binding.labels),
            **provenance(self._request, self._metas, self._extents),
        }

    @property
    def epochs(self) -> int:
        return self._request.epochs or self._binding.graph.epochs

    @property
    def whole_table(self) -> bool:
        graph = self._binding.graph
        return graph.has_merge and graph.batch is None

    @property
    def tests_convergence(self) -> bool:
        return self._binding.graph.convergence is not None

    @property
    def survey(self) -> Sink | None:
        return self._collector.sink

    def end_survey(self) -> None:
        inputs: dict[str | None, str] = {one.column: one.input for one in self._fills}
        columns = self._read().values
        kinds = kinds_to_count(classes_of(self._binding.graph, self._binding.labels))
        survey = survey_columns(
            columns,
            weight=inputs.get(self._request.weight),
            label=inputs[self._binding.labels[0]] if self._classes or kinds else None,
            classes=self._classes,
            kinds=kinds,
        )
        rule = rule_of(self._request.text, self._request.rule)
        self._centring = Centring(
            graph=rule.hdfg, request=self._request, survey=survey, fills=self._fills, labels=self._binding.labels
        )
        self._centring.check()
        self.not_finite = check_survey(rule, self._request, survey, self._fills, self._binding.labels, self._notify)
        if not self.whole_table and self.order is None:
            notify_order(self._request, survey, self._fills, self._binding.labels, self._notify)
        starts = started(self._request, statistics_of(self._binding.graph))
        self._models = {**self._models, **{one.model: survey.start(one) for one in starts}}
        if self._request.class_weight == BALANCED and self._class_weights is not None:
            self._models[self._class_weights] = balanced_class_weights(survey)
        label = next((one.input for one in self._fills if one.column in self._binding.labels), None)
        if label is not None:
            side_by_side = np.concatenate([one.reshape(len(one), -1) for one in columns.values()], axis=1)
            # as the simulator: a row with a NaN anywhere is no row of the survey
            good = np.isfinite(side_by_side).all(axis=1)
            if self._request.weight is not None:
                # as in native/survey.c, the label of a row of weight 0 does not count
                weights = columns[inputs[self._request.weight]]
                good &= weights > 0
            else:
                weights = np.ones(len(good), np.float32)
            values, places = np.unique(columns[label].reshape(len(good), -1)[good, 0], return_inverse=True)
            check_labels(rule, self._request, self._metas, self._binding.labels, values + self._request.centres.label)
            self._constant = lambda numbers: constant_of(
                self._request,
                self._loss,
                (values.astype(float), np.bincount(places, weights[good]).astype(float)),
                {**self._metas, **numbers},
                rows=survey.tuples,
                tuples=len(good),
                classes=None if self._class_weights is None else self._models[self._class_weights],
            )

    @property
    def sink(self) -> Sink:
        return self._collector.sink

    def _failure(self, status: int) -> Exception:
        if status == NO_MEMORY:
            return MemoryError("no room for the pages of an epoch")
        return AssertionError(f"the page collector accepts every page, but returned status {status}")

    def _read(self) -> Columns:
        """Decode the collected pages."""
        relation = self._request.relation
        try:
            columns = read_columns(
                self._collector.take(), relation.schema, self._binding.uses, self._shapes, relation.page_size
            )
        except FaultyPage as error:
            raise page_error(error.fault.fault, relation, error.page, error.fault.pointer) from error
        if not columns.tuples:
            raise no_rows_error(self._request, columns.skipped)
        return columns

    def end_epoch(self) -> EpochReport:
        columns = self._read()
        try:
            # one epoch at a time: the loop and the convergence test are `loop.run`'s
            result = self._interpreter.train(columns.values, self._models, self._metas, epochs=1)
        except DataError as error:
            raise TrainingError(f"{error} ({self._request.relation.name})", sqlstate=SqlState.DATA_EXCEPTION) from error
        self._models = result.models
        return EpochReport(
            loss=result.losses[0] if result.losses else None,
            converged=result.converged,
            tuples=columns.tuples,
            skipped=columns.skipped,
            cycles=None,
        )

    def adopt(self, parameters: Sequence[Parameter]) -> None:
        self._models = {**self._models, **{one.name: one.values for one in parameters}}

    @property
    def layout(self) -> TupleLayout:
        places, elements = {}, 0
        for name, shape in self._shapes.items():
            size = int(np.prod(shape))
            places[name] = np.arange(elements, elements + size).reshape(shape)
            elements += size
        return tuple_layout(
            places,
            self._fills,
            features=self._binding.features,
            labels=self._binding.labels,
            weight=self._request.weight,
            lanes=1,
            elements=elements,
        )

    @property
    def clustered(self) -> Sequence[Statistic]:
        return clustered(self._request, statistics_of(self._binding.graph))

    def look(self, observer: Observer) -> Sink:
        self._observer = observer
        return self._collector.sink

    def end_look(self) -> None:
        assert self._observer is not None
        columns = self._read().values
        self._observer.add(
            np.concatenate([columns[name].reshape(len(columns[name]), -1) for name in self._shapes], axis=1)
        )
        self._observer = None

    def parameters(self, over: Sequence[Parameter] = ()) -> Sequence[Parameter]:
        # no copies are needed, and `over` is not used: each epoch makes new arrays (`Interpreter.train`)
        return [Parameter(name=name, values=values) for name, values in self._models.items()]

    def finish(self, parameters: Sequence[Parameter]) -> TrainResult:
        graph = self._binding.graph
        check_finite(parameters, self._request, self.not_finite)
        predictor = None if graph.prediction is None else encode_predictor(graph, self._metas)
        return TrainResult(
            parameters=parameters,
            predictor=predictor,
            modelled_seconds=None,
            metadata={
                "features": list(self._binding.features),
                "labels": list(self._binding.labels),
                "hyper": self._metas,
                "dims": self._extents,
                "row_dims": self._row_dims,
                "predicts": prediction_kind(graph),
                **minimised(self._loss, self._metas),
                **weight_metadata(self._request),
                **stored_as_metadata(self._request),
                **order_metadata(self.order),
                "optimizers": list(rule_of(self._request.text, self._request.rule).checked.optimizers),
                "batch": "all" if self.whole_table else graph.batch or 1,
                "machine": "interp",
                **self._request.centres.metadata,
                "coefficients": coefficients(
                    predictor, parameters, self._fills, self._binding.features, self._request.centres
                ),
            },
        )

    def _free(self) -> None:
        self._collector.take()
