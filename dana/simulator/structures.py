"""The structures through which Python and the native core hand things over, and the kinds of problems.

In: fields of `hwgen.spec`. Out: `ctypes` structures; `headers` writes them in C, docstrings as comments.
"""

import ctypes
from enum import IntEnum

from hwgen.spec import columns, engine, strider

BLOCK = 16
"""Tuples that compiled code takes at a time."""
SURVEY_BLOCK = 64
"""Tuples whose distances a survey adds up before it moves the mean."""
TALLY_SLOTS = 8192
ENGINE_CODES = 1 << engine.FIELDS[0].width
"""Opcodes that the field of an engine instruction can name."""

Fields = tuple[tuple[str, type], ...]


def _of(kind: type, names: str) -> Fields:
    return tuple((name, kind) for name in names.split())


def _i32(names: str) -> Fields:
    return _of(ctypes.c_int32, names)


def _i64(names: str) -> Fields:
    return _of(ctypes.c_int64, names)


def _at(kind: str, names: str) -> Fields:
    """Addresses of a C type."""
    return _of(type(kind, (ctypes.c_void_p,), {}), names)


class Tally(ctypes.Structure):
    """How often values are there (0: the slot is free), and their sum. So many bits of them are dropped that half of
    the slots are enough."""

    _fields_ = (
        ("keys", ctypes.c_uint32 * TALLY_SLOTS),
        ("counts", ctypes.c_double * TALLY_SLOTS),
        ("sums", ctypes.c_double * TALLY_SLOTS),
        *_i32("used dropped"),
    )


class SurveyData(ctypes.Structure):
    """What a survey finds of a tuple's elements, arrays of [tuple_rows][lanes]; the caller's memory. One number each:
    tuples without NaN or infinity, sum of the weights, how many are below 0. early, earlier: the mean of as many tuples
    as the largest power of two says, and of half of them. sums, sums_of_squares: of the block that has begun, distances
    from the mean. before: room for both. classes: sums of the weights by the label's class. first: the first tuple's
    bits; differ: those in which another one's differ. room: for a block of tuples and one more. summed, by row: whether
    sums are wanted; else only the bits. tally: of the label, or NULL. count: of classes. weight, label: rows of a tuple
    that they lie in, or -1. trains: whether the epoch trains besides."""

    _fields_ = (
        *_at("double", "tuples mean squares bad early earlier sums sums_of_squares before weights negative classes"),
        *_at("uint32_t", "first differ"),
        *_at("float", "room"),
        *_at("const uint8_t", "summed"),
        *_at("struct sim_tally", "tally"),
        *_i64("count weight label trains"),
    )


class Machine(ctypes.Structure):
    """hwgen.spec.config.MachineConfig and hwgen.spec.cycles. special_latency 0: the machine has no such function."""

    _fields_ = (
        *_i32("threads clusters striders page_size scratch_depth tuple_depth program_depth strider_depth"),
        *_i32("descriptor_depth index_depth queue_depth page_cycles link_latency"),
        *_i32("result_latency section_start min_instruction round_start"),
        *_i32("strider_start strider_bound unpack_stages unpack_latency page_release"),
        ("strider_cycles", ctypes.c_int32 * len(strider.Opcode)),
        ("special_latency", ctypes.c_int32 * ENGINE_CODES),
        ("special_interval", ctypes.c_int32 * ENGINE_CODES),
    )


class Instruction(ctypes.Structure):
    """hwgen.spec.engine.Instruction."""

    _fields_ = _i32(" ".join(field.name for field in engine.FIELDS))


class StriderInstruction(ctypes.Structure):
    """hwgen.spec.strider.Instruction."""

    _fields_ = _i32("op a b c")


class Column(ctypes.Structure):
    """hwgen.spec.columns.Column; then bytes on the page, cycles of the unpacker, whether its use is a
    BAD_INSTRUCTION, and the input that code reads where it lies, or -1, which the core works out."""

    _fields_ = _i32(" ".join((*(field.name for field in columns.FIELDS), "bytes", "beats", "bad", "input")))


class SymbolRows(ctypes.Structure):
    """Scratchpad rows of a hwgen.spec.bundle.Symbol."""

    _fields_ = _i32("row rows")


class BundleData(ctypes.Structure):
    """hwgen.spec.bundle.Bundle; constants of SIM_TEMPORARIES words, image of [image_rows][lanes], -1 for a section that
    is not there."""

    _fields_ = (
        *_at("const struct sim_instruction", "program"),
        *_at("const struct sim_strider_instruction", "strider"),
        *_at("const struct sim_column", "columns"),
        *_at("const uint32_t", "constants image"),
        *_at("const struct sim_symbol_rows", "symbols"),
        *_i32("n_program n_strider n_columns image_rows n_symbols"),
        ("sections", ctypes.c_int32 * len(engine.Section)),
        *_i32("group tuple_rows level_stride levels"),
        ("batch", ctypes.c_uint32),
    )


class ProblemKind(IntEnum):
    """Why the core does not take a Bundle that keeps the rules of `hwgen.spec.legal`."""

    FITS = 0
    NO_MEMORY = 1
    DST_OUTSIDE = 2
    A_OUTSIDE = 3
    B_OUTSIDE = 4
    TOO_SHORT = 5
    WRITES_COLLIDE = 6
    RESULTS_OUTSTAND = 7
    INDEX_OVERLAPS = 8


class Problem(ctypes.Structure):
    """Why a Bundle was refused, the section and the instruction; dana/simulator/problems.py has the words for it."""

    _fields_ = (*_i32("kind section position"), *_i64("found limit"))


class CompiledMerge(ctypes.Structure):
    """A merge's stack: levels of `size` floats from `first` on; level k holds 2 to the power of k tuples. It is joined
    at the end of pass number `pass`, from 0."""

    _fields_ = (*_i64("first size"), *_i32("op pass"))


class CompiledPass(ctypes.Structure):
    """A pass over a batch's tuples behind the first: between: what precedes it, from what is merged till then; block,
    one: as of the first. The batch's tuples are all there."""

    _fields_ = _at("sim_compiled_function", "between block one")


class CompiledSymbol(ctypes.Structure):
    """Rows of a hwgen.spec.bundle.Symbol, and where it lies in `state`: `leading` vectors of `last` floats, last 0: a
    scalar; first -1: the epoch's loss. into, out: read from the scratchpad before an epoch, written to it after one."""

    _fields_ = (*_i32("row leading last"), *_i64("first stride"), *_i32("into out"))


class CompiledIndex(ctypes.Structure):
    """An element of an input of each tuple, which chooses a row, and the model's rows; input -1: it is computed."""

    _fields_ = _i32("input element rows")


class CompiledInput(ctypes.Structure):
    """An input of each tuple: its first float where tuples are packed; the column that is all of it, or -1; floats that
    code may read of it as it lies on a page, or 1: a number, which is packed beside those of other tuples."""

    _fields_ = _i32("first column floats")


class CompiledData(ctypes.Structure):
    """A rule's code. begin: of an epoch. before, after: of a batch; last: the epoch's last. block: SIM_BLOCK tuples, or
    NULL; one: a tuple. rows, last_row: in the place of all but `begin` where batches are of one tuple; the epoch's
    last. slots: of each merge, where in its stack a batch's result lies. indices: in the order of the faults' tags.
    loss: which of the merges; -1: none. wrong: where in `state` code notes the first number that is no row's; -1: it
    does not look."""

    _fields_ = (
        *_at("sim_compiled_function", "begin before block one after last"),
        *_at("sim_compiled_rows", "rows last_row"),
        *_at("float", "state"),
        *_at("int64_t", "slots"),
        *_at("const struct sim_compiled_merge", "merges"),
        *_at("const struct sim_compiled_pass", "passes"),
        *_at("const struct sim_compiled_symbol", "symbols"),
        *_at("const struct sim_compiled_index", "indices"),
        *_at("const struct sim_compiled_input", "inputs"),
        *_of(ctypes.c_int64, "wrong"),
        *_i32("n_merges n_passes n_symbols n_indices n_inputs loss"),
    )


class Counters(ctypes.Structure):
    """hwgen.spec.counters.EpochCounters."""

    _fields_ = (
        *_of(ctypes.c_uint64, "cycles tuples skipped engine_busy merging waiting_for_engine waiting_for_pages"),
        *_of(ctypes.c_uint32, "fault fault_page fault_pointer"),
    )


STRUCTURES: dict[str, type[ctypes.Structure]] = {
    "tally": Tally,
    "survey": SurveyData,
    "machine": Machine,
    "instruction": Instruction,
    "strider_instruction": StriderInstruction,
    "column": Column,
    "symbol_rows": SymbolRows,
    "bundle": BundleData,
    "problem": Problem,
    "compiled_merge": CompiledMerge,
    "compiled_pass": CompiledPass,
    "compiled_symbol": CompiledSymbol,
    "compiled_index": CompiledIndex,
    "compiled_input": CompiledInput,
    "compiled": CompiledData,
    "counters": Counters,
}
"""struct sim_NAME, in the order in which C needs them."""
