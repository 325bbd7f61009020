"""The passes of the compiler: one list, in the order in which they run.

In: what a caller knows: a bound graph; for `TARGET` a `Target`; for `PROGRAM` a machine. Out: what each pass made, by
name.

A pass is a function from earlier results to a new one. Its parameters have the names of what it reads: what a pass
before it makes, or what is given. It changes nothing that it reads. Which target a rule gets is a search over `TARGET`
and no pass: `dana.compiler.fit` makes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from dana.compiler.check.hardware import require_hardware
from dana.compiler.check.verify import check
from dana.compiler.place.forms import Forms, choose_forms
from dana.compiler.place.order import order_updates
from dana.compiler.place.records import place_records
from dana.compiler.place.repeat import find_repeats
from dana.compiler.place.rows import InputPlaces, place_inputs_for
from dana.compiler.place.sections import Plan, join_rounds, plan_sections
from dana.compiler.place.shards import Shards, choose_shards
from dana.compiler.place.triangles import fold_symmetric
from dana.compiler.place.watch import Watched
from dana.compiler.schedule.allocate import MemoryMap, allocate
from dana.compiler.schedule.encode import ShortRound, choices, encode, image, symbols, tables
from dana.compiler.schedule.list_scheduling import Schedule, schedule_sections, schedules_text
from dana.compiler.select.nodes import select
from dana.compiler.select.selection import Selection
from dana.compiler.simplify.constants import fold_constants
from dana.compiler.simplify.elements import expand_elements
from dana.compiler.simplify.lists import join_rows
from dana.compiler.simplify.prune import prune
from dana.compiler.simplify.reciprocal import divide_by_powers_of_two
from dana.compiler.simplify.share import share_subexpressions
from dana.compiler.strider.pages import StriderProgram
from dana.compiler.strider.program import compile_strider
from dana.compiler.target import Target
from dana.errors import InternalError
from dsl.hdfg.graph import Graph
from dsl.hdfg.text import graph_text
from hwgen.spec.engine import SHORT, Section
from hwgen.spec.strider_text import disassemble as strider_text


@dataclass(frozen=True, slots=True)
class Pass:
    """One of them.

    Attributes
    ----------
    name
        Of what it makes; `dana compile --emit` shows it by this name.
    run
        The function.
    does
        What comes out; why it stands where it does.
    makes
        Name by which later passes read it, where it takes the place of something; else the pass's.
    shown
        Whether there is a text of it.
    """

    name: str
    run: Callable[..., object]
    does: str
    makes: str = ""
    shown: bool = True

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of what it reads."""
        return tuple(inspect.signature(self.run).parameters)


RULE = (
    Pass("constants", fold_constants, "literals computed; first, because a divisor may become a power of two", "graph"),
    Pass("reciprocals", divide_by_powers_of_two, "factors for divisors; before `shared`, which finds more", "graph"),
    Pass("shared", share_subexpressions, "equal values once; after the passes that make values equal", "graph"),
    Pass("pruned", prune, "what training needs; last, because passes before it leave unused nodes", "graph"),
    Pass(
        "plan",
        plan_sections,
        "sections of nodes, `x[3]` as a sum by a mask (`simplify/elements.py`), `w[c]` as one value "
        "(`simplify/lists.py`); the last without a machine",
    ),
)
"""Passes that need no machine. Given: graph."""

TARGET = (
    Pass("inputs", place_inputs_for, "the rows of a tuple that hold each input; the Strider fills them by these, too"),
    Pass("rounds", join_rounds, "the plan with a batch's work in its tuples' section, if a batch is one round", "plan"),
    Pass("triangles", fold_symmetric, "symmetric matrices of tuples by half; before `forms`, as rows follow", "plan"),
    Pass("forms", choose_forms, "packed or broadcast for each value; first choice, for rows follow from it"),
    Pass("records", place_records, "a tuple's records behind its inputs, where models lie there; by forms", "inputs"),
    Pass("shards", choose_shards, "what threads share of a batch's work, by the rows that it saves"),
    Pass("repeats", find_repeats, "short vectors that repeat over the lanes, which take fewer steps to broadcast"),
    Pass("order", order_updates, "a batch's work, models overwritten where both lie alike: by forms and shards"),
    Pass("operations", select, "operations on rows of buffers, from all that was decided before", "selection"),
    Pass("schedules", schedule_sections, "each section's operations in order, with the cycles that each waits"),
    Pass("memory", allocate, "rows of the scratchpad; behind the schedules, which say when a value dies"),
)
"""Passes that need a target. Given: plan, target, over_lanes (whether scalars of tuples may lie over lanes), sharded
(whether threads may share work), reorder (whether operations may leave the rule's order), above (the row from which
models of bfloat16 may lie)."""

PLACED = TARGET[: [one.name for one in TARGET].index("shards") + 1]
"""Those that need no operations, and show what they will take."""

PROGRAM = (
    Pass("program", encode, "the instructions"),
    Pass("image", image, "the rows that the host loads", shown=False),
    Pass("symbols", symbols, "where models, metas and results lie", shown=False),
    Pass("tables", tables, "what lies in the record memory", shown=False),
    Pass("choices", choices, "what each tag of the fault INDEX means", shown=False),
    Pass("hardware", require_hardware, "an error if the machine lacks what the program uses", shown=False),
    Pass("check", check, "an error if the program is not legal by docs/machine.md; last, always", shown=False),
)
"""Passes that need the machine. Given: results of `TARGET`, short (the sections for short rounds), config."""

ACCESS = (Pass("strider", compile_strider, "the program that walks pages, and the descriptors of columns"),)
"""Passes that need the table. Given: schema, uses, inputs, watched (columns, if batches are cut), config."""

PASSES = (*RULE, *TARGET, *PROGRAM, *ACCESS)

Results = Mapping[str, object]
"""What is given and what passes made, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Results of some passes: each field but `results` is the one of its name, of the type that the pass declares."""

    results: Results = field(repr=False)

    @classmethod
    def of(cls, results: Results) -> Self:
        """The fields from results."""
        found: dict[str, Any] = {one.name: results[one.name] for one in fields(cls) if one.name in results}
        return cls(**found, results=results)


def run(passes: Iterable[Pass], given: Results) -> dict[str, object]:
    """Return the given results and those of the passes, by name; a pass does not run if its result is given."""
    results = dict(given)
    for one in passes:
        if one.name in given:
            continue
        # under both names: by its own it is shown, by the other one it replaces what later passes read
        results[one.name] = made = one.run(**{name: results[name] for name in one.reads})
        results[one.makes or one.name] = made
    return results


def text_of(made: object) -> str:
    """Result of a pass in readable form."""
    match made:
        case Graph():
            return graph_text(made, spans=False)
        case StriderProgram():
            return strider_text(made.instructions)
        case frozenset():
            return f"repeats: {' '.join(f'%{k}' for k in sorted(made)) or '-'}\n"
        case dict():
            return schedules_text(made)
    return str(made.text())  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed(Stage):
    """A rule for a target, before operations are selected: what the passes of `PLACED` made."""

    plan: Plan
    target: Target
    inputs: InputPlaces
    forms: Forms
    shards: Shards


def plan_of(graph: Graph) -> Plan:
    """The plan of a bound graph."""
    plan = run(RULE, {"graph": graph})["plan"]
    assert isinstance(plan, Plan)
    return plan


def simplify(graph: Graph) -> Graph:
    """The simplified graph for `dana.jit`: single elements of vectors as they are, rows of a list as one value."""
    simplified = run(RULE[:-1], {"graph": graph})["graph"]
    assert isinstance(simplified, Graph)
    # elements of matrices as sums: `dana.jit` reads an element of a vector only
    return expand_elements(join_rows(simplified), where=lambda node: bool(node.shape))[0]


def place(plan: Plan, target: Target, *, over_lanes: bool = True) -> Placed:
    """Run the passes of `PLACED`, with shards wherever they save rows."""
    given = {"plan": plan, "target": target, "over_lanes": over_lanes, "sharded": True}
    return Placed.of(run(PLACED, given))


def _short_rounds(whole: Draft) -> tuple[ShortRound, ...]:
    """Sections for rounds of fewer tuples than a batch may have that ends where a row is chosen again: of one thread,
    for where another has one the first has all that it may."""
    target, found = whole.target, []
    for section, tuples in SHORT.items():
        # shortest first: a round of as many tuples as a batch has is the section TUPLE
        if tuples >= target.together or tuples > target.group:
            break
        # what was decided about values holds for all of them, so that models and sums lie where they do
        decided = {
            k: v for k, v in whole.results.items() if k not in ("operations", "selection", "schedules", "memory")
        }
        shorter = {"target": replace(target, threads=1, group=tuples), "above": whole.memory.wide}
        made = Draft.of(run(TARGET, {**decided, **shorter}))
        # the sections of short rounds work on the same models and sums, in the same rows
        if made.memory.lasting != whole.memory.lasting:
            raise InternalError(f"models and sums lie elsewhere in rounds of {tuples} tuples")
        found.append(ShortRound(section, made.schedules[Section.TUPLE], made.memory))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Stage):
    """A rule compiled for a target, on memories without end.

    Attributes
    ----------
    short
        The same for rounds of fewer tuples, where batches end at rows that are chosen again: section, its schedule, its
        memory. All else is alike.
    """

    target: Target
    plan: Plan
    inputs: InputPlaces
    shards: Shards
    selection: Selection
    schedules: Mapping[Section, Schedule]
    memory: MemoryMap
    short: tuple[ShortRound, ...] = ()

    @classmethod
    def compile(cls, placed: Placed, *, sharded: bool, reorder: bool) -> Draft:
        """Run the other passes on what `place` made; without its shards unless `sharded`."""
        # without a result of that name `choose_shards` runs again, with `sharded` False
        decided = {name: made for name, made in placed.results.items() if sharded or name != "shards"}
        draft = cls.of(run(TARGET, {**decided, "sharded": sharded, "reorder": reorder, "above": 0}))
        return replace(draft, short=_short_rounds(draft))

    @property
    def instructions(self) -> int:
        """Length of the program."""
        schedules = [*self.schedules.values(), *(one.schedule for one in self.short)]
        # and one END for each section
        return sum(len(scheduled.issue) + 1 for scheduled in schedules)

    @property
    def watched(self) -> tuple[Watched, ...]:
        """Columns that choose rows, if batches end where one is chosen again."""
        return self.plan.watched if self.target.together > 1 else ()

    @property
    def often(self) -> tuple[Schedule, ...]:
        """The sections that run for rounds and batches."""
        seldom = (Section.INIT, Section.EPOCH)
        return tuple(scheduled for section, scheduled in self.schedules.items() if section not in seldom)

    @property
    def length(self) -> int:
        """Cycles of these sections, each once."""
        return sum(scheduled.length for scheduled in self.often)
