"""The commands that a checkout adds to ``dana bench``; each module registers its own."""

from __future__ import annotations

import argparse

from benchmarks.commands import accuracy, paper, peers


def register(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add all of them."""
    for group in (accuracy, peers, paper):
        group.register(kinds)
