"""Machines as a training uses them: page by page, and with errors that SQL can show."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dana.errors import SetupError, UsageError
from dana.simulator import large
from dana.simulator.native import load
from dana.storage.builder import build_pages
from dana.trainer.contract import TrainingError
from dana.trainer.machine import NO_MEMORY, Machine, PageCollector
from dana.trainer.machines import MACHINES, Rtl, Simulated
from dana.trainer.memory import least_bytes
from dana.worker.session import error_fields
from hwgen.harness.build import verilog_of
from hwgen.rtl.verilate import cache_folder
from hwgen.spec.board import TOP
from hwgen.spec.counters import EpochCounters
from hwgen.spec.engine import Section
from tests.guarded import consumed
from tests.hwgen.harness.test_rtl_machine import CONFIG, ENDLESS, rule, table
from tests.trainer.test_training import LOGISTIC, REALS, STANDARDIZED, relation, request, rows, train

CONSUME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@pytest.fixture
def machines() -> Iterator[dict[str, Machine]]:
    made = {"sim": Simulated(CONFIG), "rtl": Rtl(CONFIG)}
    yield made
    for machine in made.values():
        machine.close()


def epoch(machine: Machine, pages: bytes) -> EpochCounters:
    """Hand over a page at a time."""
    function, context = machine.sink
    count = len(pages) // CONFIG.page_size
    machine.begin_epoch(count)
    for page in range(count):
        one = pages[page * CONFIG.page_size :][: CONFIG.page_size]
        assert consumed(function, context, one, CONFIG.page_size) == 0
    return machine.end_epoch()


def test_the_machines_agree(machines: dict[str, Machine]) -> None:
    """Cycles and models, over tables of any size one after another, from a model that was written before."""
    found: dict[str, list[Any]] = {name: [] for name in machines}
    for name, machine in machines.items():
        machine.load(rule())
        symbol = rule().of_kind("model")[0]
        rows = symbol.rows(CONFIG.lanes)
        machine.write_rows(symbol.row, np.full((rows, CONFIG.lanes), 0.5, dtype=np.float32).view(np.uint32))
        for count in (200, 3, 400):
            found[name].append(epoch(machine, table(count)))
            found[name].append(machine.read_rows(symbol.row, rows).tolist())
    assert found["rtl"] == found["sim"]


def test_hardware_that_does_not_train_is_an_error_of_sql() -> None:
    machine = Rtl(CONFIG, patience=20_000)
    with pytest.raises(TrainingError, match=r"^the generated hardware failed: the Bundle must be for this board"):
        machine.load(rule(config=replace(CONFIG, striders=3)))
    machine.load(rule(program=ENDLESS, sections={Section.TUPLE: 0}, batch=1))
    with pytest.raises(TrainingError, match=r"^the generated hardware failed: .* within 20000 cycles") as caught:
        epoch(machine, table(5))
    fields = error_fields(caught.value)
    assert fields["sqlstate"] == "XX000"
    assert "machine => 'sim'" in fields["hint"]


def test_a_compiler_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    verilog_of(CONFIG)
    generated = list(cache_folder().glob("*.v"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().mkdir(parents=True)
    for path in generated:
        shutil.copy(path, cache_folder())
    with pytest.raises(UsageError, match=r"machine 'rtl' cannot build the hardware's simulation: .* needs make"):
        Rtl(CONFIG)


def test_compiled_hardware_that_others_may_have_made_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().mkdir(parents=True)
    cache_folder().chmod(0o777)
    with pytest.raises(UsageError, match=r"cannot build .*/verilated must be writable for its owner alone"):
        Rtl(CONFIG)
    assert not list(cache_folder().iterdir())


@pytest.mark.parametrize(
    "said", [OSError(errno.ENOSPC, "No space left on device", "/a/b"), OSError(errno.EDQUOT, "full")]
)
def test_a_full_disk_is_an_error_of_its_own(said: OSError) -> None:
    """Of our own files, or of a compiler's, which says it in its words."""
    around = RuntimeError("while something was made")
    around.__cause__ = said
    for error in (said, around):
        fields = error_fields(error)
        assert (fields["sqlstate"], fields["message"]) == ("53100", "the worker has no room left on its disk")
        assert "machine => 'sim'" in fields["hint"]
    assert error_fields(OSError(errno.EIO, "no"))["sqlstate"] == "XX000"


def test_a_folder_for_models_that_is_gone(tmp_path: Path) -> None:
    large.keep_in(tmp_path)
    tmp_path.rmdir()
    try:
        with pytest.raises(large.NoFile) as raised:
            large.zeros(large.LARGE)
    finally:
        large.keep_in(None)
    around = RuntimeError("while something was made")
    around.__cause__ = raised.value
    for error in (raised.value, around):
        fields = error_fields(error)
        assert (fields["sqlstate"], str(tmp_path) in fields["detail"]) == ("58030", True)
        assert "Create the folder again" in fields["hint"]


def test_a_compiler_on_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of any hardware: an empty board is soon translated."""
    monkeypatch.setattr("hwgen.harness.machine.verilog_of", lambda _: f"module {TOP}; endmodule\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "make").write_text("#!/bin/sh\ncat $0 > /dev/full\n")
    (tmp_path / "make").chmod(0o755)
    with pytest.raises(OSError, match="make") as raised:
        Rtl(CONFIG)
    assert error_fields(raised.value)["sqlstate"] == "53100"


def test_pages_that_there_is_no_room_for_are_not_left_out() -> None:
    """An exception in a callback would be printed, and the epoch would go on without them."""
    collector = PageCollector(8192)
    consume = CONSUME(collector.sink.function)
    page = ctypes.create_string_buffer(8192)
    assert consume(None, ctypes.addressof(page), 1) == 0
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (least_bytes(), limits[1]))
    try:
        assert consume(None, ctypes.addressof(page), 1 << 17) == NO_MEMORY
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    assert len(collector.take()) == 0


class Plain(Simulated):
    """A machine that neither lets an observer look while it trains nor runs machine code."""

    observes = False
    surveyor, compiled = Machine.surveyor, Machine.compiled


@pytest.mark.parametrize("source", [LOGISTIC, STANDARDIZED])
def test_a_machine_is_a_class_and_a_row_of_the_table(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    columns = relation(REALS)
    pages = build_pages(columns.schema, rows(300))
    monkeypatch.setitem(MACHINES, "plain", Plain)  # type: ignore[arg-type]
    found = [train(request(columns, text=source, machine=name), pages) for name in ("sim", "plain")]
    assert found[1].metadata["machine"] == "plain"
    for simulated, plain in zip(*(one.parameters for one in found), strict=True):
        np.testing.assert_array_equal(simulated.values, plain.values)


def test_a_missing_part_of_the_installation_has_a_message_of_its_own() -> None:
    with pytest.raises(SetupError) as missing:
        load("dana.simulator._missing", "contract", 0)
    fields = error_fields(missing.value)
    assert fields["sqlstate"] == "58000"
    assert "_missing is missing: run make in a checkout, else install dana-db again" in fields["message"]
    fields = error_fields(ModuleNotFoundError("No module named 'amaranth'"))
    assert (fields["sqlstate"], "run make" in fields["hint"].lower()) == ("58000", True)
    assert fields["message"] == "the installation of the worker is incomplete: No module named 'amaranth'"
