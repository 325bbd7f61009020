"""Resources of a device that a machine takes, and how it is made to fit: its clock and link, its memories.

In: machines, devices, the user's overrides. Out: fractions, widths, depths. Nothing is compiled or measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, inf, prod

from dana.codesign.area import SHORT, SHORT_LANES, Area, area_of
from dana.compiler.place.sections import Plan
from dana.compiler.rounds import BLOCK_ROWS, power_of_two
from dana.errors import UsageError
from hwgen.devices import Device, DeviceError
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import LANES_PER_CLUSTER, MAX_DEPTHS, WIDEST_BUS, WIDEST_LINK, MachineConfig, Ultra

MEMORIES = ("block_rams", "ultra_rams")
RESOURCES = ("luts", "flipflops", "dsps", *MEMORIES)
"""Fields of `Area` and `Device`."""

NARROWEST_LINK = 8
"""Bytes of a link at the least."""

BLOCK = 512
"""Words of a lane's memory that half a block RAM holds; one of LUTs, where a family's lanes have them, is next."""


def on_pages(design: Mapping[str, int], page_size: int) -> dict[str, int]:
    """Overrides for a machine that reads pages of so many bytes.

    Raises
    ------
    UsageError
        `design` wants pages of another size.
    """
    wanted = design.get("page_size", page_size)
    if wanted != page_size:
        raise UsageError(
            f"page_size of a machine must be that of its table's pages, {page_size}, not {wanted!r}",
            hint="Leave page_size out of the design.",
        )
    return {**design, "page_size": page_size}


def at_rate(device: Device, design: Mapping[str, int]) -> dict[str, int]:
    """Overrides for a machine at the device's clock, with pages at the rate of the device's memory."""
    clock = design.get("clock_hz", device.clock_hz)
    if "link_rate" in design:
        return {"clock_hz": clock, **design}
    try:
        # an invalid clock is rejected when the machine is made
        return {"clock_hz": clock, "link_rate": device.link_rate(max(1, clock)), **design}
    except DeviceError as error:
        raise UsageError(str(error), hint="Choose a slower clock, or say what arrives: link_rate.") from None


def widest_link(device: Device) -> int:
    """Bytes of the narrowest link that takes all that the device's memory sends, or of the widest that there is."""
    return min(WIDEST_LINK, max(NARROWEST_LINK, power_of_two(ceil(device.link_bytes))))


def links(device: Device) -> tuple[int, ...]:
    """The widest link, and narrower ones that may be as fast: where it has several buses those of fewer, and behind a
    memory that leaves it idle at times the next one."""
    widest = widest_link(device)
    if widest > WIDEST_BUS:
        return tuple(WIDEST_BUS << k for k in range((widest // WIDEST_BUS).bit_length()))
    # a link no wider than what the memory sends is never idle, so a narrower one would be slower
    return (widest,) if widest <= max(NARROWEST_LINK, device.link_bytes) else (widest // 2, widest)


def uses(area: Area, device: Device) -> dict[str, float]:
    """Fraction that an area takes of what a design may take of the device, by resource; of none, 0 or endless."""
    usable = {name: getattr(device, name) * device.usable for name in RESOURCES}
    return {
        name: getattr(area, name) / most if most else inf if getattr(area, name) else 0.0
        for name, most in usable.items()
    }


def with_ultra(bundle: Bundle, device: Device, given: Mapping[str, int]) -> Bundle:
    """The machine with the fewest memories of UltraRAM with which it fits the device, or lacks the least of it.

    Parameters
    ----------
    given
        Fields of the machine that are as the user says.
    """
    if "ultra" in given or not device.ultra_rams:
        return bundle

    def lacks(kinds: int) -> float:
        return max(1.0, *uses(area_of(replace(bundle.config, ultra=kinds), device.family), device).values())

    # the bit count: of machines that fit alike, the one with fewer kinds of memory moved
    kinds = [kind for kind in range(sum(Ultra) + 1) if not (bundle.config.wide_depth and kind & Ultra.SCRATCH)]
    best = min(kinds, key=lambda kinds: (lacks(kinds), kinds.bit_count()))
    return replace(bundle, config=replace(bundle.config, ultra=best))


def smaller_memory(depth: int, device: Device) -> int:
    """Words of the next smaller memory of a lane that saves block RAM: half of it, or of LUTs; itself: none does."""
    if depth > BLOCK:
        # in whole block RAMs: a depth in between takes as many
        return max(BLOCK, depth // 2 // BLOCK_ROWS * BLOCK_ROWS)
    return min(depth, SHORT) if device.family in SHORT_LANES else depth


def holds_models(plan: Plan, device: Device, clusters: int) -> bool:
    """Whether the device has memory for the rule's models on the chip, were there nothing else and one thread."""
    numbers = sum(prod(plan.graph.concrete_shape(k)) for k in plan.graph.models)
    rows = -(-numbers // (clusters * LANES_PER_CLUSTER))
    # one thread with the least of all else: a lower bound of what else the machine needs
    least = MachineConfig(
        clusters=clusters,
        striders=1,
        link_bytes=NARROWEST_LINK,
        functions=0,
        crossed=0,
        tuple_depth=16,
        # depths are multiples of 16 (`MachineConfig`)
        scratch_depth=16 * min(-(-rows // 16), MAX_DEPTHS["scratch_depth"] // 16),
    )
    kinds = range(sum(Ultra) + 1) if device.ultra_rams else (0,)
    areas = (area_of(replace(least, ultra=kind), device.family) for kind in kinds)
    return any(max(uses(area, device)[name] for name in MEMORIES) <= 1 for area in areas)
