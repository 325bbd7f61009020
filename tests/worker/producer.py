"""A backend in Python: its end of the page ring, and its requests; for tests of the consumer and of the worker."""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

MAGIC = 0x31474E4952414E44
HEADER = 4096
HEAD, END, TAIL, PRODUCER_SLEEPS, CONSUMER_SLEEPS = 64, 72, 128, 192, 256
ENDLESS = (1 << 64) - 1
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

TRAIN_OPTIONS: dict[str, Any] = dict.fromkeys(("features", "label", "epochs", "hyper", "design", "classes"))
"""Arguments of dana_train() that the extension hands on as they are, where none was given."""


def train_fields(**changes: Any) -> dict[str, Any]:
    """Fields of a TRAIN message."""
    return {
        "relation": {"name": "t", "pages": 1, "rows": False, "attributes": []},
        "rule": "r",
        "text": "rule",
        "machine": "sim",
        "nulls": "skip",
        "options": TRAIN_OPTIONS,
        "held_out": False,
        "validates": False,
        "metadata": {},
        "warm_start_from": None,
        "role": "r",
        "database": "d",
        "device": None,
        "max_epochs": None,
        "max_memory": 0,
        "temp_file_limit": None,
        "cpu": -1,
        **changes,
    }


def with_raw(fields: object, raw: bytes = b"") -> bytes:
    """Payload of a message that has raw bytes."""
    text = json.dumps(fields).encode()
    return struct.pack("=I", len(text)) + text + bytes(-len(text) % 4) + raw


class Producer:
    """The other end of a ring.

    Parameters
    ----------
    bell
        Sends a bell to the consumer.
    slots, page_size
        Its dimensions.
    """

    def __init__(self, bell: Callable[[], None], slots: int = 16, page_size: int = 8192) -> None:
        self._bell = bell
        self.slots = slots
        self.page_size = page_size
        self.memfd = os.memfd_create("test-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.memfd, HEADER + slots * page_size)
        fcntl.fcntl(self.memfd, fcntl.F_ADD_SEALS, SEALS)
        self.memory = mmap.mmap(self.memfd, HEADER + slots * page_size)
        struct.pack_into("=QII", self.memory, 0, MAGIC, page_size, slots)
        # single stores, as the backend's: struct.pack_into clears a field before it fills it
        self._head = ctypes.c_uint64.from_buffer(self.memory, HEAD)
        self._end = ctypes.c_uint64.from_buffer(self.memory, END)
        self._tail = ctypes.c_uint64.from_buffer(self.memory, TAIL)
        self._consumer_sleeps = ctypes.c_uint32.from_buffer(self.memory, CONSUMER_SLEEPS)

    @property
    def tail(self) -> int:
        return int(self._tail.value)

    def stream(self, pages: Sequence[bytes], group: int = 4, pause: float = 0.0) -> None:
        """Publish pages in groups, waiting for space; then end the stream."""
        for index, page in enumerate(pages):
            while index - self.tail >= self.slots:
                self._publish(index)
                time.sleep(0.0005)
            start = HEADER + index % self.slots * self.page_size
            self.memory[start : start + self.page_size] = page
            if (index + 1) % group == 0:
                self._publish(index + 1)
                time.sleep(pause)
        self._publish(len(pages))
        self._end.value = len(pages)
        self._wake()

    def _publish(self, head: int) -> None:
        self._head.value = head
        if head - self.tail >= self.slots // 4:
            self._wake()

    def _wake(self) -> None:
        if self._consumer_sleeps.value:
            self._consumer_sleeps.value = 0
            self._bell()

    def close(self) -> None:
        del self._head, self._end, self._tail, self._consumer_sleeps  # or the mapping cannot be closed
        self.memory.close()
        os.close(self.memfd)
