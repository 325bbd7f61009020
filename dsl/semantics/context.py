"""Shared state of one elaboration: the program, the findings, the declarations, the budget.

In: reports and declarations of the other modules here. Out: `Context`. Must not: walk the AST.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields

from dsl.diagnostics import Diagnostic, Diagnostics, Note, Severity
from dsl.hdfg.dims import Dim, DimExpr, Shape
from dsl.limits import MAX_STEPS
from dsl.semantics.objects import POISON, Algorithm, Poison
from dsl.semantics.program import CheckedUpdate, Operation, Program, Requirement
from dsl.source import Span


class GiveUp(Exception):
    """A limit is reached; what was found so far is reported."""


class Unroll(Exception):
    """A loop counts these dims: the rule is to be elaborated again, with their extents in their place."""

    def __init__(self, extents: Mapping[str, int]) -> None:
        super().__init__(f"a loop counts {', '.join(extents)}")
        self.extents = extents


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a rule function; `module` and `name` say which, `module` None for the rule's own."""

    span: Span
    module: str | None
    name: str


@dataclass(slots=True, kw_only=True)
class Context:
    """State of one elaboration.

    Parameters
    ----------
    diagnostics
        Where findings go.
    program
        Operations recorded so far.
    declared
        Names of dims, models, inputs, outputs, metas and the algo, and where they were declared.
    dims, metas
        In order of declaration.
    extents
        Of the dims that have one unless the table or the caller says otherwise.
    chosen
        Extents that the table or the caller says, for dims that loops count.
    counted
        Those dims, as far as they are known, and what they are here.
    symbolic
        Symbolic shapes of declarations, by name, and their number of classes.
    algorithm
        The rule's algo once declared.
    states
        Models that functions keep for themselves, in order; they belong to the algo without being listed.
    state_updates
        What they become.
    states_of_rows
        Of those the ones that the optimizer's call under way declares, because another number chose its table's rows
        before.
    given
        The states among them that the language keeps (`dsl.semantics.counting`), by name.
    random_calls
        Calls of `dana.random` so far.
    requirements
        Conditions of `dana.require` that metas may still break.
    optimizers
        Functions of `dana.optimizers` called so far.
    calls
        Calls of rule functions under way, outermost first.
    """

    diagnostics: Diagnostics
    program: Program = field(default_factory=Program)
    declared: dict[str, Span] = field(default_factory=dict)
    dims: list[str] = field(default_factory=list)
    extents: dict[str, int] = field(default_factory=dict)
    chosen: Mapping[str, int] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    symbolic: dict[str, tuple[Shape, Dim | None]] = field(default_factory=dict)
    metas: list[Operation] = field(default_factory=list)
    algorithm: Algorithm | None = None
    states: list[Operation] = field(default_factory=list)
    state_updates: list[CheckedUpdate] = field(default_factory=list)
    states_of_rows: list[Operation] = field(default_factory=list)
    given: dict[str, Operation] = field(default_factory=dict)
    random_calls: int = 0
    requirements: list[Requirement] = field(default_factory=list)
    optimizers: dict[str, None] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    steps: int = 0

    @property
    def module_call(self) -> Call | None:
        """The outermost call of a module's function that is under way: what happens in it is no text of the rule."""
        return next((call for call in self.calls if call.module is not None), None)

    def state_name(self, owner: str, name: str) -> str:
        """Return a name that no rule can write: `w.velocity`, then `w.velocity.2` …"""
        full = f"{owner}.{name}"
        # the final dot keeps `w.velocity2` from counting as `w.velocity`
        count = sum(1 for state in self.states if f"{state.name}.".startswith(f"{full}."))
        return f"{full}.{count + 1}" if count else full

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Discard everything that is recorded in the block: only its diagnostics and result are wanted."""
        # copies of containers suffice, since nothing changes an operation once it is recorded
        program = {
            name: tuple(map(copy, value)) if isinstance(value, tuple) else copy(value)
            for name, value in vars(self.program).items()
        }
        # every field that elaborating an expression changes, or later values take ids of what was discarded
        names = ("states", "state_updates", "given", "random_calls", "optimizers")
        mine = {name: copy(getattr(self, name)) for name in names}
        algorithm, before = self.algorithm, None if self.algorithm is None else self.algorithm.copy()
        try:
            yield
        finally:
            vars(self.program).update(program)
            for name, value in mine.items():
                setattr(self, name, value)
            # in place, since names of the rule stand for this object
            for field_ in () if algorithm is None else fields(algorithm):
                setattr(algorithm, field_.name, getattr(before, field_.name))

    def report(
        self,
        code: str,
        title: str,
        span: Span | None,
        *,
        label: str = "",
        expected: str = "",
        found: str = "",
        notes: tuple[Note, ...] = (),
        help: str = "",
    ) -> Poison:
        """Record an error and return what stands for the value that is missing because of it."""
        # the innermost two calls: a chain may be 16 deep
        called = [Note(message="in this call", span=call.span) for call in self.calls[-2:] if call.span != span]
        if self.module_call is not None:
            called.append(Note(message=f"found inside {self.module_call.name} of {self.module_call.module}"))
        if self.counted:
            extents = ", ".join(f"{name} = {extent}" for name, extent in self.counted.items())
            called.append(Note(message=f"loops are unrolled for {extents}"))
        self.diagnostics.add(
            Diagnostic(
                code=code,
                title=title,
                span=span,
                label=label,
                expected=expected,
                found=found,
                notes=(*notes, *called),
                help=help,
            )
        )
        # here and not between statements, since one statement may hold thousands of errors
        if self.diagnostics.full:
            raise GiveUp
        return POISON

    def warn(
        self, code: str, title: str, span: Span | None, *, label: str = "", notes: tuple[Note, ...] = (), help: str = ""
    ) -> None:
        """Record a warning."""
        self.diagnostics.add(
            Diagnostic(
                code=code, title=title, span=span, label=label, notes=notes, help=help, severity=Severity.WARNING
            )
        )

    def unroll(self, length: DimExpr) -> None:
        """Have the rule elaborated again with numbers for the dims of a loop's length, if each has one."""
        if all(name in self.extents for name in length.names):
            raise Unroll({name: self.chosen.get(name, self.extents[name]) for name in length.names})

    def step(self, span: Span, count: int = 1) -> None:
        """Count a statement, an expression or the items of a range against the budget."""
        self.steps += count
        if self.steps > MAX_STEPS:
            self.report(
                "E604",
                "the rule is too long once its loops and calls are unrolled",
                span,
                label="the limit is reached here",
                expected=f"at most {MAX_STEPS:,} steps",
                help="work on whole vectors and matrices instead of looping over elements",
            )
            raise GiveUp
