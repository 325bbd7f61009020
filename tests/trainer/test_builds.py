"""Sessions that compile hardware: nothing that they start or half-make outlives them, whatever ends them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dana.worker.messages import Message
from tests.trainer.test_training import LOGISTIC, REALS, relation
from tests.worker.producer import TRAIN_OPTIONS, Producer, train_fields, with_raw
from tests.worker.test_worker import ROOT, alive, frame, greeted, read, until

TRAIN = train_fields(
    text=LOGISTIC, machine="rtl", options={**TRAIN_OPTIONS, "label": "y", "design": {"threads": 1, "clusters": 1}}
)

COMPILER = """#!/bin/sh
exec {compiler} -include {endless} "$@"
"""


class Worker:
    """`dana worker` with a compiler that never ends: it reads a header from a pipe that nobody writes to."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.cache = folder / "cache" / "dana"
        tools = folder / "tools"
        tools.mkdir()
        os.mkfifo(folder / "endless.h")
        (tools / "g++").write_text(COMPILER.format(compiler=shutil.which("g++"), endless=folder / "endless.h"))
        (tools / "g++").chmod(0o755)
        self.socket = folder / "w"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dana.cli", "worker", "--socket", str(self.socket), *options],
            cwd=ROOT,
            env={
                **os.environ,
                "XDG_CACHE_HOME": str(folder / "cache"),
                "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            },
        )
        until(self.socket.is_socket)

    def training(self, **changes: Any) -> tuple[socket.socket, Producer, int]:
        """A session that was asked to train."""
        client, ring, pid = greeted(self.socket)
        table = relation(REALS)
        described = {**TRAIN["relation"], "attributes": [asdict(one) for one in table.attributes]}
        client.sendall(frame(Message.TRAIN, with_raw({**TRAIN, "relation": described, **changes})))
        return client, ring, pid

    def builders(self) -> dict[int, str]:
        """Processes that work in the cache, and their names."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cwd").readlink().is_relative_to(self.cache):
                    found[int(process.name)] = (process / "comm").read_text().strip()
        return found

    def builds(self) -> list[Path]:
        return list(self.cache.glob("*/build-*"))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    running = Worker(tmp_path)
    yield running
    running.close()


@pytest.fixture(scope="module")
def verilog() -> dict[str, bytes]:
    """What a worker of this module has generated, by the name of its file in the cache."""
    return {}


@pytest.mark.parametrize("end", ["hang up", "kill", "kill the worker", "stop the worker"])
def test_a_build_that_is_cut_short_leaves_nothing(worker: Worker, end: str, verilog: dict[str, bytes]) -> None:
    verilated = worker.cache / "verilated"
    verilated.mkdir(parents=True, exist_ok=True)
    for name, text in verilog.items():
        (verilated / name).write_bytes(text)
    client, ring, pid = worker.training()
    patience = time.monotonic() + 300  # the Verilog takes seconds, on a busy machine a minute
    while "cc1plus" not in worker.builders().values():
        assert time.monotonic() < patience, worker.builders()
        time.sleep(0.05)
    assert {"make", "g++", "cc1plus"} <= set(worker.builders().values())
    assert worker.builds()
    verilog.update((path.name, path.read_bytes()) for path in verilated.glob("*.v"))
    ends: dict[str, Callable[[], object]] = {
        "hang up": client.close,
        "kill": lambda: os.kill(pid, signal.SIGKILL),
        "kill the worker": worker.process.kill,
        "stop the worker": worker.process.terminate,
    }
    ends[end]()
    until(lambda: not alive(pid))
    until(lambda: not worker.builders())
    if end == "kill the worker":  # the next one sweeps
        worker.process.wait()
        next_one = subprocess.Popen(
            worker.process.args, cwd=ROOT, env={**os.environ, "XDG_CACHE_HOME": str(worker.cache.parent)}
        )
        until(lambda: not worker.builds())
        next_one.kill()
        next_one.wait()
    until(lambda: not worker.builds())
    client.close()
    ring.close()


@pytest.mark.parametrize("kind", ["rtl", "design"])
@pytest.mark.parametrize("limit", [(), ("1MB",)], ids=["default", "given"])
def test_caches_have_a_byte_limit(tmp_path: Path, kind: str, limit: tuple[str, ...]) -> None:
    """What is older, and over it, goes when the worker starts."""
    folder = tmp_path / "cache" / "dana" / {"rtl": "verilated", "design": "designs"}[kind]
    folder.mkdir(parents=True)
    within, over = f"{0:064x}.made", f"{1:064x}.made"
    for age, (name, size) in enumerate({within: 1, over: 2 << 20 if limit else 2 << 30}.items()):
        (folder / name).touch()
        os.truncate(folder / name, size)
        os.utime(folder / name, (1e9, 1e9 - age))
    running = Worker(tmp_path, *(f"--{kind}-cache={size}" for size in limit))
    try:
        until(lambda: os.listdir(folder) == [within])
    finally:
        running.close()


def test_memory_that_no_training_can_do_with(worker: Worker) -> None:
    client, ring, _ = worker.training(machine="sim", max_memory=64 << 20)
    code, answer = read(client)
    assert (code, answer["sqlstate"]) == (Message.ERROR, "53200")
    assert answer["message"].startswith("dana.max_memory of 64 MB is less than the ")
    assert "Raise dana.max_memory" in answer["hint"]
    # as much as the message says is enough to begin with
    least = int(answer["message"].split(" less than the ")[1].split()[0])
    client.close()
    ring.close()
    client, ring, _ = worker.training(machine="sim", max_memory=least << 20)
    assert read(client)[0] == Message.DESIGN
    client.close()
    ring.close()


def test_hardware_that_there_is_no_memory_to_make(worker: Worker) -> None:
    client, ring, _ = worker.training(max_memory=150 << 20)
    code, answer = read(client)
    assert (code, answer["sqlstate"]) == (Message.ERROR, "53200"), answer
    assert "dana.max_memory" in answer["message"]
    client.close()
    ring.close()
