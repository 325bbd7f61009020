"""What an error of memory advises."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from dana.simulator import large
from dana.trainer import memory
from dana.trainer.contract import SqlState, TrainingError
from dana.trainer.memory import least_bytes, memory_at_most

PLENTY = 1 << 40


@pytest.mark.parametrize("classes", [0, 2, 1000])
def test_fewer_columns_help(classes: int) -> None:
    with pytest.raises(TrainingError) as raised, memory_at_most(PLENTY, fresh=True, classes=classes):
        raise MemoryError
    assert str(raised.value).startswith("the request needs more memory than the 1048576 MB of dana.max_memory\n")
    assert raised.value.sqlstate == SqlState.OUT_OF_MEMORY
    assert raised.value.hint == "Raise dana.max_memory, or train on fewer columns."


def test_files_help_where_a_model_is_large() -> None:
    """The request that failed may have been another one, for which the model left no room."""

    def asks() -> None:
        large.zeros(large.LARGE // 4)
        raise MemoryError

    with pytest.raises(TrainingError) as raised, memory_at_most(PLENTY, fresh=True):
        asks()
    assert raised.value.hint.startswith("Raise dana.max_memory, or keep large models in files: ")
    assert "--model-directory" in raised.value.hint
    assert "columns" not in raised.value.hint


def test_many_classes_are_what_takes_memory() -> None:
    with pytest.raises(TrainingError) as raised, memory_at_most(PLENTY, fresh=True, classes=5000):
        raise MemoryError
    assert raised.value.hint.startswith("The label has 5,000 classes, and each has its own part of the models.")
    assert "such as ridge;" in raised.value.hint
    assert raised.value.hint.endswith("Raise dana.max_memory otherwise.")
    assert "columns" not in raised.value.hint


@pytest.mark.parametrize("lower", ["dana.max_memory", "the worker's --memory-limit"])
def test_the_lower_of_two_limits_counts(lower: str) -> None:
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    bound = least_bytes() + (1 << 30)
    request, worker = (bound, 2 * bound) if lower == "dana.max_memory" else (2 * bound, bound)
    seen = []

    def exhaust() -> None:
        seen.append(resource.getrlimit(resource.RLIMIT_DATA)[0])
        raise MemoryError

    resource.setrlimit(resource.RLIMIT_DATA, (worker, limits[1]))
    try:
        with pytest.raises(TrainingError, match=f"of {lower}\n"), memory_at_most(request, fresh=True):
            exhaust()
        assert [*seen, resource.getrlimit(resource.RLIMIT_DATA)[0]] == [bound, worker]
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)


@pytest.mark.parametrize(
    ("outer", "inner", "least"),
    [
        ("max", "max", None),
        ("1000", "max", 1000),
        ("max", "1000", 1000),
        ("1000", "2000", 1000),
        ("2000", "1000", 1000),
    ],
)
def test_the_lowest_limit_of_the_groups_counts(
    outer: str, inner: str, least: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if least is None else least
    (tmp_path / "outer/inner").mkdir(parents=True)
    (tmp_path / "outer/memory.max").write_text(outer)
    (tmp_path / "outer/inner/memory.max").write_text(inner)
    (tmp_path / "groups").write_text("4:memory:/other\n0::/outer/inner\n")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "Path", lambda path: tmp_path / "groups" if path == "/proc/self/cgroup" else Path(path))
    assert memory.machine_bytes() == whole
