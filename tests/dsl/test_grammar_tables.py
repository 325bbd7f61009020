"""The grammar's tables are made once for all processes, and again where a file of them is of no use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from lark import Lark

from dsl import compile_rule
from dsl.syntax import parser

RULE = Path(__file__).parents[2] / "dana" / "rules" / "linear.py"


def test_tables_are_made_once_and_damaged_ones_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = tmp_path / "tables"
    monkeypatch.setattr(parser, "TABLES", str(tables))
    monkeypatch.setattr(parser, "COMPILED", str(tmp_path / "parser.pyc"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    made: list[Any] = []
    open_ = Lark.open
    monkeypatch.setattr(Lark, "open", lambda *given, **named: (made.append(given), open_(*given, **named))[1])
    text = RULE.read_text()
    expected = compile_rule(text).listing

    def compiled(times: int) -> None:
        grammar = parser.grammar.__wrapped__()
        assert len(made) == times
        with monkeypatch.context() as patch:
            patch.setattr(parser, "grammar", lambda: grammar)
            assert compile_rule(text).listing == expected

    compiled(1)
    compiled(1)
    whole = tables.read_bytes()
    for number, damaged in enumerate((whole[:100], b"", b"~" + whole[1:]), start=2):
        tables.write_bytes(damaged)
        compiled(number)
        compiled(number)
    tables.unlink()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    compiled(5)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(parser, "COMPILED", str(tmp_path / "no such folder" / "parser.pyc"))
    compiled(6)
