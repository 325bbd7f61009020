"""Each rule compared with its counterpart on held-out rows; ``$DANA_DATA`` is a folder with more data."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.accuracy.table import ENOUGH, compare
from benchmarks.measure import Figure, main


def run() -> list[Figure]:
    """Measure."""
    folder = os.environ.get("DANA_DATA")
    return [
        Figure(
            what=f"{found.rule}, {found.data}, {found.rows:,} × {found.columns}: {found.metric.name}",
            measured=f"{found.ours:.4g}, {found.seconds:.1f} s",
            reference=f"{found.counterpart}: {found.theirs:.4g}, {found.their_seconds:.1f} s",
            ratio=found.ratio,
            target=ENOUGH,
            at_most=False,
        )
        for found in compare(folder=None if folder is None else Path(folder))
    ]


if __name__ == "__main__":
    main(run)
