"""Start values of models that are kept in tables; the image of a Bundle does not contain them.

`write_starts` fills the tables of a machine after its Bundle was loaded. It works on blocks where the machine accepts
them: generating a large model as a whole would double its memory.
"""

from __future__ import annotations

from math import prod

from dana.codesign.records import start_of
from dana.trainer.machine import Machine, write_symbol
from dsl.hdfg.init import Init
from dsl.hdfg.start import start_block, start_values
from hwgen.spec.bundle import Bundle, Symbol

AT_ONCE = 1 << 18
"""Numbers in a block; a block fits into the processor's cache."""


def write_starts(machine: Machine, bundle: Bundle) -> None:
    """Write the start values of all tables of a machine."""
    for model in (symbol for symbol in bundle.symbols if symbol.table):
        init = start_of(model)
        if not _write_parts(machine, model, init):
            write_symbol(machine, model, start_values(init, model.name, model.shape), bundle.config.lanes)


def _write_parts(machine: Machine, symbol: Symbol, init: Init) -> bool:
    """Write a table block by block; False if the machine keeps it in rows."""
    records, *inner = symbol.shape
    step = max(1, AT_ONCE // prod(inner))
    for first in range(0, records, step):
        shape = (min(step, records - first), *inner)
        values = start_block(init, symbol.name, first * prod(inner), prod(shape)).reshape(shape)
        # a machine rejects the first block or none, so nothing has been written yet
        if not machine.write_values(symbol.row, values, table=symbol.table, first=first):
            return False
    return True
