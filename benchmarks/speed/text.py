"""Rule text to graph or errors: the slowest of the largest texts that do their worst to the front end."""

from __future__ import annotations

from functools import partial

from benchmarks.measure import Figure, main, median_seconds
from dsl import Rule
from tests.dsl.hostile import LONG, WRONG


def run() -> list[Figure]:
    """Measure."""
    taken = max(median_seconds(partial(_elaborate, text), repeats=3) for text in (*WRONG, *LONG.values()))
    return [
        Figure(
            what=f"slowest of {len(WRONG) + len(LONG)} hostile texts of up to 64 KB",
            measured=f"{1e3 * taken:.0f} ms",
            reference="absolute, seconds",
            ratio=taken,
            target=1.0,
            at_most=True,
        )
    ]


def _elaborate(text: str) -> None:
    rule = Rule(text)
    _ = rule.report if rule.diagnostics else rule.hdfg


if __name__ == "__main__":
    main(run)
