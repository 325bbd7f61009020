"""What an error of memory advises."""

from __future__ import annotations

import pytest

from dana.simulator import large
from dana.trainer.contract import TrainingError
from dana.trainer.memory import memory_at_most

PLENTY = 1 << 40


@pytest.mark.parametrize(("classes", "words"), [(0, "train on fewer columns"), (2, "train on fewer columns")])
def test_fewer_columns_help(classes: int, words: str) -> None:
    with pytest.raises(TrainingError) as raised, memory_at_most(PLENTY, fresh=True, classes=classes):
        raise MemoryError
    assert words in raised.value.hint


def test_files_help_where_a_model_is_large() -> None:
    """Whatever it was that had no room beside it."""

    def asks() -> None:
        large.zeros(large.LARGE // 4)
        raise MemoryError

    with pytest.raises(TrainingError) as raised, memory_at_most(PLENTY, fresh=True):
        asks()
    assert "start the worker with --model-directory" in raised.value.hint
    assert "columns" not in raised.value.hint


def test_many_classes_are_what_takes_memory() -> None:
    with pytest.raises(TrainingError) as raised, memory_at_most(PLENTY, fresh=True, classes=5000):
        raise MemoryError
    assert raised.value.hint.startswith("The label has 5,000 classes")
    assert "columns" not in raised.value.hint
