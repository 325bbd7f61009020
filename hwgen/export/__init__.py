"""Packages for FPGA toolchains, and the results of the tools."""

from pathlib import Path

MANIFEST = "manifest.json"
"""File that marks a folder as a package."""

FORMAT = 5
"""Version of the package's layout."""

RECORD_IMAGE = "images/records.bin"
"""What the record memory holds before the first training, from the first table's beginning to the last one's end."""

STARTS, RECORDS = "sim/starts.hex", "sim/records.hex"
"""Rows of the record memory before the testbench's training, and after it; all others are 0."""

HELD = "sim/held.hex"
"""Bits of those rows after the training that elements take: others hold anything."""

BASE = 0x1_4000_0000
"""Address of a package's pages on the board's bus."""

PART = 0x2000_0000
"""Bytes from where one bus of several has its stripes of a package's pages to where the next has them: 512 MB, what a
channel of an HBM has."""

RECORD_BASE = 0x8000_0000
"""Address of a package's first table on the bus of the record memory."""


def file_text(name: str) -> str:
    """The text of a file of this folder: a script or Verilog for packages."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
