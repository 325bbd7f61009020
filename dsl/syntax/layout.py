"""Logical lines and blocks: what Python's tokenizer does with line ends and indentation.

In: the lexer's tokens and the text. Out: a tree of `Line`s (a line's children are its indented block) and
diagnostics for brackets and indentation. Must not: know statements, beyond that a block follows a colon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lark import Token

from dsl.diagnostics import Diagnostic, Note
from dsl.limits import MAX_NESTING, MAX_SYNTAX_ERRORS
from dsl.source import Source, Span

OPENING = {"LPAR": ")", "LSQB": "]"}
CLOSING = frozenset({"RPAR", "RSQB"})
CONTINUED = frozenset({"IF", "TRY", "WHILE"})
CONTINUES = frozenset({"ELIF", "ELSE", "EXCEPT", "FINALLY"})
HEADERS = frozenset({"DEF", "FOR", "IF", "ELIF", "ELSE", "WHILE", "WITH", "CLASS", "TRY", "EXCEPT", "FINALLY"})


def span_of(token: Token) -> Span:
    """Return where a token stands."""
    line, column = token.line or 1, token.column or 1
    return Span(line, column, token.end_line or line, token.end_column or column + len(token))


@dataclass(slots=True)
class Line:
    """A logical line and the block below it.

    Parameters
    ----------
    tokens
        Without the line end.
    indent
        The white space before its first token.
    end
        Position just after its last token.
    block
        The lines indented below it.
    broken
        Reported already: not to be parsed, nor its block.
    """

    tokens: list[Token]
    indent: str
    end: Span
    block: list[Line] = field(default_factory=list)
    broken: bool = False


def lay_out(tokens: Sequence[Token], source: Source) -> tuple[list[Line], list[Diagnostic]]:
    """Return the top-level lines, each with its block, and what is wrong with brackets and indentation."""
    diagnostics: list[Diagnostic] = []
    lines = _logical_lines(tokens, source, diagnostics)
    return _nest(lines, diagnostics), diagnostics


def _logical_lines(tokens: Sequence[Token], source: Source, diagnostics: list[Diagnostic]) -> list[Line]:
    lines: list[Line] = []
    start = 0
    while start < len(tokens):
        # an empty line, or one with a comment alone
        if tokens[start].type == "NEWLINE":
            start += 1
            continue
        end, unclosed = _end_of_line(tokens, start)
        first = tokens[start]
        # line ends inside brackets end no statement
        kept = [token for token in tokens[start:end] if token.type != "NEWLINE"]
        span = span_of(kept[-1])
        line = Line(
            tokens=kept,
            # by the text, not by the column alone: tabs and spaces must match the lines around
            indent=source.lines[span_of(first).line - 1][: span_of(first).column - 1],
            end=Span(span.end_line, span.end_column, span.end_line, span.end_column + 1),
        )
        if unclosed is not None:
            line.broken = True
            unclosed = _culprit(kept, unclosed)
            diagnostics.append(
                Diagnostic(
                    code="E110",
                    title=f"{unclosed.value!r} is never closed",
                    span=span_of(unclosed),
                    label="opened here",
                    expected=f"{OPENING[unclosed.type]!r} further on",
                    found="the end of the statement",
                    help=f"add {OPENING[unclosed.type]!r} where the list of arguments or the group ends",
                )
            )
        _check_depth(line, diagnostics)
        lines.append(line)
        if len(diagnostics) >= MAX_SYNTAX_ERRORS:
            break
        start = end
    return lines


def _end_of_line(tokens: Sequence[Token], start: int) -> tuple[int, Token | None]:
    """Return the index after the logical line, and its outermost bracket if that is never closed.

    Then the line is taken to end where the next physical line is indented no more than it.
    """
    opened: list[Token] = []
    column = span_of(tokens[start]).column
    candidate: int | None = None
    for i in range(start, len(tokens)):
        kind = tokens[i].type
        if kind == "UNCLOSED":  # it swallowed the rest of its line, closing brackets included
            return i + 1, None
        if kind in OPENING:
            opened.append(tokens[i])
        elif kind in CLOSING:
            if opened:
                opened.pop()
                if not opened:
                    candidate = None
        elif kind == "NEWLINE":
            if not opened:
                return i, None
            # the first place where the statement may have ended, if its bracket is never closed
            if candidate is None and i + 1 < len(tokens) and span_of(tokens[i + 1]).column <= column:
                candidate = i
    if not opened:
        return len(tokens), None
    return (len(tokens) if candidate is None else candidate), opened[0]


def _culprit(tokens: Sequence[Token], outermost: Token) -> Token:
    """Return the bracket that was forgotten: the one inside which another kind is closed, else the outermost."""
    opened: list[Token] = []
    for token in tokens:
        if token.type in OPENING:
            opened.append(token)
        elif token.type in CLOSING and opened:
            # closing another bracket than the innermost, but one that is open: the innermost was forgotten
            if OPENING[opened[-1].type] != token.value and any(OPENING[o.type] == token.value for o in opened):
                return opened[-1]
            opened.pop()
    return outermost


def _check_depth(line: Line, diagnostics: list[Diagnostic]) -> None:
    depth = 0
    for token in line.tokens:
        # whether the kinds of brackets match is for the parser to report
        depth += 1 if token.type in OPENING else -1 if token.type in CLOSING else 0
        if depth > MAX_NESTING:
            line.broken = True
            diagnostics.append(too_deep(span_of(token), "brackets"))
            return


def too_deep(span: Span, what: str, help: str = "give parts of the expression names of their own") -> Diagnostic:
    """Return the diagnostic for nesting beyond the limit."""
    return Diagnostic(
        code="E602",
        title="nested too deeply",
        span=span,
        label="here",
        expected=f"at most {MAX_NESTING} levels of {what}",
        help=help,
    )


def _nest(lines: Sequence[Line], diagnostics: list[Diagnostic]) -> list[Line]:
    top: list[Line] = []
    # innermost last: the indentation of a block, its lines, and the line that opened it
    # text that is indented as a whole, as inside SQL's $$ quotes, starts at that indentation
    blocks: list[tuple[str, list[Line], Line | None]] = [(lines[0].indent if lines else "", top, None)]
    for line in lines:
        indent, siblings, _ = blocks[-1]
        previous = siblings[-1] if siblings else None
        opens = previous is not None and previous.tokens[-1].type == "COLON"
        # by text: an indentation of tabs is not deeper than one of spaces
        deeper = line.indent.startswith(indent) and len(line.indent) > len(indent)
        # a header that lost its colon keeps its block, so that only the colon is reported
        if previous is not None and deeper and (opens or previous.tokens[0].type in HEADERS):
            # recursion over blocks, here and in `dsl.semantics`, is as deep as they are
            if len(blocks) > MAX_NESTING:
                diagnostics.append(too_deep(span_of(line.tokens[0]), "blocks", "write functions instead"))
                top[-1].broken = True
                return top
            previous.block.append(line)
            blocks.append((line.indent, previous.block, previous))
            continue
        if previous is not None and opens and not previous.broken and not previous.block:
            _report_missing_block(previous, line, diagnostics)
        left = siblings
        # blocks that the line leaves; it must then match the indentation of the one that is left
        while len(blocks) > 1 and line.indent != blocks[-1][0] and not line.indent.startswith(blocks[-1][0]):
            left = blocks.pop()[1]
        indent, siblings, opener = blocks[-1]
        previous = siblings[-1] if siblings else None
        if line.indent != indent:
            _report_indent(line, indent, opener, diagnostics)
            line.broken = True
            left.append(line)  # most likely it belongs to the block above it
        elif previous is not None and line.tokens[0].type in CONTINUES and previous.tokens[0].type in CONTINUED:
            previous.block.append(line)  # reported with the statement that it continues
        else:
            siblings.append(line)
    last = blocks[-1][1][-1] if blocks[-1][1] else None
    if last is not None and last.tokens[-1].type == "COLON" and not last.broken and not last.block:
        _report_missing_block(last, None, diagnostics)
    return top


def _report_missing_block(header: Line, following: Line | None, diagnostics: list[Diagnostic]) -> None:
    header.broken = True
    found = "the end of the text" if following is None else "a line that is not indented"
    diagnostics.append(
        Diagnostic(
            code="E112",
            title="an indented block is missing",
            span=span_of(header.tokens[-1]),
            label="a block follows this colon",
            expected="at least one line, indented further than this one",
            found=found,
            help="indent the lines that belong to it by four spaces",
        )
    )


def _report_indent(line: Line, indent: str, opener: Line | None, diagnostics: list[Diagnostic]) -> None:
    mixed = line.indent.replace("\t", "").strip(" ") == "" and "\t" in line.indent + indent
    wanted = "no indentation" if not indent else f"an indentation of {len(indent)}, like the lines above"
    notes = () if opener is None else (Note(message="the block begins here", span=span_of(opener.tokens[0])),)
    diagnostics.append(
        Diagnostic(
            code="E111",
            title="the indentation fits no block",
            span=Span(*_start(line), _start(line)[0], _start(line)[1] + len(line.tokens[0])),
            label="this line",
            expected=wanted,
            found=f"an indentation of {len(line.indent)}",
            notes=notes,
            help="use spaces only, not tabs" if mixed else "align it with the lines of its block",
        )
    )


def _start(line: Line) -> tuple[int, int]:
    span = span_of(line.tokens[0])
    return span.line, span.column
