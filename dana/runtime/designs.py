"""Compiled designs and where they are kept: rule text and table in, Bundle with its plan out.

A design is found again, by everything that went into it, in this process or in the user's cache folder; so a rule is
parsed and compiled once for a table, not once for a session. Nothing in the cache is executed: it holds Bundles, whose
checksums are verified, and JSON.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from dana.compiler import bind, compile_bundle
from dana.compiler.design import on_pages
from dana.compiler.predictor import encode_predictor
from dana.errors import UsageError
from dana.runtime.classes import declared_classes
from dana.runtime.trainer import Json, TrainRequest
from dsl import compile_rule
from hwgen.spec import bundle as bundles
from hwgen.spec.bundle import Bundle, BundleError

VERSIONS = (version("dana-db"), bundles.VERSION)
"""What a design depends on besides its inputs."""

KEPT = 64
"""Designs kept in a process."""

SMALLEST_TUPLE = 28
"""Bytes that a tuple takes of a page at least: header and line pointer."""


MOST_TUPLES = 1 << 28
"""Bound for rows that nobody has counted."""


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
        Classes of the label, numbered from 0; None: any number is one.
    predictor
        Program for `dana_predict`, or None.
    """

    bundle: Bundle
    epochs: int
    metas: dict[str, float]
    batch_meta: str | None
    extents: dict[str, int]
    features: tuple[str, ...]
    labels: tuple[str, ...]
    classes: int | None
    predictor: bytes | None


class DesignStore:
    """Finds or makes designs.

    Parameters
    ----------
    folder
        Where designs are kept between processes; None: nowhere.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._kept: OrderedDict[str, Design] = OrderedDict()

    def get(self, request: TrainRequest) -> Design:
        """The rule's own design, unless the request changes what is compiled in: batch size, dims."""
        design = self._get(request, None, {})
        extents = chosen_extents(design.extents, request.hyper)
        if extents:
            design = self._get(request, None, extents)
        if design.batch_meta is not None and design.batch_meta in request.hyper:
            batch = _batch_size(design.batch_meta, request.hyper[design.batch_meta])
            if batch != design.bundle.batch:
                design = self._get(request, batch, extents)
        return design

    def _get(self, request: TrainRequest, batch: int | None, extents: Mapping[str, int]) -> Design:
        key = _key(request, batch, extents)
        design = self._kept.get(key) or self._read(key)
        if design is None:
            design = compile_design(request, batch, extents)
            self._write(key, design)
        self._kept[key] = design
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return design

    def _read(self, key: str) -> Design | None:
        if self._folder is None:
            return None
        try:
            return _unpack(Bundle.from_bytes((self._folder / f"{key}.bundle").read_bytes()))
        except (OSError, BundleError, KeyError, ValueError):
            return None  # absent, damaged or of another version: compiled anew

    def _write(self, key: str, design: Design) -> None:
        if self._folder is None:
            return
        temporary = self._folder / f"{key}.{os.getpid()}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_bytes(design.bundle.to_bytes())
            temporary.rename(self._folder / f"{key}.bundle")
        except OSError:
            temporary.unlink(missing_ok=True)  # a full or read-only disk costs time at the next session, nothing else


def compile_design(request: TrainRequest, batch: int | None = None, extents: Mapping[str, int] | None = None) -> Design:
    """Rule text to Bundle, for a table; `batch` and `extents` replace the rule's batch size and dims.

    Raises
    ------
    RuleError
        The text is no rule.
    UsageError
        Rule, table and machine do not go together.
    """
    graph = compile_rule(request.source, filename=request.rule).hdfg
    binding = bind(graph, request.relation.schema, request.features, request.label, extents)
    bound = binding.graph if batch is None else replace(binding.graph, batch=batch)
    predictor = None if graph.prediction is None else encode_predictor(bound)
    plan = {
        "epochs": graph.epochs,
        "metas": [[graph.nodes[k].name, graph.nodes[k].value] for k in graph.metas],
        "batch_meta": None if graph.batch_meta is None else graph.nodes[graph.batch_meta].name,
        "extents": {**dict(graph.extents), **(extents or {})},
        "features": list(binding.features),
        "labels": list(binding.labels),
        "classes": declared_classes(binding.graph),
        "predictor": None if predictor is None else base64.b64encode(predictor).decode(),
    }
    bundle = compile_bundle(
        replace(binding, graph=bound),
        request.relation.schema,
        design=on_pages(request.design, request.relation.page_size),
        max_tuples=_tuple_bound(request),
        notes=plan,
    )
    return _unpack(bundle)


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
        predictor=None if predictor is None else base64.b64decode(predictor),
    )


def _batch_size(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 1:
        raise UsageError(f"hyperparameter {name!r} is the batch size and must be a whole number from 1, not {value!r}")
    return int(value)


def chosen_extents(defaults: Mapping[str, int], hyper: Json) -> dict[str, int]:
    """Extents that the caller chooses, of the dims that have one by default.

    Raises
    ------
    UsageError
        An extent is no whole number from 1.
    """
    extents = {}
    for name in (name for name in defaults if name in hyper):
        value = hyper[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 1:
            raise UsageError(f"{name!r} is an extent of the rule and must be a whole number from 1, not {value!r}")
        extents[name] = int(value)
    return extents


def _tuple_bound(request: TrainRequest) -> int:
    """More tuples than the table has; a power of two, so that a growing table seldom needs a new design."""
    if request.relation.pages is None:
        return MOST_TUPLES
    per_page = request.relation.page_size // SMALLEST_TUPLE
    pages = max(1, request.relation.pages)
    return per_page << (pages - 1).bit_length()


def _key(request: TrainRequest, batch: int | None, extents: Mapping[str, int]) -> str:
    # repr of frozen data: as telling as JSON, and a tenth of the time for a wide table
    parts = (
        VERSIONS,
        request.source,
        request.relation.schema.attributes,
        request.relation.part,
        request.features,
        request.label,
        sorted(request.design.items()),
        request.relation.page_size,
        _tuple_bound(request),
        batch,
        sorted(extents.items()),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
