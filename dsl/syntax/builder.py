"""AST nodes from the parser's reductions.

In: children of each grammar rule, tokens included. Out: `dsl.syntax.ast` nodes. A method is named after a
rule or alias of `rule.lark`. Must not: recurse; a reduction sees finished children only.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, cast

from lark import Token, Transformer

from dsl.diagnostics import Diagnostic
from dsl.limits import MAX_INTEGER, MAX_NESTING
from dsl.source import Span
from dsl.syntax import ast
from dsl.syntax.layout import span_of, too_deep

Children = list[Any]

# as Python: no zeros in front but of zero itself, and underscores between digits only
INTEGER = re.compile(r"0(_?0)*|[1-9](_?[0-9])*")
DECIMAL = re.compile(
    r"([0-9](_?[0-9])*)?\.?([0-9](_?[0-9])*)?([eE][+-]?[0-9](_?[0-9])*)?",
)


class SyntaxIssue(Exception):
    """A reduction that the grammar allows and the language does not."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.title)
        self.diagnostic = diagnostic


def _span(children: Children) -> Span:
    first, last = children[0], children[-1]
    start = span_of(first) if isinstance(first, Token) else first.span
    end = span_of(last) if isinstance(last, Token) else last.span
    return cast(Span, start.to(end))


def _name(token: Token) -> str:
    return unicodedata.normalize("NFKC", token.value)  # as Python compares identifiers


def _nodes(children: Children) -> Children:
    # `keep_all_tokens` leaves punctuation and keywords among the children
    return [child for child in children if not isinstance(child, Token)]


# kept in nodes: an LALR parser does not recurse, but what walks its trees does
def _depth(span: Span, *inner: ast.Expression) -> int:
    depth = 1 + max((expression.depth for expression in inner), default=0)
    if depth > MAX_NESTING:
        # before any walk of the tree, which recurses to this depth
        raise SyntaxIssue(too_deep(span, "expressions inside expressions"))
    return depth


def _target(expression: ast.Expression) -> None:
    match expression:
        case ast.Name():
            return
        case ast.Sequence(items=items) if items and all(isinstance(item, ast.Name) for item in items):
            return
    found = "an operation"
    help_text = "put a name left of ="
    match expression:
        case ast.Subscript():
            found = "a row"
            help_text = "to update a row of a model, write <algo>.setModel(U[i], value)"
        case ast.Attribute():
            found = "an attribute"
        case ast.Number() | ast.String():
            found = "a literal"
        case ast.Call():
            found = "a call"
    raise SyntaxIssue(
        Diagnostic(
            code="E106",
            title="cannot assign to this",
            span=expression.span,
            label="not a name",
            expected="a name, or names separated by commas",
            found=found,
            help=help_text,
        )
    )


class AstBuilder(Transformer[Token, Any]):
    """Callbacks of the LALR parser, one per rule or alias of the grammar."""

    # statements

    def line(self, children: Children) -> tuple[ast.Statement, ...]:
        return tuple(_nodes(children))

    def statement(self, children: Children) -> tuple[ast.Statement, ...]:
        return (children[0],)

    def suite(self, children: Children) -> tuple[ast.Statement, ...]:
        body: list[ast.Statement] = []
        for child in _nodes(children):
            body.extend(child if isinstance(child, tuple) else (child,))
        return tuple(body)

    def assign(self, children: Children) -> ast.Assign:
        # of a = b = value, all but the last are targets
        *targets, value = _nodes(children)
        for target in targets:
            _target(target)
        return ast.Assign(span=_span(children), targets=tuple(targets), value=value)

    def annotated(self, children: Children) -> ast.Annotated:
        target, annotation, *value = _nodes(children)
        self._single(target)
        return ast.Annotated(
            span=_span(children), target=target, annotation=annotation, value=value[0] if value else None
        )

    def augmented(self, children: Children) -> ast.Augmented:
        target, operator, value = children
        self._single(target)
        # `//=` and its like are other tokens (`rule.lark`), so that one character is all of the operator
        return ast.Augmented(span=_span(children), target=target, operator=operator.value[0], value=value)

    @staticmethod
    def _single(target: ast.Expression) -> None:
        _target(target)
        if not isinstance(target, ast.Name):
            raise SyntaxIssue(
                Diagnostic(
                    code="E106",
                    title="cannot assign to this",
                    span=target.span,
                    label="several names",
                    expected="one name",
                    help="write one statement for each name",
                )
            )

    def import_dana(self, children: Children) -> ast.Import:
        return ast.Import(span=_span(children), aliases=tuple(_nodes(children)))

    def from_all(self, children: Children) -> ast.FromImport:
        return ast.FromImport(span=_span(children), module=children[1].name, aliases=None)

    def from_dana(self, children: Children) -> ast.FromImport:
        module, *aliases = _nodes(children)
        return ast.FromImport(span=_span(children), module=module.name, aliases=tuple(aliases))

    def alias(self, children: Children) -> ast.Alias:
        dotted = children[0]
        bound = _name(children[2]) if len(children) > 1 else dotted.bound
        return ast.Alias(span=_span(children), name=dotted.name, bound=bound)

    def dotted(self, children: Children) -> ast.Alias:
        name = ".".join(_name(token) for token in children if token.type == "NAME")
        return ast.Alias(span=_span(children), name=name, bound=name)

    def return_(self, children: Children) -> ast.Return:
        return ast.Return(span=_span(children), value=children[1] if len(children) > 1 else None)

    def pass_(self, children: Children) -> ast.Pass:
        return ast.Pass(span=_span(children))

    def evaluate(self, children: Children) -> ast.Evaluate:
        return ast.Evaluate(span=_span(children), value=children[0])

    def function(self, children: Children) -> ast.Function:
        # `decorator` wraps its expression, so that it cannot be taken for the one behind `->`
        decorators = [child.value for child in children if isinstance(child, ast.Evaluate)]
        header = [child for child in children if not isinstance(child, ast.Evaluate)]
        name, body = header[1], header[-1]
        return ast.Function(
            # without the body: what is wrong with a function marks its first line
            span=_span(header[:-1]),
            name=_name(name),
            name_span=span_of(name),
            parameters=tuple(child for child in header if isinstance(child, ast.Parameter)),
            returns=next((child for child in header if isinstance(child, ast.Expression)), None),
            decorators=tuple(decorators),
            body=body,
        )

    def decorator(self, children: Children) -> ast.Evaluate:
        return ast.Evaluate(span=_span(children), value=children[1])

    def parameter(self, children: Children) -> ast.Parameter:
        annotation = default = None
        # behind the name, `:` and `=` alternate with what follows them
        for mark, value in zip(children[1::2], children[2::2], strict=True):
            if mark.type == "COLON":
                annotation = value
            else:
                default = value
        return ast.Parameter(span=_span(children), name=_name(children[0]), annotation=annotation, default=default)

    def loop(self, children: Children) -> ast.For:
        _, names, _, iterable, _, body = children
        # without the body, as of a function
        return ast.For(span=_span(children[:-1]), names=names, iterable=iterable, body=body)

    def items_of_names(self, children: Children) -> tuple[ast.Name, ...]:
        return tuple(self.name([token]) for token in children if token.type == "NAME")

    # expressions

    def tuple(self, children: Children) -> ast.Sequence:
        items = _nodes(children)
        span = _span(children)
        return ast.Sequence(span=span, bracket="(", items=tuple(items), depth=_depth(span, *items))

    def empty_tuple(self, children: Children) -> ast.Sequence:
        return ast.Sequence(span=_span(children), bracket="(", items=())

    def list(self, children: Children) -> ast.Sequence:
        items = _nodes(children)
        span = _span(children)
        return ast.Sequence(span=span, bracket="[", items=tuple(items), depth=_depth(span, *items))

    def group(self, children: Children) -> ast.Expression:
        # brackets leave no node: `printer` writes those that precedence needs
        return cast(ast.Expression, children[1])

    def comparison(self, children: Children) -> ast.Comparison:
        if len(children) > 3:
            raise SyntaxIssue(
                Diagnostic(
                    code="E107",
                    title="comparisons do not chain",
                    span=span_of(children[3]),
                    label="second comparison",
                    expected="one comparison",
                    help="write (a < b) * (b < c): a comparison is 1 where it holds, else 0",
                )
            )
        left, operator, right = children
        span = _span(children)
        return ast.Comparison(
            span=span, left=left, operator=operator.value, right=right, depth=_depth(span, left, right)
        )

    def chain(self, children: Children) -> ast.Chain:
        links = tuple(
            ast.Link(span=span_of(operator), operator=operator.value, operand=operand)
            for operator, operand in zip(children[1::2], children[2::2], strict=True)
        )
        span = _span(children)
        depth = _depth(span, *children[::2])
        return ast.Chain(span=span, first=children[0], links=links, depth=depth)

    def prefix(self, children: Children) -> ast.Prefix:
        operator, operand = children
        span = _span(children)
        return ast.Prefix(span=span, operator=operator.value, operand=operand, depth=_depth(span, operand))

    def attribute(self, children: Children) -> ast.Attribute:
        value, _, name = children
        span = _span(children)
        return ast.Attribute(span=span, value=value, name=_name(name), depth=_depth(span, value))

    def call(self, children: Children) -> ast.Call:
        function, *arguments = _nodes(children)
        positional: list[ast.Expression] = []
        keywords: list[ast.Keyword] = []
        for argument in arguments:
            if isinstance(argument, ast.Keyword):
                keywords.append(argument)
            elif keywords:
                raise SyntaxIssue(
                    Diagnostic(
                        code="E108",
                        title="argument without a name after one with a name",
                        span=argument.span,
                        label="this one",
                        expected="name=value",
                        help="put the arguments without names first",
                    )
                )
            else:
                positional.append(argument)
        span = _span(children)
        depth = _depth(span, function, *positional, *(keyword.value for keyword in keywords))
        return ast.Call(
            span=span, function=function, arguments=tuple(positional), keywords=tuple(keywords), depth=depth
        )

    def keyword(self, children: Children) -> ast.Keyword:
        return ast.Keyword(span=_span(children), name=_name(children[0]), value=children[2])

    def subscript(self, children: Children) -> ast.Subscript:
        value, _, index, _ = children
        span = _span(children)
        return ast.Subscript(span=span, value=value, index=index, depth=_depth(span, value, index))

    def slice(self, children: Children) -> ast.Slice:
        colon = next(k for k, child in enumerate(children) if isinstance(child, Token))
        # either side of the colon may be missing
        start, stop = next(iter(children[:colon]), None), next(iter(children[colon + 1 :]), None)
        span = _span(children)
        depth = _depth(span, *_nodes(children))
        return ast.Slice(span=span, start=start, stop=stop, depth=depth)

    # atoms

    def name(self, children: Children) -> ast.Name:
        return ast.Name(span=_span(children), id=_name(children[0]))

    def number(self, children: Children) -> ast.Number:
        span = _span(children)
        return ast.Number(span=span, value=parse_number(children[0].value, span))

    def string(self, children: Children) -> ast.String:
        return ast.String(span=_span(children), value="".join(_string(token) for token in children))


def parse_number(text: str, span: Span) -> int | float:
    """Return the value of a literal: `int` without point and exponent, else `float`.

    Raises
    ------
    SyntaxIssue
        If Python would not read it as a decimal number, or it is a whole number beyond `MAX_INTEGER`.
    """
    if INTEGER.fullmatch(text):
        digits = text.replace("_", "")
        # the length first: Python raises ValueError for text of more than 4,300 digits
        if len(digits) <= 20 and int(digits) <= MAX_INTEGER:
            return int(digits)
        raise SyntaxIssue(
            Diagnostic(
                code="E603",
                title="the whole number is too large",
                span=span,
                label="this number",
                expected=f"at most {MAX_INTEGER:,}",
                help="write it with a decimal point if it is a quantity",
            )
        )
    # `DECIMAL` also matches '.' and 'e5', which have no digits, and 012, which is digits with a zero in front
    if DECIMAL.fullmatch(text) and any(c.isdigit() for c in re.split("[eE]", text)[0]) and not text.isdigit():
        return float(text.replace("_", ""))
    raise SyntaxIssue(
        Diagnostic(
            code="E105",
            title=f"{text[:40]!r} is not a number of the language",
            span=span,
            label="this literal",
            expected="a decimal number such as 64, 0.1 or 1e-3",
            help=_number_advice(text),
        )
    )


def _number_advice(text: str) -> str:
    if text[:2].lower() in ("0x", "0b", "0o"):
        return "write it in decimal"
    if text[-1] in "jJ":
        return "there are no complex numbers"
    if text[0] == "0" and text.isdigit():
        return "leave out the zeros in front"
    return "names cannot begin with a digit" if text[0].isdigit() and text[-1].isalpha() else ""


def _string(token: Token) -> str:
    text = token.value
    start = min(i for i in (text.find('"'), text.find("'")) if i >= 0)
    # r and u change nothing: escapes are not read
    if set(text[:start].lower()) & {"f", "b"}:
        raise SyntaxIssue(
            Diagnostic(
                code="E109",
                title=f"strings with the prefix {text[:start]!r} are not part of the language",
                span=span_of(token),
                label="this string",
                expected="a plain string",
                help="remove the prefix",
            )
        )
    quote = 3 if text[start : start + 3] in ('"""', "'''") else 1
    # escapes stay as written: strings are docstrings and the names of merges
    return str(text[start + quote : len(text) - quote])
