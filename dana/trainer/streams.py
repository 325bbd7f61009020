"""Decides what a backend streams: the pages of a table, or frames with the columns in use.

Pages are the default. Frames are used for values that a Strider cannot read in place, for rows that have no pages, such
as those of a query, and for rows that are cleaned before training.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from dana.codesign.sample import fits
from dana.compiler.binding.columns import Binding, BindingError, bind, choosing_columns, crossed, labels_of
from dana.predictor.centres import NO_CENTRES, Centres
from dana.storage.columns import column_attribute
from dana.storage.declared import TEXT_TYPES
from dana.storage.frames import framed, readable, rewritten, unique_names
from dana.storage.schema import SchemaError, TableSchema
from dana.storage.types import FEATURE_HINT, HINTS
from dana.trainer.contract import Json, Level, Notice, Notify, Relation, Stream, TrainRequest
from dana.trainer.designs import chosen_extents, graph_of, rule_graph
from dana.trainer.messages.page_errors import ARRAYS
from dsl import Rule
from dsl.hdfg.choice import category_inputs
from dsl.hdfg.dims import names_of
from dsl.hdfg.graph import Graph, Node, Op

MAX_BINDINGS = 64
"""Bindings cached in a process; every training on a table with a column that no Strider can read needs one."""


def plan_stream(request: TrainRequest) -> tuple[TrainRequest, Stream | None]:
    """Return the request as it is compiled, and its frames; None: the pages of the table are streamed.

    Raises
    ------
    RuleError, UsageError
        As `dana.compiler.binding.columns.bind`.
    """
    relation = request.relation
    rows = relation.rows or request.centres != NO_CENTRES
    # most tables: no column needs a binding to know that
    if not rows and all(readable(one) for one in relation.attributes if not one.dropped):
        return request, None
    if rows:
        unique_names(relation.name, relation.attributes)
    # with the types of frames: a numeric column cannot be bound as it is
    binding, schema = logical_binding(request)
    used = [use.attribute for use in binding.uses]
    # a column that no Strider reads does no harm while the rule does not use it
    if not rows and all(readable(relation.attributes[k]) for k in used):
        return request, None
    columns, frames = framed(schema, binding.uses)
    stream = Stream(
        # attnum counts from 1, dropped columns included
        numbers=tuple(k + 1 for k in used),
        lengths=tuple(column.array_length or 0 for column in columns.attributes),
        page_size=frames.page_size,
        part=frames.part,
        centres=_of_values(request.centres, sum(use.count for use in binding.uses)),
    )
    made = Relation(
        name=relation.name,
        # unknown until the backend has made the frames
        pages=None,
        page_size=frames.page_size,
        attributes=columns.attributes,
        part=frames.part,
    )
    label = binding.labels[0] if len(binding.labels) == 1 else None
    return replace(request, relation=made, features=binding.features, label=label), stream


def _of_values(centres: Centres, count: int) -> tuple[float, ...]:
    """Return the centres of the values of a row: those of features come first, those of labels last."""
    if centres == NO_CENTRES:
        return ()
    features = (*centres.features, *[0.0] * count)[:count]
    return (*features[:-1], centres.label or features[-1])


def logical_binding(request: TrainRequest) -> tuple[Binding, TableSchema]:
    """Bind the rule to the table with the column types of frames; return the binding and that schema.

    Raises
    ------
    RuleError, UsageError
        As `dana.compiler.binding.columns.bind`.
    """
    return _bind(
        request.rule,
        request.text,
        request.relation.schema,
        request.features,
        request.label,
        request.classes,
        request.weight,
        request.class_weight is not None,
        tuple(chosen_extents(dict(rule_graph(request).extents), request.hyper).items()),
    )


def notify_categories(request: TrainRequest, notify: Notify) -> None:
    """Report which columns are categories and which are numbers, unless names or ``hyper`` determine it.

    Raises
    ------
    RuleError, UsageError
        As `dana.compiler.binding.columns.bind`.
    """
    graph = rule_graph(request)
    categories = category_inputs(graph)
    numbers = [k for k in graph.inputs if graph.nodes[k].op is Op.INPUT and graph.nodes[k] not in categories]
    said = {name for node in categories for dim in graph.symbolic_shape(node) for name in names_of(dim)}
    # with only one kind of inputs the columns cannot have been mixed up
    if not categories or not numbers or (request.features is not None and said <= request.hyper.keys()):
        return
    binding, schema = logical_binding(request)
    every = [(schema.attributes[use.attribute].name, use.input) for use in binding.uses]
    filled = [one for one in every if one[0] in binding.features]

    def listed(nodes: Iterable[Node], what: str) -> str:
        names = [str(node.name) for node in nodes]
        columns = ", ".join(column for column, name in filled if name in names)
        return f"{columns} {'hold' if ',' in columns else 'holds'} {what} (input {', '.join(names)})"

    if crossed(filled) or all(column == name for column, name in filled):
        return
    notify(
        Notice(
            level=Level.NOTICE,
            message=("arrays" if request.relation.name == ARRAYS else f"columns of {request.relation.name}")
            + f": {listed(categories, 'categories')}; {listed((graph.nodes[k] for k in numbers), 'numbers')}",
            hint="Inputs take columns in order. List the category columns first in features"
            + f", and give their number in hyper: {', '.join(sorted(said))}." * bool(said),
        )
    )


def declared_request(
    rule: Rule,
    schema: TableSchema,
    *,
    label: str | None = None,
    pages: int = 1,
    page_size: int = 8192,
    design: Json | None = None,
    hyper: Json | None = None,
    stored_as: str | None = None,
) -> TrainRequest:
    """Return the request of a training on a table that is known only by its columns.

    Parameters
    ----------
    label
        Column of the label, if the rule does not determine it.
    pages, page_size
        Number of pages of the table, and the size of a page in bytes (BLCKSZ).
    design
        Overrides for the machine.
    hyper
        Dims, and values of metas.
    stored_as
        As in `TrainRequest`.

    Raises
    ------
    RuleError, UsageError
        As `dana.compiler.binding.columns.bind`.
    """
    numbered = _with_numbered_label(rule.hdfg, schema, label)
    request = TrainRequest(
        rule=rule.source.filename,
        text=rule.text,
        relation=Relation(name=schema.relation, pages=pages, page_size=page_size, attributes=numbered.attributes),
        features=None,
        label=label,
        epochs=None,
        hyper={} if hyper is None else hyper,
        machine="sim",
        design={} if design is None else design,
        stored_as=stored_as,
    )
    # only frames have the number of a class in the place of its text
    if numbered is not schema:
        return plan_stream(replace(request, relation=replace(request.relation, rows=True)))[0]
    return on_pages_that_hold_rows(request)


def _with_numbered_label(graph: Graph, schema: TableSchema, label: str | None) -> TableSchema:
    """Return the schema with a text label replaced by its class number, as in frames; otherwise the schema itself."""
    outputs = [graph.nodes[k] for k in graph.inputs if graph.nodes[k].op is Op.OUTPUT]
    if graph.classes is None:
        return schema
    attributes = list(schema.attributes)
    for k in labels_of(schema, outputs, label, []):
        if attributes[k].type_oid in TEXT_TYPES.values():
            attributes[k] = column_attribute(attributes[k].name)
    return schema if attributes == [*schema.attributes] else replace(schema, attributes=tuple(attributes))


def on_pages_that_hold_rows(request: TrainRequest) -> TrainRequest:
    """Return the request on frames if a row exceeds a page and PostgreSQL stores it out of line; otherwise itself.

    Raises
    ------
    RuleError, UsageError
        As `dana.compiler.binding.columns.bind`.
    """
    relation = request.relation
    if fits(relation.schema, page_size=relation.page_size):
        return request
    return plan_stream(replace(request, relation=replace(relation, rows=True)))[0]


@lru_cache(maxsize=MAX_BINDINGS)
def _bind(
    rule: str,
    text: str,
    schema: TableSchema,
    features: tuple[str, ...] | None,
    label: str | None,
    classes: tuple[str, ...] | None,
    weight: str | None,
    class_weight: bool,
    extents: tuple[tuple[str, int], ...],
) -> tuple[Binding, TableSchema]:
    """See `logical_binding`."""
    graph = graph_of(text, rule)
    # the label column is known only after binding, so texts are allowed in every column until then
    columns = tuple(one if one.dropped else rewritten(one, labels=classes is not None) for one in schema.attributes)
    logical = replace(schema, attributes=columns)
    binding = bind(graph, logical, features, label, dict(extents), weight=weight, class_weight=class_weight)
    if classes is not None:
        _check_classes(schema, binding, weight)
    return binding, logical


def _check_classes(schema: TableSchema, binding: Binding, weight: str | None) -> None:
    """Raise an error if classes are given without a single label, or a column other than the label holds texts."""
    if len(binding.labels) != 1:
        raise BindingError(f"classes are given, but the rule has {len(binding.labels)} labels")
    for name in (*binding.features, *(() if weight is None else (weight,))):
        attribute = schema.attributes[schema.index(name)]
        # only a label may be a text; without `labels`, `rewritten` leaves a text as it is
        if rewritten(attribute) is attribute:
            if schema.index(name) in choosing_columns(binding.graph, binding.uses):
                raise schema.no_category(schema.index(name))
            raise SchemaError(
                f"column {name!r} of {schema.relation} has type {attribute.type_name}, which is not a number",
                hint=HINTS.get(attribute.type_oid, FEATURE_HINT),
            )
