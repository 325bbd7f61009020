"""The Bundle: everything a machine needs to train one rule on one table, and its versioned binary form.

In: what the compiler made. Out: the object, its bytes, and the object again. It knows nothing of rules, graphs or
hardware libraries.

Binary form, little-endian: magic (8 bytes), version (u32), length of the header (u32), the header (JSON, UTF-8),
the blocks that the header's `blocks` lists with their word counts (u32 words), CRC-32 of all before it (u32).
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hwgen.spec import columns, engine, strider
from hwgen.spec.config import MachineConfig
from hwgen.spec.fields import joined, split

MAGIC = b"DANABNDL"
VERSION = 10
RECORD_BOUNDARY = 4096
"""Bytes of the largest record, and what a table's address is a multiple of: no burst crosses that (AXI4, A3.4.1)."""

WHOLE_EPOCH = 0xFFFFFFFF
"""Batch size that stands for "all tuples of the epoch"."""

SIZES = ("batch", "group", "tuple_rows", "level_stride", "levels")
"""Fields that are numbers, in the binary form under the same names."""

Words = npt.NDArray[np.uint32]
Floats = npt.NDArray[np.float32]
Held = npt.NDArray[np.bool_]


class BundleError(ValueError):
    """Bytes that are not a Bundle of this version, or were damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a value in the record memory starts, which no image holds."""

    kind: str
    """Family of the start values, a member of `dsl.hdfg.init.InitKind`."""
    first: float
    second: float
    seed: int
    narrow: bool = False
    """Whether the values are rounded to bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """A named value in the scratchpad.

    Element e of a vector lies in row `row + e div lanes`, lane `e mod lanes`; the rows of a
    matrix follow one another, each starting a new row of lanes. A scalar is repeated in every lane of its row.
    """

    name: str
    kind: str
    """`model`, `meta`, `loss` (sum over the epoch), `convergence` (non-zero: converged), `merge` (what a batch came to
    where the machine pauses; its name is the operation that joins it with others)."""
    shape: tuple[int, ...]
    row: int
    broadcast: bool = False
    """Whether each element lies as a scalar does, in a row of its own."""
    table: int = 0
    """0, or the number of the table whose records are the value's along its first axis; `row` is counted in a
    record."""
    start: Start | None = None
    """Of a model in a table: how it starts."""

    def rows(self, lanes: int) -> int:
        """Rows that the value takes."""
        return rows_of(self.shape, lanes, broadcast=self.broadcast)

    def record_rows(self, lanes: int) -> int:
        """Of a value in a table: rows that it takes in each record."""
        return self.rows(lanes) // self.shape[0]

    def place(self, value: npt.ArrayLike, lanes: int) -> Floats:
        """The value's rows, shape [rows, lanes]."""
        return place(value, lanes, broadcast=self.broadcast)

    def held(self, lanes: int) -> Held:
        """Which words of the value's rows, or of a record's, are its elements; others hold anything."""
        ones = place(np.ones(self.shape[bool(self.table) :]), lanes, broadcast=self.broadcast)
        return ones.astype(np.bool_)

    def collect(self, rows: npt.ArrayLike) -> Floats:
        """The value that lies in rows of shape [rows, lanes]."""
        return collect(rows, self.shape, broadcast=self.broadcast)


def rows_of(shape: tuple[int, ...], lanes: int, *, broadcast: bool = False) -> int:
    """Rows that a value takes: one for a scalar, `ceil(n / lanes)` for each vector of n elements; or one an element."""
    return prod(shape) if broadcast or not shape else prod(shape[:-1]) * -(-shape[-1] // lanes)


def place(value: npt.ArrayLike, lanes: int, *, broadcast: bool = False) -> Floats:
    """Lay a value out as scratchpad rows, shape [rows, lanes]; lanes past the end are zero."""
    array = np.asarray(value, dtype=np.float32)
    if broadcast or array.ndim == 0:
        return array.reshape(-1, 1).repeat(lanes, axis=1)
    last = array.shape[-1]
    flat = array.reshape(-1, last)
    padded = np.zeros((flat.shape[0], -(-last // lanes) * lanes), dtype=np.float32)
    padded[:, :last] = flat
    return padded.reshape(-1, lanes)


def collect(rows: npt.ArrayLike, shape: tuple[int, ...], *, broadcast: bool = False) -> Floats:
    """The inverse of `place`: rows of shape [rows, lanes] to a value of `shape`."""
    array = np.asarray(rows, dtype=np.float32)
    if broadcast or not shape:
        return array[:, 0].reshape(shape).copy()
    leading = int(np.prod(shape[:-1], dtype=np.int64))
    return array.reshape(leading, -1)[:, : shape[-1]].reshape(shape).copy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table in the record memory; see `docs/machine.md`, "Records"."""

    records: int
    rows: int
    """Rows of lanes of each record."""

    def shift(self, lanes: int) -> int:
        """Binary logarithm of the bytes from one record to the next."""
        return (4 * lanes * self.rows - 1).bit_length()

    def size(self, lanes: int) -> int:
        """Bytes that it takes, up to where the next table may begin."""
        return -(-(self.records << self.shift(lanes)) // RECORD_BOUNDARY) * RECORD_BOUNDARY


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPlace:
    """Where one input or output of the rule lies within a tuple's rows."""

    name: str
    """The rule's name for it."""
    shape: tuple[int, ...]
    """`()` for a scalar, which is repeated in every lane of one row; `(n,)` for a vector, with element e in row
    `row + e div lanes`, lane `e mod lanes`; the rows of a matrix follow one another."""
    row: int
    """First row, counted from the start of the tuple's slot."""
    broadcast: bool = False
    """Whether each element lies as a scalar does, in a row of its own."""

    def rows(self, lanes: int) -> int:
        """Rows that it takes on a machine with that many lanes to a thread."""
        return rows_of(self.shape, lanes, broadcast=self.broadcast)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """A column of the table, and the elements of an input that it fills."""

    column: str
    input: str
    element: int
    """The first of them."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """An element of an input that numbers categories."""

    input: str
    element: int
    count: int
    """How many categories there are."""
    unknown: bool
    """A number below 0 chooses a row, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChoice:
    """A choice of rows of a model by a number of the tuple."""

    inputs: tuple[str, ...]
    """Those that the number is computed from."""
    element: int | None
    """Where the number is an element of the one input, its position."""
    model: str
    rows: int
    """Rows of the model."""
    count: int = 1
    """Elements that choose rows, from `element` on."""
    category: Category | None = None
    """Where the number is computed from a category and nothing else: that."""
    columns: tuple[tuple[str, int | None], ...] = ()
    """Columns of the table that the number comes from, and of an array the element, counted from 1."""

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> RowChoice:
        """The inverse of `asdict`, from JSON's lists and objects."""
        category = None if json["category"] is None else Category(**json["category"])
        columns = tuple((name, number) for name, number in json["columns"])
        return cls(**{**json, "inputs": tuple(json["inputs"]), "category": category, "columns": columns})


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """See `docs/machine.md`."""

    config: MachineConfig
    program: tuple[engine.Instruction, ...]
    sections: Mapping[engine.Section, int]
    """First instruction of each section that the program has."""
    strider: tuple[strider.Instruction, ...]
    constants: tuple[int, ...]
    """The Strider's %cr registers, at most 32."""
    columns: tuple[columns.Column, ...]
    batch: int
    """Tuples of a batch, or `WHOLE_EPOCH`."""
    group: int
    """Tuples of one thread in a round; power of two."""
    tuple_rows: int
    """Rows of one tuple in tuple memory."""
    level_stride: int
    """Rows of one level of the merge stack."""
    levels: int
    """Levels that the merge stack has room for."""
    image: Words
    """First rows of every thread's scratchpad, bit patterns, shape [rows, lanes]; the rest is zero."""
    symbols: tuple[Symbol, ...]
    """Where models, metas, loss, convergence and merges lie."""
    tables: tuple[Table, ...] = ()
    """Tables in the record memory, the first of which is number 1."""
    inputs: tuple[InputPlace, ...] = ()
    """Where inputs lie in a tuple's rows."""
    fills: tuple[Fill, ...] = ()
    """What the columns of the table fill, in the order of the rule's inputs."""
    choices: tuple[RowChoice, ...] = ()
    """By the tag of the fault INDEX, what chooses the row."""

    @cached_property
    def digest(self) -> str:
        """Digest of the binary form: equal for equal Bundles alone."""
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
        return digest.hexdigest()

    @cached_property
    def cut(self) -> bool:
        """Whether batches end where a row is chosen again: the rule's own are of one tuple."""
        return any(column.table for column in self.columns)

    @cached_property
    def table_offsets(self) -> tuple[int, ...]:
        """Where tables begin in the record memory, in bytes from the first one's beginning; last, where all end."""
        return tuple(accumulate((table.size(self.config.lanes) for table in self.tables), initial=0))

    @cached_property
    def merges(self) -> tuple[Symbol, ...]:
        """What a host joins with the sums of other machines, before section `batch`; the machine pauses if there is
        some."""
        return self.of_kind("merge")

    @property
    def rule_batch(self) -> int:
        """Tuples of a batch as the rule has it, or `WHOLE_EPOCH`."""
        return 1 if self.cut else self.batch

    @cached_property
    def round_tuples(self) -> int:
        """Tuples that the machine takes at a time."""
        return self.config.threads * self.group

    def symbol(self, kind: str, name: str | None = None) -> Symbol | None:
        """The first symbol of a kind (and name), or None."""
        for symbol in self.symbols:
            if symbol.kind == kind and (name is None or symbol.name == name):
                return symbol
        return None

    def of_kind(self, kind: str) -> tuple[Symbol, ...]:
        return tuple(symbol for symbol in self.symbols if symbol.kind == kind)

    def record_held(self, table: int) -> Held:
        """Which words of a table's record hold elements, shape [rows, lanes]."""
        held = np.zeros((self.tables[table - 1].rows, self.config.lanes), dtype=bool)
        for symbol in self.symbols:
            if symbol.table == table:
                own = symbol.held(self.config.lanes)
                held[symbol.row : symbol.row + len(own)] = own
        return held

    def section(self, name: engine.Section) -> tuple[engine.Instruction, ...]:
        """The instructions of a section, END included."""
        start = self.sections[name]
        for stop in range(start, len(self.program)):
            if self.program[stop].op is engine.Opcode.END:
                return self.program[start : stop + 1]
        raise BundleError(f"section {name} has no END")

    def program_words(self) -> Words:
        words = split((instruction.encode() for instruction in self.program), engine.WORD_U32)
        return np.array(words, dtype=np.uint32)

    def strider_words(self) -> Words:
        return np.array([instruction.encode() for instruction in self.strider], dtype=np.uint32)

    def column_words(self) -> Words:
        return np.array(split((column.encode() for column in self.columns), columns.WORD_U32), dtype=np.uint32)

    def to_bytes(self) -> bytes:
        """The binary form; equal Bundles give equal bytes."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The binary form, of which an image may be a gigabyte, without a copy of it."""
        blocks = {
            "program": self.program_words(),
            "strider": self.strider_words(),
            "constants": np.array(self.constants, dtype=np.uint32),
            "columns": self.column_words(),
            "image": np.ascontiguousarray(self.image, dtype=np.uint32).ravel(),
        }
        header = {
            "config": self.config.to_json(),
            "sections": {str(name): start for name, start in self.sections.items()},
            **{name: getattr(self, name) for name in SIZES},
            "symbols": [asdict(one) for one in self.symbols],
            "tables": [[table.records, table.rows] for table in self.tables],
            **{name: [asdict(one) for one in getattr(self, name)] for name in ("inputs", "fills", "choices")},
            "blocks": {name: int(words.size) for name, words in blocks.items()},
        }
        text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        begin = MAGIC + struct.pack("<II", VERSION, len(text)) + text
        pieces: list[bytes | memoryview] = [
            begin,
            *(words.astype("<u4", copy=False).view(np.uint8).data for words in blocks.values()),
        ]
        yield from pieces
        checksum = 0
        for piece in pieces:
            checksum = zlib.crc32(piece, checksum)
        yield struct.pack("<I", checksum)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Bundle:
        """Read the binary form. Raises BundleError where it is of another version or damaged."""
        if bytes(data[:8]) != MAGIC:
            raise BundleError(f"a Bundle starts with {MAGIC!r}, this starts with {bytes(data[:8])!r}")
        if len(data) < 20:
            raise BundleError(f"a Bundle has at least 20 bytes, this has {len(data)}")
        version, length = struct.unpack_from("<II", data, 8)
        if version != VERSION:
            raise BundleError(f"this program reads Bundle version {VERSION}, found {version}; compile the rule again")
        # asked before anything else is read: a damaged header could name any length
        if struct.unpack("<I", data[-4:])[0] != zlib.crc32(data[:-4]):
            raise BundleError("the Bundle is damaged: its checksum does not match; compile the rule again")
        header = json.loads(bytes(data[16 : 16 + length]))
        words: dict[str, Words] = {}
        at = 16 + length
        # the order in which to_bytes writes them; JSON sorts the header's keys
        for name in ("program", "strider", "constants", "columns", "image"):
            count = header["blocks"][name]
            words[name] = np.frombuffer(data, dtype="<u4", count=count, offset=at).astype(np.uint32)
            at += 4 * count
        config = MachineConfig.from_json(header["config"])
        program = joined("an engine program", words["program"], engine.WORD_U32)
        table = joined("a table of column descriptors", words["columns"], columns.WORD_U32)
        return cls(
            config=config,
            program=tuple(engine.Instruction.decode(word) for word in program),
            sections={engine.Section(name): start for name, start in header["sections"].items()},
            strider=tuple(strider.Instruction.decode(int(word)) for word in words["strider"]),
            constants=tuple(int(word) for word in words["constants"]),
            columns=tuple(columns.Column.decode(word) for word in table),
            **{name: header[name] for name in SIZES},
            image=words["image"].reshape(-1, config.lanes),
            symbols=tuple(
                Symbol(**{**one, "shape": tuple(one["shape"]), "start": one["start"] and Start(**one["start"])})
                for one in header["symbols"]
            ),
            tables=tuple(Table(records=records, rows=rows) for records, rows in header["tables"]),
            inputs=tuple(InputPlace(**{**one, "shape": tuple(one["shape"])}) for one in header["inputs"]),
            fills=tuple(Fill(**one) for one in header["fills"]),
            choices=tuple(map(RowChoice.from_json, header["choices"])),
        )
