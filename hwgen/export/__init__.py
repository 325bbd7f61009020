"""Packages for FPGA toolchains, and what the tools say of them."""

MANIFEST = "manifest.json"
"""File by which a folder is known as a package."""
