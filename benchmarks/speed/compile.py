"""Rule text to Bundle: how long it takes, and how long the program is, at 54 and at 8,000 features; and the slowest of
the shipped rules."""

from __future__ import annotations

import math
from functools import partial

from benchmarks.measure import Figure, main, median_seconds, seconds
from benchmarks.speed import cost
from benchmarks.speed.workload import array_table, compiled
from dana import rules

FEATURES = (54, 8000)
PAGES = 20_000


def run() -> list[Figure]:
    """Measure."""
    figures = []
    lengths = []
    for features in FEATURES:
        compile_once = partial(compiled, array_table(features), pages=PAGES)
        taken = median_seconds(compile_once, repeats=3)
        lengths.append(len(compile_once().bundle.program))
        figures.append(
            Figure(
                what=f"rule text to Bundle, {features:,} features",
                measured=f"{1e3 * taken:.0f} ms",
                reference="absolute, seconds",
                ratio=taken,
                target=1.0,
            )
        )
    figures.append(
        Figure(
            what=f"length of the program, {FEATURES[1]:,} features over {FEATURES[0]}",
            measured=f"{lengths[1]} instructions",
            reference=f"{lengths[0]} instructions; log n grows by the target",
            ratio=lengths[1] / lengths[0],
            target=math.log2(FEATURES[1]) / math.log2(FEATURES[0]),
        )
    )
    figures.append(_slowest())
    return figures


def _slowest() -> Figure:
    """Of the shipped rules, at 54 features."""
    once = {name: seconds(partial(cost.bundle_of, name)) for name in rules.NAMES}
    name = max(once, key=once.__getitem__)
    taken = median_seconds(partial(cost.bundle_of, name), repeats=3)
    return Figure(
        what=f"slowest shipped rule, {name}",
        measured=f"{1e3 * taken:.0f} ms",
        reference="absolute, seconds",
        ratio=taken,
        target=1.0,
    )


if __name__ == "__main__":
    main(run)
