"""The members of dana.run.design from which `dana report` rebuilds the machine of a run.

`machine_provenance` describes a request as JSON; `recorded_request` restores the request from that JSON and the text
of the rule. The table or view itself is not read again: it may have changed, and reading a view executes code of its
owner. A table can have 1,600 columns, so names of unused columns are omitted and runs of equal columns are counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from dana.storage.schema import Attribute
from dana.trainer.contract import Json, Relation, TrainRequest
from dana.trainer.designs import Design


def digest_of(rule: str) -> str:
    """Return the SHA-256 digest of the text of a rule."""
    # surrogatepass: half a character in a text of Python must not end the training here
    return hashlib.sha256(rule.encode(errors="surrogatepass")).hexdigest()


def provenance(request: TrainRequest, metas: Json, dims: Json) -> Json:
    """Return the members that every machine records: the digest of the rule and its values."""
    return {"rule": digest_of(request.text), "metas": dict(metas), "dims": dict(dims)}


def stored_as_metadata(request: TrainRequest) -> Json:
    """Return the member of the metadata of a model about its numbers."""
    return {} if request.stored_as is None else {"stored_as": request.stored_as}


def machine_provenance(request: TrainRequest, design: Design) -> Json:
    """Return the further members of a compiled run: its inputs and the digest of its Bundle."""
    relation = request.relation
    positions = {one.name: k for k, one in enumerate(relation.attributes) if not one.dropped}
    return {
        "bundle": design.bundle.digest,
        "asked": dict(request.design),
        "pages": relation.pages,
        "part": relation.part,
        "columns": [[len(list(equal)), *kind] for kind, equal in groupby(map(_kind, relation.attributes))],
        "used": [positions[name] for name in (*design.features, *design.labels, *_named(request.weight))],
        "weight": request.weight,
        "class_weight": request.class_weight,
        "stored_as": request.stored_as,
    }


def recorded_request(*, rule: str, text: str, relation: str, design: Mapping[str, Any]) -> TrainRequest:
    """Restore the request that is described by the ``design`` of a run.

    Parameters
    ----------
    rule, text
        The rule's name and text.
    relation
        The table's name, for messages.
    """
    features, labels = tuple(design["features"]), tuple(design["labels"])
    names = dict(zip(design["used"], (*features, *labels, *_named(design["weight"])), strict=True))
    # inverse of the run lengths in `machine_provenance`
    kinds = [kind for count, *kind in design["columns"] for _ in range(count)]
    return TrainRequest(
        rule=rule,
        text=text,
        relation=Relation(
            name=relation,
            pages=design["pages"],
            page_size=design["config"]["page_size"],
            attributes=tuple(_attribute(names.get(k, ""), *kind) for k, kind in enumerate(kinds)),
            part=design["part"],
        ),
        features=features,
        label=labels[0] if len(labels) == 1 else None,
        epochs=None,
        # metas do not change the machine, but dims and the batch size do
        hyper={**design["metas"], **design["dims"]},
        machine="sim",
        design=design["asked"],
        weight=design["weight"],
        class_weight=design["class_weight"],
        stored_as=design["stored_as"],
    )


def _named(column: str | None) -> tuple[str, ...]:
    return () if column is None else (column,)


# the order is that of the parameters of `_attribute`, to which the recorded list is passed
def _kind(one: Attribute) -> tuple[int, int, str, bool, bool, str, bool, int | None]:
    """Return the properties of a column that affect compilation, except for its position and name."""
    return (
        one.type_oid,
        one.length,
        one.align,
        one.not_null,
        one.dropped,
        one.generated,
        one.has_missing,
        one.array_length,
    )


def _attribute(
    name: str,
    type_oid: int,
    length: int,
    align: str,
    not_null: bool,
    dropped: bool,
    generated: str,
    has_missing: bool,
    array_length: int | None,
) -> Attribute:
    return Attribute(
        name=name,
        type_oid=type_oid,
        type_name="",
        length=length,
        align=align,
        not_null=not_null,
        dropped=dropped,
        generated=generated,
        has_missing=has_missing,
        array_length=array_length,
    )
