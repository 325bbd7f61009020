"""The tutorial's error is what the compiler says; its commands are run by tests/repo/test_commands.py."""

from __future__ import annotations

import re

from dana.server.places import CHECKOUT
from dsl import Rule

BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (CHECKOUT / "docs" / "tutorial.md").read_text(encoding="utf-8"), re.S)


def test_the_error_shown_is_what_check_says() -> None:
    rule = next(block for language, block in BLOCKS if language == "python").replace("dana.sigmoid", "dana.sigmod")
    shown = next(block for language, block in BLOCKS if language == "text")
    assert Rule(rule, filename="careful.py").report + "\n" == shown
