"""Machine code for a rule, and what the simulator needs to run it in the place of its engine.

In: a rule's graph and the Bundle made of it. Out: bytes, from which any process on this kind of processor makes `Code`;
the code may run as long as that lives. Nothing is read from or written to a disk.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from math import inf, prod

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from dana.jit.emit import Emitter
from dana.jit.loops import SPECIAL
from dana.jit.memory import Place
from dana.jit.plan import AFTER, Plan, Unsupported
from dana.simulator import large, native, structures
from dana.simulator.layout import LANES, strides
from dsl.hdfg.graph import Graph
from hwgen.spec.bundle import WHOLE_EPOCH, Bundle, InputPlace, Symbol
from hwgen.spec.columns import ColumnType
from hwgen.spec.engine import Opcode

FUNCTIONS = frozenset({"begin", "before", "block", "one", "after", "last", "rows", "last_row"})
MAX_TEXT = 4 << 20
"""Bytes of what LLVM reads, about: some 100 ms, and a few MB of memory, for each 100 KB."""
DIGEST = hashlib.sha256().digest_size
TABLES = {
    "merges": structures.Merge,
    "passes": structures.CompiledPass,
    "symbols": structures.CompiledSymbol,
    "tables": structures.CompiledTable,
    "indices": structures.CompiledIndex,
    "inputs": structures.CompiledInput,
}
AHEAD = 96 << 10
"""Bytes from what is read of a page to what is asked for, at least: more than a block of wide tuples takes."""


@dataclass(slots=True, kw_only=True)
class Code:
    """Code of one rule for one machine, for one training at a time.

    Attributes
    ----------
    functions
        Where they are, and tables for the simulator.
    kept
        What `functions` points into.
    floats
        How many it works on.
    slots
        How many merges have a place for their result.
    ones
        Where among them those lie that are 1.
    """

    functions: structures.CompiledData
    kept: tuple[object, ...]
    floats: int
    slots: int
    ones: int
    _state: NDArray[np.float32] | None = field(default=None, init=False)

    @property
    def data(self) -> structures.CompiledData:
        """Code for the simulator, with its working memory."""
        if self._state is None:
            self._state = large.zeros(self.floats)
            # a product with ones that LLVM cannot fold flushes subnormals (docs/arithmetic.md)
            self._state[self.ones : self.ones + LANES] = 1.0
            self.functions.state = self._state.ctypes.data
        return self.functions

    @property
    def size(self) -> int:
        """Bytes that it works on."""
        return 4 * self.floats

    @property
    def splits(self) -> bool:
        """Whether copies of it may run parts of an epoch."""
        return bool(self.functions.floats)

    def copy(self) -> Code:
        """The same code with working memory of its own, for another thread."""
        slots = np.zeros(self.slots, dtype=np.int64)
        functions = structures.CompiledData.from_buffer_copy(self.functions)
        functions.slots = slots.ctypes.data
        return replace(self, functions=functions, kept=(self.kept, slots))

    def release(self) -> None:
        """Free them; nothing may run by `data` any more."""
        self._state = None


def compile_graph(graph: Graph, bundle: Bundle, *, most_memory: float = inf) -> Code:
    """`assemble` and `load`."""
    return load(assemble(graph, bundle, most_memory=most_memory), most_memory=most_memory)


def assemble(graph: Graph, bundle: Bundle, *, most_memory: float = inf) -> bytes:
    """Compile: SHA-256 of the rest, the length of the tables (u32, little-endian), the tables (JSON), an ELF object.

    Parameters
    ----------
    graph
        Bound and simplified, with the Bundle's batch.
    most_memory
        Bytes that it may work on.

    Raises
    ------
    Unsupported
        There is no code for such a rule.
    """
    plan = Plan(graph)
    lanes = bundle.config.lanes
    by_name = {one.name: one for one in bundle.inputs}
    places, inputs = {}, []
    for number, k in enumerate(graph.inputs):
        one = by_name[graph.nodes[k].name or ""]
        rows = -(-(one.shape or (1,))[-1] // lanes)
        inputs.append(_input(bundle, one))
        _, column, floats = inputs[-1]
        spacing = bundle.tuple_rows * lanes if column < 0 else 1 if floats == 1 else None
        places[k] = Place(number=number, stride=rows * lanes, spacing=spacing)
    # by element: one choice of the machine may be of many
    choices = [
        (tag, one if one.element is None else replace(one, element=one.element + e, count=1))
        for tag, one in enumerate(bundle.choices)
        for e in range(one.count)
    ]
    numbers = {graph.nodes[k].name: place.number for k, place in places.items()}
    ahead = -(-AHEAD // bundle.config.page_size) * bundle.config.page_size
    held: dict[str | None, int] = {s.name: k for k, s in enumerate(s for s in bundle.symbols if s.table)}
    tables = {k: held[graph.nodes[k].name] for k in graph.models if graph.nodes[k].name in held}
    whole = bundle.rule_batch == WHOLE_EPOCH
    emitter = Emitter(
        plan,
        places,
        batch=bundle.rule_batch,
        most=MAX_TEXT,
        ahead=ahead,
        choices=[one for _, one in choices],
        tables=tables,
        widest=_widest(),
    )
    if emitter.wrong >= 0 and graph.has_merge:
        raise Unsupported("it computes which rows the tuples of a batch choose")
    memory = emitter.memory
    _check_memory(memory.size, most_memory)
    text = str(emitter.emit())
    # for each merge the pass that ends with it; the loss comes last
    joined = [*((plan.phase[k] - AFTER) // 2 for k in plan.merges), len(plan.passes) - 1]
    shapes = [*(_vectors(plan.shape(k)) for k in plan.merges), (1, 1, 1)]
    names = [[f"{part}_{number}" for part in ("between", "block", "one")] for number in range(len(plan.passes) - 1)]
    facts = {
        "processor": _processor(),
        "functions": {key: name for key, name in emitter.functions.items() if key in FUNCTIONS},
        "passes": [[name if name in emitter.functions else None for name in of] for of in names],
        "merges": [
            (one.first, one.size, one.levels, stride, Opcode[one.op.upper()], k, leading, last)
            for one, k, (leading, last, stride) in zip(memory.merged, joined, shapes, strict=False)
        ],
        "symbols": _symbols(plan, emitter, bundle),
        "tables": [(number, memory.at[k]) for k, number in tables.items()],
        # the elements of inputs that choose rows, and the tag of the fault; of a number that is computed, none
        "indices": [
            (-1 if one.element is None else numbers[one.inputs[0]], one.element or 0, one.rows, tag)
            for tag, one in choices
        ],
        "inputs": inputs,
        "numbers": {
            "wrong": emitter.wrong,
            "ahead": ahead if emitter.asks else 0,
            "n_merges": len(plan.merges),
            "n_stacks": len(memory.merged),
            "floats": memory.size if plan.splits and whole and not tables and not bundle.choices else 0,
            "loss": len(plan.merges) if graph.has_merge and graph.loss is not None else -1,
            "batch": bundle.rule_batch,
        },
        # one more, for the losses
        "slots": len(memory.merged) + 1,
        "floats": memory.size,
        "ones": emitter.ones,
    }
    tables_text = json.dumps(facts).encode()
    rest = b"".join((len(tables_text).to_bytes(4, "little"), tables_text, _machine_code(text)))
    return hashlib.sha256(rest).digest() + rest


def load(data: bytes, *, most_memory: float = inf) -> Code:
    """Make what `assemble` returned ready to run.

    Raises
    ------
    ValueError
        The bytes are damaged, or the code is for another processor or of another LLVM.
    Unsupported
        The code would work on more than `most_memory` bytes, or this process may not execute it.
    """
    # before anything else is read: the rest will be executed
    if hashlib.sha256(data[DIGEST:]).digest() != data[:DIGEST] or len(data) < DIGEST + 4:
        raise ValueError("the checksum of machine code does not match")
    begin = DIGEST + 4
    end = begin + int.from_bytes(data[DIGEST:begin], "little")
    facts = json.loads(data[begin:end])
    if facts["processor"] != _processor():
        raise ValueError(f"machine code for {facts['processor']}, this is {_processor()}")
    _check_memory(facts["floats"], most_memory)
    engine = _engine(data[end:])
    address = engine.get_function_address
    # under PR_SET_MDWE, as systemd's MemoryDenyWriteExecute sets it, LLVM fails silently and a call would crash
    if not _executable(address("begin")):
        raise Unsupported("this process may not execute memory that it wrote")
    slots = np.zeros(facts["slots"], dtype=np.int64)
    passes = [[None if name is None else address(name) for name in of] for of in facts["passes"]]
    rows = {name: facts[name] for name in TABLES} | {"passes": passes}
    arrays = {name: _array(kind, rows[name]) for name, kind in TABLES.items()}
    numbers = {f"n_{name}": len(rows[name]) for name in TABLES} | facts["numbers"]
    functions = structures.CompiledData(
        **{key: address(name) for key, name in facts["functions"].items()},
        **{name: ctypes.addressof(array) for name, array in arrays.items()},
        slots=slots.ctypes.data,
        **numbers,
    )
    kept = (engine, slots, *arrays.values())
    return Code(functions=functions, kept=kept, floats=facts["floats"] + LANES, slots=len(slots), ones=facts["ones"])


def _check_memory(floats: int, most: float) -> None:
    if 4 * floats > most:
        raise Unsupported(f"its code would work on {4 * floats >> 20} MB, it may on {int(most) >> 20}")


def _array(kind: type[ctypes.Structure], rows: Sequence[Sequence[object]]) -> ctypes.Array[ctypes.Structure]:
    """Structures side by side; one of zeros where there are none, for an address."""
    return (kind * max(1, len(rows)))(*(kind(*row) for row in rows))


def _symbols(plan: Plan, emitter: Emitter, bundle: Bundle) -> list[tuple[object, ...]]:
    """Where each of the Bundle's symbols lies in the code's memory: rows of `CompiledSymbol`."""
    graph, found = plan.graph, []
    nodes = {graph.nodes[k].name: k for k in (*graph.models, *graph.metas)}
    for symbol in bundle.symbols:
        if symbol.table:
            continue
        if symbol.kind in ("model", "meta"):
            k = nodes[symbol.name]
            found.append(_symbol(symbol, emitter.memory.at[k], plan.shape(k)))
        elif symbol.kind == "convergence" and graph.convergence is not None:
            found.append((symbol.row, 1, 1, emitter.convergence, 1, True, False, True))
        elif symbol.kind == "loss":
            found.append((symbol.row, 1, 1, -1, 1, True, False, True))
    return found


def _symbol(symbol: Symbol, first: int, shape: tuple[int, ...]) -> tuple[object, ...]:
    leading, last, stride = _vectors(shape)
    broadcast = symbol.broadcast or not shape
    return symbol.row, leading, last, first, stride, broadcast, True, symbol.kind == "model"


def _vectors(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Vectors of a value, floats of each, and from one to the next."""
    if not shape:
        return 1, 1, 1
    return prod(shape[:-1]), shape[-1], strides(shape)[-2] if len(shape) > 1 else 0


def _input(bundle: Bundle, one: InputPlace) -> tuple[int, int, int]:
    """Where an input is packed to, and the column that is all of it: a row of `CompiledInput`.

    A number is packed: copying it takes no longer than noting where it lies, and code need not look there.
    """
    shape, lanes = one.shape, bundle.config.lanes
    count = prod(shape)
    rows = range(one.row, one.row + -(-count // lanes))
    found = [k for k, column in enumerate(bundle.columns) if column.row in rows and not column.table]
    packed = len(found) != 1 or bundle.columns[found[0]].count != count or (len(shape) > 1 and shape[-1] % lanes)
    if packed or (count > 1 and bundle.columns[found[0]].type != ColumnType.FLOAT4):
        found = [-1]
    floats = 1 if count == 1 and found != [-1] else -(-count // LANES) * LANES
    return one.row * lanes, found[0], floats


@cache
def _processor() -> str:
    # what can run the code
    return f"LLVM {llvm.llvm_version_info} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def _widest() -> int:
    return LANES if llvm.get_host_cpu_features().get("avx512f") else LANES // 2


@cache
def _target() -> llvm.Target:
    """This processor; LLVM is made ready once."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.add_symbol(SPECIAL, native.library().sim_special_address())
    return llvm.Target.from_default_triple()


def _machine() -> llvm.TargetMachine:
    features = llvm.get_host_cpu_features().flatten()
    # no passes over the IR: they take as long as making code and, measured on packed inputs, gain nothing
    return _target().create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=1, jit=True)


# of a rule that is trained again; the key is the whole text, hence never stale
@lru_cache(maxsize=8)
def _machine_code(text: str) -> bytes:
    """An ELF object of functions, which hold no values."""
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    found: bytes = machine.emit_object(module)
    return found


def _engine(code: bytes) -> llvm.ExecutionEngine:
    # LLVM wants a module of each engine, and each engine a machine of its own
    machine = _machine()
    module = llvm.parse_assembly("")
    module.triple = machine.triple
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def _executable(address: int) -> bool:
    """Whether the system lets memory be executed: where it does not, LLVM does not say so."""
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                span, rights = line.split(maxsplit=2)[:2]
                first, last = (int(end, 16) for end in span.split("-"))
                if first <= address < last:
                    return "x" in rights
    except OSError:  # no such file: not Linux
        return True
    return False
