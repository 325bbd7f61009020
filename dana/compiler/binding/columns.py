"""Decides which column of a table fills which input of a rule, and with that the rule's dims.

In: a rule's graph, a table's schema, the caller's choice of features, label and weight, or none. Out: the bound graph
and the columns in use. It reads no page.

Without a choice, the label is the column that has the output's name, or else the table's last column; a weight is the
number 1, and not in the bound graph; the features are the columns with the inputs' names, or else all other columns in
the table's order. A vector or matrix that is the only input is filled by its name by an array alone: a number of that
name is a column like others. Inputs take columns in the order of `dana.algo`: a scalar takes one, a vector or matrix
one array column or as many scalar columns as it has elements, a matrix's rows one after the other; an input with an
extent that is a dim takes what the inputs after it do not need, and where one of those takes what is left, its dim's
default. If the user made no choice, and a column would fill an input other than the one of its name, that is an error.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dana.compiler.binding.weights import weighted
from dana.errors import UsageError
from dana.storage.schema import SchemaError, TableSchema, Use
from dana.storage.types import ALL_ARRAYS, ARRAYS, NUMBERS
from dsl.hdfg.choice import category_inputs, choosing_elements
from dsl.hdfg.dims import Shape
from dsl.hdfg.graph import BindError, Graph, Node, Op
from hwgen.spec.bundle import Fill


class BindingError(UsageError):
    """The table's columns do not fit the rule's inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A rule on a table.

    Attributes
    ----------
    graph
        The rule with every dim bound.
    unweighted
        The same without the training's weights: each row has the weight 1.
    extents
        What the dims are that have an extent by default.
    uses
        The columns it reads.
    features
        Names of the columns that fill inputs, in order.
    labels
        Names of the columns that fill outputs, in order.
    """

    graph: Graph
    unweighted: Graph
    extents: dict[str, int]
    uses: tuple[Use, ...]
    features: tuple[str, ...]
    labels: tuple[str, ...]

    def fills(self, schema: TableSchema) -> tuple[Fill, ...]:
        """What the columns of the table fill, in the order of the rule's inputs."""
        return tuple(
            Fill(column=schema.attributes[use.attribute].name, input=use.input, element=use.element, count=use.count)
            for use in self.uses
        )


def bind(
    graph: Graph,
    schema: TableSchema,
    features: Sequence[str] | None = None,
    label: str | None = None,
    extents: Mapping[str, int] | None = None,
    *,
    weight: str | None = None,
    class_weight: bool = False,
) -> Binding:
    """Bind a rule to a table.

    Parameters
    ----------
    extents
        The caller's, for dims that no column decides.
    weight
        Column of the rows' weights.
    class_weight
        Rows have the weights of their classes, too.

    Raises
    ------
    SchemaError
        A column does not exist or cannot be trained on.
    BindingError
        Columns are left over or missing, or an array has another length than the rule says.
    """
    inputs = [graph.nodes[k] for k in graph.inputs if graph.nodes[k].op is Op.INPUT]
    outputs = [graph.nodes[k] for k in graph.inputs if graph.nodes[k].op is Op.OUTPUT]
    own = extents or {}
    # before the weights: a weighted graph cannot be traced again (`weighted`)
    plain = graph.traced(own)
    graph = weighted(plain, column=weight is not None, classes=class_weight)
    # the weight first: no label or feature is chosen that the caller means as a weight
    weights = [] if weight is None else [schema.index(weight)]
    labels = labels_of(schema, outputs, label, weights)
    taken = [*labels, *weights]
    chosen = _features(schema, inputs, taken) if features is None else [schema.index(name) for name in features]
    _unique(schema, [*chosen, *taken])
    try:
        # a text that would choose rows is reported as such, not as a column of a wrong type
        for position in (*chosen, *taken):
            if schema.attributes[position].type_oid not in NUMBERS and position in _choosing(
                graph, schema, inputs, chosen, own
            ):
                raise schema.no_category(position)
            schema.usable(position)
        uses, shapes = _assign(graph, schema, inputs, chosen, own)
        if features is None:
            _refuse_crossed(schema, inputs, uses)
        if graph.weight is not None:
            uses += _assign(graph, schema, [graph.weight], weights, own)[0]
        # last, where a backend looks for the label
        more_uses, more_shapes = _assign(graph, schema, outputs, labels, own)
        dims = graph.infer_dims({**shapes, **more_shapes})
        for name, extent in own.items():
            # the caller decides what no column does, and may not contradict the columns
            if dims.setdefault(name, extent) != extent:
                raise BindingError(f"{name} is {dims[name]} by the columns of {schema.relation}, not {extent}")
        traced = plain.traced(dims)
        if traced is not plain:  # the columns decide a dim that loops count
            graph = weighted(traced, column=weight is not None, classes=class_weight)
        bound = graph.bind(dims) if graph.dims else graph
        unweighted = bound
        if weight is not None or class_weight:
            every = weighted(traced, column=False, classes=False)
            unweighted = every.bind(dims) if every.dims else every
    except BindError as error:
        raise BindingError(f"{error}, in {schema.relation}") from error
    return Binding(
        graph=bound,
        unweighted=unweighted,
        extents={name: dims.get(name, extent) for name, extent in graph.extents},
        uses=(*uses, *more_uses),
        features=tuple(schema.attributes[k].name for k in chosen),
        labels=tuple(schema.attributes[k].name for k in labels),
    )


def labels_of(schema: TableSchema, outputs: Sequence[Node], label: str | None, weights: Sequence[int]) -> list[int]:
    """Columns for the outputs, none of them a weight's unless the caller says it."""
    if not outputs:
        if label is not None:
            raise BindingError(f"label {label!r} is given, but the rule has no output", hint="Leave the label out.")
        return []
    names = {schema.attributes[k].name for k in schema.live()}
    if label is not None and len(outputs) == 1:
        return [schema.index(label)]
    if all(node.name in names for node in outputs):
        return [schema.index(_name(node)) for node in outputs]
    if len(outputs) > 1:
        wanted = ", ".join(_name(node) for node in outputs)
        raise BindingError(f"a rule with several outputs needs columns of their names ({wanted}) in {schema.relation}")
    live = [k for k in schema.live() if k not in weights]
    if not live:
        raise SchemaError(f"{schema.relation} has no columns")
    return [live[-1]]


def _features(schema: TableSchema, inputs: Sequence[Node], taken: Sequence[int]) -> list[int]:
    """Columns for the inputs when the caller names none."""
    names = {schema.attributes[k].name for k in schema.live()}
    if inputs and all(node.name in names for node in inputs):
        named = [schema.index(_name(node)) for node in inputs]
        # a number with the name of a vector's input is one feature among others
        one_of_many = len(inputs) == 1 and inputs[0].shape and schema.attributes[named[0]].type_oid not in ALL_ARRAYS
        # a column is no input by its name if it is the label or the weight
        if not one_of_many and not set(named) & set(taken):
            return named
    return [k for k in schema.live() if k not in taken]


def crossed(fills: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The (column, input) pairs in which the column has the name of another input."""
    pairs = list(fills)
    names = {name for _, name in pairs}
    return [(column, name) for column, name in pairs if column != name and column in names]


def _refuse_crossed(schema: TableSchema, inputs: Sequence[Node], uses: Sequence[Use]) -> None:
    wrong = crossed((schema.attributes[use.attribute].name, use.input) for use in uses)
    if not wrong:
        return
    column, name = wrong[0]
    order = ", ".join(_name(node) for node in inputs)
    dealt = "; ".join(
        f"{_name(node)} would take "
        + ", ".join(schema.attributes[use.attribute].name for use in uses if use.input == node.name)
        for node in inputs
    )
    raise BindingError(
        f"column {column!r} of {schema.relation} would fill input {name}, though the rule has an input {column}: "
        f"columns are taken in the table's order ({dealt})",
        hint=f"Name them in the order of the rule's inputs ({order}) with features => ARRAY[…], or give every input a "
        "column of its name.",
    )


def _choosing(
    graph: Graph, schema: TableSchema, inputs: Sequence[Node], chosen: Sequence[int], own: Mapping[str, int]
) -> set[int]:
    """Columns that choose rows of models; none if the columns do not fit the inputs."""
    try:
        uses, _ = _assign(graph, schema, inputs, chosen, own)
    # `bind` reports the column's type instead
    except BindingError:
        return set()
    return set(choosing_columns(graph, uses))


def choosing_columns(graph: Graph, uses: Iterable[Use]) -> dict[int, bool]:
    """Positions of the columns that choose rows of models, and whether their number is used directly. A category is
    not: a negative number is an unknown one (`dana.functions.category`)."""
    elements, categories = choosing_elements(graph), {str(node.name) for node in category_inputs(graph)}
    found: dict[int, bool] = {}
    for use in uses:
        itself = any((use.input, k) in elements for k in range(use.element, use.element + use.count))
        if itself or use.input in categories:
            found[use.attribute] = itself or found.get(use.attribute, False)
    return found


def _unique(schema: TableSchema, positions: Sequence[int]) -> None:
    for at, position in enumerate(positions):
        if position in positions[:at]:
            name = schema.attributes[position].name
            raise BindingError(f"column {name!r} of {schema.relation} is used twice; each column fills one place")


def _name(node: Node) -> str:
    assert node.name is not None, "inputs and outputs always have a name"
    return node.name


def _assign(
    graph: Graph, schema: TableSchema, nodes: Sequence[Node], columns: Sequence[int], own: Mapping[str, int]
) -> tuple[list[Use], dict[str, tuple[int, ...]]]:
    """Deal the columns out to inputs in order; the shapes that come of it."""
    uses: list[Use] = []
    shapes: dict[str, tuple[int, ...]] = {}
    waiting = list(columns)
    for at, node in enumerate(nodes):
        name = _name(node)
        if not waiting:
            raise BindingError(
                f"no column of {schema.relation} is left for {name}",
                hint="Name the columns with features => ARRAY[…].",
            )
        extents = _extents(node, graph, shapes, own)
        if schema.attributes[waiting[0]].type_oid in ARRAYS:
            # an array fills an input alone: nothing says where it would be cut
            column = waiting.pop(0)
            length = _array_length(schema, column, node, extents)
            uses.append(Use(attribute=column, input=name, element=0, count=length))
            shapes[name] = _shape(node, length, extents, graph)
            continue
        later = [graph.symbolic_shape(one) for one in nodes[at + 1 :]]
        if None in extents and _is_open(later, {*dict(graph.extents), *own, *graph.infer_dims(shapes)}):
            extents = _known(node, graph, {**dict(graph.extents), **own, **graph.infer_dims(shapes)})
        count = _count(extents, len(waiting), later)
        if count > len(waiting):
            wanted = _elements(node, graph, extents)
            raise BindingError(f"{name} has {wanted}, but {schema.relation} gives {len(waiting)} columns for it")
        for element in range(count):
            column = waiting.pop(0)
            if schema.attributes[column].type_oid in ARRAYS:
                raise BindingError(
                    f"{name} takes {count} scalar columns or one array column; "
                    f"{schema.attributes[column].name!r} is an array among scalars",
                    hint="Name either with features => ARRAY[…].",
                )
            uses.append(Use(attribute=column, input=name, element=element, count=1))
        shapes[name] = _shape(node, count, extents, graph)
    if waiting:
        left = ", ".join(repr(schema.attributes[k].name) for k in waiting[:5])
        raise BindingError(
            f"{len(waiting)} {'column' if len(waiting) == 1 else 'columns'} of {schema.relation} "
            f"{'is' if len(waiting) == 1 else 'are'} left over ({left})",
            hint="Name the columns with features => ARRAY[…].",
        )
    return uses, shapes


def _array_length(schema: TableSchema, column: int, node: Node, extents: Sequence[int | None]) -> int:
    attribute = schema.attributes[column]
    if not node.shape:
        raise BindingError(f"{node.name} is a scalar, but column {attribute.name!r} of {schema.relation} is an array")
    length = attribute.array_length
    if length is None:
        known = [extent for extent in extents if extent is not None]
        if len(known) == len(extents):
            # an array of unknown length has the length that the rule declares
            return prod(known)
        raise BindingError(
            f"column {attribute.name!r} of {schema.relation} has no array of one dimension yet that has elements, so "
            "their length is unknown",
            hint="Until it has one, as where a table's rows stay at its shards, the rule must say the length, as in "
            f"{node.name} = dana.input([54]).",
        )
    return length


def _extents(
    node: Node, graph: Graph, shapes: Mapping[str, tuple[int, ...]], own: Mapping[str, int]
) -> list[int | None]:
    """Extents of an input as far as the rule, the caller and the inputs before it say them.

    Columns decide one extent. Where more are open, those are the rule's own that it has by default.
    """
    decided = graph.infer_dims(shapes)
    extents = _known(node, graph, {**own, **decided})
    if extents.count(None) > 1:
        return _known(node, graph, {**dict(graph.extents), **own, **decided})
    return extents


def _is_open(later: Iterable[Shape], decided: Collection[str]) -> bool:
    """Whether an input takes what columns the ones before leave, so that these are to have as many as they say."""
    dims = (extent for shape in later for extent in shape if not isinstance(extent, int))
    return any(name not in decided for extent in dims for name in extent.names)


def _known(node: Node, graph: Graph, dims: Mapping[str, int]) -> list[int | None]:
    return [
        extent
        if isinstance(extent, int)
        else (extent.evaluate(dims) if all(name in dims for name in extent.names) else None)
        for extent in graph.symbolic_shape(node)
    ]


def _count(extents: Sequence[int | None], waiting: int, later: Sequence[Shape]) -> int:
    """Scalar columns that an input takes of those that wait."""
    others = prod(extent for extent in extents if extent is not None)
    if None not in extents:
        return others
    # inputs behind this one get what they cannot do without
    needed = sum(prod(extent for extent in shape if isinstance(extent, int)) for shape in later)
    # one at least, so that too few columns are reported as such
    return max(1, (waiting - needed) // others) * others


def _shape(node: Node, elements: int, extents: Sequence[int | None], graph: Graph) -> tuple[int, ...]:
    """Shape of an input that columns give so many elements; a matrix's rows follow one another."""
    if len(extents) < 2:
        return (elements,) if extents else ()
    if extents.count(None) > 1:
        axes = zip(graph.symbolic_shape(node), extents, strict=True)
        open_dims = [str(dim) for dim, extent in axes if extent is None]
        raise BindingError(
            f"the shape of {node.name} does not follow from its {elements} elements",
            hint=f"Give all but one of {' and '.join(open_dims)} a number, or a default: {open_dims[0]} = dana.dim(5).",
        )
    others = prod(extent for extent in extents if extent is not None)
    if elements % others or (None not in extents and elements != others):
        wanted = _elements(node, graph, extents)
        raise BindingError(f"{node.name} takes {wanted} as the rule says, but the table gives {elements}")
    return tuple(elements // others if extent is None else extent for extent in extents)


def _elements(node: Node, graph: Graph, extents: Sequence[int | None]) -> str:
    """How many elements an input takes, as a product of dims."""
    others = prod(extent for extent in extents if extent is not None)
    axes = zip(graph.symbolic_shape(node), extents, strict=True)
    named = [f"{dim} = {extent}" for dim, extent in axes if extent is not None and dim != extent]
    count = f"{others} elements" if None not in extents else f"a multiple of {others} elements"
    return count + (f" ({', '.join(named)})" if named else "")
