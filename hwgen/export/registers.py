"""The register map as a document and as a C header, from the registers' texts in `hwgen.spec`.

In: the enumerations of the address map. Out: Markdown, C. Nothing is said here that the specification does not say.
"""

from hwgen.export.markdown import table
from hwgen.spec import board, registers
from hwgen.spec.board import BoardRegion, BoardRegister, BoardStatus, Command
from hwgen.spec.described import Described
from hwgen.spec.registers import TABLE_WORDS, Region, Register, TableWord
from hwgen.spec.strider import Fault

INTRODUCTION = """\
<!-- Written by python -m dana.generated. -->
# Register map

What a driver of an exported board sees on the AXI4-Lite slave `s_axil`. Made by `hwgen/export/registers.py` of
`hwgen/spec/registers.py`, `hwgen/spec/board.py` and `hwgen/spec/strider.py`.

All registers are 32-bit words, little-endian. A word's byte address is 4 × (region × 2²⁰ + word). A write of less than
a word is answered with SLVERR and has no effect; so is a read of a region that can only be written, any access to a
region that does not exist or to a row of the scratchpad that does not, a start through CONTROL (the board starts its
machine itself), and, while the board is busy, what would disturb it: a write to anything but COMMAND, INTERRUPT,
INTERRUPT_ENABLE and PAGES_READY, and a read of the scratchpad. Registers marked (r) are read only: a write to them has
no effect. Registers marked (w) are write only: they read as 0. Words that no register has read as 0, too, and take no
write. Reading is possible at any time.

A driver loads a machine and trains in this order:

1. write 2 to CONTROL, then program, Strider program, constants, column descriptors and scratchpad, then the registers
   from BATCH to EPOCH and TABLES (`hwgen/spec/load.py` makes this list of a Bundle); put the records of its tables
   into the record memory, from each one's BASE on, with the values that they begin with;
2. write PAGES, EPOCHS, SLOTS, PAGE_BASE, PAGES_READY, LOSS_AT, CONVERGENCE_AT; clear INTERRUPT and enable it;
3. write 1 to COMMAND; wait for the interrupt; read STATUS. With a fault, FAULT_PAGE and FAULT_POINTER (of fault BUS:
   FAILED_PAGE) say where, and the machine is to be loaded again;
4. read the model from the scratchpad and the record memory, the losses from region LOSSES.

A table that is larger than the memory for it streams through SLOTS pages: the driver puts page k of the training into
slot k mod SLOTS, once PAGES_READ is above k - SLOTS, and writes k + 1 to PAGES_READY; before the
last page, never all ones: that page is told with the next.
"""


def register_map() -> str:
    """The document."""
    configuration: list[tuple[str, ...]] = [
        (_hex(BoardRegister.THREADS + k), name, f"(r) `{name}` of the configuration")
        for k, name in enumerate(board.CONFIGURATION)
    ]
    own = [row for row in _rows(BoardRegister) if row[1] != BoardRegister.THREADS.name]
    faults = [(str(int(fault)), fault.name, fault.text) for fault in Fault]
    regions = [
        (str(int(region)), region.name, _hex(board.byte_address(region)), region.text)
        for region in (*Region, *BoardRegion)
    ]
    parts = (
        INTRODUCTION,
        "## Regions\n\n" + table(("region", "name", "byte address", "holds"), regions),
        "## Registers of region CONTROL\n\n" + table(("word", "name", "meaning"), _rows(Register)),
        "## Tables in the record memory\n\n"
        + f"Word k of table t is {_hex(Register.TABLES)} + {TABLE_WORDS} × (t - 1) + k of region CONTROL.\n\n"
        + table(("word", "name", "meaning"), _rows(TableWord)),
        "## Registers of region BOARD\n\n" + table(("word", "name", "meaning"), own + configuration),
        "## Faults\n\nBits 15:8 of both STATUS registers.\n\n" + table(("code", "name", "meaning"), faults),
    )
    return "\n".join(parts)


def _rows(enumeration: type[Described]) -> list[tuple[str, ...]]:
    return [(_hex(member), member.name, member.text) for member in enumeration]


def _hex(number: int) -> str:
    return f"0x{int(number):02x}"


def header() -> str:
    """A C header with the addresses and bits, for a driver of a board."""
    lines = [
        "/* Register map of a board; generated. Byte addresses, relative to the AXI4-Lite slave. */",
        "#ifndef DANA_REGISTERS_H",
        "#define DANA_REGISTERS_H",
        "",
    ]
    values = {
        **{f"REGION_{region.name}": board.byte_address(region) for region in (*Region, *BoardRegion)},
        **{member.name: board.byte_address(Region.CONTROL, member) for member in Register},
        **{f"TABLE_{word.name}": 4 * word for word in TableWord},
        "TABLE_SIZE": 4 * TABLE_WORDS,
        **{f"BOARD_{own.name}": board.byte_address(BoardRegion.BOARD, own) for own in BoardRegister},
        **{
            f"BOARD_{name.upper()}": board.byte_address(BoardRegion.BOARD, BoardRegister.THREADS + k)
            for k, name in enumerate(board.CONFIGURATION)
        },
        **{f"STATUS_{status.name}": status for status in BoardStatus},
        **{f"COMMAND_{command.name}": command for command in Command},
        **{f"FAULT_{fault.name}": fault for fault in Fault},
        "IDENTITY_MACHINE": registers.IDENTITY,
        "IDENTITY_BOARD": board.IDENTITY,
        "NO_SECTION": registers.NO_SECTION,
        "NOWHERE": board.NOWHERE,
        "ENDLESS": board.ENDLESS,
    }
    lines += [f"#define DANA_{name} 0x{int(value):x}u" for name, value in values.items()]
    return "\n".join([*lines, "", "#endif", ""])
