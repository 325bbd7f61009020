"""Random machines."""

from __future__ import annotations

import random
from dataclasses import replace

from hwgen.spec.config import MachineConfig


def random_config(rng: random.Random, *, units: int = 512) -> MachineConfig:
    """A machine of any shape, of so many units at most."""
    clusters = rng.choice([k for k in (1, 1, 2, 4, 8) if 8 * k <= units])
    found = MachineConfig(
        threads=rng.choice([k for k in (1, 2, 4, 8) if 8 * k * clusters <= units]),
        clusters=clusters,
        striders=rng.choice([1, 2, 3, 4, 8]),
        page_size=rng.choice([8192, 8192, 16384, 32768]),
        scratch_depth=rng.choice([3984, 4096]),
        tuple_depth=rng.choice([64, 208, 256, 2048]),
        strider_depth=8192,
        descriptor_depth=1024,
        index_depth=rng.choice([0, 0, 2, 64]),
        queue_depth=rng.choice([2, 4, 16]),
        link_bytes=rng.choice([8, 16, 64]),
        link_latency=rng.choice([4, 10, 200]),
        link_rate=rng.choice([0, 0, 5_900, 13_100, 90_000]),
        divide_interval=rng.choice([27, 9, 3, 1]),
        converters=rng.choice([1, 2, 4, 8]),  # of as many clusters as a case then takes
    )
    return replace(found, pause=int(found.striders == 3))  # one in five


def record_config(rng: random.Random) -> MachineConfig:
    """A machine with a record memory."""
    shape = {"threads": rng.choice([1, 2, 4, 8]), "clusters": rng.choice([1, 2, 4]), "index_depth": rng.choice([2, 64])}
    config = replace(random_config(rng), **shape)
    depths = {"watch_depth": rng.choice([8, 64]), "record_depth": rng.choice([8, 32, 256])}
    return replace(config, tuple_depth=rng.choice([256, 2048]), record_latency=rng.choice([3, 20, 200]), **depths)
