"""Text to AST, with every syntax error of the text.

In: a `Source`. Out: a `Module` and diagnostics; a line with an error is a `Broken` statement in the module.
Each logical line is parsed alone, a header with a body of `pass` that is then replaced by its block, so that an error
costs no more than its line and nothing is read twice. Must not: raise for bad text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib.util import cache_from_source
from itertools import pairwise
from pathlib import Path
from typing import Any

import lark
from lark import Lark, Token, UnexpectedToken

from dsl.diagnostics import Diagnostic
from dsl.limits import MAX_SOURCE_BYTES, MAX_SYNTAX_ERRORS
from dsl.source import Source
from dsl.syntax import ast
from dsl.syntax.builder import AstBuilder, SyntaxIssue
from dsl.syntax.layout import Line, lay_out, span_of
from dsl.syntax.reasons import unexpected

RULE = Path(__file__).with_name("rule.lark")
COMPILED = cache_from_source(__file__)
TABLES = COMPILED.removesuffix(".pyc") + ".tables"
"""The grammar's tables, next to the compiled modules, and trusted as those are."""


@cache
def grammar() -> Lark:
    """The grammar with its tables, which take ten times as long to make as a rule to read."""
    sources = b"".join(path.read_bytes() for path in (RULE, Path(__file__)))
    key = sha256(sources + f"{lark.__version__} {sys.version}".encode()).digest()
    # of a file that is damaged, load may raise anything
    with suppress(Exception), open(TABLES, "rb") as file:
        if file.read(len(key)) == key:
            return Lark.load(file)
    made = Lark.open(
        str(RULE),
        parser="lalr",
        # not the contextual lexer: the whole text is read before anything is parsed, so that errors cost a line each
        lexer="basic",
        # nothing is parsed from `unsupported`; as a start it keeps its terminals in the lexer
        start=["statement", "unsupported"],
        # spans begin and end at tokens, those of punctuation included
        keep_all_tokens=True,
        maybe_placeholders=False,
        transformer=AstBuilder(),
    )
    if not sys.dont_write_bytecode:
        part = f"{COMPILED}.{os.getpid()}"  # as Python names a module that it is compiling
        with suppress(OSError):
            with open(part, "wb") as file:
                file.write(key)
                made.save(file)
            os.replace(part, TABLES)
    return made


def parse(source: Source) -> tuple[ast.Module, tuple[Diagnostic, ...]]:
    """Parse a whole rule text.

    Returns
    -------
    Module, tuple of Diagnostic
        The statements, broken lines included, and what is wrong with the text.
    """
    if large := too_large(source):
        return ast.Module(body=()), (large,)
    # never fails: UNKNOWN of the grammar matches any character that nothing else does
    tokens = list(grammar().lex(source.text))
    lines, diagnostics = lay_out(tokens, source)
    return ast.Module(body=_parse_lines(lines, diagnostics)), tuple(diagnostics)


def too_large(source: Source) -> Diagnostic | None:
    """Return what is wrong with the text's length, if anything."""
    # a str may hold half of a surrogate pair, which UTF-8 has no bytes for
    size = len(source.text.encode("utf-8", "surrogatepass"))
    if size <= MAX_SOURCE_BYTES:
        return None
    return Diagnostic(
        code="E601",
        title="the rule text is too large",
        expected=f"at most {MAX_SOURCE_BYTES:,} bytes",
        found=f"{size:,} bytes",
        help="a rule is a few dozen lines; repetition belongs into functions and loops",
    )


def _parse_lines(lines: Sequence[Line], diagnostics: list[Diagnostic]) -> tuple[ast.Statement, ...]:
    """Parse lines of one block; errors are added to `diagnostics`, up to the limit."""
    body: list[ast.Statement] = []
    for decorators, line in _decorated(lines):
        # later errors are mostly consequences; the text may be anything, such as a binary file
        if len(diagnostics) >= MAX_SYNTAX_ERRORS:
            break
        outcome = None if line.broken else _parse_line(decorators, line)
        if isinstance(outcome, Diagnostic):
            diagnostics.append(outcome)
            outcome = None
        if outcome is None:
            span = span_of(line.tokens[0]).to(line.end)
            outcome = (ast.Broken(span=span, names=tuple(_bound_names(line))),)
        elif line.block and isinstance(outcome[-1], ast.Function | ast.For):
            # the line was parsed with `pass` for a body (`_parse_line`)
            outcome = (*outcome[:-1], replace(outcome[-1], body=_parse_lines(line.block, diagnostics)))
        body += outcome
    return tuple(body)


def _decorated(lines: Sequence[Line]) -> Iterator[tuple[list[Line], Line]]:
    """Yield each line with the decorator lines above it."""
    decorators: list[Line] = []
    for line in lines:
        # a decorator in the last line decorates nothing, and is parsed alone, to be reported
        if line.tokens[0].type == "AT" and not line.broken and line is not lines[-1]:
            decorators.append(line)
        else:
            yield decorators, line
            decorators = []


def _bound_names(line: Line) -> list[str]:
    """Return the names that a broken line, or its block, would have assigned, so that their uses are not reported."""
    names: list[str] = []
    if line.tokens[0].type in {"DEF", "FOR", "IMPORT", "FROM"}:
        names += [token.value for token in line.tokens[1:] if token.type == "NAME"]
    for token, following in pairwise(line.tokens):
        # names that look assigned: too many cost nothing, one too few reports every use of it
        if token.type == "NAME" and following.type in {"EQUAL", "COMMA", "COLON", "AUGMENT", "WALRUS", "OTHER_AUGMENT"}:
            names.append(token.value)
    for inner in line.block:
        names += _bound_names(inner)
    return names


def _parse_line(decorators: Sequence[Line], line: Line) -> tuple[ast.Statement, ...] | Diagnostic:
    """Return the statements of a line, a block of its own taken as `pass`; or its error."""
    parser: Any = grammar().parse_interactive(start="statement")  # lark types its methods only in part
    owner = line
    try:
        for owner in (*decorators, line):
            for token in owner.tokens:
                parser.feed_token(token)
            parser.feed_token(_mark("NEWLINE", owner))
        if line.block:
            for kind in ("INDENT", "PASS", "NEWLINE", "DEDENT"):
                parser.feed_token(_mark(kind, line))
        result: tuple[ast.Statement, ...] = parser.feed_token(_mark("$END", line))
    except UnexpectedToken as error:
        # `owner` is the line that was being read: a decorator's error is reported there
        return unexpected(error.token, parser.accepts(), owner.tokens)
    except SyntaxIssue as issue:
        return issue.diagnostic
    return result


def _mark(kind: str, line: Line) -> Token:
    """Return a token that stands for layout, placed at the end of a line."""
    end = line.end
    return Token(kind, "", line=end.line, column=end.column, end_line=end.end_line, end_column=end.end_column)
