"""Arguments of a call put to the parameters of what is called, by Python's rules.

In: a signature and the call's arguments. Out: arguments by parameter name, or None after reporting.
Must not: look at what the arguments are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsl.diagnostics import did_you_mean
from dsl.semantics.context import Context
from dsl.semantics.objects import Object
from dsl.source import Span


@dataclass(frozen=True, slots=True)
class Argument:
    """A value passed, the place it came from, and the parameter it names if any."""

    value: Object
    span: Span
    name: str | None = None
    name_span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Parameters of a function.

    Parameters
    ----------
    name
        How the function is called in messages.
    required, optional
        Parameter names, in order; all of them may be passed by position or by name.
    rest
        Name of a parameter that takes any number of further positional arguments, or None.
    options
        Name of a parameter that takes any number of further arguments by name, or None.
    instead
        Suggestion shown when it is called with other arguments.
    """

    name: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    rest: str | None = None
    options: str | None = None
    instead: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        """All parameters but `rest`."""
        return self.required + self.optional

    def __str__(self) -> str:
        shown = [*self.required, *(f"{name}=…" for name in self.optional)]
        shown += [f"*{self.rest}"] if self.rest else []
        shown += [f"**{self.options}"] if self.options else []
        return f"{self.name}({', '.join(shown)})"


def bind(
    context: Context, signature: Signature, arguments: Sequence[Argument], span: Span
) -> dict[str, Argument] | None:
    """Put arguments to parameters; `span` is the whole call.

    Arguments for `rest` come as `*0`, `*1` …, those for `options` as `**name`.
    """
    bound: dict[str, Argument] = {}
    fine = True
    positional = 0
    for argument in arguments:
        if argument.name is None:
            if positional < len(signature.parameters):
                bound[signature.parameters[positional]] = argument
            elif signature.rest is not None:
                bound[f"*{positional - len(signature.parameters)}"] = argument
            else:
                count = len([a for a in arguments if a.name is None])
                # one report: each further argument would be surplus, too
                fine = _report_surplus(context, signature, argument, count)
                break
            positional += 1
            continue
        place = argument.name_span or argument.span
        parameter = argument.name
        # an option's name is checked by the optimiser that takes it
        if signature.options is not None and parameter not in signature.parameters:
            parameter = f"**{argument.name}"
        elif parameter not in signature.parameters:
            context.report(
                "E306",
                f"{signature.name} has no parameter {argument.name!r}",
                place,
                label="no such parameter",
                expected=str(signature),
                help=did_you_mean(argument.name, signature.parameters) or signature.instead,
            )
            fine = False
            continue
        # by position or by name: the parameter has one already
        if parameter in bound:
            context.report(
                "E307",
                f"{argument.name!r} is passed twice",
                place,
                label="passed again",
                expected=str(signature),
                help="remove one of the two",
            )
            fine = False
        else:
            bound[parameter] = argument
    missing = [name for name in signature.required if name not in bound]
    # after a misnamed argument the parameter that it was meant for would be reported as missing
    if fine and missing:
        context.report(
            "E305",
            f"{signature.name} needs {' and '.join(repr(name) for name in missing)}",
            span,
            label="incomplete call",
            expected=str(signature),
            found=_count(len(arguments)),
            help=signature.instead,
        )
        fine = False
    return bound if fine else None


def _report_surplus(context: Context, signature: Signature, argument: Argument, count: int) -> bool:
    context.report(
        "E308",
        f"{signature.name} takes {_count(len(signature.parameters), 'at most ')}",
        argument.span,
        label="one too many",
        expected=str(signature),
        found=_count(count),
        help=signature.instead,
    )
    return False


def _count(count: int, before: str = "") -> str:
    return "no arguments" if count == 0 else f"{before}{count} argument{'' if count == 1 else 's'}"
