"""The trainer of the worker: checks rules, and opens trainings on the machines of `dana.trainer.machines`."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import NoReturn

from dana.compiler.target import DoesNotFit
from dana.errors import UsageError
from dana.simulator.headers import digest
from dana.storage.frames import RowTooLong
from dana.storage.schema import UnknownColumn
from dana.trainer.calibration import check_calibrate
from dana.trainer.checkpoints import check_resume
from dana.trainer.contract import (
    Categories,
    ExplainRequest,
    HeldOut,
    Json,
    Level,
    Link,
    Notice,
    Notify,
    SqlState,
    Training,
    TrainingError,
    TrainRequest,
)
from dana.trainer.designs import DesignStore, check_hyper
from dana.trainer.explain import explain, lines
from dana.trainer.extents import category_columns, row_columns, with_extents
from dana.trainer.heldout import HeldOutRows
from dana.trainer.machines import MACHINES, judge_of, open_part
from dana.trainer.parts import check_rule
from dana.trainer.stopping import check_stopping
from dana.trainer.streams import notify_categories, plan_stream
from dsl import RuleError, compile_rule
from dsl.hdfg.choice import category_inputs, takes_categories
from dsl.hdfg.graph import Op
from dsl.render import render
from hwgen.cache import CacheFolder
from hwgen.spec.config import ConfigError

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
from dana.functions import standardized
from dana.optimizers import conjugate_gradients
w, x, y = dana.model(), dana.input(), dana.output()
first = dana.algo(w, x, y)
first.setModel(w + x * y)
"""
"""A rule for `warm_up`: it imports the modules that most rules import."""


@cache
def warm_up() -> None:
    """Do what a process does once: initialise the parser and the contract of the simulator, parse shared modules."""
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
            # a dim is sent by its name: the number follows from the labels of a table
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
            if machine in MACHINES:  # `open` reports another
                MACHINES[machine].prepare()
        except UsageError as error:
            _raise_sql_error(error)

    def open(self, request: TrainRequest, notify: Notify, link: Link | None = None) -> Training:
        """See `Trainer.open`."""
        if request.machine not in MACHINES:
            known, given = ", ".join(MACHINES), request.machine[:100]
            raise TrainingError(f'argument "machine" must be one of {known}, not {given!r}')
        # Integral: `dana.train` on arrays passes what its caller gave, which may be an integer of NumPy
        whole = isinstance(request.epochs, Integral) and not isinstance(request.epochs, bool)
        if request.epochs is not None and not (whole and request.epochs >= 1):
            raise TrainingError(f"epochs must be a whole number of at least 1, not {request.epochs!r}")
        check_stopping(request)
        try:
            check_hyper(request, notify)
            request = with_extents(request)
            check_calibrate(request)
            check_resume(request)
            notify_categories(request, notify)
            if request.part is not None:
                check_rule(request, request.part)
                # frames everywhere: another server's pages may be of rows that a Strider cannot read
                request = replace(request, relation=replace(request.relation, rows=True))
            # after with_extents: whether columns need frames is known from a binding, which needs all extents
            request, stream = plan_stream(request)
            if request.part is not None and link is not None:
                return open_part(request, self._designs, notify, stream, link)
            return MACHINES[request.machine].open(request, self._designs, notify, stream)
        except (RuleError, UsageError, ConfigError) as error:
            _raise_sql_error(error)

    def held_out(self, request: TrainRequest) -> HeldOut | None:
        """See `Trainer.held_out`; the simulator computes the loss for every machine."""
        try:
            # frames even for a table with pages: held-out rows lie among those that train, so no page has them alone
            rows = replace(with_extents(request), relation=replace(request.relation, rows=True))
            asked, stream = plan_stream(rows)
            opened = judge_of(asked, self._designs, epochs=None)
            training = None if opened is None else opened()
        except (RuleError, UsageError, ConfigError) as error:
            _raise_sql_error(error)
        assert stream is not None, "rows come as frames"
        return None if training is None else HeldOutRows(training, asked, stream)

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
    # from the special to the general: TrainingError, DoesNotFit, RowTooLong and UnknownColumn are UsageErrors
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
