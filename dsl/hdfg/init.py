"""How a model starts.

In: what `dana.model(..., init=...)` says. Out: an `Init`, plain data; `dsl.hdfg.start` makes the values.
Must not: draw from anything but its own seed: the same rule starts from the same bits on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class InitKind(StrEnum):
    """Family of start values."""

    CONSTANT = "constant"
    UNIFORM = "uniform"
    NORMAL = "normal"
    MEAN = "mean"
    DEVIATION = "deviation"
    SCALE = "scale"
    ROWS = "rows"
    CENTRES = "centres"


OF_COLUMNS = frozenset({InitKind.MEAN, InitKind.DEVIATION, InitKind.SCALE})
"""Families that the table decides: statistics of the columns that fill an input."""

OF_TABLE = OF_COLUMNS | {InitKind.ROWS, InitKind.CENTRES}
"""All that the table decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """Start values of one model.

    Parameters
    ----------
    kind
        CONSTANT: every element is `first`. UNIFORM: from `first` (inclusive) to `second` (exclusive).
        NORMAL: mean `first`, standard deviation `second`. MEAN, DEVIATION: mean and standard deviation of each of the
        columns that fill `of`; SCALE: 1 / the deviation, 1 of a column that is constant. ROWS: how many the table has.
        Without a table `first`. CENTRES: of clusters of the rows of `of`; without a table as NORMAL.
    first, second
        Binary32 numbers, see `kind`.
    seed
        Chooses the sequence; mixed with the model's name, so that two models of one rule differ.
    of
        MEAN, DEVIATION, SCALE, CENTRES: name of the input or output.
    runs
        CENTRES: the meta with the number of runs, of which the best one counts.
    narrow
        The values are rounded to bfloat16, as is all that the model becomes.
    """

    kind: InitKind = InitKind.CONSTANT
    first: float = 0.0
    second: float = 0.0
    seed: int = 0
    of: str = ""
    runs: str = ""
    narrow: bool = False


ZEROS = Init()
"""Default start of a model."""
