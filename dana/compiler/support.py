"""Refuses what the engine's instruction set cannot express, by name and with a hint.

In: a bound graph. Out: nothing, or an `UnsupportedRule` that lists every such construct. It changes nothing.
"""

from __future__ import annotations

from dana.errors import UsageError
from dsl.hdfg.graph import Graph, Node, Op
from dsl.source import Span


class UnsupportedRule(UsageError):
    """A rule that the language allows and this machine cannot run."""


def check_supported(graph: Graph) -> None:
    """Raise UnsupportedRule, naming every construct that the engine has no instructions for."""
    problems = []
    for node in (
        graph.nodes[k] for k in sorted(graph.reachable((*graph.training_roots, *graph.inputs, *graph.models)))
    ):
        if len(node.shape) > 1:
            problems.append(f"{_what(node)} has {len(node.shape)} axes{_where(node.span)}")
        elif node.op is Op.GATHER:
            problems.append(f"{_what(node)} selects a row of a model{_where(node.span)}")
    for update in graph.updates:
        if update.index is not None:
            model = graph.nodes[update.model]
            problems.append(f"setModel updates one row of {model.name}{_where(update.span)}")
    if problems:
        raise UnsupportedRule(
            f"rule {graph.name!r} needs matrices or rows chosen by a column, which this machine does not have: "
            f"{'; '.join(problems[:5])}{f'; and {len(problems) - 5} more' if len(problems) > 5 else ''}",
            hint="Use vectors and scalars, or train with the interpreter (backend 'interp').",
        )


def _what(node: Node) -> str:
    return f"{node.op.value} {node.name}" if node.name else node.op.value


def _where(span: Span | None) -> str:
    return f" (line {span.line})" if span is not None else ""
