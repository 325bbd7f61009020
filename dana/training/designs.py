"""Compiled designs and their cache: rule text and table in, Bundle with its plan out.

A design is found again, by everything that went into it, in this process or in the user's cache folder, of which the
least recently used goes first. Nothing there is executed: Bundles, whose checksums are verified, and JSON.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from importlib.metadata import version
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING

from dana.codesign.default import default_bundle, default_results
from dana.codesign.device import bundle_for
from dana.codesign.fitting import on_pages
from dana.compiler.binding.columns import Binding
from dana.compiler.binding.weights import class_weights_name
from dana.compiler.passes import Results
from dana.errors import UsageError
from dana.predictor.program import encode_predictor
from dana.storage.schema import Attribute
from dana.training.contract import Json, Level, Notice, Notify, TrainRequest
from dana.training.data.classes import classes_of, prediction_kind
from dana.training.data.survey import Statistic, statistics_of
from dana.training.data.weights import bind_request
from dana.training.messages.constant import loss_graph
from dana.training.messages.page_errors import row_dims
from dana.training.metas import meta_values, refuse_unmet
from dsl import Rule, compile_rule
from dsl.hdfg.graph import Graph
from dsl.hdfg.init import InitKind
from dsl.hdfg.text import graph_text
from hwgen.cache import CacheFolder
from hwgen.devices import Device, device_names, load_device
from hwgen.spec import bundle as bundles
from hwgen.spec.bundle import WHOLE_EPOCH, Bundle, BundleError

if TYPE_CHECKING:  # LLVM is loaded where it is used
    from dana.jit import Code

VERSIONS = (version("dana-db"), bundles.VERSION)
"""What a design depends on besides its inputs."""

MAX_DESIGNS = 64
"""Designs cached in a process."""

MANY_OPERATIONS = 1000
"""Of a rule that takes seconds to compile."""

MANY_NUMBERS = 1 << 22
"""Of models that take seconds to compile: each of their rows has a place."""

SMALLEST_TUPLE = 28
"""Bytes that a tuple takes of a page at least: header and line pointer."""

MAX_EXTENT = 1 << 24
"""Bound for extents and batches that a caller chooses: more than any machine has words for."""

MAX_TUPLES = 1 << 28
"""Bound for rows that nobody has counted."""

_compiled_in = attrgetter(
    *(one.name for one in fields(Attribute) if one.name not in ("type_name", "out_of_line", "number", "by_value"))
)
"""What the compiler reads of a column; the others say what to stream, or what to write in an error."""


@dataclass(slots=True)
class Past:
    """What trainings of a design leave for the next one of this process.

    Attributes
    ----------
    seconds
        That epochs without machine code took.
    code
        Machine code, while no training uses it.
    """

    seconds: float = 0.0
    code: Code | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A rule, compiled for a table and a machine.

    Attributes
    ----------
    bundle
        What the machine is loaded with.
    epochs
        The rule's setEpochs.
    metas
        Default values by name, in the order of the rule.
    batch_meta
        The meta that is the batch size, if one is.
    extents
        Dims that the caller may choose, and what they are.
    features, labels
        Columns in use, in order.
    classes
        Those of the label, as the backend wants them; None: any number is one.
    row_dims
        By a model's name the dim that is the number of its rows, where the caller may choose it.
    predicts
        What a prediction is: ``number``, ``numbers``, ``score`` or ``probability``.
    class_weights
        The model that holds the weights of the classes; None: they have none.
    statistics
        Models that begin with statistics of columns.
    loss_text
        The graph of the loss of a constant prediction, where there is one.
    predictor
        Program for `dana_predict`, or None.
    past
        What this process knows of its trainings; no part of what was compiled.
    """

    bundle: Bundle
    epochs: int
    metas: dict[str, float]
    batch_meta: str | None
    extents: dict[str, int]
    features: tuple[str, ...]
    labels: tuple[str, ...]
    classes: Json | None
    row_dims: dict[str, str]
    predicts: str
    class_weights: str | None
    statistics: tuple[Statistic, ...]
    loss_text: str | None
    predictor: bytes | None
    past: Past = field(default_factory=Past, compare=False)


class DesignStore:
    """Finds or makes designs.

    Parameters
    ----------
    folder
        Where designs are cached between processes; None: nowhere.
    """

    def __init__(self, folder: CacheFolder | None = None) -> None:
        self._folder = folder
        self._designs: OrderedDict[str, Design] = OrderedDict()
        self._on_disk: set[str] = set()
        """Keys that were read from the folder, or written as far as that went."""

    def get(
        self,
        request: TrainRequest,
        *,
        batch: int | None = None,
        write: bool = True,
        judges: bool = False,
        notify: Notify | None = None,
    ) -> Design:
        """The rule's own design, unless the request changes what is compiled in: batch size, dims.

        Parameters
        ----------
        batch
            In the place of the rule's and the request's; of a rule that merges.
        write
            Leave what was compiled in the folder.
        judges
            It computes the loss, and changes no model.
        notify
            Told of what takes seconds.
        """
        extents = chosen_extents(self._extents(request, judges), request.hyper) if request.hyper else {}
        design = self._get(request, None, extents, write, judges, notify)
        name = design.batch_meta
        if batch is None and name is not None and name in request.hyper:
            batch = _whole(f"hyperparameter {name!r} is the batch size", request.hyper[name])
        if batch is not None and batch != design.bundle.rule_batch:
            design = self._get(request, batch, extents, write, judges, notify)
        return design

    def _extents(self, request: TrainRequest, judges: bool) -> Mapping[str, int]:
        """Dims that have a default: the rule's own design knows them, if there is one, and its text takes longer."""
        key = _key(request, None, {}, judges)
        own = self._designs.get(key) or self._read(key)
        return dict(rule_graph(request).extents) if own is None else own.extents

    def _get(
        self,
        request: TrainRequest,
        batch: int | None,
        extents: Mapping[str, int],
        write: bool,
        judges: bool,
        notify: Notify | None,
    ) -> Design:
        key = _key(request, batch, extents, judges)
        design = self._designs.get(key) or self._read(key)
        if design is None:
            design = compile_design(request, batch, extents, judges=judges, notify=notify)
        if write and key not in self._on_disk:
            self._write(key, design)
        self._designs[key] = design
        self._designs.move_to_end(key)
        while len(self._designs) > MAX_DESIGNS:
            self._on_disk.discard(self._designs.popitem(last=False)[0])
        return design

    def _read(self, key: str) -> Design | None:
        if self._folder is None:
            return None
        try:
            data = self._folder.read(f"{key}.bundle")
            if data is None:
                return None
            design = _unpack(Bundle.from_bytes(data))
        except (OSError, BundleError, KeyError, ValueError):
            return None  # unreadable, damaged or of another version: compiled anew
        self._on_disk.add(key)
        return design

    def _write(self, key: str, design: Design) -> None:
        if self._folder is not None and design.bundle.image.nbytes < self._folder.limit:
            self._on_disk.add(key)
            with suppress(OSError):  # a full or read-only disk costs time at the next session, nothing else
                self._folder.write(f"{key}.bundle", design.bundle.to_bytes())


def compile_design(
    request: TrainRequest,
    batch: int | None = None,
    extents: Mapping[str, int] | None = None,
    *,
    judges: bool = False,
    notify: Notify | None = None,
) -> Design:
    """Rule text to Bundle, for a table; `batch` and `extents` replace the rule's batch size and dims.

    With `judges` it computes the loss, and changes no model. `notify` is told of a rule that takes seconds.

    Raises
    ------
    RuleError
        The text is no rule.
    UsageError
        Rule, table and machine do not go together.
    """
    graph = rule_graph(request)
    binding = bind_request(graph, request, extents)
    bound = binding.graph if batch is None else replace(binding.graph, batch=batch)
    if judges:
        bound = bound.judging
    if notify is not None:
        _tell_size(request, bound, notify)
    predictor = None if bound.prediction is None else encode_predictor(bound)
    plan = {
        "epochs": graph.epochs,
        "metas": [[graph.nodes[k].name, graph.nodes[k].value] for k in graph.metas],
        "batch_meta": None if graph.batch_meta is None else graph.nodes[graph.batch_meta].name,
        "extents": binding.extents,
        "features": list(binding.features),
        "labels": list(binding.labels),
        "classes": classes_of(binding.graph, binding.labels),
        "row_dims": row_dims(graph),
        "predicts": prediction_kind(binding.graph),
        "class_weights": class_weights_name(graph) if request.class_weight is not None else None,
        "statistics": [asdict(one) for one in statistics_of(graph)],
        "loss_text": None if (loss := loss_graph(binding.graph.judging)) is None else graph_text(loss),
        "predictor": None if predictor is None else base64.b64encode(predictor).decode(),
    }
    rule, schema, page_size = replace(binding, graph=bound), request.relation.schema, request.relation.page_size
    machine, most = on_pages(request.design, page_size), tuple_bound(request)
    if request.device is None:
        return _unpack(default_bundle(rule, schema, design=machine, max_tuples=most, notes=plan))
    device = named_device(request.device, "dana.device")
    return _unpack(bundle_for(rule, schema, device, design=machine, max_tuples=most, page_size=page_size, notes=plan))


def _tell_size(request: TrainRequest, graph: Graph, notify: Notify) -> None:
    """Say of a rule that takes seconds to compile, before it does."""
    has, numbers = "", sum(prod(graph.concrete_shape(k)) for k in graph.models)
    if len(graph.nodes) > MANY_OPERATIONS:
        has = f"{len(graph.nodes):,} operations, its gradient's and unrolled loops' among them"
    elif numbers > MANY_NUMBERS:
        has = f"models of {numbers:,} numbers"
    if has:
        notify(
            Notice(
                level=Level.NOTICE,
                message=f"rule {request.rule!r} has {has}: compiling it takes seconds",
                hint="The next training on a table of these columns finds it compiled.",
            )
        )


def named_device(name: str, what: str) -> Device:
    """A device that comes with the package; `what` names it so.

    Raises
    ------
    UsageError
        There is none of that name. A path would be a file of the worker's account.
    """
    if name not in device_names():
        raise UsageError(f"{what} must be one of {', '.join(device_names())}, not {name!r}")
    return load_device(name)


def rule_graph(request: TrainRequest) -> Graph:
    """The graph of a request's rule.

    Raises
    ------
    RuleError
        The text is no rule.
    """
    return graph_of(request.source, request.rule)


def graph_of(source: str, name: str) -> Graph:
    """The graph of a text (`RuleError` if it is no rule); the same object while nobody asks for many others."""
    return rule_of(source, name).hdfg


def check_hyper(request: TrainRequest, notify: Notify) -> None:
    """See that the caller's numbers are hyperparameters of the rule, and such as it can be trained with.

    `notify` is told of batches of one row where the rule compares rows with their batch; of the rule's own its text's
    warnings tell.

    Raises
    ------
    RuleError
        The text is no rule.
    TrainingError
        A name that the rule does not have, no number, or one that breaks what the rule asks for by `dana.require`.
    """
    if not request.hyper:
        return  # the defaults were checked with the text
    rule = rule_of(request.source, request.rule)
    graph = rule.hdfg
    defaults = {str(graph.nodes[k].name): float(graph.nodes[k].value or 0.0) for k in graph.metas}
    refuse_unmet(rule, meta_values(defaults, request.hyper, dict(graph.extents)))
    size = None if graph.batch_meta is None else graph.nodes[graph.batch_meta].name
    if request.hyper.get(str(size)) == 1 and graph.returns_to_rows:
        notify(
            Notice(
                level=Level.WARNING,
                message=f"rule {request.rule!r} uses values of a batch in the batch's rows, and {size} = 1 makes each "
                "row a batch: a mean is the row itself, and a variance 0",
                hint="Give a larger batch.",
            )
        )


@lru_cache(maxsize=8)  # a training and a question ask several times
def rule_of(source: str, name: str) -> Rule:
    return compile_rule(source, filename=name)


def pass_results(request: TrainRequest, notify: Notify) -> Results:
    """What each pass of the compiler makes for a request, by the pass's name; `notify` as in `compile_design`.

    Raises
    ------
    RuleError, UsageError
        As `compile_design`.
    """
    binding, _ = chosen_binding(request)
    _tell_size(request, binding.graph, notify)
    design = on_pages(request.design, request.relation.page_size)
    return default_results(binding, request.relation.schema, design=design, max_tuples=tuple_bound(request))


def bound_graph(request: TrainRequest, design: Design, *, judges: bool = False) -> Graph:
    """What a design was compiled from: it may have come from a disk."""
    graph = rule_graph(request)
    bound = bind_request(graph, request, chosen_extents(design.extents, request.hyper)).graph
    if graph.has_merge:
        bound = replace(bound, batch=None if design.bundle.batch == WHOLE_EPOCH else design.bundle.rule_batch)
    return bound.judging if judges else bound


def _unpack(bundle: Bundle) -> Design:
    notes = bundle.notes
    predictor = notes["predictor"]
    return Design(
        bundle=bundle,
        epochs=notes["epochs"],
        metas=dict(notes["metas"]),
        batch_meta=notes["batch_meta"],
        extents=dict(notes["extents"]),
        features=tuple(notes["features"]),
        labels=tuple(notes["labels"]),
        classes=notes["classes"],
        row_dims=dict(notes["row_dims"]),
        predicts=notes["predicts"],
        class_weights=notes["class_weights"],
        statistics=tuple(Statistic(**{**one, "kind": InitKind(one["kind"])}) for one in notes["statistics"]),
        loss_text=notes["loss_text"],
        predictor=None if predictor is None else base64.b64decode(predictor),
    )


def _whole(what: str, value: object) -> int:
    """A number that a caller chooses for what is compiled in.

    Raises
    ------
    UsageError
        It is none from 1 to `MAX_EXTENT`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= MAX_EXTENT or value % 1:
        raise UsageError(f"{what} and must be a whole number from 1 to {MAX_EXTENT:,}, not {value!r}")
    return int(value)


def chosen_extents(defaults: Mapping[str, int], hyper: Json) -> dict[str, int]:
    """Extents that the caller chooses, of the dims that have one by default.

    Raises
    ------
    UsageError
        An extent is no whole number, or too large.
    """
    return {name: _whole(f"{name!r} is an extent of the rule", hyper[name]) for name in defaults if name in hyper}


def chosen_binding(request: TrainRequest) -> tuple[Binding, dict[str, float]]:
    """The rule on the request's table, in the dims and the batch that `hyper` chooses; and the value of each meta.

    Raises
    ------
    RuleError
        The text is no rule.
    UsageError
        Rule and table do not go together, or `hyper` names what the rule does not have.
    """
    graph = rule_graph(request)
    binding = bind_request(graph, request, chosen_extents(dict(graph.extents), request.hyper))
    metas = {str(graph.nodes[k].name): float(graph.nodes[k].value or 0) for k in graph.metas}
    metas = meta_values(metas, request.hyper, binding.extents)
    name = None if graph.batch_meta is None else graph.nodes[graph.batch_meta].name
    if name is not None and name in request.hyper:
        batch = _whole(f"hyperparameter {name!r} is the batch size", request.hyper[name])
        binding = replace(binding, graph=replace(binding.graph, batch=batch))
    return binding, metas


def tuple_bound(request: TrainRequest) -> int:
    """More tuples than the table has; a power of two, so that a growing table seldom needs a new design."""
    if request.relation.pages is None:
        return MAX_TUPLES
    per_page = request.relation.page_size // SMALLEST_TUPLE
    pages = max(1, request.relation.pages)
    return per_page << (pages - 1).bit_length()


def _key(request: TrainRequest, batch: int | None, extents: Mapping[str, int], judges: bool) -> str:
    # repr of tuples: as telling as JSON, and a tenth of the time for a wide table
    parts = (
        VERSIONS,
        request.source,
        _columns(request),
        request.relation.part,
        request.features,
        request.label,
        request.weight,
        request.class_weight is not None,
        sorted(on_pages(request.design, request.relation.page_size).items()),
        request.device,
        tuple_bound(request),
        batch,
        sorted(extents.items()),
        judges,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _columns(request: TrainRequest) -> list[tuple[object, ...]]:
    """The table's columns as far as the design depends on them: names that nobody speaks of are not in it."""
    columns = [_compiled_in(attribute) for attribute in request.relation.attributes]
    if request.features is None or request.label is None:
        return columns  # any may be in use
    # without features and label, the rule's own names choose columns
    spoken_of = {*request.features, request.label, request.weight, *re.findall(r"\w+", request.source)}
    return [(name if name in spoken_of else "", *rest) for name, *rest in columns]
