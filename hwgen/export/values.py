"""Where models, metas, loss and convergence test lie, for drivers that are not this project's.

In: a Bundle. Out: for each value what `manifest.json` and `registers.h` say of it.
"""

import re
from dataclasses import asdict, dataclass

from hwgen.export import RECORD_BASE
from hwgen.spec.aperture import byte_address
from hwgen.spec.bundle import Bundle, Symbol
from hwgen.spec.registers import Region

MEANING = """\
Element e of a vector is word e x step; row r of a matrix begins at word r x row_words. A scalar, and each element of a
value with a step that is not 1, is repeated in as many words as a row of lanes has: write all of them.
"""
"""How a value's numbers are read; words are binary32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of the Bundle; words are counted from its address on."""

    name: str
    kind: str
    shape: tuple[int, ...]
    address: int
    """Byte address of its first word: on `s_axil`, or of a value in a table that of record 0 on the bus of the record
    memory, where the package has its tables."""
    words: int
    """That it takes; of a value in a table, in each record."""
    step: int
    """Words from an element to the next one of its row."""
    row_words: int
    """Words from a row of a matrix to the next one."""
    table: int
    """Number of its table, with element [n] in record n; 0 for the scratchpad."""
    record_bytes: int
    """Bytes from one record to the next; 0 in the scratchpad."""


def values(made: Bundle) -> list[Value]:
    """Of all of the Bundle's symbols."""
    return [_value(made, symbol) for symbol in made.symbols]


def described(made: Bundle) -> list[dict[str, object]]:
    """The values as JSON has them."""
    return [asdict(value) | {"shape": list(value.shape)} for value in values(made)]


def defined(made: Bundle) -> dict[str, int]:
    """The values as names and numbers for C; a name that two have ends with an underscore in the second."""
    found: dict[str, int] = {}
    for value in values(made):
        name = f"{value.kind.upper()}_{re.sub(r'[^0-9A-Za-z_]', '_', value.name)}"
        while name in found:
            name += "_"
        found |= {name: value.address, f"{name}_WORDS": value.words, f"{name}_STEP": value.step}
        found[f"{name}_ROW_WORDS"] = value.row_words
        if value.table:
            found |= {f"{name}_TABLE": value.table, f"{name}_RECORD_BYTES": value.record_bytes}
    return found


def _value(made: Bundle, symbol: Symbol) -> Value:
    lanes = made.config.lanes
    own = symbol.shape[1:] if symbol.table else symbol.shape
    rows = symbol.record_rows(lanes) if symbol.table else symbol.rows(lanes)
    step = lanes if symbol.broadcast or not own else 1
    last = own[-1] if own else 1
    row_words = last * lanes if step > 1 else -(-last // lanes) * lanes
    if symbol.table:
        first = RECORD_BASE + made.table_offsets[symbol.table - 1] + 4 * symbol.row * lanes
    else:
        first = byte_address(Region.SCRATCH, symbol.row * lanes, made.config)
    return Value(
        name=symbol.name,
        kind=symbol.kind,
        shape=symbol.shape,
        address=first,
        words=rows * lanes,
        step=step,
        row_words=row_words,
        table=symbol.table,
        record_bytes=1 << made.tables[symbol.table - 1].shift(lanes) if symbol.table else 0,
    )
