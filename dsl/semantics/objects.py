"""Values of names and expressions while a rule is elaborated.

In: nothing. Out: the object kinds, `Scope`, and `describe`, which names objects in messages.
Must not: elaborate anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from dsl.hdfg.dims import Dim, DimExpr, Shape, shape_text
from dsl.hdfg.graph import Op
from dsl.hdfg.init import ZEROS, Init
from dsl.semantics.program import Batch, CheckedUpdate, Operation
from dsl.source import Span
from dsl.syntax import ast


class Scope:
    """Names in force in the module, or in one call of a function.

    Parameters
    ----------
    parent
        Where names are sought that this scope does not have.
    top_level
        Whether models, inputs and the like may be declared here.
    module
        Module that defines these names (`dsl.semantics.modules`); None for the rule itself.
    """

    def __init__(self, parent: Scope | None = None, *, top_level: bool = False, module: str | None = None) -> None:
        self.parent = parent
        self.top_level = top_level
        self.module = module
        self.names: dict[str, Object] = {}

    def find(self, name: str) -> Object | None:
        """Return what `name` stands for, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def known(self) -> Iterator[str]:
        """Yield every name in force."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names
            scope = scope.parent


@dataclass(frozen=True, slots=True)
class Constant:
    """A number known when the rule is compiled: `int`, a dim, or a `float` that is exactly binary32.

    `name` is the last name that the rule gave it. `symbolic` is its value in terms of the dims counted by loops; None
    if it does not depend on them.
    """

    number: int | float | DimExpr
    # equal numbers are equal under any name
    name: str | None = field(default=None, compare=False)
    symbolic: DimExpr | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list, a tuple or a range; `spans` has the items' places if each has one.

    `rows`: of a model, as numbers chose them (``w[c]``). They are a value, which ``+`` adds to, and joins to no list.
    """

    items: tuple[Object, ...]
    spans: tuple[Span, ...] = field(default=(), compare=False)
    rows: bool = False

    def placed(self, otherwise: Span) -> list[tuple[Object, Span]]:
        """Return the items with their places."""
        return list(zip(self.items, self.spans or (otherwise,) * len(self.items), strict=True))

    def joined(self, other: Items, span: Span, other_span: Span) -> Items:
        """Return the items of both."""
        placed = [*self.placed(span), *other.placed(other_span)]
        return Items(tuple(item for item, _ in placed), tuple(place for _, place in placed))


@dataclass(frozen=True, slots=True)
class Namespace:
    """The module `dana`."""


@dataclass(frozen=True, slots=True)
class Builtin:
    """A function of the language, by its name in `dsl.semantics.library`."""

    name: str


# by identity: two functions of one text may have different scopes
@dataclass(frozen=True, slots=True, eq=False)
class RuleFunction:
    """A `def` of the rule with the scope it was made in and its evaluated defaults."""

    node: ast.Function
    scope: Scope
    defaults: dict[str, Object]


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A module of functions in rule text, such as `dana.optimizers`."""

    name: str
    scope: Scope

    @property
    def offered(self) -> dict[str, Object]:
        """Names that can be imported from it: functions and constants."""
        # names with an underscore in front are the module's own, as in Python
        found = {name: thing for name, thing in self.scope.names.items() if not name.startswith("_")}
        return {
            name: thing for name, thing in found.items() if isinstance(thing, RuleFunction | Constant | Text | Items)
        }


@dataclass(frozen=True, slots=True)
class Declaration:
    """`dana.model(...)` and its like before they are given a name. `kind` is the name of the function.

    `owner` is what a state is kept for; `classes` is the number of an output's classes or an input's categories.
    `symbolic` and `symbolic_classes` are the shape and the classes in terms of the dims counted by loops.
    """

    kind: str
    span: Span
    shape: Shape = ()
    symbolic: Shape = ()
    symbolic_classes: Dim | None = None
    value: float | None = None
    init: Init = ZEROS
    members: tuple[tuple[Object, Span], ...] = ()
    owner: Operation | None = None
    classes: Dim | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """A name declared by `dana.inter(shape)`: what is assigned to it must have this shape."""

    shape: Shape
    span: Span


@dataclass(slots=True, eq=False)
class Algorithm:
    """The rule's one `algo`, filled by its methods."""

    name: str
    span: Span
    members: tuple[Operation, ...]
    updates: list[CheckedUpdate] = field(default_factory=list)
    settings: dict[str, tuple[Operation, Span]] = field(default_factory=dict)
    epochs: tuple[int, Span] | None = None
    batch: Batch | None = None
    rows_in_batches: list[tuple[Operation, Span]] = field(default_factory=list)  # minimized so: a row, the batch
    share: Operation | None = None  # of one tuple of a batch: 1 / its tuples, once a mean is asked for
    complete: bool = True  # False once an argument could not be elaborated: missing parts are then no error

    def copy(self) -> Algorithm:
        """Return it as it is now."""
        return replace(
            self,
            updates=list(self.updates),
            settings=dict(self.settings),
            rows_in_batches=list(self.rows_in_batches),
        )

    @property
    def models(self) -> tuple[Operation, ...]:
        """Its models, in order."""
        return tuple(member for member in self.members if member.op is Op.MODEL)

    @property
    def classes(self) -> Dim | None:
        """How many its output numbers; None: any number is a label."""
        labels = (member for member in self.members if member.op is Op.OUTPUT)
        return next((label.classes for label in labels if label.classes is not None), None)


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """`algo.name`, not yet called."""

    algorithm: Algorithm
    name: str


@dataclass(frozen=True, slots=True)
class AllTuples:
    """`dana.all`: the whole table as one batch."""


@dataclass(frozen=True, slots=True)
class Given:
    """`dana.training` and the like: a value that the rule finds without declaring it."""

    name: str


@dataclass(frozen=True, slots=True)
class Start:
    """`dana.uniform(...)`, `dana.column_mean(x)` …: how a model starts; `like` is the input with the columns."""

    init: Init
    like: Operation | None = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """Result of a call that returns no value."""


@dataclass(frozen=True, slots=True)
class Poison:
    """Stands for a value with an error already reported; operations on it yield poison and report nothing."""


Object = (
    Operation
    | Constant
    | Text
    | Items
    | Namespace
    | Builtin
    | RuleFunction
    | Module
    | Declaration
    | Expected
    | Algorithm
    | Method
    | AllTuples
    | Given
    | Start
    | Nothing
    | Poison
)

POISON = Poison()

LEAF_WORDS = {
    Op.MODEL: "the model",
    Op.INPUT: "the input",
    Op.OUTPUT: "the output",
    Op.WEIGHT: "the weight",
    Op.META: "the meta",
}


GIVEN_WORDS = {
    "training": "which is 1 while the rule trains and 0 in its prediction",
    "epoch": "the number of the epoch, which a training counts",
    "batch": "the number of the batch in its epoch, which a training counts",
    "rows": "how many rows train, which a training finds",
}
"""Descriptions of the names that every rule has."""


def describe(thing: Object) -> str:
    """Say what an object is, for "found:" lines."""
    match thing:
        # before other operations, which a table is one of
        case Operation(table=True, name=str(name), shape=shape):
            return f"the table {name}, {_shape(shape)}"
        case Operation(op=op, name=str(name), shape=shape) if op in LEAF_WORDS:
            return f"{LEAF_WORDS[op]} {name}, {_shape(shape)}"
        case Operation(shape=shape):
            return f"a value, {_shape(shape)}"
        case Constant(number=DimExpr() as dim):
            return f"the dim {dim}"
        case Constant(number=number):
            return f"the number {number:g}" if isinstance(number, float) else f"the number {number}"
        case Text(text=text):
            return f"the string {text[:40]!r}"
        case Items(items=items):
            return f"a list of {len(items)}"
        case Namespace():
            return "the module dana"
        case Builtin(name=name):
            return f"the function {name}" if name == "range" else f"the function dana.{name}"
        case RuleFunction(node=node):
            return f"the function {node.name}"
        case Module(name=name):
            return f"the module {name}"
        case Declaration(kind=kind):
            return f"a {kind} without a name"
        case Expected():
            return "an inter that has no value yet"
        case Algorithm(name=name):
            return f"the algo {name}"
        case Method(algorithm=algorithm, name=name):
            return f"the method {algorithm.name}.{name}"
        case AllTuples():
            return "dana.all"
        case Given(name=name):
            return f"dana.{name}, {GIVEN_WORDS[name]}"
        case Start():
            return "the start values of a model"
        case Nothing():
            return "nothing"
        case Poison():
            return "an error"


def _shape(shape: Shape) -> str:
    return f"shape {shape_text(shape)}" if shape else "a scalar"
