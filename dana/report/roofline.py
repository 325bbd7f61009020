"""The roofline of a machine: operations a cycle that link and units allow, and those of an estimate."""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.spec.config import MachineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Operations for each byte of a page, and operations a cycle.

    Attributes
    ----------
    intensity, reached
        Those of the estimate.
    xs, limits
        The line of the limits: its left end, the ridge, its right end.
    """

    intensity: float
    reached: float
    xs: tuple[float, float, float]
    limits: tuple[float, float, float]


def roofline(config: MachineConfig, rows: float, page: float) -> Roofline:
    """The roofline of a page that takes ``page`` cycles, in which units compute for ``rows``."""
    # idle lanes count: a row that works keeps all units from other work
    operations = rows * config.units
    intensity, ridge = operations / config.page_size, config.units / config.page_rate
    low, high = min(intensity, ridge) / 8, max(intensity, ridge) * 8
    return Roofline(
        intensity=intensity,
        reached=operations / page,
        xs=(low, ridge, high),
        limits=(low * config.page_rate, config.units, config.units),
    )
