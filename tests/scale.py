"""How much randomised testing to do: DANA_TEST_SCALE multiplies it; ``make test`` sets 0.25.

The examples are the same in each run, so that a failure repeats. Where DANA_TEST_SEED is set, those of hypothesis,
damaged pages and lies follow it instead, so that a run can find something new: ``make test-all`` prints the seed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

from hypothesis import HealthCheck, settings

SCALE = float(os.environ.get("DANA_TEST_SCALE", "1"))
FRESH = "DANA_TEST_SEED" in os.environ
SEED = int(os.environ.get("DANA_TEST_SEED", "0"))

T = TypeVar("T")


def scaled(count: int) -> int:
    """``count`` times `SCALE`, at least 1."""
    return max(1, round(count * SCALE))


def multiplied(count: int) -> int:
    """The same, but never fewer than ``count``: for tests that also assert how often something came up."""
    return max(count, scaled(count))


def sampled(machines: Mapping[str, T], *kept: str) -> dict[str, T]:
    """All machines; below a scale of 1, only those kept: compiling one takes longer than its tests."""
    return {name: machine for name, machine in machines.items() if SCALE >= 1 or name in kept}


def randomised(count: int) -> settings:
    """Settings of hypothesis for ``count`` examples, scaled."""
    return settings(
        max_examples=scaled(count),
        derandomize=not FRESH,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
