"""How much randomised testing to do: DANA_TEST_SCALE multiplies it. Every run takes the same examples, none is kept."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def randomised(number: int) -> settings:
    """Return settings for `number` of examples, scaled."""
    count = max(1, int(number * float(os.environ.get("DANA_TEST_SCALE", "1"))))
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
