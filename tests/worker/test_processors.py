"""The processors on which the worker streams: not the backend's, and afterwards all of them again."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from dana.worker.epochs import _away_from


@pytest.mark.parametrize(
    ("allowed", "cpu", "expected"),
    [({0, 1, 2}, 1, {0, 2}), ({0, 1}, 1, {0}), ({1}, 1, {1}), ({0, 2}, 1, {0, 2}), ({0, 1}, -1, {0, 1})],
)
@pytest.mark.parametrize("error", [None, ValueError])
def test_a_stream_is_away_from_the_backend(
    allowed: set[int], cpu: int, expected: set[int], error: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = set(allowed)

    def choose(pid: int, cpus: set[int]) -> None:
        now.clear()
        now.update(cpus)

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(now))
    monkeypatch.setattr(os, "sched_setaffinity", choose)
    with suppress(ValueError), _away_from(cpu):
        assert now == expected
        if error is not None:
            raise error
    assert now == allowed
