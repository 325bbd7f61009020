"""The native core's functions, which `native/core.c` exports.

In: nothing. Out: the loaded library, a machine and a Bundle as the structures that it takes. No decision is
taken here, and no number of the contract is named: they come from `hwgen.spec`.
"""

import ctypes
import importlib.util
import weakref
from collections.abc import Iterator
from functools import cache, lru_cache
from math import prod
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from dana.errors import SetupError
from dana.simulator import headers, structures
from dana.simulator.layout import strides
from hwgen.spec import columns, cycles, engine, strider
from hwgen.spec.bundle import SIZES, Bundle, Symbol
from hwgen.spec.config import MachineConfig
from hwgen.spec.strider import Opcode
from hwgen.spec.strider_text import exists, target

NO_SECTION = -1
UNLOADED = 2
"""Status of `sim_consume` where no Bundle is loaded."""
SPOILT = 3
"""Status if compiled code changed records that no tuple chose; the model is then unusable."""
OTHER_PAGES = 2
"""Result of `sim_end` if the pages given to `sim_consume_again` differ from those of the previous epoch."""


def load(module: str, contract: str, digest: int) -> ctypes.CDLL:
    """Load a native library, and compare the result of its function `contract` with `digest`.

    SetupError where it has not been built, or of others.
    """
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise SetupError(f"the native part {module} is missing: run make in a checkout, else install dana-db again")
    library = ctypes.CDLL(found.origin)
    # structures are passed by address: a library with another layout would write outside them
    if hasattr(library, contract):
        getattr(library, contract).restype = ctypes.c_uint64
    if not hasattr(library, contract) or getattr(library, contract)() != digest:
        raise SetupError(
            f"the native part {found.origin} was built from other sources: run make in a checkout, else install "
            "dana-db again"
        )
    return library


@cache
def library() -> ctypes.CDLL:
    """The core."""
    core = load("dana.simulator._core", "sim_contract", headers.digest())
    pointer = ctypes.c_void_p
    rows = (pointer, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64, pointer)
    bundle, problem = ctypes.POINTER(structures.BundleData), ctypes.POINTER(structures.Problem)
    # without these types ctypes would pass addresses as C ints and cut them to 32 bits
    for name, result, arguments in (
        ("sim_new", pointer, (ctypes.POINTER(structures.Machine), ctypes.c_char_p, ctypes.c_int32)),
        ("sim_free", None, (pointer,)),
        ("sim_load", None, (pointer, bundle, pointer, problem)),
        ("sim_attach", ctypes.c_int32, (pointer, ctypes.POINTER(structures.CompiledData))),
        ("sim_share", None, (pointer, pointer, ctypes.c_int32)),
        ("sim_shared_tuples", ctypes.c_uint64, (pointer,)),
        ("sim_join", None, (pointer, ctypes.POINTER(structures.Join))),
        ("sim_pause", None, (pointer, ctypes.c_int64)),
        ("sim_differs", ctypes.c_int32, (pointer,)),
        ("sim_proved", ctypes.c_int32, (pointer,)),
        ("sim_special_address", pointer, ()),
        ("sim_flushes", ctypes.c_int32, ()),
        ("sim_walked_rows", ctypes.c_uint64, (pointer,)),
        ("sim_packed_columns", ctypes.c_uint64, (pointer,)),
        ("sim_write_rows", ctypes.c_int32, rows),
        ("sim_read_rows", ctypes.c_int32, rows),
        ("sim_values", ctypes.c_int32, (*rows[:3], ctypes.c_int64, ctypes.c_int64, pointer, ctypes.c_int32)),
        ("sim_begin", None, (pointer, ctypes.POINTER(structures.ObserverData), ctypes.c_int32, ctypes.c_int32)),
        ("sim_consume", ctypes.c_int, (pointer, pointer, ctypes.c_size_t)),
        ("sim_consume_again", ctypes.c_int, (pointer, pointer, ctypes.c_size_t)),
        ("sim_end", ctypes.c_int32, (pointer, ctypes.POINTER(structures.Counters))),
    ):
        function = getattr(core, name)
        function.restype = result
        function.argtypes = arguments
    return core


@lru_cache(maxsize=64)  # trainings of one design, one after the other, ask each
def machine_data(config: MachineConfig) -> structures.Machine:
    """A configuration and the constants of the cycle contract."""
    # the result is shared by all simulators of the configuration; nothing may change it
    data = structures.Machine(
        **config.to_json(),
        **structures.CONTRACT,
        strider_bound=strider.STRIDER_BOUND,
        page_cycles=config.page_cycles,
    )
    for op, count in cycles.SPECIAL_LATENCY.items():
        data.special_latency[op] = count if config.has(op) else 0
        data.special_interval[op] = cycles.element_interval(op, config.divide_interval)
    return data


_engine_fields = attrgetter(*(field.name for field in engine.FIELDS))
_column_fields = attrgetter(*(field.name for field in columns.FIELDS))


def _table(records: list[tuple[int, ...]], structure: type[ctypes.Structure]) -> npt.NDArray[np.int32]:
    """Records side by side, each filled up with zeros to the structure's words."""
    table = np.zeros((len(records), ctypes.sizeof(structure) // 4), dtype=np.int32)
    if records:
        table[:, : len(records[0])] = records
    return table


def _strider_rows(bundle: Bundle) -> Iterator[tuple[int, ...]]:
    """The Striders' program; behind it the memory is zero, which is no instruction."""
    end, depth, descriptors = len(bundle.strider), bundle.config.strider_depth, bundle.config.descriptor_depth
    for k, i in enumerate(bundle.strider):
        # an instruction that does not exist faults only when a Strider executes it
        op = i.op if exists(i, descriptors=descriptors) else structures.NO_OPCODE
        shift = 8 * i.b if i.op is Opcode.EXTRB else i.b
        # the program counter wraps at the depth; all that lies behind the program is the last entry
        places = (min(address % depth, end) for address in (k + 1, target(i, k) or 0))
        bits = {Opcode.READB: 8 * i.b, Opcode.EXTRB: 8 * i.c, Opcode.EXTRBI: i.c, Opcode.CLN: i.b}.get(i.op, 0)
        # the table is of int32, in which 32 set bits are -1
        mask = (1 << bits) - 1 if bits < 32 else -1
        # the fields b and c, of 6 bits each, are also one number (`ins`)
        yield op, i.a, shift, i.c, cycles.STRIDER_CYCLES[i.op], *places, i.b * 64 + i.c, mask
    # the entry that `places` of an instruction at the end refers to
    yield structures.NO_OPCODE, *[0] * 8


def bundle_data(bundle: Bundle) -> structures.BundleData:
    """A Bundle as the core takes it; good as long as the Bundle lives, and made once for it."""
    # by id: a Bundle holds arrays, which have no hash
    found = _made.get(id(bundle))
    if found is None:
        found = _made[id(bundle)] = _bundle_data(bundle)
        # an id is used again once its object is gone
        weakref.finalize(bundle, _made.pop, id(bundle))
    return found[0]


_made: dict[int, tuple[structures.BundleData, list[object]]] = {}
"""By the Bundle's id, with the arrays that they point into."""


def _bundle_data(bundle: Bundle) -> tuple[structures.BundleData, list[object]]:
    constants = np.zeros(strider.CONFIGURATION, dtype=np.uint32)
    constants[: len(bundle.constants)] = bundle.constants
    image = np.ascontiguousarray(bundle.image, dtype=np.uint32)
    width = bundle.config.lanes, bundle.config.converters
    # the members of sim_column after these stay 0: the core works them out
    descriptors = [(*_column_fields(c), c.count * c.type.bytes, c.beats(*width)) for c in bundle.columns]
    tables = {
        "program": _table([_engine_fields(i) for i in bundle.program], structures.Instruction),
        "strider": _table(list(_strider_rows(bundle)), structures.StriderInstruction),
        "columns": _table(descriptors, structures.Column),
        "tables": _table([(table.records, table.rows) for table in bundle.tables], structures.TableData),
        "held": _table([_held(symbol) for symbol in bundle.symbols if symbol.table], structures.HeldData),
    }
    merges = (structures.Merge * len(bundle.merges))(*map(_merge, bundle.merges))
    data = structures.BundleData(
        **{name: table.ctypes.data for name, table in tables.items()},
        **{f"n_{name}": len(table) for name, table in tables.items()},
        merges=ctypes.addressof(merges),
        n_merges=len(merges),
        constants=constants.ctypes.data,
        image=image.ctypes.data,
        image_rows=len(image),
        # in the order of `Section`, by which `headers` numbers enum sim_section
        sections=(ctypes.c_int32 * len(engine.Section))(*(bundle.sections.get(s, NO_SECTION) for s in engine.Section)),
        **{name: getattr(bundle, name) for name in SIZES},
    )
    return data, [*tables.values(), constants, image, merges]


def _merge(symbol: Symbol) -> structures.Merge:
    *leading, last = symbol.shape or (1,)
    op = engine.Opcode[symbol.name.upper()]
    return structures.Merge(
        op=op, leading=prod(leading), last=last, row=symbol.row, broadcast=symbol.broadcast or not symbol.shape
    )


def _held(symbol: Symbol) -> tuple[int, ...]:
    """Of a value in a table, how it lies as `structures.HeldData` says; numbers are as many vectors."""
    _, *inner = symbol.shape
    if not inner:
        # one number for each record: no axis is left to lie along lanes
        return symbol.table, symbol.row, 1, 1, 1, True
    return symbol.table, symbol.row, prod(inner[:-1]), inner[-1], strides(symbol.shape)[-2], symbol.broadcast
