"""Writes the Strider program and the column descriptors for a table's schema.

In: the schema, the columns in use and where their elements go in tuple memory. Out: instructions, %cr registers and
descriptors. The program follows line pointers, skips what is not LP_NORMAL, checks every offset, skips rows with a
NULL in a used column and hands the others, column run by column run, to the unpacker. It does on the machine what
`dana.storage.reader` does in Python, fault for fault.
"""

from collections.abc import Sequence
from dataclasses import replace

from dana.compiler.place.rows import InputPlaces
from dana.compiler.place.watch import Watched
from dana.compiler.strider.pages import PageWriter, Run, StriderProgram, T, append
from dana.compiler.strider.parts import PartWriter
from dana.errors import UsageError
from dana.storage import layout
from dana.storage.schema import Attribute, TableSchema, Use
from dana.storage.types import ARRAYS, SCALARS
from hwgen.spec.columns import Column
from hwgen.spec.config import ConfigError, MachineConfig
from hwgen.spec.cycles import STRIDER_CYCLES
from hwgen.spec.strider import Control, Fault, Opcode

REQUIRED = 24
"""Attributes checked for presence at once: the constant with a bit for each has 24 bits."""


def compile_strider(
    schema: TableSchema,
    uses: Sequence[Use],
    inputs: InputPlaces,
    config: MachineConfig,
    watched: Sequence[Watched] = (),
) -> StriderProgram:
    """The program for a schema.

    Parameters
    ----------
    watched
        Columns that are also handed over before their tuple, because they choose rows.

    Raises
    ------
    SchemaError
        A used column cannot be read by a Strider.
    UsageError
        The program or its descriptors do not fit the machine.
    """
    for use in uses:
        schema.usable(use.attribute)
    if schema.part:
        program = PartWriter(schema, uses, inputs, config.page_size).write()
    else:
        program = _Writer(schema, uses, inputs, config.page_size, watched).write()
    for what, found, limit, option in (
        ("instructions", len(program.instructions), config.strider_depth, "strider_depth"),
        ("column descriptors", len(program.columns), config.descriptor_depth, "descriptor_depth"),
    ):
        if found > limit:
            raise UsageError(
                f"{schema.relation} needs a Strider program of {found} {what}, the machine holds {limit}",
                hint=_what_helps(option, 1 << (found - 1).bit_length()),
            )
    return program


def _what_helps(option: str, depth: int) -> str:
    try:
        replace(MachineConfig(), **{option: depth})
    except ConfigError:
        return (
            "No machine holds so many. Use fewer columns, or a matrix with vectors that fill their rows of lanes, "
            "with a last dimension that is a multiple of 8 × clusters."
        )
    return f"Set {option} to {depth}, or put used columns of one type side by side."


class _Writer(PageWriter):
    """Tuples as a table has them."""

    faults = (Fault.TOASTED, Fault.COMPRESSED, Fault.ARRAY_SHAPE, Fault.ARRAY_NULLS)

    def __init__(
        self,
        schema: TableSchema,
        uses: Sequence[Use],
        inputs: InputPlaces,
        page_size: int,
        watched: Sequence[Watched],
    ) -> None:
        self.attributes = schema.attributes
        self.watched = watched
        self._watching = False
        self.uses = {use.attribute: use for use in uses}
        self.last = max(self.uses)
        super().__init__(inputs, page_size, attributes=self.last + 1, total=sum(use.count for use in uses))

    def _row(self) -> None:
        self._hand(holes=False)

    # --- null bitmaps -----------------------------------------------------------------------------------------------

    def _nulls(self) -> None:
        """A tuple with a null bitmap: whole up to the last used column, or with holes."""
        asm = self.asm
        asm.label("nulls")
        # t_hoff must be that of so many attributes: a bit of each behind the header, then MAXALIGN (htup_details.h)
        asm.emit(Opcode.AD, T.NATTS, asm.constant(7), T.MASK)
        asm.emit(Opcode.EXTRBI, T.MASK, 3, 9)
        asm.emit(Opcode.AD, T.MASK, asm.constant(layout.TUPLE_HEADER_SIZE), T.MASK)
        asm.emit(Opcode.CLN, T.MASK, 3, T.MASK)
        asm.branch(Opcode.BNE, T.DATA, T.MASK, Fault.TUPLE_HEADER.name)
        asm.emit(Opcode.AD, T.START, T.DATA, T.DATA)
        asm.branch(Opcode.BLT, T.END, T.DATA, Fault.TUPLE_HEADER.name)
        asm.branch(Opcode.BLT, T.NATTS, asm.constant(self.last + 1), "skip")
        holes = "holes" if len(self.uses) <= self.last else "skip"
        for first, count in _spans(range(self.last + 1)):
            self._require(first, count, holes)
        asm.jump("whole")
        if holes == "holes":
            asm.label("holes")
            for first, count in _spans(sorted(self.uses)):
                self._require(first, count, "skip")
            self._hand(holes=True)
            asm.jump("next")

    def _bits(self, first: int, count: int) -> None:
        """%WORD <- bits [first, first + count) of the null bitmap; they lie within four bytes."""
        asm = self.asm
        size = (first % 8 + count + 7) // 8
        asm.emit(Opcode.READB, self.behind(T.START, layout.T_BITS + first // 8), size, T.WORD)
        # what was read may have bits of other attributes at both ends
        if first % 8 or count != 8 * size:
            asm.emit(Opcode.EXTRBI, T.WORD, first % 8, count)

    def _require(self, first: int, count: int, otherwise: str) -> None:
        """Go to `otherwise` unless all of these attributes are present."""
        self._bits(first, count)
        self.asm.branch(Opcode.BNE, T.WORD, self.asm.constant((1 << count) - 1), otherwise)

    # --- columns --------------------------------------------------------------------------------------------------

    def _hand(self, *, holes: bool) -> None:
        """Hand a tuple over; before all of it, if there are any, the columns that are watched."""
        if self.watched:
            inputs = {(one.input, one.element) for one in self.watched}
            last = max(
                k for k, use in self.uses.items() for e in range(use.count) if (use.input, use.element + e) in inputs
            )
            self._watching = True
            self._walk(last, holes=holes)
            self._watching = False
        self._walk(self.last, holes=holes)

    def hand_over(self, base: int, run: Run) -> None:
        """Hand a run over, or those of its elements that are watched."""
        if not self._watching:
            super().hand_over(base, run)
            return
        for one in self.watched:
            element = one.element - run.element
            if one.input == run.input and 0 <= element < run.count:
                row = next((record.row for record in self.inputs.records if record.column == one), 0)
                column = Column(count=1, row=row, type=run.kind, table=one.table, writes=int(one.writes))
                self.hand_column(base, run.offset + element * run.kind.bytes, column)

    def _walk(self, last: int, *, holes: bool) -> None:
        """Pass the attributes up to a used one, handing over those in use.

        The position is `base` + `offset`, the base being a register known to be a multiple of `aligned`. With `holes`
        every unused attribute may be absent, so the position after it is not known before the tuple is there.
        """
        self.written = 0
        # t_hoff is a multiple of MAXALIGN, so the data begin aligned for every type (htup_details.h)
        base, offset, aligned = T.DATA, 0, layout.MAXALIGN
        runs: list[Run] = []
        k = 0
        while k <= last:
            attribute = self.attributes[k]
            use = self.uses.get(k)
            if use is None and holes:
                self._leave(base, runs, offset)
                k = self._pass_absent(k)
                base, offset, aligned = T.POINTER, 0, 1
                continue
            if attribute.length < 0:
                self._leave(base, runs, offset)
                self._varlena(attribute, use)
                base, offset, aligned = T.POINTER, 0, 1
                k += 1
                continue
            if attribute.alignment > aligned:
                # %POINTER is no multiple of this alignment: it is rounded up, as `att_align_nominal` does (tupmacs.h)
                self._leave(base, runs, offset)
                self.asm.emit(Opcode.CLN, T.POINTER, attribute.alignment.bit_length() - 1, T.POINTER)
                base, offset, aligned = T.POINTER, 0, attribute.alignment
            offset = layout.align_up(offset, attribute.alignment)
            if use is not None:
                append(runs, Run(offset, SCALARS[attribute.type_oid].column, use.input, use.element, 1))
            offset += attribute.length
            k += 1
        self._flush(base, runs, offset)

    def _leave(self, base: int, runs: list[Run], offset: int) -> None:
        """Hand over what was passed; %POINTER <- base + offset."""
        self._flush(base, runs, offset)
        runs.clear()
        if base != T.POINTER or offset:
            self.asm.emit(Opcode.AD, base, self.asm.constant(offset), T.POINTER)

    def _flush(self, base: int, runs: Sequence[Run], length: int) -> None:
        """Check that `length` bytes from %base are in the tuple, then hand over the runs among them."""
        if length:
            self.within(base, length)
        for run in runs:
            self.hand_over(base, run)

    def _pass_absent(self, first: int) -> int:
        """Move %POINTER over unused attributes, possibly NULL, from `first` on; returns the next attribute."""
        asm = self.asm
        attribute = self.attributes[first]
        count = 1
        # without padding between them, values lie one behind the other however many are NULL
        if attribute.length >= 0 and attribute.length % attribute.alignment == 0:
            while (
                first + count <= self.last
                and first + count not in self.uses
                and count < 25  # with the first bit's place in its byte, 32 bits
                and self.attributes[first + count].length == attribute.length
                and self.attributes[first + count].align == attribute.align
            ):
                count += 1
        # the value's place is not known before the tuple is there, hence a branch for each run of such attributes
        after = asm.fresh("absent")
        self._bits(first, count)
        asm.branch(Opcode.BEQ, T.WORD, asm.constant(0), after)
        if attribute.length < 0:
            self._varlena(attribute, None)
        else:
            asm.emit(Opcode.CLN, T.POINTER, attribute.alignment.bit_length() - 1, T.POINTER)
            if count > 1:
                # a bit is set where the attribute is present: so many lengths further
                asm.emit(Opcode.CTL, Control.POP, T.WORD, T.WORD)
                self._times(T.WORD, attribute.length)
                asm.emit(Opcode.AD, T.POINTER, T.WORD, T.POINTER)
            else:
                asm.emit(Opcode.AD, T.POINTER, asm.constant(attribute.length), T.POINTER)
            self.within(T.POINTER, 0)
        asm.label(after)
        return first + count

    def _times(self, register: int, factor: int) -> None:
        """Multiply; by doubling where that takes fewer cycles."""
        asm = self.asm
        doublings = factor.bit_length() - 1
        if factor == 1 << doublings and doublings * STRIDER_CYCLES[Opcode.AD] < STRIDER_CYCLES[Opcode.MUL]:
            for _ in range(doublings):
                asm.emit(Opcode.AD, register, register, register)
        else:
            asm.emit(Opcode.MUL, register, asm.constant(factor), register)

    def _varlena(self, attribute: Attribute, use: Use | None) -> None:
        """Move %POINTER over a present varlena value, handing over its elements if it is in use."""
        asm = self.asm
        unpadded, long, done = asm.fresh("unpadded"), asm.fresh("long"), asm.fresh("done")
        self.within(T.POINTER, 1)
        asm.emit(Opcode.READB, T.POINTER, 1, T.FIRST)
        # att_align_pointer() of PostgreSQL: a first byte that is not 0 is no padding
        asm.branch(Opcode.BNE, T.FIRST, asm.constant(0), unpadded)
        asm.emit(Opcode.CLN, T.POINTER, attribute.alignment.bit_length() - 1, T.POINTER)
        self.within(T.POINTER, 1)
        asm.emit(Opcode.READB, T.POINTER, 1, T.FIRST)
        asm.label(unpadded)
        if use is None:
            self._skip_external(done)
        else:
            asm.branch(Opcode.BEQ, T.FIRST, asm.constant(layout.VARLENA_EXTERNAL), Fault.TOASTED.name)
        self.copy(T.FIRST, T.WORD)
        asm.emit(Opcode.EXTRBI, T.WORD, 0, 1)
        asm.branch(Opcode.BEQ, T.WORD, asm.constant(0), long)
        asm.emit(Opcode.EXTRBI, T.FIRST, 1, 7)  # a short header: seven bits of length, its own byte counted (varatt.h)
        asm.emit(Opcode.AD, T.POINTER, T.FIRST, T.STOP)
        self.within(T.STOP, 0)
        asm.emit(Opcode.AD, T.POINTER, asm.constant(1), T.PAYLOAD)
        body = asm.fresh("body")
        asm.jump(body)
        asm.label(long)
        self.within(T.POINTER, 4)
        asm.emit(Opcode.READB, T.POINTER, 4, T.WORD)
        if use is not None:
            asm.emit(Opcode.EXTRBI, T.FIRST, 0, 2)
            asm.branch(Opcode.BEQ, T.FIRST, asm.constant(layout.VARLENA_COMPRESSED), Fault.COMPRESSED.name)
        asm.emit(Opcode.EXTRBI, T.WORD, 2, 30)
        # the length counts its own four bytes; one of fewer would have the walk stand still, or go back
        asm.branch(Opcode.BLT, T.WORD, asm.constant(4), Fault.TUPLE_SHORT.name)
        asm.emit(Opcode.AD, T.POINTER, T.WORD, T.STOP)
        self.within(T.STOP, 0)
        asm.emit(Opcode.AD, T.POINTER, asm.constant(4), T.PAYLOAD)
        asm.label(body)
        if use is not None:
            self._array(attribute, use)
        self.copy(T.STOP, T.POINTER)
        asm.label(done)

    def _skip_external(self, done: str) -> None:
        asm = self.asm
        inline = asm.fresh("inline")
        asm.branch(Opcode.BNE, T.FIRST, asm.constant(layout.VARLENA_EXTERNAL), inline)
        # a TOAST pointer on disk has this size; nothing in it is followed
        asm.emit(Opcode.AD, T.POINTER, asm.constant(layout.VARSIZE_EXTERNAL_ONDISK), T.POINTER)
        self.within(T.POINTER, 0)
        asm.jump(done)
        asm.label(inline)

    def _array(self, attribute: Attribute, use: Use) -> None:
        """Check the array header at %PAYLOAD and hand its elements over."""
        asm = self.asm
        array = ARRAYS[attribute.type_oid]
        self.within(T.PAYLOAD, layout.ARRAY_DATA, T.STOP)
        for offset, expected, fault in (
            (layout.ARRAY_NDIM, 1, Fault.ARRAY_SHAPE),
            (layout.ARRAY_DATAOFFSET, 0, Fault.ARRAY_NULLS),
            (layout.ARRAY_ELEMTYPE, array.oid, Fault.ARRAY_SHAPE),
            (layout.ARRAY_DIM, use.count, Fault.ARRAY_SHAPE),
        ):
            asm.emit(Opcode.READB, self.behind(T.PAYLOAD, offset), 4, T.WORD)
            asm.branch(Opcode.BNE, T.WORD, asm.constant(expected), fault.name)
        self.within(T.PAYLOAD, layout.ARRAY_DATA + use.count * array.length, T.STOP)
        self.hand_over(T.PAYLOAD, Run(layout.ARRAY_DATA, array.column, use.input, use.element, use.count))


def _spans(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Runs (first, count) of consecutive attributes with bits that can be read as one word."""
    spans: list[tuple[int, int]] = []
    # READB fetches four bytes at most, and the constant that a run is compared with has 24 bits
    for position in positions:
        if spans:
            first, count = spans[-1]
            if first + count == position and first % 8 + count < 32 and count < REQUIRED:
                spans[-1] = (first, count + 1)
                continue
        spans.append((position, 1))
    return spans
