"""Compiled designs and their cache: from the text of a rule and a table to a Bundle.

The key of a design is a hash of all inputs of its compilation. Designs are cached in the process and in the cache
folder of the user, which discards the least recently used files. The checksums of its files are verified. The folder
also has the machine code of designs, which is executed: `CacheFolder` reads no file that another account may have made.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, lru_cache
from importlib.metadata import version
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from dana.codesign.default import default_bundle, default_results
from dana.codesign.device import bundle_for
from dana.codesign.fitting import on_pages
from dana.compiler.binding.columns import Binding
from dana.compiler.binding.precision import BINARY32, is_narrow
from dana.compiler.binding.weights import class_weights_name
from dana.compiler.passes import Results
from dana.errors import UsageError
from dana.predictor.program import encode_predictor
from dana.storage import layout
from dana.storage.schema import Attribute
from dana.trainer.contract import Json, Level, Notice, Notify, Statistic, TrainRequest
from dana.trainer.data.classes import classes_of, prediction_kind
from dana.trainer.data.survey import statistics_of
from dana.trainer.data.weights import bind_request
from dana.trainer.losses import loss_graph
from dana.trainer.messages.page_errors import row_dims
from dana.trainer.metas import check_requirements, meta_values
from dsl import Rule, compile_rule
from dsl.hdfg.graph import Graph
from dsl.hdfg.init import InitKind
from dsl.hdfg.text import graph_text
from hwgen.cache import CacheFolder
from hwgen.devices import Device, device_names, load_device
from hwgen.spec import bundle as bundles
from hwgen.spec.bundle import WHOLE_EPOCH, Bundle

if TYPE_CHECKING:  # LLVM is loaded where it is used
    from dana.jit import Code

VERSIONS = (version("dana-db"), bundles.VERSION)
"""Versions that are part of the key of a design."""

COMPILING = (
    *("dsl", "dana/codesign", "dana/compiler", "dana/predictor", "hwgen/spec", "hwgen/devices"),
    *("dana/jit", "dana/simulator"),
)
"""Folders of sources that decide a design, and then its machine code."""

MAX_DESIGNS = 64
"""Maximum number of designs cached in a process."""

MANY_OPERATIONS = 1000
"""Number of operations from which compiling a rule takes seconds."""

MANY_NUMBERS = 1 << 22
"""Number of model elements from which compiling takes seconds: every row is placed individually."""

MAX_EXTENT = 1 << 24
"""Maximum of extents and batch sizes that a caller chooses; no machine has so many words."""

MAX_TUPLES = 1 << 28
"""Upper bound of the number of rows if it is unknown."""

_compiled_in = attrgetter(
    *(one.name for one in fields(Attribute) if one.name not in ("type_name", "out_of_line", "number", "by_value"))
)
"""Fields of a column that affect compilation; the others affect only the stream and error messages."""


@dataclass(slots=True)
class History:
    """State that the trainings of a design in this process pass on.

    Attributes
    ----------
    seconds
        Total time of epochs without machine code.
    code
        Machine code that no training is using.
    key
        Key of the design.
    folder
        Folder for designs and their code; None: no such cache.
    """

    seconds: float = 0.0
    code: Code | None = None
    key: str = ""
    folder: CacheFolder | None = None

    def read_code(self) -> bytes | None:
        """Return the machine code that another process compiled, if any."""
        with suppress(OSError):
            return None if self.folder is None else self.folder.read(f"{self.key}.code")
        return None

    def write_code(self, code: bytes) -> None:
        """Keep machine code for other processes."""
        if self.folder is not None:
            with suppress(OSError):  # without the file the next process compiles again
                self.folder.write(f"{self.key}.code", code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A rule that is compiled for a table and a machine.

    Attributes
    ----------
    bundle
        Program and data of the machine.
    epochs
        Value of setEpochs.
    metas
        Default values by name, in order of declaration.
    batch_meta
        The meta that sets the batch size, or None.
    extents
        Dims that the caller may choose, and their values.
    features, labels
        Columns in use, in order.
    classes
        Classes of the label, see `dana.trainer.data.classes.classes_of`; None: the label is a number.
    row_dims
        By model, the dim that is its number of rows, if the caller may choose it.
    predicts
        Kind of a prediction: ``number``, ``numbers``, ``score`` or ``probability``.
    class_weights
        Model that holds the class weights, or None.
    statistics
        Models that are initialised with column statistics.
    narrow
        Names of the models that are numbers of bfloat16.
    loss_text
        Graph of the loss as a function of a prediction and a label, without weights, or None (`dana.trainer.losses`).
    predictor
        Program for `dana_predict`, or None.
    history
        State of trainings in this process; not part of the compiled design.
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
    narrow: tuple[str, ...]
    loss_text: str | None
    predictor: bytes | None
    # shared by the trainings of a cached design; it does not make two designs differ
    history: History = field(default_factory=History, compare=False)

    def to_bytes(self) -> bytes:
        """Return the form for the cache: length and CRC-32 of the facts (u32, little-endian), facts (JSON), Bundle."""
        facts = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("bundle", "history")}
        facts["statistics"] = [asdict(one) for one in self.statistics]
        facts["predictor"] = None if self.predictor is None else base64.b64encode(self.predictor).decode()
        # JSON and not pickle: other processes write files of the folder, and reading one must not execute anything
        text = json.dumps(facts).encode()
        return b"".join((struct.pack("<II", len(text), zlib.crc32(text)), text, *self.bundle.pieces()))

    @classmethod
    def from_bytes(cls, data: bytes) -> Design:
        """Read the form for the cache; ValueError if it is damaged or of another version."""
        # lengths are read from the file, so the checksum is verified before anything else is
        size, checksum = struct.unpack("<II", data[:8].ljust(8, b"\0"))
        # a file that ends early has length 0 here or fewer bytes than it says; both fail the checksum
        text = data[8 : 8 + size]
        if not text or zlib.crc32(text) != checksum:
            raise ValueError("the checksum of a design does not match")
        facts = json.loads(text)
        statistics = [Statistic(**{**one, "kind": InitKind(one["kind"])}) for one in facts["statistics"]]
        predictor = facts["predictor"]
        return cls(
            **{
                **facts,
                "features": tuple(facts["features"]),
                "labels": tuple(facts["labels"]),
                "narrow": tuple(facts["narrow"]),
                "statistics": tuple(statistics),
                "predictor": None if predictor is None else base64.b64decode(predictor),
            },
            # a view: the image of a large model would otherwise be copied
            bundle=Bundle.from_bytes(memoryview(data)[8 + size :]),
        )


class DesignStore:
    """A cache of designs that compiles missing ones.

    Parameters
    ----------
    folder
        Folder for designs that are shared by processes; None: no such cache.
    """

    def __init__(self, folder: CacheFolder | None = None) -> None:
        # now: a session is forked from a worker and has its code, whose sources may change before its first training
        _sources()
        self._folder = folder
        self._designs: OrderedDict[str, Design] = OrderedDict()
        self._on_disk: set[str] = set()
        """Keys that were read from or written to the folder."""

    def get(
        self,
        request: TrainRequest,
        *,
        batch: int | None = None,
        write: bool = True,
        loss_only: bool = False,
        notify: Notify | None = None,
    ) -> Design:
        """Return the design for a request; batch size and dims are compiled in, so each choice is another design.

        Parameters
        ----------
        batch
            Overrides the batch size of a rule with a merge.
        write
            Store a new design in the folder.
        loss_only
            Compile only the loss; models are not updated.
        notify
            Receives a notice if compiling takes seconds.
        """
        extents = chosen_extents(self._extents(request, loss_only), request.hyper) if request.hyper else {}
        # first with the rule's own batch size: only the design names the meta that sets it, as the text is not parsed
        design = self._get(request, None, extents, write, loss_only, notify)
        name = design.batch_meta
        if batch is None and name is not None and name in request.hyper:
            batch = _whole(f"hyperparameter {name!r} is the batch size", request.hyper[name])
        if batch is not None and batch != design.bundle.rule_batch:
            design = self._get(request, batch, extents, write, loss_only, notify)
        return design

    def _extents(self, request: TrainRequest, loss_only: bool) -> Mapping[str, int]:
        """Return the dims with a default, from a cached design if possible: parsing the text takes longer."""
        key = _key(request, None, {}, loss_only)
        own = self._designs.get(key) or self._read(key)
        return dict(rule_graph(request).extents) if own is None else own.extents

    def _get(
        self,
        request: TrainRequest,
        batch: int | None,
        extents: Mapping[str, int],
        write: bool,
        loss_only: bool,
        notify: Notify | None,
    ) -> Design:
        key = _key(request, batch, extents, loss_only)
        design = self._designs.get(key) or self._read(key)
        if design is None:
            design = compile_design(request, batch, extents, loss_only=loss_only, notify=notify)
        design.history.key, design.history.folder = key, self._folder
        # also a design from memory: an earlier request may have been a question that writes nothing
        if write and key not in self._on_disk:
            self._write(key, design)
        self._designs[key] = design
        # the order of the dict is that of use: the first is the least recently used
        self._designs.move_to_end(key)
        while len(self._designs) > MAX_DESIGNS:
            # keeps the set as small as the cache; a forgotten key costs one more write
            self._on_disk.discard(self._designs.popitem(last=False)[0])
        return design

    def _read(self, key: str) -> Design | None:
        if self._folder is None:
            return None
        try:
            data = self._folder.read(f"{key}.design")
            if data is None:
                return None
            design = Design.from_bytes(data)
        except (OSError, KeyError, TypeError, ValueError):
            return None  # unreadable, damaged or of another version: compile again
        self._on_disk.add(key)
        return design

    def _write(self, key: str, design: Design) -> None:
        # a larger file would push all other designs out of the folder and then be removed itself
        if self._folder is not None and design.bundle.image.nbytes < self._folder.limit:
            # also if writing fails: on a full disk not every training tries again
            self._on_disk.add(key)
            with suppress(OSError):  # without the file the next session compiles again
                self._folder.write(f"{key}.design", design.to_bytes())


def compile_design(
    request: TrainRequest,
    batch: int | None = None,
    extents: Mapping[str, int] | None = None,
    *,
    loss_only: bool = False,
    notify: Notify | None = None,
) -> Design:
    """Compile a rule for a table; `batch` and `extents` override the batch size and dims of the rule.

    With `loss_only` only the loss is computed. `notify` receives a notice if compiling takes seconds.

    Raises
    ------
    RuleError
        The text is not a valid rule.
    UsageError
        The rule cannot be used with this table or machine.
    """
    graph = rule_graph(request)
    binding = bind_request(graph, request, extents)
    bound = binding.graph if batch is None else replace(binding.graph, batch=batch)
    if loss_only:
        bound = bound.judging
    if notify is not None:
        _notify_size(request, bound, notify)
    loss = loss_graph(binding.unweighted.judging)
    return Design(
        bundle=_bundle(request, replace(binding, graph=bound)),
        epochs=graph.epochs,
        metas=default_metas(graph),
        batch_meta=None if graph.batch_meta is None else graph.nodes[graph.batch_meta].name,
        extents=dict(binding.extents),
        features=binding.features,
        labels=binding.labels,
        classes=classes_of(binding.graph, binding.labels),
        row_dims=row_dims(graph),
        predicts=prediction_kind(binding.graph),
        class_weights=class_weights_name(graph) if request.class_weight is not None else None,
        statistics=statistics_of(graph),
        narrow=tuple(sorted(bound.narrow_models)),
        loss_text=None if loss is None else graph_text(loss),
        predictor=None if bound.prediction is None else encode_predictor(bound),
    )


def _bundle(request: TrainRequest, binding: Binding) -> Bundle:
    """Compile for the device of the request, or for the default machine."""
    schema, page_size = request.relation.schema, request.relation.page_size
    machine, most = on_pages(request.design, page_size), tuple_bound(request)
    if request.device is None:
        return default_bundle(binding, schema, design=machine, max_tuples=most)
    device = named_device(request.device, "dana.device")
    return bundle_for(binding, schema, device, design=machine, max_tuples=most, page_size=page_size)


def _notify_size(request: TrainRequest, graph: Graph, notify: Notify) -> None:
    """Report a rule that takes seconds to compile."""
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
                hint="The result is cached for the next training on a table with these columns.",
            )
        )


def named_device(name: str, what: str) -> Device:
    """Return a device that is shipped with the package; `what` names the argument in an error.

    Raises
    ------
    UsageError
        The name is unknown. Paths are rejected because they would be opened by the account of the worker.
    """
    if name not in device_names():
        raise UsageError(f"{what} must be one of {', '.join(device_names())}, not {name[:100]!r}")
    return load_device(name)


def rule_graph(request: TrainRequest) -> Graph:
    """Return the graph of the rule of a request.

    Raises
    ------
    RuleError
        The text is not a valid rule.
    UsageError
        The rule cannot be trained with the numbers of the request.
    """
    rule = rule_of(request.text, request.rule)
    solvers = SOLVERS.intersection(rule.checked.optimizers) if is_narrow(request.stored_as) else ()
    if solvers:
        raise UsageError(
            f"rule {request.rule!r} takes steps of {' and '.join(sorted(solvers))}, which converge only if models are "
            f"{BINARY32}: stored_as must not be {request.stored_as!r}",
            hint="Choose a rule that goes by batches, such as linear_svm, mlp or lrmf, or let the rule minimise its "
            "loss by dana.optimizers.momentum or adam.",
        )
    return rule.hdfg


def default_metas(graph: Graph) -> dict[str, float]:
    """Return the default values of the metas by name, in order of declaration."""
    return {str(graph.nodes[k].name): float(graph.nodes[k].value or 0.0) for k in graph.metas}


def graph_of(text: str, name: str) -> Graph:
    """Return the cached graph of a text; RuleError if the text is not a valid rule."""
    return rule_of(text, name).hdfg


def check_hyper(request: TrainRequest, notify: Notify) -> None:
    """Check ``hyper`` against the metas and requirements of the rule.

    `notify` receives a warning if ``hyper`` sets batches of one row and the rule uses values of a batch in its rows.
    The batch size of the rule itself is checked with its text.

    Raises
    ------
    RuleError
        The text is not a valid rule.
    TrainingError
        A name is unknown, a value is not a number, or it violates a `dana.require`.
    """
    if not request.hyper:
        return  # the defaults are checked with the text of the rule
    rule = rule_of(request.text, request.rule)
    graph = rule.hdfg
    check_requirements(rule, meta_values(default_metas(graph), request.hyper, dict(graph.extents)))
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


CONJUGATE = "conjugate_gradients"
SOLVERS = frozenset({CONJUGATE, "proximal_gradients"})
"""Names of the optimizers that take one step in each pass, after a first pass that finds the direction."""


@lru_cache(maxsize=8)  # a training parses its rule several times
def rule_of(text: str, name: str) -> Rule:
    return compile_rule(text, filename=name)


def pass_results(request: TrainRequest, notify: Notify) -> Results:
    """Return the result of each pass of the compiler by name; `notify` as in `compile_design`.

    Raises
    ------
    RuleError, UsageError
        As `compile_design`.
    """
    binding, _ = chosen_binding(request)
    _notify_size(request, binding.graph, notify)
    design = on_pages(request.design, request.relation.page_size)
    return default_results(binding, request.relation.schema, design=design, max_tuples=tuple_bound(request))


def bound_graph(request: TrainRequest, design: Design, *, loss_only: bool = False) -> Graph:
    """Return the graph that a design was compiled from; cached files do not contain it."""
    graph = rule_graph(request)
    bound = bind_request(graph, request, chosen_extents(design.extents, request.hyper)).graph
    if graph.has_merge:
        bound = replace(bound, batch=None if design.bundle.batch == WHOLE_EPOCH else design.bundle.rule_batch)
    return bound.judging if loss_only else bound


def _whole(what: str, value: object) -> int:
    """Return an extent or batch size that was given by the caller.

    Raises
    ------
    UsageError
        It is not a whole number from 1 to `MAX_EXTENT`.
    """
    # True is an int in Python, but no extent; a NaN fails the comparison
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= MAX_EXTENT or value % 1:
        raise UsageError(f"{what} and must be a whole number from 1 to {MAX_EXTENT:,}, not {value!r}")
    return int(value)


def chosen_extents(defaults: Mapping[str, int], hyper: Json) -> dict[str, int]:
    """Return the extents in ``hyper`` for dims that have a default.

    Raises
    ------
    UsageError
        An extent is not a whole number, or too large.
    """
    return {name: _whole(f"{name!r} is an extent of the rule", hyper[name]) for name in defaults if name in hyper}


def chosen_binding(request: TrainRequest) -> tuple[Binding, dict[str, float]]:
    """Bind the rule to the table with the dims and batch size in ``hyper``; also return the value of each meta.

    Raises
    ------
    RuleError
        The text is not a valid rule.
    UsageError
        Rule and table do not match, or ``hyper`` contains an unknown name.
    """
    graph = rule_graph(request)
    binding = bind_request(graph, request, chosen_extents(dict(graph.extents), request.hyper))
    metas = meta_values(default_metas(graph), request.hyper, binding.extents)
    name = None if graph.batch_meta is None else graph.nodes[graph.batch_meta].name
    # only the graph gets the batch size: `bind_request` knows dims, and a batch is none
    if name is not None and name in request.hyper:
        batch = _whole(f"hyperparameter {name!r} is the batch size", request.hyper[name])
        binding = replace(binding, graph=replace(binding.graph, batch=batch))
    return binding, metas


def tuple_bound(request: TrainRequest) -> int:
    """Return an upper bound of the number of tuples; it grows in powers of two so that designs can be reused."""
    if request.relation.pages is None:
        return MAX_TUPLES
    per_page = request.relation.page_size // layout.SMALLEST_TUPLE
    pages = max(1, request.relation.pages)
    # without the powers of two, a table that grows by a page would need another design
    return per_page << (pages - 1).bit_length()


@cache
def _sources() -> str:
    """Return a digest of what compiles, by size and time: in a checkout, an edit makes cached designs stale."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for folder in COMPILING:
        for file in sorted((root / folder).rglob("*.*")):
            if file.suffix != ".pyc":
                found = file.stat()
                digest.update(f"{file.relative_to(root)}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _key(request: TrainRequest, batch: int | None, extents: Mapping[str, int], loss_only: bool) -> str:
    # repr of a tuple is unambiguous, and ten times faster than JSON for a wide table
    parts = (
        VERSIONS,
        _sources(),
        request.text,
        _columns(request),
        request.relation.part,
        request.features,
        request.label,
        request.weight,
        request.class_weight is not None,
        request.stored_as,
        # metas are absent: their values are written over the image when a training starts
        sorted(on_pages(request.design, request.relation.page_size).items()),
        request.device,
        tuple_bound(request),
        batch,
        sorted(extents.items()),
        loss_only,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _columns(request: TrainRequest) -> list[tuple[object, ...]]:
    """Return the columns as far as the design depends on them; names that cannot be used are replaced by ''."""
    columns = [_compiled_in(attribute) for attribute in request.relation.attributes]
    if request.features is None or request.label is None:
        return columns  # any column may be used
    # columns may also be chosen by names of inputs and outputs in the text of the rule
    named = {*request.features, request.label, request.weight, *re.findall(r"\w+", request.text)}
    return [(name if name in named else "", *rest) for name, *rest in columns]
