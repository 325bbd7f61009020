"""The structures through which Python and the native core hand things over, and the kinds of problems.

In: fields of `hwgen.spec`. Out: `ctypes` structures; `headers` writes them in C, docstrings as comments.
"""

import ctypes
import re
from dataclasses import fields
from enum import IntEnum, IntFlag
from functools import partial

from hwgen.spec import columns, cycles, engine, strider
from hwgen.spec.config import MachineConfig
from hwgen.spec.counters import COUNTERS

BLOCK = 16
"""Tuples that compiled code takes at a time."""
ENGINE_CODES = 1 << engine.FIELDS[0].width
"""Opcodes that the field of an engine instruction can name."""
NO_OPCODE = len(strider.Opcode)
"""In the place of a Strider's."""
# all integers of the module: a new constant belongs to the contract without a line here
CONTRACT = {name.lower(): number for name, number in vars(cycles).items() if isinstance(number, int)}
"""Numbers of the cycle contract."""

Fields = tuple[tuple[str, type], ...]


def members(kind: type, names: str) -> Fields:
    return tuple((name, kind) for name in names.split())


_i32, _i64 = partial(members, ctypes.c_int32), partial(members, ctypes.c_int64)


def pointers(kind: str, names: str) -> Fields:
    """Addresses of a C type."""
    # the name of the class is the C type that `headers` prints; all are addresses
    return members(type(kind, (ctypes.c_void_p,), {}), names)


class Machine(ctypes.Structure):
    """hwgen.spec.config.MachineConfig and hwgen.spec.cycles. special_latency 0: the machine has no such function."""

    _fields_ = (
        *_i32(" ".join((*(field.name for field in fields(MachineConfig)), *CONTRACT, "page_cycles strider_bound"))),
        ("special_latency", ctypes.c_int32 * ENGINE_CODES),
        ("special_interval", ctypes.c_int32 * ENGINE_CODES),
    )


class Instruction(ctypes.Structure):
    """hwgen.spec.engine.Instruction."""

    _fields_ = _i32(" ".join(field.name for field in engine.FIELDS))


class StriderInstruction(ctypes.Structure):
    """hwgen.spec.strider.Instruction; of EXTRB b in bits. What follows from it: its cycles, the instruction behind it
    and the one that it goes to, the number of two fields, the bits that a result keeps. op: not one of the opcodes
    where there is no such instruction."""

    _fields_ = (*_i32("op a b c cost next target value"), ("mask", ctypes.c_uint32))


class Column(ctypes.Structure):
    """hwgen.spec.columns.Column; then bytes on the page, cycles of the unpacker, whether its use is a
    BAD_INSTRUCTION, the input that code reads where it lies, or -1, and the number of its `sim_order` from 1 on, or 0,
    which the core works out."""

    _fields_ = _i32(" ".join((*(field.name for field in columns.FIELDS), "bytes", "beats", "bad", "input", "order")))


class Handed(ctypes.Structure):
    """A column of rows that are alike: row k's lies at page + address[k] + offset. gap: cycles from the previous push,
    or from the iteration's start, until it could be pushed."""

    _fields_ = (
        *pointers("const struct sim_column", "column"),
        *pointers("const uint32_t", "address"),
        ("offset", ctypes.c_uint32),
        ("gap", ctypes.c_int32),
    )


class ObserverData(ctypes.Structure):
    """What looks at an epoch's values, in the pages' order, before anything else is made of them. tuples: rows of a
    page from `row` on, which are whole tuples and alike; column: one by itself, of a tuple that may end on another
    page; end: of the epoch. NULL: there is no observer."""

    _fields_ = (
        *pointers("sim_observe_tuples", "tuples"),
        *pointers("sim_observe_column", "column"),
        *pointers("sim_observe_end", "end"),
        *pointers("void", "context"),
    )


class TableData(ctypes.Structure):
    """hwgen.spec.bundle.Table."""

    _fields_ = _i32("records rows")


class HeldData(ctypes.Structure):
    """A hwgen.spec.bundle.Symbol of a table: `vectors` of each record, of `last` floats in rows from `row` on, `stride`
    floats from one to the next where they lie. broadcast: each float in a row of its own."""

    _fields_ = _i32("table row vectors last stride broadcast")


class BundleData(ctypes.Structure):
    """hwgen.spec.bundle.Bundle; constants of SIM_TEMPORARIES words, image of [image_rows][lanes], -1 for a section that
    is not there, merges that a host joins."""

    _fields_ = (
        *pointers("const struct sim_instruction", "program"),
        *pointers("const struct sim_strider_instruction", "strider"),
        *pointers("const struct sim_column", "columns"),
        *pointers("const uint32_t", "constants image"),
        *pointers("const struct sim_table", "tables"),
        *pointers("const struct sim_held", "held"),
        *pointers("const struct sim_merge", "merges"),
        *_i32("n_program n_strider n_columns image_rows n_tables n_held n_merges"),
        ("sections", ctypes.c_int32 * len(engine.Section)),
        *_i32("group tuple_rows level_stride levels"),
        ("batch", ctypes.c_uint32),
    )


class PartFlag(IntFlag):
    """Bits of the first number that a part of a training sends with its merges."""

    HAS_TUPLES = 1
    """It has tuples in this batch."""
    IS_LAST = 2
    """It has no batch behind this one."""


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
    """Why a Bundle was rejected, the section and the instruction; dana/simulator/problems.py has the words for it."""

    _fields_ = (*_i32("kind section position"), *_i64("found limit"))


class Merge(ctypes.Structure):
    """A merge, joined at the end of pass number `pass`, from 0: `leading` vectors of `last` floats. In code, a stack:
    levels of `size` floats from `first` on; level k holds 2 to the power of k tuples; `stride` floats from one vector
    to the next. In the scratchpad, from `row` on; broadcast: each float in a row of its own."""

    _fields_ = (*_i64("first size levels stride"), *_i32("op pass leading last row broadcast"))


class CompiledPass(ctypes.Structure):
    """A pass over a batch's tuples behind the first: between: what precedes it, from what is merged till then; block,
    one: as of the first. The batch's tuples are all there."""

    _fields_ = pointers("sim_compiled_function", "between block one")


class CompiledSymbol(ctypes.Structure):
    """Rows of a hwgen.spec.bundle.Symbol, and where it lies in `state`: `leading` vectors of `last` floats; first -1:
    the epoch's loss. broadcast: each float in a row of its own. into, out: read from the scratchpad before an epoch,
    written to it after one."""

    _fields_ = (*_i32("row leading last"), *_i64("first stride"), *_i32("broadcast into out"))


class CompiledTable(ctypes.Structure):
    """Where in `state` code wants the address of what sim_bundle.held[held] says."""

    _fields_ = (*_i32("held"), *_i64("first"))


class CompiledIndex(ctypes.Structure):
    """An element of an input of each tuple, which chooses a row, and the model's rows; input -1: it is computed."""

    _fields_ = _i32("input element rows tag")


class CompiledInput(ctypes.Structure):
    """An input of each tuple: its first float where tuples are packed; the column that is all of it, or -1; floats that
    code may read of it as it lies on a page, or 1: a number, which is packed with those of other tuples."""

    _fields_ = _i32("first column floats")


class CompiledData(ctypes.Structure):
    """A rule's code. begin: of an epoch. before, after: of a batch; last: the epoch's last. block: SIM_BLOCK tuples, or
    NULL; one: a tuple. rows, last_row: in the place of all but `begin` where batches are of one tuple; the epoch's
    last. slots: of each merge, where in its stack a batch's result lies. indices: in the order of the faults' tags.
    loss: which of the merges; -1: none. wrong: where in `state` code notes the first number that is no row's; -1: it
    does not look. ahead: bytes from what a block reads of a page to what it asks for; 0: it reads none. batch: tuples
    of a batch as the rule has it, or the whole epoch: the Bundle's is larger where those that share no row run side by
    side. n_stacks: of merges, with the loss. floats: of `state`, where any tuples may be joined by other code with a
    copy of it; 0: they may not."""

    _fields_ = (
        *pointers("sim_compiled_function", "begin before block one after last"),
        *pointers("sim_compiled_rows", "rows last_row"),
        *pointers("float", "state"),
        *pointers("int64_t", "slots"),
        *pointers("const struct sim_merge", "merges"),
        *pointers("const struct sim_compiled_pass", "passes"),
        *pointers("const struct sim_compiled_symbol", "symbols"),
        *pointers("const struct sim_compiled_table", "tables"),
        *pointers("const struct sim_compiled_index", "indices"),
        *pointers("const struct sim_compiled_input", "inputs"),
        *_i64("wrong floats"),
        *_i32("n_merges n_stacks n_passes n_symbols n_tables n_indices n_inputs loss ahead"),
        ("batch", ctypes.c_uint32),
    )


class Join(ctypes.Structure):
    """Where merges are joined with those of other parts of the rows, each in a simulator of its own; exchange NULL:
    there is one part."""

    _fields_ = (*pointers("sim_exchange", "exchange"), *pointers("void", "context"), *_i32("parts"))


class Counters(ctypes.Structure):
    """hwgen.spec.counters.EpochCounters."""

    _fields_ = (
        *members(ctypes.c_uint64, " ".join(COUNTERS)),
        *members(ctypes.c_uint32, "fault fault_page fault_pointer"),
    )


STRUCTURES: dict[str, type[ctypes.Structure]] = {
    re.sub("(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Data")).lower(): kind
    for name, kind in list(globals().items())
    if isinstance(kind, type) and issubclass(kind, ctypes.Structure)
}
"""By NAME of struct sim_NAME; in the order of this file, in which C needs them."""
