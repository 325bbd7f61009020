"""The cases of ``dana bench peers``, a tenth of the rows: a pass of `dana_train` compared with the fastest peer."""

from __future__ import annotations

from benchmarks.measure import Figure, main
from benchmarks.peers.cases import SHAPES, shaped
from benchmarks.peers.contest import measure
from benchmarks.peers.history import fastest
from benchmarks.peers.participants import DANA
from dana.client.connection import connect

SCALE = 0.1


def run() -> list[Figure]:
    """Measure."""
    figures = []
    with connect() as db:
        for name in SHAPES:
            contest = measure(db, shaped(name, SCALE))
            best, ours = fastest(contest), contest.seconds(DANA)
            assert best is not None
            assert best.seconds is not None
            assert ours is not None
            shape = f"{contest.rows:,} × {contest.columns:,}"
            figures.append(
                Figure(
                    what=f"{name}, {contest.rule}, {shape}, {contest.passes} passes in SQL",
                    measured=f"{1e3 * ours:.1f} ms a pass",
                    reference=f"{best.peer}: {1e3 * best.seconds:.1f} ms",
                    ratio=ours / best.seconds,
                    target=1.0,
                    at_most=True,
                )
            )
    return figures


if __name__ == "__main__":
    main(run)
