"""Packages for FPGA toolchains, and what the tools say of them."""

from pathlib import Path

MANIFEST = "manifest.json"
"""File by which a folder is known as a package."""


def beside(name: str) -> str:
    """The text of a file of this folder: scripts and Verilog that packages get."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
