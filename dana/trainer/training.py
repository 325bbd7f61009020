"""The trainer of the worker: trainings on the machines of `dana.trainer.machines` and in the interpreter."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from numbers import Integral
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dana.compiler.target import DoesNotFit
from dana.errors import InternalError, UsageError
from dana.predictor.program import with_metas
from dana.simulator.headers import digest
from dana.simulator.machine import Simulator
from dana.simulator.native import SPOILT
from dana.storage.frames import RowTooLong
from dana.storage.schema import UnknownColumn
from dana.trainer.compiled import Compiled
from dana.trainer.contract import (
    Categories,
    EpochReport,
    ExplainRequest,
    HeldOut,
    Json,
    Level,
    Notice,
    Notify,
    OutOfLine,
    Parameter,
    Sink,
    SqlState,
    Stream,
    Training,
    TrainingError,
    TrainRequest,
    TrainResult,
)
from dana.trainer.data.coefficients import coefficients
from dana.trainer.data.order import kinds_to_count, notify_order
from dana.trainer.data.survey import (
    check_labels,
    check_survey,
    check_values,
    columns_to_sum,
    nothing_surveyed,
    started,
    starts_models,
    survey_of,
)
from dana.trainer.data.surveyed import SurveyObserver
from dana.trainer.data.weights import BALANCED, balanced_class_weights, given_class_weights, weight_metadata
from dana.trainer.designs import Design, DesignStore, check_hyper, rule_graph, rule_of
from dana.trainer.explain import explain, lines
from dana.trainer.extents import category_columns, row_columns, with_extents
from dana.trainer.heldout import HeldOutRows
from dana.trainer.interpreter import InterpretedTraining
from dana.trainer.machines import MACHINES, NO_MEMORY, StreamingMachine, load_machine, read_symbol, write_symbol
from dana.trainer.messages.constant import constant_loss
from dana.trainer.messages.notices import check_finite, notify_chosen_again, notify_crossed, notify_simulated
from dana.trainer.messages.page_errors import dim_of, no_rows_error, page_error, row_error
from dana.trainer.metas import meta_values
from dana.trainer.provenance import machine_provenance, provenance
from dana.trainer.starts import write_starts
from dana.trainer.stopping import check_stopping
from dana.trainer.streams import notify_categories, plan_stream
from dana.trainer.warm import warm_values
from dsl import RuleError, compile_rule
from dsl.hdfg.choice import category_inputs, takes_categories
from dsl.hdfg.graph import Graph, Op
from dsl.hdfg.text import parse_graph
from dsl.render import render
from hwgen.cache import CacheFolder
from hwgen.spec.bundle import Bundle, Symbol
from hwgen.spec.config import ConfigError
from hwgen.spec.counters import EpochCounters
from hwgen.spec.strider import Fault

KNOWN_MACHINES = (*MACHINES, "interp")

MAX_CACHE_BYTES = 256 << 20
"""Default size of the cache of designs on disk, bytes."""


def design_cache(limit: int = MAX_CACHE_BYTES) -> CacheFolder:
    """Return the cache of designs on disk: ``dana/designs`` in $XDG_CACHE_HOME, by default in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # XDG Base Directory Specification: a relative path must be ignored
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return CacheFolder(path=root / "dana" / "designs", limit=limit)


FIRST = """
import dana
w, x, y = dana.model(), dana.input(), dana.output()
first = dana.algo(w, x, y)
first.setModel(w + x * y)
"""
"""A rule for `warm_up`."""


@cache
def warm_up() -> None:
    """Initialise the parser and the contract of the simulator, which a process does once."""
    compile_rule(FIRST)
    digest()


class MachineTrainer:
    """Trains on the simulator or on the RTL; implements `dana.trainer.contract.Trainer`.

    Parameters
    ----------
    cache
        Folder for compiled designs; None: they are cached in memory only.
    """

    def __init__(self, cache: CacheFolder | None = None) -> None:
        self._designs = DesignStore(cache)
        warm_up()  # before sessions are forked, so that they inherit it

    def check(self, text: str, notify: Notify) -> Json:
        """See `Trainer.check`."""
        try:
            rule = compile_rule(text, filename="rule")
            graph = rule.hdfg
        except RuleError as error:
            _raise_sql_error(error)
        for warning in rule.warnings:
            notify(Notice(level=Level.WARNING, message=render((warning,), rule.source)))

        def described(nodes: tuple[int, ...]) -> list[dict[str, object]]:
            leaves = [graph.nodes[k] for k in nodes]
            return [{"name": one.name, "shape": [str(dim) for dim in graph.symbolic_shape(one)]} for one in leaves]

        classes = graph.symbolic_classes

        return {
            "name": graph.name,
            "models": described(graph.models),
            "inputs": described(tuple(k for k in graph.inputs if graph.nodes[k].op is not Op.WEIGHT)),
            "outputs": described(tuple(k for k in graph.inputs if graph.nodes[k].op is Op.OUTPUT)),
            "classes": classes if isinstance(classes, int | None) else str(classes),
            "dims": dict(graph.extents),
            "metas": {str(graph.nodes[k].name): graph.nodes[k].value for k in graph.metas},
            "chooses": takes_categories(graph),
            "categories": bool(category_inputs(graph)),
            "batch": graph.batch,
            "epochs": graph.epochs,
            "predicts": graph.prediction is not None,
        }

    def prepare(self, machine: str) -> None:
        """See `Trainer.prepare`."""
        try:
            load_machine(machine)
        except UsageError as error:
            _raise_sql_error(error)

    def open(self, request: TrainRequest, notify: Notify) -> Training:
        """See `Trainer.open`."""
        if request.machine not in KNOWN_MACHINES:
            raise TrainingError(f"machine must be one of {', '.join(KNOWN_MACHINES)}, not {request.machine!r}")
        if request.epochs is not None and not (isinstance(request.epochs, Integral) and request.epochs >= 1):
            raise TrainingError(f"epochs must be a whole number of at least 1, not {request.epochs!r}")
        check_stopping(request)
        try:
            check_hyper(request, notify)
            request = with_extents(request)
            notify_categories(request, notify)
            request, stream = plan_stream(request)
            if request.machine == "interp":
                return InterpretedTraining(request, notify, stream)
            design = self._designs.get(request, notify=notify)
            machine = MACHINES[request.machine](design.bundle.config)
        except (RuleError, UsageError, ConfigError) as error:
            _raise_sql_error(error)
        return MachineTraining(request, design, machine, notify, stream)

    def held_out(self, request: TrainRequest) -> HeldOut | None:
        """See `Trainer.held_out`; the simulator computes the loss for every machine."""
        try:
            if compile_rule(request.text, filename=request.rule).hdfg.loss is None:
                return None
            relation = replace(request.relation, rows=True)
            rows = replace(with_extents(request), relation=relation, design={}, machine="sim")
            # the models come from the training, and frames contain only valid numbers
            asked, stream = plan_stream(
                replace(rows, warm_start_from=None, standardize=False, nonfinite="keep", nulls="skip")
            )
            design = self._designs.get(asked, loss_only=True)
        except (RuleError, UsageError, ConfigError) as error:
            _raise_sql_error(error)
        assert stream is not None, "rows come as frames"
        simulator = Simulator(design.bundle.config)
        return HeldOutRows(MachineTraining(asked, design, simulator, lambda notice: None, loss_only=True), stream)

    def categories(self, request: TrainRequest) -> Categories:
        """See `Trainer.categories`."""
        try:
            check_hyper(request, lambda notice: None)
            choosing = row_columns(request)
            return Categories(
                columns=[name for columns in category_columns(request).values() for name in columns],
                choosing=list(choosing),
                unknown=[name for name, below in choosing.items() if below],
            )
        except (RuleError, UsageError, ConfigError) as error:
            _raise_sql_error(error)

    def explain(self, request: ExplainRequest) -> Json:
        """See `Trainer.explain`."""
        try:
            check_hyper(request.training, lambda notice: None)
            explained = explain(replace(request, training=with_extents(request.training)), self._designs)
        except (RuleError, UsageError, ConfigError) as error:
            _raise_sql_error(error)
        return {**explained, "lines": lines(explained)}


def _raise_sql_error(error: Exception) -> NoReturn:
    """Convert an error of the language, the compiler or the configuration to an SQL error."""
    if isinstance(error, TrainingError):
        raise error
    if isinstance(error, RuleError):
        raise TrainingError(str(error), sqlstate=SqlState.SYNTAX_ERROR) from error
    if isinstance(error, DoesNotFit | RowTooLong):
        raise TrainingError(error.message, sqlstate=SqlState.LIMIT_EXCEEDED, hint=error.hint) from error
    if isinstance(error, UnknownColumn):
        raise TrainingError(error.message, sqlstate=SqlState.UNDEFINED_COLUMN, hint=error.hint) from error
    if isinstance(error, UsageError):
        raise TrainingError(error.message, hint=error.hint) from error
    raise TrainingError(str(error)) from error


@lru_cache(maxsize=8)  # every training of a design needs it
def _parsed(text: str) -> Graph:
    return parse_graph(text)


def _loaded(bundle: Bundle) -> Simulator:
    """Return a simulator for the survey of the pages of another machine."""
    simulator = Simulator(bundle.config)
    simulator.load(bundle)
    return simulator


class MachineTraining:
    """One training on a machine; implements `dana.trainer.contract.Training`."""

    def __init__(
        self,
        request: TrainRequest,
        design: Design,
        machine: StreamingMachine,
        notify: Notify,
        stream: Stream | None = None,
        *,
        loss_only: bool = False,
    ) -> None:
        self._request = request
        self.stream = stream
        self._notify = notify
        self._design = design
        self._machine = machine
        self._cycles = 0
        self._begun = False
        self.constant_loss: float | None = None
        self.not_finite, self.in_order = "", False
        self._bundle = design.bundle
        fills = self._bundle.fills
        self._metas = meta_values(design.metas, request.hyper, design.extents)
        machine.load(self._bundle)
        for symbol in self._bundle.of_kind("meta"):
            rows = symbol.place(np.float32(self._metas[symbol.name]), self._bundle.config.lanes)
            machine.write_rows(symbol.row, rows.view(np.uint32))
        models = {symbol.name: symbol for symbol in self._bundle.of_kind("model")}
        shapes = {name: symbol.shape for name, symbol in models.items()}
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
        aside = {*design.labels, request.weight}
        notify_crossed(request, (one for one in fills if one.column not in aside), notify)
        notify_simulated(design.bundle.config, notify)
        classes = 0
        if design.class_weights is not None:
            (classes,) = shapes[design.class_weights]
            self._write_models({design.class_weights: given_class_weights(request, classes)})
        self._compiled = (
            Compiled(request, design, machine, loss_only=loss_only) if isinstance(machine, Simulator) else None
        )
        in_first_epoch = isinstance(machine, Simulator) and not starts_models(request, design.statistics)
        label = next((one.column for one in fills if one.column in design.labels), None)
        self._surveyed = nothing_surveyed(
            self._bundle,
            weight=request.weight,
            label=label,
            classes=classes,
            kinds=kinds_to_count(design.classes),
            summed=columns_to_sum(request, fills, design.labels) if in_first_epoch else None,
        )
        self._surveys_first_epoch = in_first_epoch and not loss_only
        """Whether the survey runs during the first epoch, which is possible if no model is initialised from it."""
        self._surveyor: Simulator | None = None
        if not in_first_epoch and not loss_only:
            self._surveyor = machine if isinstance(machine, Simulator) else _loaded(self._bundle)

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
    def survey(self) -> Sink | None:
        if self._surveyor is None:
            return None
        self._surveyor.begin_epoch(observer=SurveyObserver(self._surveyed), trains=False)
        function, context = self._surveyor.sink
        return Sink(function=function, context=context)

    def end_survey(self) -> None:
        assert self._surveyor is not None
        counters = self._surveyor.end_epoch()
        if self._surveyor is not self._machine:
            self._surveyor.close()
        self._surveyor = None
        if counters.fault is not Fault.NONE:
            raise self._fault(counters)
        if not counters.tuples:
            raise no_rows_error(self._request, counters.skipped)
        self._apply_survey()

    def _apply_survey(self) -> None:
        """Check the values that a survey found, and initialise models with its statistics."""
        survey = survey_of(self._surveyed, self._bundle.inputs)
        fills = self._bundle.fills
        rule = rule_of(self._request.text, self._request.rule)
        self.not_finite = check_survey(rule, self._request, survey, fills, self._design.labels, self._notify)
        self.in_order = notify_order(self._request, survey, fills, self._design.labels, self._notify)
        if self._surveyed.tally is not None:
            values, counts = self._surveyed.values
            check_labels(rule, self._request, self._metas, self._design.labels, values)
            if self._design.loss_text is not None:
                self.constant_loss = constant_loss(_parsed(self._design.loss_text), values, counts, self._metas)
        starts = started(self._request, self._design.statistics)
        self._write_models({one.model: survey.start(one) for one in starts})
        if self._request.class_weight == BALANCED and self._design.class_weights is not None:
            self._write_models({self._design.class_weights: balanced_class_weights(survey)})

    @property
    def sink(self) -> Sink:
        self._begin()
        function, context = self._machine.sink
        again = self._machine.sink_again[0] if isinstance(self._machine, Simulator) else 0
        return Sink(function=function, context=context, again=again)

    def failure(self, status: int) -> Exception:
        """See `Training.failure`; the counters of the machine identify the fault."""
        if status == NO_MEMORY:
            return MemoryError("no room for the pages of an epoch")
        if status == SPOILT:
            return InternalError(
                "the machine code of the rule changed rows that no tuple chose; please report this with the rule"
            )
        counters = (self._surveyor or self._machine).end_epoch()
        if counters.fault is Fault.NONE:
            return InternalError(f"the machine rejected a page with status {status}")
        return self._fault(counters)

    def end_epoch(self) -> EpochReport:
        counters = self._machine.end_epoch()
        self._begun = False
        if counters.fault is not Fault.NONE:
            raise self._fault(counters)
        if not counters.tuples:
            raise no_rows_error(self._request, counters.skipped)
        if self._surveys_first_epoch:
            self._surveys_first_epoch = False
            self._apply_survey()
        if not self._cycles:
            notify_chosen_again(self._request, self._bundle, counters, self._notify)
        self._cycles += counters.cycles
        if self._compiled is not None:
            self._compiled.after_epoch(self._notify)
        loss = self._scalar("loss")
        convergence = self._scalar("convergence")
        report = EpochReport(
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
        config = self._bundle.config
        predictor = self._design.predictor
        if predictor is not None:
            predictor = with_metas(predictor, list(self._metas.values()))
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
                **weight_metadata(self._request),
                "machine": self._request.machine,
                "units": config.units,
                "coefficients": coefficients(predictor, parameters, self._bundle.fills, self._design.features),
            },
        )

    def close(self) -> None:
        if self._compiled is not None:
            self._compiled.close()
        self._machine.close()

    def _fault(self, counters: EpochCounters) -> Exception:
        relation = self._request.relation
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
        """Use the models of another training of the rule."""
        self._write_models({one.name: one.values for one in parameters})

    def _write_models(self, values: Mapping[str, NDArray[np.float32]]) -> None:
        for symbol in self._bundle.of_kind("model"):
            if symbol.name in values:
                write_symbol(self._machine, symbol, values[symbol.name], self._bundle.config.lanes)

    def _begin(self) -> None:
        if not self._begun:
            if self._compiled is not None:
                self._compiled.before_epoch()
            if self._surveys_first_epoch and isinstance(self._machine, Simulator):
                self._machine.begin_epoch(observer=SurveyObserver(self._surveyed))
            else:
                self._machine.begin_epoch(self._request.relation.pages)
            self._begun = True

    def _read(self, symbol: Symbol, over: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        return read_symbol(self._machine, symbol, self._bundle.config.lanes, over)

    def _scalar(self, kind: str) -> float | None:
        symbol = self._bundle.symbol(kind)
        return None if symbol is None else float(self._read(symbol))
