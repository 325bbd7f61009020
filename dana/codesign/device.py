"""A sensible machine that a device holds, where the user names a device and no machine.

In: a bound rule, the table's columns, a device. Out: a Bundle for the machine of `dana.codesign.default` at the
device's clock and link; where that is too large, as many units in fewer threads and with smaller
memories; else for the best machine of the device, which takes longer to find.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial

from dana.codesign.area import area_of
from dana.codesign.chosen import may_have_records, record_depth
from dana.codesign.default import check_overrides, default_bundle
from dana.codesign.fitting import at_rate, holds_models, smaller_memory, uses, widest_link, with_ultra
from dana.codesign.search import CLUSTERS, explore
from dana.compiler.binding.columns import Binding
from dana.compiler.compile import plan_for
from dana.errors import UsageError
from dana.storage.schema import TableSchema
from hwgen.devices import Device
from hwgen.spec.bundle import Bundle
from hwgen.spec.config import LANES_PER_CLUSTER, MachineConfig

DEPTHS = ("tuple_depth", "scratch_depth")
"""Memories that a machine may have less of: rounds are shorter then."""


def holds(device: Device, config: MachineConfig) -> bool:
    """Whether a design of the machine may be put on the device, by estimate."""
    return max(uses(area_of(config, device.family), device).values()) <= 1


def bundle_for(
    binding: Binding,
    schema: TableSchema,
    device: Device,
    *,
    max_tuples: int,
    page_size: int,
    design: Mapping[str, int],
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
    check_overrides(design)
    made = partial(default_bundle, binding, schema, max_tuples=max_tuples, widest_link=widest_link(device))
    asked = at_rate(device, design)
    bundle = with_ultra(made(design=asked), device, design)
    if holds(device, bundle.config):
        return bundle
    plan = plan_for(binding.graph, schema)
    ways = [design["clusters"]] if "clusters" in design else CLUSTERS
    records: dict[str, int] = {}
    on_chip = any(holds_models(plan, device, clusters) for clusters in ways)
    if not bundle.tables and may_have_records(plan, design) and not on_chip:
        records = {"record_depth": record_depth(plan)}
    if bundle.tables or records:
        # the search would come to much the same, and takes longer
        for fewer in ({}, {"threads": 2, "clusters": 2}, {"threads": 1, "clusters": 2}):
            other = with_ultra(made(design={**fewer, **asked, **records}), device, design)
            if holds(device, other.config):
                return other
    units, threads = bundle.config.units, bundle.config.threads
    # fewer threads hold fewer copies of the models, and smaller memories mean shorter rounds
    while threads > 1 and not design.keys() & {"threads", "clusters", *DEPTHS}:
        threads //= 2
        smaller = {**asked, "threads": threads, "clusters": units // threads // LANES_PER_CLUSTER}
        at_most: dict[str, int] = {}
        with contextlib.suppress(UsageError):  # that holds the rule no longer
            while True:
                other = with_ultra(made(design=smaller, at_most=at_most), device, design)
                if holds(device, other.config):
                    return other
                # the deeper memory first: halving it frees the most
                name = max(DEPTHS, key=lambda one: getattr(other.config, one))
                depth = getattr(other.config, name)
                at_most[name] = smaller_memory(depth, device)
                if at_most[name] == depth:
                    break
    found = explore(binding, schema, device, max_tuples=max_tuples, page_size=page_size, design=design)
    return made(design={**asked, **found.overrides})
