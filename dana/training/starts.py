"""What models of tables start with: the Bundle's image does not hold it.

In: a machine that a Bundle was loaded into. Out: its tables, filled; some numbers at a time where the machine takes
that, for all of a large model would be as large again.
"""

from __future__ import annotations

from math import prod

from dana.training.machines import Machine, Values, write_symbol
from dsl.hdfg.init import Init, InitKind
from dsl.hdfg.start import start_block, start_values
from hwgen.spec.bundle import Bundle, Symbol

AT_ONCE = 1 << 18
"""Numbers, whose copy is in the processor's cache."""


def write_starts(machine: Machine, bundle: Bundle) -> None:
    """Give a machine the start values of its tables."""
    models = {symbol.name: symbol for symbol in bundle.of_kind("model")}
    for name, start in bundle.notes["starts"].items():
        init = Init(**{**start, "kind": InitKind(start["kind"])})
        if isinstance(machine, Values):
            _write_parts(machine, models[name], init)
        else:
            values = start_values(init, name, models[name].shape)
            write_symbol(machine, models[name], values, bundle.config.lanes)


def _write_parts(machine: Values, symbol: Symbol, init: Init) -> None:
    records, *inner = symbol.shape
    step = max(1, AT_ONCE // prod(inner))
    for first in range(0, records, step):
        shape = (min(step, records - first), *inner)
        values = start_block(init, symbol.name, first * prod(inner), prod(shape)).reshape(shape)
        machine.write_values(symbol.row, values, table=symbol.table, first=first)
