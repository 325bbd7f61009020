"""The machines that the tests build: what a width, a count or a ratio of widths changes in the access engine."""

from __future__ import annotations

from hwgen.spec.config import MachineConfig
from tests.scale import SCALE, sampled

_SMALL = {"tuple_depth": 64, "strider_depth": 256, "descriptor_depth": 16}

MACHINES = {
    "four threads, narrow link": MachineConfig(
        threads=4, striders=3, link_bytes=8, link_latency=4, queue_depth=2, **_SMALL
    ),
    "rows as wide as the link": MachineConfig(
        striders=4,
        link_bytes=32,
        link_latency=10,
        tuple_depth=4096,
        strider_depth=4096,
        descriptor_depth=1024,
        watch_depth=8,
        converters=8,
    ),
    "two rows in a beat": MachineConfig(
        threads=2, striders=1, link_bytes=64, link_latency=40, queue_depth=4, link_rate=26_540, converters=2, **_SMALL
    ),
    "wide": MachineConfig(
        threads=2,
        clusters=8,
        striders=5,
        link_bytes=128,
        link_latency=5,
        page_size=16384,
        converters=16,
        **_SMALL,
    ),
}
MACHINES = sampled(MACHINES, "four threads, narrow link", "rows as wide as the link", "two rows in a beat")
if SCALE > 1:
    MACHINES |= {
        "large pages": MachineConfig(clusters=4, striders=8, link_bytes=16, page_size=32768, converters=32, **_SMALL),
        "widest": MachineConfig(clusters=16, striders=2, link_bytes=128, link_latency=17, **_SMALL),
        "many": MachineConfig(threads=8, clusters=2, striders=7, link_bytes=128, queue_depth=8, converters=8, **_SMALL),
    }
PLAIN = "rows as wide as the link"
