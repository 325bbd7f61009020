"""A sensible machine that a device holds, where the user names a device and no machine.

In: a bound rule, the table's columns, a device. Out: a Bundle for the machine of `dana.codesign.default` at the
device's clock and link; where that is too large, for its units with smaller memories, or else for the best machine of
the device. Unlike the search it takes the first that fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dana.codesign.area import area_of
from dana.codesign.default import default_bundle
from dana.codesign.search import explore, link_bytes
from dana.compiler.binding.columns import Binding
from dana.errors import UsageError
from dana.storage.schema import TableSchema
from hwgen.devices import Device
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig

RESOURCES = ("luts", "flipflops", "dsps", "block_rams")


def holds(device: Device, config: MachineConfig) -> bool:
    """Whether a design of the machine may be put on the device, by estimate."""
    area = area_of(config, device.family)
    return all(getattr(area, name) <= getattr(device, name) * device.usable for name in RESOURCES)


def bundle_for(
    binding: Binding,
    schema: TableSchema,
    device: Device,
    *,
    max_tuples: int,
    page_size: int,
    design: Mapping[str, int],
    notes: Mapping[str, Any],
) -> Bundle:
    """`default_bundle` for a machine that the device holds.

    Parameters
    ----------
    design
        Fields of `MachineConfig` that are as the user says; that does not fit is an error.

    Raises
    ------
    UsageError
        No machine for this rule fits the device; says by how much, and what would.
    """
    # a beat must not be wider than what a machine stores in a cycle, and one cluster stores the least
    link = min(link_bytes(device), 8 * LANES_PER_CLUSTER)
    asked = {"clock_hz": device.clock_hz, "link_bytes": link, **design}
    bundle = default_bundle(binding, schema, max_tuples=max_tuples, design=asked, notes=notes)
    if holds(device, bundle.config):
        return bundle
    units = {"threads": bundle.config.threads, "clusters": bundle.config.clusters}

    def best(fixed: Mapping[str, int]) -> Bundle:
        found = explore(binding, schema, device, max_tuples=max_tuples, page_size=page_size, design=fixed)
        return default_bundle(binding, schema, max_tuples=max_tuples, design={**asked, **found.overrides}, notes=notes)

    try:
        return best({**design, **units})
    except UsageError:
        return best(design)
