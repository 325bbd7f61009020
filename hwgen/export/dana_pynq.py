"""Drives the board from PYNQ: values by their names, as manifest.json places them.

    overlay = pynq.Overlay("zcu104.bit")
    board = DanaBoard(overlay.board, pynq.allocate, "FOLDER")
    board.load()
    run = board.train(pages, epochs=10)        # pages: bytes, whole pages of a PostgreSQL table
    w = board.read("w")

It needs numpy and nothing else of this project. `ip` is a pynq.DefaultIP, a pynq.MMIO, or anything with their `read`
and `write` of byte addresses. Tables in a record memory are the caller's: `images/records.bin`.
"""

import json
import re
import time
from pathlib import Path

import numpy as np


class BoardError(Exception):
    """No such board, a fault, or a memory that does not answer."""


class DanaBoard:
    """One board, with the package that it was made from."""

    def __init__(self, ip, allocate, folder):
        self._ip, self._allocate, self._folder = ip, allocate, Path(folder)
        self._manifest = json.loads((self._folder / "manifest.json").read_text())
        text = (self._folder / "registers.h").read_text()
        self._at = {name: int(value, 16) for name, value in re.findall(r"#define DANA_(\w+) 0x(\w+)u", text)}
        self._bases = re.findall(r"DANA_(BOARD_PAGE_BASE\w*)", re.search("DANA_PAGE_BASES (.*)", text)[1])
        for name in self._at:
            if name.startswith("CONFIG_"):
                self._expect(name.replace("CONFIG_", "BOARD_", 1), self._at[name])
        self._expect("ID", self._at["IDENTITY_MACHINE"])
        self._expect("BOARD_ID", self._at["IDENTITY_BOARD"])
        self.values = {value["name"]: value for value in self._manifest["values"] if not value["table"]}

    def _expect(self, register, wanted):
        found = self._get(register)
        if found != wanted:
            raise BoardError(
                f"{register} of the board must be {wanted:#x}, not {found:#x}: load this package's bitstream"
            )

    def _get(self, register):
        return self._ip.read(self._at[register])

    def _set(self, register, value, word=0):
        self._ip.write(self._at[register] + 4 * word, value)

    def load(self):
        """Stop the board and load the machine."""
        self.stop()
        for line in (self._folder / "images" / "load.hex").read_text().split():
            self._ip.write(int(line[:8], 16), int(line[8:], 16))

    def stop(self):
        """Stop a training, and wait until the board is idle."""
        self._set("BOARD_COMMAND", self._at["COMMAND_STOP"])
        while self._get("BOARD_STATUS") & self._at["STATUS_BUSY"]:
            time.sleep(0)

    def train(self, pages, epochs):
        """Train on whole pages from the model that is there; epochs that were run, and whether it converged."""
        size = self._at["CONFIG_PAGE_SIZE"]
        if not pages or len(pages) % size:
            raise ValueError(f"pages must be a multiple of {size} bytes, not {len(pages)}")
        count = len(pages) // size
        # a stripe of each page for each bus
        stripes = np.frombuffer(pages, "u1").reshape(-1, len(self._bases), self._at["BUS_BYTES"])
        memories = []
        for k, register in enumerate(self._bases):
            own = stripes[:, k].ravel()
            # a page begins at a multiple of its size, which PYNQ's allocator does not promise
            memory = self._allocate(shape=(len(own) + size,), dtype="u1")
            skip = -memory.device_address % size
            memory[skip : skip + len(own)] = own
            memory.flush()
            memories.append(memory)
            base = memory.device_address + skip
            self._set(register, base & 0xFFFFFFFF)
            self._set(register, base >> 32, word=1)
        for register, value in {
            "PAGES": count,
            "BOARD_EPOCHS": epochs,
            "BOARD_SLOTS": count,
            "BOARD_PAGES_READY": self._at["ENDLESS"],
            "BOARD_LOSS_AT": self._at["LOSS_WORD"],
            "BOARD_CONVERGENCE_AT": self._at["CONVERGENCE_WORD"],
            "BOARD_INTERRUPT": 1,
        }.items():
            self._set(register, value)
        self._set("BOARD_COMMAND", self._at["COMMAND_TRAIN"])
        while (status := self._get("BOARD_STATUS")) & self._at["STATUS_BUSY"]:
            if status & self._at["STATUS_UNANSWERED"]:
                self.stop()
                raise BoardError("a memory does not answer: reset the board together with its interconnect")
            time.sleep(0)
        if status >> 8 & 0xFF:
            raise BoardError(
                f"fault {status >> 8 & 0xFF} of registers.md on page {self._get('FAULT_PAGE')}: load again"
            )
        return self._get("BOARD_EPOCHS_RUN"), bool(status & self._at["STATUS_CONVERGED"])

    def losses(self, count):
        """Losses of the first epochs of the last training, up to 1,024."""
        return self._words(self._at["REGION_LOSSES"], count)

    def read(self, name):
        """A model or a meta, of its own shape."""
        value = self.values[name]
        words = self._words(value["address"], value["words"])
        shape = tuple(value["shape"])
        if not shape:
            return words[0]
        rows = words.reshape(-1, value["row_words"])[:, :: value["step"]]
        return rows[:, : shape[-1]].reshape(shape)

    def _words(self, address, count):
        return np.array([self._ip.read(address + 4 * k) for k in range(count)], dtype=np.uint32).view(np.float32)
