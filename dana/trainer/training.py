"""A training on a machine that runs a Bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dana.errors import InternalError
from dana.predictor.program import with_metas
from dana.simulator.machine import Simulator
from dana.simulator.native import SPOILT
from dana.trainer.constant import constant_of
from dana.trainer.contract import (
    EpochReport,
    Json,
    Notify,
    Observer,
    OutOfLine,
    Parameter,
    Sink,
    Statistic,
    Stream,
    Training,
    TrainRequest,
    TrainResult,
    TupleLayout,
)
from dana.trainer.data.centres import Centring
from dana.trainer.data.coefficients import coefficients
from dana.trainer.data.likelihood import tuple_layout
from dana.trainer.data.order import kinds_to_count, notify_order, order_metadata, row_order
from dana.trainer.data.survey import (
    clustered,
    columns_to_sum,
    nothing_surveyed,
    started,
    starts_models,
    survey_of,
    taken,
)
from dana.trainer.data.survey_checks import check_labels, check_survey, check_values
from dana.trainer.data.surveyed import SurveyObserver
from dana.trainer.data.weights import BALANCED, balanced_class_weights, given_class_weights, weight_metadata
from dana.trainer.designs import Design, rule_graph, rule_of
from dana.trainer.judge import Judged
from dana.trainer.losses import minimised
from dana.trainer.machine import NO_MEMORY, Machine, read_symbol, write_symbol
from dana.trainer.messages.notices import check_finite, notify_chosen_again, notify_crossed, notify_simulated
from dana.trainer.messages.page_errors import dim_of, no_rows_error, page_error, row_error
from dana.trainer.metas import meta_values
from dana.trainer.provenance import machine_provenance, provenance, stored_as_metadata
from dana.trainer.starts import write_starts
from dana.trainer.warm import warm_values
from dsl.hdfg.graph import Graph
from dsl.hdfg.text import parse_graph
from hwgen.spec.bundle import WHOLE_EPOCH, Symbol
from hwgen.spec.counters import EpochCounters
from hwgen.spec.numerics import bfloat16
from hwgen.spec.strider import Fault


@lru_cache(maxsize=8)  # every training of a design needs it
def _parsed(text: str) -> Graph:
    return parse_graph(text)


@lru_cache(maxsize=64)  # of a rule and its metas; a training of ten rows takes a third longer without
def _minimised(text: str | None, metas: tuple[tuple[str, float], ...]) -> Mapping[str, object]:
    return minimised(None if text is None else _parsed(text), dict(metas))


class MachineTraining(Judged):
    """One training on a machine; implements `dana.trainer.contract.Training`."""

    def __init__(
        self,
        request: TrainRequest,
        design: Design,
        machine: Machine,
        notify: Notify,
        stream: Stream | None = None,
        *,
        loss_only: bool = False,
        judge: Callable[[], Training] | None = None,
    ) -> None:
        super().__init__(judge)
        self._request = request
        self.stream = stream
        self._notify = notify
        self._design = design
        self._machine = machine
        self._cycles = 0
        self._begun = False
        self.not_finite = ""
        self._bundle = design.bundle
        fills = self._bundle.fills
        columns = [one.column for one in fills]
        self.order = row_order(request, rule_graph(request), columns, whole_table=self.whole_table)
        self._metas = meta_values(design.metas, request.hyper, design.extents)
        part = request.part
        if part is not None and part.mode == "batch" and design.batch_meta is not None:
            # a batch has as many rows of each part
            self._metas = {**self._metas, design.batch_meta: self._metas[design.batch_meta] * part.count}
        # loading writes the whole initial scratchpad, so values of metas and models are written after it
        machine.load(self._bundle)
        # metas are data of the program, so other values need no other design
        for symbol in self._bundle.of_kind("meta"):
            rows = symbol.place(np.float32(self._metas[symbol.name]), self._bundle.config.lanes)
            machine.write_rows(symbol.row, rows.view(np.uint32))
        models = {symbol.name: symbol for symbol in self._bundle.of_kind("model")}
        shapes = {name: symbol.shape for name, symbol in models.items()}
        # before the warm start: a model that grows reads its new rows from the machine (`cold` of warm_values)
        write_starts(machine, self._bundle)
        warm = warm_values(
            request,
            shapes,
            design.class_weights,
            design.row_dims,
            design.features,
            lambda name: self._read(models[name]),
        )
        self._write_models(warm)
        # labels and weights are named by arguments of their own, so their order is no accident
        aside = {*design.labels, request.weight}
        notify_crossed(request, (one for one in fills if one.column not in aside), notify)
        notify_simulated(design.bundle.config, notify)
        classes = 0
        if design.class_weights is not None:
            # unpacking checks that the model has one axis
            (classes,) = shapes[design.class_weights]
            self._write_models({design.class_weights: given_class_weights(request, classes)})
        leads = part is not None and not part.number
        self._compiled = None if leads else machine.compiled(request, design, loss_only=loss_only)
        # a model that starts from a statistic is read by the first tuple, so its statistic needs a pass before
        in_first_epoch = part is None and machine.observes and not starts_models(request, design.statistics)
        # the first label: the tally is of one column
        label = next((one.column for one in fills if one.column in design.labels), None)
        self._surveyed = nothing_surveyed(
            self._bundle,
            weight=request.weight,
            label=label,
            classes=classes,
            kinds=kinds_to_count(design.classes),
            # a pass of its own sums all columns, because models start from them; else those suffice that a check needs
            summed=columns_to_sum(request, fills, design.labels) if in_first_epoch else None,
        )
        self._surveys_first_epoch = in_first_epoch and not loss_only
        """Whether the survey runs during the first epoch, which is possible if no model is initialised from it."""
        # a single pass that only measures the loss reports no cycles; repeated passes reuse the first one's count
        self._counts = False if loss_only and self.epochs == 1 else None
        self._surveyor: Simulator | None = None
        if not in_first_epoch and not loss_only:
            self._surveyor = machine.surveyor(self._bundle)

    @property
    def design(self) -> Json:
        return {
            "config": self._bundle.config.to_json(),
            "units": self._bundle.config.units,
            "instructions": len(self._bundle.program),
            "strider_instructions": len(self._bundle.strider),
            "features": list(self._design.features),
            "labels": list(self._design.labels),
            "classes": self._design.classes,
            **provenance(self._request, self._metas, self._design.extents),
            **machine_provenance(self._request, self._design),
        }

    @property
    def epochs(self) -> int:
        return self._request.epochs or self._design.epochs

    @property
    def whole_table(self) -> bool:
        return self._bundle.batch == WHOLE_EPOCH

    @property
    def _blocks(self) -> int:
        """Blocks of rows in a batch, one of each part."""
        part = self._request.part
        return part.count if part is not None and part.mode == "batch" else 1

    @property
    def tests_convergence(self) -> bool:
        return self._bundle.symbol("convergence") is not None

    @property
    def survey(self) -> Sink | None:
        if self._surveyor is None:
            return None
        # without training no model changes, and the machine counts no cycles
        self._surveyor.begin_epoch(observer=SurveyObserver(self._surveyed), trains=False)
        function, context = self._surveyor.sink
        return Sink(function=function, context=context)

    def end_survey(self) -> None:
        assert self._surveyor is not None
        counters = self._surveyor.end_epoch()
        machine: object = self._machine
        # the simulator is its own surveyor, and still has to train
        if self._surveyor is not machine:
            self._surveyor.close()
        self._surveyor = None
        if counters.fault is not Fault.NONE:
            raise self._fault(counters)
        if not counters.tuples:
            raise no_rows_error(self._request, counters.skipped)
        self._apply_survey(counters.tuples)

    def _apply_survey(self, tuples: int) -> None:
        """Check the values that a survey found, and initialise models with its statistics."""
        survey = survey_of(self._surveyed, self._bundle.inputs)
        fills = self._bundle.fills
        rule = rule_of(self._request.text, self._request.rule)
        self._centring = Centring(
            graph=rule.hdfg, request=self._request, survey=survey, fills=fills, labels=self._design.labels
        )
        self._centring.check()
        self.not_finite = check_survey(rule, self._request, survey, fills, self._design.labels, self._notify)
        # one batch is a sum over all rows, so their order does not matter
        if not self.whole_table and self.order is None and self._request.part is None:
            notify_order(self._request, survey, fills, self._design.labels, self._notify)
        starts = started(self._request, self._design.statistics)
        self._write_models({one.model: survey.start(one) for one in starts})
        classes = None
        if self._design.class_weights is not None:
            balanced = self._request.class_weight == BALANCED
            count = self._surveyed.classes.size
            classes = balanced_class_weights(survey) if balanced else given_class_weights(self._request, count)
            self._write_models({self._design.class_weights: classes})
        if self._surveyed.tally is not None:
            values, weights = self._surveyed.values
            check_labels(rule, self._request, self._metas, self._design.labels, values + self._request.centres.label)
            # as text in the design, because the rule's own graph is not kept
            text = self._design.loss_text
            self._constant = lambda numbers: constant_of(
                self._request,
                None if text is None else _parsed(text),
                (values, weights),
                {**self._metas, **numbers},
                rows=survey.tuples,
                tuples=tuples,
                classes=classes,
            )

    @property
    def sink(self) -> Sink:
        self._begin()
        function, context = self._machine.sink
        return Sink(function=function, context=context, again=self._machine.sink_again[0])

    def _failure(self, status: int) -> Exception:
        # the counters of the machine identify the fault
        if status == NO_MEMORY:
            return MemoryError("no room for the pages of an epoch")
        if status == SPOILT:
            return InternalError(
                "the machine code of the rule changed rows that no tuple chose; please report this with the rule"
            )
        # the pass that failed may be the survey; ending it returns the place of the fault
        counters = (self._surveyor or self._machine).end_epoch()
        self._begun = False
        if counters.fault is Fault.NONE:
            return InternalError(f"the machine rejected a page with status {status}")
        return self._fault(counters)

    def _ended(self) -> EpochCounters:
        """End the machine's epoch."""
        return self._machine.end_epoch()

    def judged(self) -> tuple[EpochCounters, float]:
        """End the pass of a judge over rows that may be none; return its counters and the sum of the losses."""
        counters = self._ended()
        self._begun = False
        return counters, self._scalar("loss") or 0.0

    def end_epoch(self) -> EpochReport:
        counters = self._ended()
        self._begun = False
        if counters.fault is not Fault.NONE:
            raise self._fault(counters)
        # before the loss is divided by their number
        if not counters.tuples:
            raise no_rows_error(self._request, counters.skipped)
        if self._surveys_first_epoch:
            self._surveys_first_epoch = False
            self._apply_survey(counters.tuples)
        # after the first epoch only: every later one has the same pages and would repeat the notice
        if self._counts is None and not self._cycles and self.order is None:
            notify_chosen_again(self._request, self._bundle, counters, self._notify)
        self._cycles += counters.cycles
        if self._compiled is not None:
            self._compiled.after_epoch(self._notify)
        loss = self._scalar("loss")
        convergence = self._scalar("convergence")
        report = EpochReport(
            # the machine sums the loss; skipped rows are in neither number
            loss=None if loss is None else loss / counters.tuples,
            converged=convergence is not None and convergence != 0,
            tuples=counters.tuples,
            skipped=counters.skipped,
            cycles=counters.cycles,
            counters={
                "engine_busy": counters.engine_busy,
                "merging": counters.merging,
                "batches": counters.batches,
                "waiting_for_tuples": counters.cycles - counters.engine_busy,
                "waiting_for_engine": counters.waiting_for_engine,
                "waiting_for_pages": counters.waiting_for_pages,
            },
        )
        self._begin()
        return report

    def parameters(self, over: Sequence[Parameter] = ()) -> Sequence[Parameter]:
        symbols, places = self._bundle.of_kind("model"), {one.name: one.values for one in over}
        return [Parameter(name=one.name, values=self._read(one, places.get(one.name))) for one in symbols]

    def finish(self, parameters: Sequence[Parameter]) -> TrainResult:
        config, part = self._bundle.config, self._request.part
        predictor = self._design.predictor
        if predictor is not None:
            # the cached predictor has the rule's defaults; the order is that of declaration, as in `encode_predictor`
            predictor = with_metas(predictor, list(self._metas.values()))
        # before `coefficients`, and before anything is sent: a model with a NaN is not stored
        check_finite(parameters, self._request, self.not_finite)
        return TrainResult(
            parameters=parameters,
            predictor=predictor,
            modelled_seconds=self._cycles / config.clock_hz,
            metadata={
                "features": list(self._design.features),
                "labels": list(self._design.labels),
                "hyper": self._metas,
                "dims": self._design.extents,
                "row_dims": self._design.row_dims,
                "predicts": self._design.predicts,
                **_minimised(self._design.loss_text, tuple(sorted(self._metas.items()))),
                **weight_metadata(self._request),
                **stored_as_metadata(self._request),
                **order_metadata(self.order),
                "optimizers": list(rule_of(self._request.text, self._request.rule).checked.optimizers),
                "batch": "all" if self.whole_table else self._bundle.rule_batch * self._blocks,
                **({} if part is None else {"sync": part.mode, "shards": part.count}),
                "machine": self._request.machine,
                "units": config.units,
                **self._request.centres.metadata,
                "coefficients": coefficients(
                    predictor, parameters, self._bundle.fills, self._design.features, self._request.centres
                ),
            },
        )

    def _free(self) -> None:
        if self._compiled is not None:
            self._compiled.close()
        self._machine.close()

    def _fault(self, counters: EpochCounters) -> Exception:
        relation = self._request.relation
        # only this fault's pointer is the number of a choice; for the others it is an offset on the page
        if counters.fault is Fault.INDEX:
            if self._surveys_first_epoch:
                try:  # a NaN that chooses a row faults before the survey can report it
                    check_values(self._request, survey_of(self._surveyed, self._bundle.inputs))
                except OutOfLine as error:
                    return error
            choice = self._bundle.choices[counters.fault_pointer]
            dim = dim_of(rule_graph(self._request), choice)
            return row_error(relation, choice, dim, self._request.largest)
        return page_error(counters.fault, relation, counters.fault_page, counters.fault_pointer)

    def adopt(self, parameters: Sequence[Parameter]) -> None:
        """See `Training.adopt`."""
        self._write_models({one.name: one.values for one in parameters})

    @property
    def layout(self) -> TupleLayout:
        inputs = {one.name: one for one in self._bundle.inputs}
        lanes, elements = self._bundle.config.lanes, self._bundle.tuple_rows * self._bundle.config.lanes
        places = np.arange(elements).reshape(-1, lanes)
        return tuple_layout(
            {name: taken(places[one.row :], one.shape) for name, one in inputs.items()},
            self._bundle.fills,
            features=self._design.features,
            labels=self._design.labels,
            weight=self._request.weight,
            lanes=lanes,
            elements=elements,
        )

    @property
    def clustered(self) -> Sequence[Statistic]:
        return clustered(self._request, self._design.statistics)

    def look(self, observer: Observer) -> Sink:
        # a simulator of its own: the machine's may compare the pages of an epoch with those of the one before
        self._surveyor = Simulator(self._bundle.config)
        self._surveyor.load(self._bundle)
        self._surveyor.begin_epoch(observer=observer, trains=False)
        function, context = self._surveyor.sink
        return Sink(function=function, context=context)

    def end_look(self) -> None:
        assert self._surveyor is not None
        counters = self._surveyor.end_epoch()
        self._surveyor.close()
        self._surveyor = None
        if counters.fault is not Fault.NONE:
            raise self._fault(counters)

    def _write_models(self, values: Mapping[str, NDArray[np.float32]]) -> None:
        for symbol in self._bundle.of_kind("model"):
            if symbol.name in values:
                own = values[symbol.name]
                if symbol.name in self._design.narrow:
                    own = bfloat16(own)
                write_symbol(self._machine, symbol, own, self._bundle.config.lanes)

    def _begin(self) -> None:
        # `sink` is asked for several times in an epoch (`HeldOutRows.loss`, for every call): a second begin would drop
        # the pages that were taken
        if not self._begun:
            if self._compiled is not None:
                self._compiled.before_epoch()
            observer = SurveyObserver(self._surveyed) if self._surveys_first_epoch else None
            pages = self._request.relation.pages if self.order is None else None
            self._machine.begin_epoch(pages, observer=observer, counts=self._counts)
            self._begun = True

    def _read(self, symbol: Symbol, over: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        return read_symbol(self._machine, symbol, self._bundle.config.lanes, over)

    def _scalar(self, kind: str) -> float | None:
        symbol = self._bundle.symbol(kind)
        return None if symbol is None else float(self._read(symbol))
