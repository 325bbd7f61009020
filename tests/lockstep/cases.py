"""One random training: a rule, a table's pages, a machine; and what each executor makes of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from dana.compiler import compile_bundle
from dana.compiler.binding.columns import Binding, bind
from dana.compiler.target import DoesNotFit
from dana.storage.builder import build_pages
from dana.storage.parts import most_values
from dana.storage.schema import Attribute, TableSchema
from dana.trainer.interpreter import FaultyPage, read_columns
from dsl import compile_rule
from dsl.hdfg.evaluate import DataError
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import UNKNOWN_PAGE, EpochCounters
from hwgen.spec.engine import Opcode
from hwgen.spec.strider import Fault
from tests.lockstep.pages import damaged, rough_pages
from tests.lockstep.rules import (
    axes_rule,
    chosen_rule,
    counting_rows_rule,
    counting_rule,
    elements_rule,
    network_rule,
    phases_rule,
    random_rule,
    row_states_rule,
    rows_rule,
    scalars_rule,
    side_by_side_rule,
)
from tests.oracles.tables import table_rule
from tests.storage.parts import misplaced, part_attribute, part_pages
from tests.storage.schemas import attribute, random_value

FEATURES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 54, 100)
STRANGERS = ("text", "text", "uuid", "macaddr", "bigint", "double precision[]")
"""Kinds of columns that a table has and a rule does not want."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything that a training needs."""

    source: str
    schema: TableSchema
    binding: Binding
    pages: bytes
    bundle: Bundle
    epochs: int


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a training gave: bit patterns of the models, loss sums and convergence by epoch, counters by epoch.

    Or the `fault` that stopped it: reason, page, line pointer or tag, None if unknown; nothing else counts then.
    """

    models: dict[str, np.ndarray]
    losses: list[float]
    converged: bool
    counters: list[EpochCounters]
    fault: tuple[Fault, int, int | None] | None = None


def random_case(rng: random.Random, config: MachineConfig, *, rough: bool = False) -> Case:
    """A case for a machine of the given configuration, depths included.

    Parameters
    ----------
    rough
        Tables as they become with use: columns that the rule does not want, among the others; dead, unused and
        redirected line pointers; rows from before a column was added; and now and then a damaged page.
    """
    if config.index_depth and rng.random() < 0.3:
        return rows_case(rng, config, rough=rough)
    if rng.random() < 0.15:
        return parts_case(rng, config, rough=rough)
    n = rng.choice(FEATURES)
    source = random_rule(rng, n)
    kind = rng.choice(["real", "real", "real", "double precision", "smallint", "mixed", "array"])
    kinds = ["real", "integer", "boolean", "bigint", "double precision", "smallint"]
    if kind == "array":
        of = attribute("x", f"{rng.choice(kinds)}[]", array_length=n)
        columns = [attribute("id", "integer"), of, attribute("y", "real")]
    else:
        columns = [attribute(f"x{k}", rng.choice(kinds) if kind == "mixed" else kind) for k in range(n)]
        columns.append(attribute("y", "real"))
    features: list[str] | None = [a.name for a in columns if a.name.startswith("x")]
    if not rough and kind != "array" and rng.random() < 0.3:
        features = None  # the binding finds them itself
    if rough:
        for k in range(rng.choice([0, 1, 2, 9])):
            more = {"array_length": 3} if (stranger := rng.choice(STRANGERS)).endswith("[]") else {}
            columns.insert(rng.randint(0, len(columns)), attribute(f"s{k}", stranger, **more))
    schema = TableSchema(relation="t", attributes=tuple(columns))
    return case_of(rng, config, source, schema, features, rough=rough)


def rows_case(rng: random.Random, config: MachineConfig, *, rough: bool = False) -> Case:
    """A case whose tuples choose rows of models, for a machine with an index file."""
    n, rows = rng.choice([1, 5, 8, 17]), (rng.choice([1, 3, 20]), rng.choice([1, 7, 50]))
    fitting = config.tuple_depth // 2 // (3 + -(-n // config.lanes))
    batches = [b for b in (1, 1, 2, 3, 4, 7, 16) if 1 << (b - 1).bit_length() <= min(fitting, config.index_depth)]
    columns = [attribute("i", rng.choice(["integer", "real", "bigint"]))]
    columns += [attribute("j", rng.choice(["smallint", "double precision"]))]
    columns += [attribute("x", "real[]", array_length=n), attribute("y", "real")]
    schema = TableSchema(relation="t", attributes=tuple(columns))
    source = rows_rule(rng, n, rows=rows, batches=batches)
    return case_of(rng, config, source, schema, numbers={"i": rows[0], "j": rows[1]}, rough=rough)


def side_by_side_case(rng: random.Random, config: MachineConfig, *, rough: bool = False, judges: bool = False) -> Case:
    """A case whose tuples run side by side where they share no row; now and then a number that names none.

    With `judges` nothing is updated, where the rule has a loss.
    """
    n, rows = rng.choice([1, 8]), (rng.choice([1, 5, 40, 400]), rng.choice([1, 7, 50, 400]))
    columns = [attribute("i", rng.choice(["integer", "real", "bigint"]))]
    columns += [attribute("x", "real[]", array_length=n)] if rng.random() < 0.3 else []
    columns += [attribute("j", rng.choice(["smallint", "double precision"]))]
    columns += [attribute("x", "real[]", array_length=n)] if len(columns) == 2 else []
    columns += [attribute("y", "real")]
    schema = TableSchema(relation="t", attributes=tuple(columns))
    few = rng.random() < 0.1
    numbers = {"i": rows[0] + few, "j": rows[1] + few}
    source = side_by_side_rule(rng, n, rows=rows)
    return case_of(rng, config, source, schema, ["i", "j", "x"], numbers=numbers, rough=rough, judges=judges)


def parts_case(rng: random.Random, config: MachineConfig, *, rough: bool = False) -> Case:
    """A case whose rows lie over several pages, more than one holds or not; `rough`: some of them out of place.

    Of rules that the scratchpad does not hold, with the stack of a batch without end, the rows are halved.
    """
    n = rng.choice([*FEATURES, 700, 2500 if config.lanes >= 64 or config.tuple_depth >= 2048 else 300])
    n = min(n, (config.tuple_depth // 2 - 2) * config.lanes)
    while True:
        try:
            return _parts_case(rng, config, n, rough=rough)
        except DoesNotFit:
            n //= 2


def _parts_case(rng: random.Random, config: MachineConfig, n: int, *, rough: bool) -> Case:
    columns = (part_attribute("x", n), part_attribute("y", 0))
    part = min(most_values(config.page_size), rng.choice([1 + n // 2, 1 + n // 5, n + 1]))
    schema = TableSchema(relation="t", attributes=columns, part=part)
    rows = [_row(rng, schema, {}) for _ in range(rng.choice([1, 2, 5, 9]))]
    pages = part_pages(rng, schema, rows, page_size=config.page_size)
    pages = misplaced(rng, schema, pages) if rough else pages
    return finished(config, random_rule(rng, n), schema, b"".join(pages), features=["x"])


def network_case(
    rng: random.Random, config: MachineConfig, rule: Callable[[random.Random], str] = network_rule
) -> Case:
    """A case whose threads share the work of a batch, where the machine has threads that can cross; or of `rule`."""
    source = rule(rng)
    n = int(source.split("dana.input([")[1].split("]")[0])
    columns = (attribute("x", "real[]", array_length=n), attribute("y", "real"))
    return case_of(rng, config, source, TableSchema(relation="t", attributes=columns))


def phases_case(rng: random.Random, config: MachineConfig) -> Case:
    """A case whose batches go through their tuples several times, each batch one round of the machine."""
    group = config.tuple_depth // 2 // (-(-31 // config.lanes) + 2)
    held = {b: 1 << (-(-b // config.threads) - 1).bit_length() for b in (1, 2, 3, 4, 7, 16, 50, 64, 100)}
    batches = [b for b, share in held.items() if share <= group]
    source = phases_rule(rng, batches=batches, chosen=min(config.index_depth, group))
    n = int(source.split("dana.input([")[1].split("]")[0])
    columns = [attribute("x", "real[]", array_length=n), attribute("y", "real")]
    columns += [attribute("i", "smallint")] if "U[i]" in source else []
    return case_of(rng, config, source, TableSchema(relation="t", attributes=tuple(columns)), numbers={"i": 4})


def row_states_case(rng: random.Random, config: MachineConfig) -> Case:
    """A case of states for each row of a model, for a machine with an index file."""
    rows = rng.choice([1, 3, 20])
    batches = [b for b in (1, 2, 3, 4) if 1 << (b - 1).bit_length() <= config.index_depth]
    columns = (attribute("i", "integer"), attribute("j", "smallint"), attribute("y", "real"))
    source = row_states_rule(rng, rows=rows, batches=batches)
    numbers = {"i": rows, "j": rows}
    return case_of(rng, config, source, TableSchema(relation="t", attributes=columns), numbers=numbers)


def chosen_case(rng: random.Random, config: MachineConfig) -> Case:
    """A case of rows chosen by elements of a vector and by what a tuple computes, for a machine with an index file."""
    rows, f = rng.choice([2, 5, 30]), rng.choice([1, 2, 3, 5])
    batches = [b for b in (1, 1, 2, 3) if 1 << (b - 1).bit_length() <= config.index_depth]
    columns = [attribute("c", rng.choice(["real[]", "double precision[]", "smallint[]", "bigint[]"]), array_length=f)]
    if rng.random() < 0.4:
        columns = [attribute(f"c{k}", rng.choice(["integer", "real", "smallint"])) for k in range(f)]
    numbers = {column.name: rows for column in columns}
    columns += [attribute("z", "real[]", array_length=3), attribute("y", "real")]
    source = chosen_rule(rng, rows=rows, f=f, batches=batches)
    schema = TableSchema(relation="t", attributes=tuple(columns))
    return case_of(rng, config, source, schema, [a.name for a in columns[:-1]], numbers=numbers)


def tables_case(rng: random.Random, config: MachineConfig) -> Case:
    """A case of tables, for a machine with an index file: of one thread the tuples of a batch see each other's rows."""
    fitting = min(config.index_depth, config.tuple_depth // 2 // 8)
    batches = [b for b in (1, 2, 3, 4, 7) if 1 << (b - 1).bit_length() <= fitting]
    widths = (1, 3, 9, 20, 33)
    serial = (2, 3, 7, 16, 40) if config.threads == 1 else ()
    rule = table_rule(rng, batches=batches, widths=widths, serial=serial, weighted=False)
    columns = [attribute("i", rng.choice(["integer", "real"])), attribute("j", "smallint")]
    columns += [attribute("c", "real[]", array_length=rule.f), attribute("v", "real[]", array_length=rule.f)]
    schema = TableSchema(relation="t", attributes=(*columns, attribute("y", "real")))
    return case_of(rng, config, rule.source, schema, numbers=rule.numbers)


def elements_case(rng: random.Random, config: MachineConfig) -> Case:
    """A case of elements, slices and products of matrices."""
    n = rng.choice([2, 3, 8, 17])
    columns = (attribute("x", "real[]", array_length=n), attribute("y", "real"))
    return case_of(rng, config, elements_rule(rng, n), TableSchema(relation="t", attributes=columns))


def scalars_case(rng: random.Random, config: MachineConfig) -> Case:
    """A case of scalars of tuples, of as many tuples in a thread as share a row, or fewer."""
    n = rng.choice([2, 8, 17])
    columns = (attribute("x", "real[]", array_length=n), attribute("y", "real"))
    return case_of(rng, config, scalars_rule(rng, n), TableSchema(relation="t", attributes=columns))


def shares_rows(case: Case) -> bool:
    """Whether scalars of the case's tuples lie over lanes: a function of a scalar takes a row lane by lane."""
    return any(instruction.op is Opcode.SIGMOID and not instruction.scalar for instruction in case.bundle.program)


def axes_case(rng: random.Random, config: MachineConfig) -> Case:
    """A case of functions along an axis."""
    n = rng.choice([1, 3, 8, 17])
    columns = (attribute("x", "real[]", array_length=n), attribute("y", "real"))
    return case_of(rng, config, axes_rule(rng, n), TableSchema(relation="t", attributes=columns))


def counting_case(rng: random.Random, config: MachineConfig) -> Case:
    """A case of random numbers and of what counts epochs and batches."""
    if config.index_depth and rng.random() < 0.4:
        rows = rng.choice([1, 3, 20])
        batches = [b for b in (1, 2, 3, 4, 7) if 1 << (b - 1).bit_length() <= config.index_depth]
        by_row = (attribute("i", "integer"), attribute("y", "real"))
        source = counting_rows_rule(rng, rows=rows, batches=batches)
        return case_of(rng, config, source, TableSchema(relation="t", attributes=by_row), numbers={"i": rows})
    n = rng.choice([1, 3, 8, 17])
    columns = (attribute("x", "real[]", array_length=n), attribute("y", "real"))
    return case_of(rng, config, counting_rule(rng, n), TableSchema(relation="t", attributes=columns))


def case_of(
    rng: random.Random,
    config: MachineConfig,
    source: str,
    schema: TableSchema,
    features: list[str] | None = None,
    numbers: Mapping[str, int] = MappingProxyType({}),
    rough: bool = False,
    judges: bool = False,
) -> Case:
    """Pages for the schema, and the rule compiled; columns of `numbers` count from 0 to below the number."""
    rows = [_row(rng, schema, numbers) for _ in range(rng.choice([1, 2, 5, 63, 64, 65, 130, 300]))]
    if rough:
        pages = rough_pages(rng, schema, rows, page_size=config.page_size)
        pages = damaged(rng, pages, page_size=config.page_size) if rng.random() < 0.3 else pages
    else:
        pages = build_pages(schema, rows, page_size=config.page_size, fill=rng.choice([1.0, 1.0, 0.3]))
    return finished(config, source, schema, pages, features=features, judges=judges)


def finished(
    config: MachineConfig,
    source: str,
    schema: TableSchema,
    pages: bytes,
    *,
    features: list[str] | None = None,
    judges: bool = False,
) -> Case:
    """The rule compiled for the schema; with `judges` its loss alone, if it has one."""
    binding = bind(compile_rule(source, filename="rule.py").hdfg, schema, features, "y")
    if judges and binding.graph.loss is not None:
        binding = replace(binding, graph=binding.graph.judging)
    bundle = compile_bundle(binding, schema, config=config, max_tuples=1 << 16)
    return Case(source=source, schema=schema, binding=binding, pages=pages, bundle=bundle, epochs=binding.graph.epochs)


def _row(rng: random.Random, schema: TableSchema, numbers: Mapping[str, int]) -> list[Any]:
    row: list[Any] = []
    for a in schema.attributes:
        if _stranger(a):
            row.append(None if rng.random() < 0.2 else random_value(rng, a, a.array_length or 1))
        elif rng.random() < 0.01:
            row.append(None)
        elif a.name in numbers:
            several = [rng.randrange(numbers[a.name]) for _ in range(a.array_length or 1)]
            row.append(several[0] if a.array_length is None else np.array(several, dtype=float))
        elif a.name == "y":
            row.append(rng.choice([0.0, 1.0, -1.0, rng.gauss(0, 2)]))
        elif a.array_length is not None:
            row.append(np.array([rng.gauss(0, 1) for _ in range(a.array_length or 0)]))
        elif a.type_name == "boolean":
            row.append(rng.randint(0, 1))
        elif a.type_name in ("real", "double precision"):
            row.append(rng.choice([0.0, -0.0, 1e-40, 1e30]) if rng.random() < 0.003 else rng.gauss(0, 1))
        else:
            row.append(rng.randint(-9, 9))
    return row


def _stranger(a: Attribute) -> bool:
    return a.name.startswith("s")


def interpret(case: Case) -> Outcome:
    """The oracle's outcome."""
    graph = case.binding.graph
    shapes = {str(graph.nodes[k].name): graph.concrete_shape(k) for k in graph.inputs}
    page_size = case.bundle.config.page_size
    try:
        columns = read_columns(memoryview(case.pages), case.schema, case.binding.uses, shapes, page_size)
    except FaultyPage as found:
        fault = (found.fault.fault, found.page, found.fault.pointer)
        return Outcome(models={}, losses=[], converged=False, counters=[], fault=fault)
    interpreter = Interpreter(graph, numerics)
    if columns.tuples == 0:
        return Outcome(models=_bits(interpreter.start()), losses=[], converged=False, counters=[])
    try:
        result = interpreter.train(columns.values, interpreter.start())  # nobody has counted the rows
    except DataError:  # which knows no tags
        fault = (Fault.INDEX, UNKNOWN_PAGE, None)
        return Outcome(models={}, losses=[], converged=False, counters=[], fault=fault)
    return Outcome(models=_bits(result.models), losses=list(result.losses), converged=result.converged, counters=[])


def run(case: Case, machine: Any) -> Outcome:
    """The outcome on a machine that has `load`, `run_epoch`, `write_rows` and `read_rows`."""
    bundle = case.bundle
    lanes = bundle.config.lanes
    machine.load(bundle)
    starts = Interpreter(case.binding.graph, numerics).start() if bundle.tables else {}
    for s in bundle.symbols:
        if s.table:
            machine.write_rows(s.row, s.place(starts[s.name], lanes).view(np.uint32), table=s.table)

    def read(kind: str) -> dict[str, np.ndarray]:
        found = {}
        for s in bundle.of_kind(kind):
            rows = machine.read_rows(s.row, s.rows(lanes), **({"table": s.table} if s.table else {}))
            found[s.name] = s.collect(rows.view(np.float32))
        return found

    outcome = Outcome(models={}, losses=[], converged=False, counters=[])
    for _ in range(case.epochs):
        counters = machine.run_epoch(case.pages)
        if counters.fault is not Fault.NONE:
            fault = (counters.fault, counters.fault_page, counters.fault_pointer)
            return Outcome(models={}, losses=[], converged=False, counters=[], fault=fault)
        outcome.counters.append(counters)
        if not counters.tuples:
            break
        outcome.losses += [float(value) / counters.tuples for value in read("loss").values()]
        outcome.converged = any(value != 0 for value in read("convergence").values())
        if outcome.converged:
            break
    outcome.models = _bits(read("model"))
    return outcome


def _bits(models: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Bit patterns."""
    return {name: np.asarray(value).view(np.uint32) for name, value in models.items()}


def assert_same(left: Outcome, right: Outcome, source: str) -> None:
    """Models, losses and convergence agree bit for bit, or the fault; cycles too where both ran on a machine."""
    known = 2 if right.fault is not None and right.fault[2] is None else 3
    assert (left.fault or ())[:known] == (right.fault or ())[:known], source
    assert left.models.keys() == right.models.keys()
    for name, bits in left.models.items():
        np.testing.assert_array_equal(bits, right.models[name], err_msg=f"model {name} of\n{source}", strict=True)
    np.testing.assert_array_equal(left.losses, right.losses, err_msg=source)
    assert left.converged == right.converged, source
    if left.counters and right.counters:
        assert left.counters == right.counters, source
