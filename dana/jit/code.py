"""Machine code for a rule, and what the simulator needs to run it in the place of its engine.

In: a rule's graph and the Bundle made of it. Out: `Code`; the code may run as long as that lives. Nothing is read from
or written to a disk.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from math import inf
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from dana.jit.emit import Emitter
from dana.jit.loops import SPECIAL
from dana.jit.memory import Place, strides
from dana.jit.plan import AFTER, LANES, Plan, Unsupported
from dana.simulator import native, structures
from dsl.hdfg.graph import Graph
from hwgen.spec.bundle import Bundle, Symbol
from hwgen.spec.columns import ColumnType
from hwgen.spec.engine import Opcode

FUNCTIONS = frozenset({"begin", "before", "block", "one", "after", "last", "rows", "last_row"})
MOST_TEXT = 4 << 20
"""Bytes of what LLVM reads, about: some 100 ms, and a few MB of memory, for each 100 KB."""
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
    ones
        Where among them those lie that are 1.
    """

    functions: structures.CompiledData
    kept: tuple[Any, ...]
    floats: int
    ones: int
    _state: NDArray[np.float32] | None = field(default=None, init=False)

    @property
    def data(self) -> structures.CompiledData:
        """What the simulator runs, with memory to work on."""
        if self._state is None:
            self._state = _aligned(self.floats)
            self._state[self.ones : self.ones + LANES] = 1.0
            self.functions.state = self._state.ctypes.data
        return self.functions

    @property
    def size(self) -> int:
        """Bytes that it works on."""
        return 4 * self.floats

    def release(self) -> None:
        """Free them; nothing may run by `data` any more."""
        self._state = None


def compile_graph(graph: Graph, bundle: Bundle, *, most_memory: float = inf) -> Code:
    """Compile.

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
    by_name = {one["name"]: one for one in bundle.notes["inputs"]}
    places, inputs = {}, []
    for number, k in enumerate(graph.inputs):
        one = by_name[graph.nodes[k].name]
        rows = -(-(one["shape"] or [1])[-1] // lanes)
        inputs.append(_input(bundle, one))
        spacing = bundle.tuple_rows * lanes if inputs[-1].column < 0 else 1 if inputs[-1].floats == 1 else None
        places[k] = Place(number=number, stride=rows * lanes, spacing=spacing)
    page_size, noted = bundle.config.page_size, bundle.notes["indices"]
    indices = _indices(bundle, {graph.nodes[k].name: place.number for k, place in places.items()})
    ahead = -(-AHEAD // page_size) * page_size
    emitter = Emitter(plan, places, batch=bundle.rule_batch, most=MOST_TEXT, ahead=ahead, indices=noted)
    if emitter.wrong >= 0 and graph.has_merge:
        raise Unsupported("it computes which rows the tuples of a batch choose")
    memory = emitter.memory
    if 4 * memory.size > most_memory:
        raise Unsupported(f"its code would work on {4 * memory.size >> 20} MB, it may on {int(most_memory) >> 20}")
    text = str(emitter.emit())
    engine = _machine_code(text)
    if not _executable(engine.get_function_address("begin")):
        raise Unsupported("this process may not execute memory that it wrote")
    slots = np.zeros(len(memory.merged) + 1, dtype=np.int64)
    merges = (structures.CompiledMerge * max(1, len(memory.merged)))(
        *(
            structures.CompiledMerge(one.first, one.size, Opcode[one.op.upper()], number)
            for one, number in zip(memory.merged, _merged_in(plan), strict=False)
        )
    )
    passes = (structures.CompiledPass * len(plan.passes))(
        *(
            structures.CompiledPass(
                *(
                    engine.get_function_address(name) if name in emitter.functions else None
                    for name in (f"between_{number}", f"block_{number}", f"one_{number}")
                )
            )
            for number in range(len(plan.passes) - 1)
        )
    )
    symbols = _symbols(plan, emitter, bundle)
    filled = (structures.CompiledInput * max(1, len(inputs)))(*inputs)
    functions = structures.CompiledData(
        **{key: engine.get_function_address(name) for key, name in emitter.functions.items() if key in FUNCTIONS},
        slots=slots.ctypes.data,
        merges=ctypes.addressof(merges),
        passes=ctypes.addressof(passes),
        symbols=ctypes.addressof(symbols),
        indices=ctypes.addressof(indices),
        inputs=ctypes.addressof(filled),
        wrong=emitter.wrong,
        ahead=ahead if emitter.asks else 0,
        n_indices=len(noted),
        n_inputs=len(inputs),
        n_merges=len(plan.merges),
        n_passes=len(plan.passes) - 1,
        n_symbols=len(symbols),
        loss=len(plan.merges) if graph.has_merge and graph.loss is not None else -1,
        batch=bundle.rule_batch,
    )
    kept = (engine, slots, merges, passes, symbols, indices, filled)
    return Code(functions=functions, kept=kept, floats=memory.size + LANES, ones=emitter.ones)


def _merged_in(plan: Plan) -> list[int]:
    """The number of the pass at whose end each merge is joined; the loss comes behind the others."""
    found = [(plan.phase[k] - AFTER) // 2 for k in plan.merges]
    return [*found, len(plan.passes) - 1]


def _aligned(floats: int) -> NDArray[np.float32]:
    """Zeros, the first at the beginning of a cache line: a vector is one."""
    array = np.zeros(floats + LANES, dtype=np.float32)
    return array[-array.ctypes.data % (4 * LANES) // 4 :]


def _symbols(plan: Plan, emitter: Emitter, bundle: Bundle) -> Any:
    """Where each of the Bundle's symbols lies in the code's memory."""
    graph, found = plan.graph, []
    nodes = {graph.nodes[k].name: k for k in (*graph.models, *graph.metas)}
    for symbol in bundle.symbols:
        if symbol.kind in ("model", "meta"):
            k = nodes[symbol.name]
            found.append(_symbol(symbol, emitter.memory.at[k], plan, k, into=True, out=symbol.kind == "model"))
        elif symbol.kind == "convergence" and graph.convergence is not None:
            found.append(structures.CompiledSymbol(symbol.row, 1, 1, emitter.convergence, 1, True, False, True))
        elif symbol.kind == "loss":
            found.append(structures.CompiledSymbol(symbol.row, 1, 1, -1, 1, True, False, True))
    return (structures.CompiledSymbol * max(1, len(found)))(*found)


def _input(bundle: Bundle, one: Mapping[str, Any]) -> Any:
    """Where an input of the Bundle's notes is packed to, and the column that is all of it.

    A number is packed: copying it takes no longer than noting where it lies, and code need not look there.
    """
    shape, lanes = one["shape"], bundle.config.lanes
    count = int(np.prod(shape, dtype=np.int64))
    rows = range(one["row"], one["row"] + -(-count // lanes))
    found = [k for k, column in enumerate(bundle.columns) if column.row in rows and not column.table]
    packed = len(found) != 1 or bundle.columns[found[0]].count != count or (len(shape) > 1 and shape[-1] % lanes)
    if packed or (count > 1 and bundle.columns[found[0]].type != ColumnType.FLOAT4):
        found = [-1]
    floats = 1 if count == 1 and found != [-1] else -(-count // LANES) * LANES
    return structures.CompiledInput(one["row"] * lanes, found[0], floats)


def _indices(bundle: Bundle, inputs: Mapping[str | None, int]) -> Any:
    """The elements of inputs that choose rows, by the tag of the fault."""
    found = []
    for one in bundle.notes["indices"]:
        computed = one["element"] is None
        found.append(
            structures.CompiledIndex(-1, 0, one["rows"])
            if computed
            else structures.CompiledIndex(inputs[one["inputs"][0]], one["element"], one["rows"])
        )
    return (structures.CompiledIndex * max(1, len(found)))(*found)


def _symbol(symbol: Symbol, first: int, plan: Plan, k: int, *, into: bool, out: bool) -> Any:
    shape = plan.shape(k)
    if not shape:
        return structures.CompiledSymbol(symbol.row, 1, 1, first, 1, True, into, out)
    if symbol.table and len(shape) == 1:  # a record for each number
        return structures.CompiledSymbol(symbol.row, shape[0], 1, first, 1, True, into, out, symbol.table)
    leading = int(np.prod(shape[:-1], dtype=np.int64))
    stride = strides(shape)[-2] if len(shape) > 1 else 0
    where = (symbol.broadcast, into, out, symbol.table)
    return structures.CompiledSymbol(symbol.row, leading, shape[-1], first, stride, *where)


@cache
def _target() -> llvm.Target:
    """This processor; LLVM is made ready once."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.add_symbol(SPECIAL, native.library().sim_special_address())
    return llvm.Target.from_default_triple()


@lru_cache(maxsize=8)
def _machine_code(text: str) -> llvm.ExecutionEngine:
    """Functions, which hold no values: of a rule that is trained again they are still there."""
    target = _target()
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    module.verify()
    features = llvm.get_host_cpu_features().flatten()
    # the engine owns it, so each has its own
    machine = target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=1, jit=True)
    engine = llvm.create_mcjit_compiler(module, machine)
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
