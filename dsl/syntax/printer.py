"""Syntax trees as text: as an indented tree for reading, as rule text for tools.

In: AST nodes. Out: `tree_text`, and `rule_text` that parses to an equal tree (places apart).
Must not: keep comments or layout; the tree does not have them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields

from dsl.syntax import ast

INDENT = "    "
ATOMS = (ast.Name, ast.Number, ast.String, ast.Attribute, ast.Call, ast.Subscript)


def tree_text(module: ast.Module) -> str:
    """Write a tree, one node a line, children indented, each with its place."""
    lines = ["Module"]
    for statement in module.body:
        lines += _tree(statement, 1, "")
    return "\n".join(lines) + "\n"


def _tree(node: ast.Node, depth: int, role: str) -> Iterator[str]:
    words: list[str] = []
    children: list[tuple[str, ast.Node]] = []
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, ast.Node):
            children.append((f"{field.name}: ", value))
        elif isinstance(value, tuple):
            children += [(f"{field.name}: ", item) for item in value if isinstance(item, ast.Node)]
            words += [f"{item!r}" for item in value if not isinstance(item, ast.Node)]
        elif field.name not in ("span", "depth", "name_span") and value is not None:
            words.append(value if field.name in ("id", "name") else f"{value!r}")
    yield f"{'  ' * depth}{role}{' '.join([type(node).__name__, *words])} @ {node.span}"
    for child_role, child in children:
        yield from _tree(child, depth + 1, child_role)


def rule_text(module: ast.Module) -> str:
    """Write a tree as rule text; raises `ValueError` for a tree with `Broken` lines."""
    return "".join(f"{line}\n" for statement in module.body for line in _statement(statement))


def _statement(statement: ast.Statement) -> Iterator[str]:
    match statement:
        case ast.Import(aliases=aliases):
            yield f"import {_aliases(aliases)}"
        case ast.FromImport(module=module, aliases=aliases):
            yield f"from {module} import {'*' if aliases is None else _aliases(aliases)}"
        case ast.Assign(targets=targets, value=value):
            yield " = ".join([*(expression_text(target) for target in targets), expression_text(value)])
        case ast.Annotated(target=target, annotation=annotation, value=value):
            tail = "" if value is None else f" = {expression_text(value)}"
            yield f"{target.id}: {expression_text(annotation)}{tail}"
        case ast.Augmented(target=target, operator=operator, value=value):
            yield f"{target.id} {operator}= {expression_text(value)}"
        case ast.Evaluate(value=value):
            yield expression_text(value)
        case ast.Return(value=value):
            yield "return" if value is None else f"return {expression_text(value)}"
        case ast.Pass():
            yield "pass"
        case ast.Function():
            yield from _function(statement)
        case ast.For(names=names, iterable=iterable, body=body):
            yield f"for {', '.join(name.id for name in names)} in {expression_text(iterable)}:"
            yield from _block(body)
        case _:
            raise ValueError(f"a statement with an error has no text: {statement.span}")


def _function(function: ast.Function) -> Iterator[str]:
    for decorator in function.decorators:
        yield f"@{expression_text(decorator)}"
    parameters = []
    for parameter in function.parameters:
        text = parameter.name
        if parameter.annotation is not None:
            text += f": {expression_text(parameter.annotation)}"
        if parameter.default is not None:
            text += f" = {expression_text(parameter.default)}"
        parameters.append(text)
    returns = "" if function.returns is None else f" -> {expression_text(function.returns)}"
    yield f"def {function.name}({', '.join(parameters)}){returns}:"
    yield from _block(function.body)


def _block(body: Iterable[ast.Statement]) -> Iterator[str]:
    for statement in body:
        for line in _statement(statement):
            yield INDENT + line


def _aliases(aliases: Iterable[ast.Alias]) -> str:
    return ", ".join(a.name if a.name == a.bound else f"{a.name} as {a.bound}" for a in aliases)


def expression_text(expression: ast.Expression) -> str:
    """Write an expression."""
    match expression:
        case ast.Name(id=name):
            return name
        case ast.Number(value=value):
            return "1e999" if value == math.inf else repr(value)  # repr gives a name, inf
        case ast.String(value=text):
            return _quoted(text)
        case ast.Attribute(value=value, name=name):
            return f"{_atom(value)}.{name}"
        case ast.Call(function=function, arguments=arguments, keywords=keywords):
            passed = [expression_text(argument) for argument in arguments]
            passed += [f"{keyword.name}={expression_text(keyword.value)}" for keyword in keywords]
            return f"{_atom(function)}({', '.join(passed)})"
        case ast.Subscript(value=value, index=index):
            return f"{_atom(value)}[{_index(index)}]"
        case ast.Prefix(operator=operator, operand=operand):
            # -a + b is (-a) + b, so that a sum behind a sign needs brackets
            tight = isinstance(operand, (*ATOMS, ast.Prefix))
            return operator + (expression_text(operand) if tight else _grouped(operand))
        case ast.Chain(first=first, links=links):
            additive = links[0].operator in "+-"
            parts = [_link(first, additive)]
            parts += [f"{link.operator} {_link(link.operand, additive)}" for link in links]
            return " ".join(parts)
        case ast.Comparison(left=left, operator=operator, right=right):
            return f"{_side(left)} {operator} {_side(right)}"
        case ast.Sequence(bracket=bracket, items=items):
            inside = ", ".join(expression_text(item) for item in items)
            if bracket == "[":
                return f"[{inside}]"
            return f"({inside},)" if len(items) == 1 else f"({inside})"
    raise ValueError(f"no expression: {expression!r}")


def _index(index: ast.Expression) -> str:
    match index:
        case ast.Slice(start=start, stop=stop):
            return ":".join("" if end is None else expression_text(end) for end in (start, stop))
        case ast.Sequence(bracket="(", items=items) if items:
            # `x[1,]` is a tuple of one, `x[1]` no tuple
            return ", ".join(map(_index, items)) + "," * (len(items) == 1)
    return expression_text(index)


def _link(operand: ast.Expression, additive: bool) -> str:
    """Write an operand of a chain; only a product inside a sum needs no brackets."""
    product = additive and isinstance(operand, ast.Chain) and operand.links[0].operator not in "+-"
    if product or isinstance(operand, (*ATOMS, ast.Prefix, ast.Sequence)):
        return expression_text(operand)
    return _grouped(operand)


def _side(operand: ast.Expression) -> str:
    # comparisons bind last and do not chain: only one inside another needs brackets
    return _grouped(operand) if isinstance(operand, ast.Comparison) else expression_text(operand)


def _atom(expression: ast.Expression) -> str:
    # the lexer reads the point of 1.T as that of a number
    if isinstance(expression, ast.Number) or not isinstance(expression, (*ATOMS, ast.Sequence)):
        return _grouped(expression)
    return expression_text(expression)


def _grouped(expression: ast.Expression) -> str:
    return expression_text(expression) if isinstance(expression, ast.Sequence) else f"({expression_text(expression)})"


def _quoted(text: str) -> str:
    """Quote a string as the lexer reads it: escapes are kept as written."""
    for quote in ('"', "'", '"""', "'''"):
        if quote[0] not in text and (len(quote) == 3 or "\n" not in text):
            return f"{quote}{text}{quote}"
    for quote in ('"""', "'''"):
        if quote not in text and not text.endswith(quote[0]):
            return f"{quote}{text}{quote}"
    raise ValueError(f"the string holds every kind of quote: {text!r}")
