"""The soak of ``benchmarks/speed/soak.py``, for seconds: eight sessions train during writes, VACUUM and DDL."""

from __future__ import annotations

from benchmarks.speed.soak import expected, soak
from dana.server.embedded import EmbeddedServer

SECONDS = 4.0


def test_every_model_is_the_interpreters(server: EmbeddedServer) -> None:
    report = soak(server, SECONDS)
    assert report.wrong == []
    assert report.at_once > 1, "sessions train at once"
    assert min(report.done[what] for what in ("trainings", "writes", "vacuums", "DDL")) > 0, report.done


def test_the_comparison_tells_rows_and_their_order_apart() -> None:
    rows: list[tuple[list[float | None], float | None]] = [([0.5 * k, 1.0], float(k % 2)) for k in range(300)]
    model = expected(rows, 2)
    assert expected(rows, 2) == model
    assert expected([*rows, ([None, 1.0], 1.0)], 2) == model, "a row with a NULL is no row"
    assert expected(rows[1:], 2) != model
    assert expected(rows[::-1], 2) != model
