"""The native core's functions and structures, as `native/core.h` has them.

In: nothing. Out: the loaded library, structures that mirror the C ones, a Bundle as those structures. No decision is
taken here, and no number of the contract is named: they come from `hwgen.spec`.
"""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from dana.errors import SetupError
from hwgen.spec import columns, cycles, engine, strider
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import MachineConfig

ENGINE_CODES = 64
"""Opcodes that the six bits of an engine instruction can name."""
NO_SECTION = -1
UNLOADED = 2
"""Status of `sim_consume` where no Bundle is loaded."""

_I32 = ctypes.c_int32


class Machine(ctypes.Structure):
    """struct sim_machine."""

    _fields_ = (
        *(
            (name, _I32)
            for name in (
                *("threads", "clusters", "striders", "page_size", "scratch_depth", "tuple_depth", "program_depth"),
                *(
                    "strider_depth",
                    "descriptor_depth",
                    "index_depth",
                    "crossed",
                    "queue_depth",
                    "page_beats",
                    "link_latency",
                ),
                *("result_latency", "index_latency", "section_start", "min_instruction", "round_start"),
                *("strider_start", "strider_bound", "unpack_stages", "unpack_latency", "page_release"),
            )
        ),
        ("strider_cycles", _I32 * len(strider.Opcode)),
        ("special_latency", _I32 * ENGINE_CODES),
        ("special_interval", _I32 * ENGINE_CODES),
    )


class BundleData(ctypes.Structure):
    """struct sim_bundle."""

    _fields_ = (
        ("program", ctypes.c_void_p),
        ("strider", ctypes.c_void_p),
        ("columns", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("image", ctypes.c_void_p),
        ("symbols", ctypes.c_void_p),
        ("n_program", _I32),
        ("n_strider", _I32),
        ("n_columns", _I32),
        ("image_rows", _I32),
        ("n_symbols", _I32),
        ("sections", _I32 * len(engine.Section)),
        ("group", _I32),
        ("tuple_rows", _I32),
        ("level_stride", _I32),
        ("levels", _I32),
        ("batch", ctypes.c_uint32),
    )


class Problem(ctypes.Structure):
    """struct sim_problem."""

    _fields_ = (
        ("kind", _I32),
        ("section", _I32),
        ("position", _I32),
        ("found", ctypes.c_int64),
        ("limit", ctypes.c_int64),
    )


class Counters(ctypes.Structure):
    """struct sim_counters."""

    _fields_ = (
        ("cycles", ctypes.c_uint64),
        ("tuples", ctypes.c_uint64),
        ("skipped", ctypes.c_uint64),
        ("engine_busy", ctypes.c_uint64),
        ("merging", ctypes.c_uint64),
        ("waiting_for_engine", ctypes.c_uint64),
        ("waiting_for_pages", ctypes.c_uint64),
        ("fault", ctypes.c_uint32),
        ("fault_page", ctypes.c_uint32),
        ("fault_pointer", ctypes.c_uint32),
    )


@cache
def library() -> ctypes.CDLL:
    """The core. Raises SetupError where it has not been built, or from other sources."""
    found = importlib.util.find_spec("dana.simulator._core")
    if found is None or found.origin is None:
        raise SetupError("the simulator's native core is not built: install the package with a C compiler at hand")
    core = ctypes.CDLL(found.origin)
    words = (len(engine.FIELDS), STRIDER_WORDS, COLUMN_WORDS)
    mirrored = [ctypes.sizeof(Machine), *(4 * n for n in words), ctypes.sizeof(BundleData), ctypes.sizeof(Counters)]
    compiled = (_I32 * len(mirrored))()
    if hasattr(core, "sim_layout"):
        core.sim_layout(compiled)
    if list(compiled) != mirrored:
        raise SetupError(f"the simulator's native core, {found.origin}, was built from other sources: build it again")
    pointer, rows = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    for name, result, arguments in (
        ("sim_new", pointer, (ctypes.POINTER(Machine), ctypes.c_char_p)),
        ("sim_free", None, (pointer,)),
        ("sim_load", None, (pointer, ctypes.POINTER(BundleData), ctypes.POINTER(Problem))),
        ("sim_use_paths", None, (pointer, _I32)),
        ("sim_path_iterations", ctypes.c_uint64, (pointer,)),
        ("sim_write_rows", _I32, rows),
        ("sim_read_rows", _I32, rows),
        ("sim_begin", None, (pointer,)),
        ("sim_consume", ctypes.c_int, (pointer, pointer, ctypes.c_size_t)),
        ("sim_end", _I32, (pointer, ctypes.POINTER(Counters))),
    ):
        function = getattr(core, name)
        function.restype = result
        function.argtypes = arguments
    return core


def machine_data(config: MachineConfig) -> Machine:
    """A configuration and the constants of the cycle contract."""
    data = Machine(
        result_latency=cycles.RESULT_LATENCY,
        index_latency=cycles.INDEX_LATENCY,
        section_start=cycles.SECTION_START,
        min_instruction=cycles.MIN_INSTRUCTION,
        round_start=cycles.ROUND_START,
        strider_start=cycles.STRIDER_START,
        strider_bound=strider.STRIDER_BOUND,
        unpack_stages=cycles.UNPACK_STAGES,
        unpack_latency=cycles.UNPACK_LATENCY,
        page_release=cycles.PAGE_RELEASE,
        page_beats=config.page_beats,
        **{
            name: getattr(config, name)
            for name in (
                *("threads", "clusters", "striders", "page_size", "scratch_depth", "tuple_depth", "program_depth"),
                *("strider_depth", "descriptor_depth", "index_depth", "crossed", "queue_depth", "link_latency"),
            )
        },
    )
    for strider_op, count in cycles.STRIDER_CYCLES.items():
        data.strider_cycles[strider_op] = count
    for op, count in cycles.SPECIAL_LATENCY.items():
        data.special_latency[op] = count if config.has(op) else 0
        data.special_interval[op] = cycles.element_interval(op, config.divide_interval)
    return data


_engine_fields = attrgetter(*(field.name for field in engine.FIELDS))
_strider_fields = attrgetter("op", "a", "b", "c")
_column_fields = attrgetter(*(field.name for field in columns.FIELDS))
STRIDER_WORDS = 4
COLUMN_WORDS = 12
"""32-bit words of struct sim_column: the fields, then what the core works out."""


def _table(records: list[tuple[int, ...]], width: int) -> npt.NDArray[np.int32]:
    """Records side by side, each filled up with zeros to `width` words."""
    table = np.zeros((len(records), width), dtype=np.int32)
    if records:
        table[:, : len(records[0])] = records
    return table


def bundle_data(bundle: Bundle) -> tuple[BundleData, list[npt.NDArray[Any]]]:
    """A Bundle as the core takes it, and the arrays that it points into: keep them as long as it is used."""
    constants = np.zeros(strider.CONFIGURATION, dtype=np.uint32)
    constants[: len(bundle.constants)] = bundle.constants
    program = _table([_engine_fields(i) for i in bundle.program], len(engine.FIELDS))
    instructions = _table([_strider_fields(i) for i in bundle.strider], STRIDER_WORDS)
    descriptors = _table([_column_fields(c) for c in bundle.columns], COLUMN_WORDS)
    image = np.ascontiguousarray(bundle.image, dtype=np.uint32)
    symbols = _table([(symbol.row, symbol.rows(bundle.config.lanes)) for symbol in bundle.symbols], 2)
    data = BundleData(
        program=program.ctypes.data,
        strider=instructions.ctypes.data,
        columns=descriptors.ctypes.data,
        constants=constants.ctypes.data,
        image=image.ctypes.data,
        symbols=symbols.ctypes.data,
        n_program=len(bundle.program),
        n_strider=len(bundle.strider),
        n_columns=len(bundle.columns),
        image_rows=image.shape[0],
        n_symbols=len(bundle.symbols),
        sections=(_I32 * len(engine.Section))(*(bundle.sections.get(s, NO_SECTION) for s in engine.Section)),
        group=bundle.group,
        tuple_rows=bundle.tuple_rows,
        level_stride=bundle.level_stride,
        levels=bundle.levels,
        batch=bundle.batch,
    )
    return data, [program, instructions, descriptors, constants, image, symbols]
