"""The scenarios of `record_scenarios.py`, in one run of one simulation."""

from __future__ import annotations

from pathlib import Path

from tests.hwgen.board.build import run
from tests.hwgen.board.record_scenarios import CONFIG

NAMES = (
    "records_are_the_simulators",
    "an_error_is_reported_and_forgotten",
    "a_memory_that_does_not_answer_is_reported_and_forgotten",
    "stopped_or_reset_in_the_middle",
)


def test_a_board_between_foreign_memories(tmp_path: Path) -> None:
    told = run(CONFIG, "tests.hwgen.board.record_scenarios", NAMES, tmp_path)
    assert len(told) == 12
    assert not any(told.values()), "\n".join(f"{case}: {text}" for case, text in told.items() if text)
