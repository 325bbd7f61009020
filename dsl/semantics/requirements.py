"""`dana.require(condition)`: what numbers, metas and labels must be for a rule to make sense.

In: the condition of a call, when the rule is compiled, then metas that a training chooses, and labels that it
finds. Out: an error where it does not hold. Of what else a row, a batch or a table decides nothing is said. Must
not: cost a machine anything: what a condition computes is no part of the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields

from dsl.diagnostics import Diagnostic
from dsl.hdfg.graph import Op
from dsl.semantics import arithmetic
from dsl.semantics.arguments import Argument
from dsl.semantics.coercion import to_value
from dsl.semantics.context import Context
from dsl.semantics.objects import Constant, Object, Poison, Scope
from dsl.semantics.program import Operation, Requirement, reachable
from dsl.semantics.values import OPERATORS
from dsl.source import Span
from dsl.syntax import ast
from dsl.syntax.printer import expression_text

SIGNS = {op: sign for sign, op in OPERATORS.items()}


def require(context: Context, condition: Argument, written: ast.Expression, scope: Scope, span: Span) -> None:
    """Take a condition; report it where the numbers and the metas' defaults break it already."""
    value = None if isinstance(condition.value, Poison) else to_value(context, condition.value, condition.span)
    if value is None:
        return
    # any number: it only says whether a condition can be known before a training
    labels = {str(one.name): 0.0 for one in reachable([value]) if one.op is Op.OUTPUT and not one.shape}
    known = _numbers([value], labels)[value]
    if known is None and not context.calls:
        context.report(
            "E319",
            "dana.require takes a condition of numbers, metas and labels",
            condition.span,
            label="known only while training, or when the rule meets a table",
            expected="a condition that is known before",
            help="in a function it may be any: what a call passes is checked where it is known",
        )
    # in a function another call may pass what is known
    if known is None:
        return
    requirement = Requirement(
        condition=value,
        text=expression_text(written),
        owner=context.calls[-1].name if context.calls else "the rule",
        # a dict drops names that the condition has twice
        terms=tuple(dict(_terms(context, written, scope)).items()),
        span=span,
    )
    context.requirements.append(requirement)
    for broken in unmet([requirement], {}):
        context.report(
            broken.code, broken.title, span, label=broken.label, expected=broken.expected, found=broken.found
        )


def unmet(requirements: Iterable[Requirement], named: Mapping[str, float]) -> Iterator[Diagnostic]:
    """The requirements that do not hold with these metas, the others at their defaults, and these labels."""
    for one in requirements:
        known = _numbers([one.condition, *(value for _, value in one.terms)], named)
        # any other number holds, a NaN too, as in WHERE
        if known[one.condition] == 0:
            found = [
                f"{name} = {known[value]:g}"
                + (f", the meta {value.name}" if value.op is Op.META and value.name != name else "")
                for name, value in one.terms
            ]
            yield Diagnostic(
                code="E318",
                title=f"{one.owner} needs {one.text}",
                span=one.span,
                label="does not hold here",
                expected=one.text,
                found="; ".join(found),
            )


def _terms(context: Context, written: ast.Node, scope: Scope) -> Iterator[tuple[str, Operation]]:
    """The names in a condition that stand for numbers and metas."""
    if isinstance(written, ast.Name):
        thing: Object | None = scope.find(written.id)
        if isinstance(thing, Constant):
            yield written.id, context.program.constant(thing.number, written.span)
        elif isinstance(thing, Operation):
            yield written.id, thing
        return
    for field in fields(written):
        part = getattr(written, field.name)
        for child in part if isinstance(part, tuple) else (part,):
            if isinstance(child, ast.Node):
                yield from _terms(context, child, scope)


def _numbers(roots: Iterable[Operation], named: Mapping[str, float]) -> dict[Operation, float | None]:
    """The numbers of operations; None where one depends on more than numbers, metas and labels that are `named`."""
    known: dict[Operation, float | None] = {}
    waiting = list(roots)
    while waiting:
        operation = waiting[-1]
        settled = operation.op in SIGNS or operation.op is Op.NEG
        missing = [one for one in operation.operands if settled and one not in known]
        # a loop, not recursion: functions that are unrolled make long chains
        if missing:
            waiting += missing
            continue
        waiting.pop()
        numbers = [number for one in operation.operands if (number := known.get(one)) is not None]
        if operation.op in (Op.META, Op.OUTPUT):
            known[operation] = named.get(str(operation.name), operation.value)
        elif operation.op is Op.CONST:
            known[operation] = operation.value
        elif not settled or len(numbers) < len(operation.operands):
            known[operation] = None
        elif operation.op is Op.NEG:
            known[operation] = -numbers[0]
        else:
            result = arithmetic.compute(SIGNS[operation.op], *numbers)
            assert isinstance(result, int | float), "numbers make numbers"
            known[operation] = result
    return known
