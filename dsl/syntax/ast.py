"""The abstract syntax tree: what was written, nothing of what it means.

In: reductions of the parser (`dsl.syntax.builder`). Out: immutable nodes, each with its span.
Must not: hold names resolved or values computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dsl.source import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Anything with a place in the text."""

    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression(Node):
    """Anything that has a value. `depth` counts expressions inside expressions."""

    depth: int = field(default=1, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(Expression):
    """`id`."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Expression):
    """A literal: `int` without a point or an exponent, else `float`."""

    value: int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class String(Expression):
    """A literal; adjacent ones joined."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute(Expression):
    """`value.name`."""

    value: Expression
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyword(Node):
    """`name=value` in a call."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Expression):
    """`function(*arguments, **keywords)`, without stars."""

    function: Expression
    arguments: tuple[Expression, ...]
    keywords: tuple[Keyword, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscript(Expression):
    """`value[index]`."""

    value: Expression
    index: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(Expression):
    """`start:stop` between brackets; either may be None."""

    start: Expression | None
    stop: Expression | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix(Expression):
    """`-operand` or `+operand`."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(Node):
    """One operator and the operand to its right; the span is the operator's."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain(Expression):
    """`first op operand op operand …`, operators of one precedence, computed from left to right.

    Flat, so that a long sum does not nest.
    """

    first: Expression
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Expression):
    """`left op right`."""

    left: Expression
    operator: str
    right: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence(Expression):
    """`[items]` (`bracket` "[") or `items, …` (`bracket` "(")."""

    bracket: str
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement(Node):
    """Anything that stands alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias(Node):
    """`name as bound` (`bound` equals `name` without `as`)."""

    name: str
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Import(Statement):
    """`import a, b as c`."""

    aliases: tuple[Alias, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FromImport(Statement):
    """`from module import a, b as c`; `aliases` None for `*`."""

    module: str
    aliases: tuple[Alias, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(Statement):
    """`target = target = value`; a target is a Name or a Sequence of Names."""

    targets: tuple[Expression, ...]
    value: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotated(Statement):
    """`target: annotation = value`; `value` None for a bare declaration."""

    target: Name
    annotation: Expression
    value: Expression | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmented(Statement):
    """`target operator= value`."""

    target: Name
    operator: str
    value: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate(Statement):
    """An expression on its own: a call of the algorithm's methods, or a docstring."""

    value: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter(Node):
    """`name: annotation = default`."""

    name: str
    annotation: Expression | None
    default: Expression | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Function(Statement):
    """`def name(parameters) -> returns: body`; the span is the header's."""

    name: str
    name_span: Span
    parameters: tuple[Parameter, ...]
    returns: Expression | None
    decorators: tuple[Expression, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class For(Statement):
    """`for names in iterable: body`; the span is the header's."""

    names: tuple[Name, ...]
    iterable: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Return(Statement):
    """`return value`; `value` None for a bare return."""

    value: Expression | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass(Statement):
    """`pass`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(Statement):
    """A line with a syntax error, reported already; `names` are those it would have bound."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A whole rule text."""

    body: tuple[Statement, ...]
