"""Rule text as ruff lays out Python, with its meaning as it was.

In: the text of a rule. Out: the same rule, formatted; comments are kept. A rule is valid Python, so ruff formats it,
with its defaults and no configuration file. Must not: return a text with another dataflow graph.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

from dana.errors import InternalError, SetupError
from dana.extras import install_command
from dsl import compile_rule
from dsl.hdfg.text import graph_text

LINE_LENGTH = 120
"""Columns of a line, as the rules that come along have them."""


def formatted(text: str, *, filename: str, line_length: int = LINE_LENGTH, modules: str = "") -> str:
    """Lay a rule out; `modules` are those that it imports, which stay as they are
    (`dana.language.rulefile.modules_beside`).

    Raises
    ------
    RuleError
        The text is no rule.
    SetupError
        ruff is not installed.
    """
    # modules are part of the meaning, and are not laid out
    before = _meaning(text + modules, filename)
    if find_spec("ruff") is None:
        raise SetupError(f"dana fmt needs the package ruff, which is not installed: {install_command('fmt')}")
    # --isolated: a configuration file next to the rule would lay it out in another way
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", str(line_length), "-"]
    ran = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", check=False)
    if ran.returncode:
        raise InternalError(f"ruff cannot format {filename}, which is a rule: {ran.stderr.strip()}")
    # a formatter's bug must not change a model
    if ran.stdout != text and _meaning(ran.stdout + modules, filename) != before:
        raise InternalError(f"{filename} would mean something else when it is formatted; it is left as it is")
    return ran.stdout


def _meaning(text: str, filename: str) -> str:
    return graph_text(compile_rule(text, filename=filename).hdfg, spans=False)
