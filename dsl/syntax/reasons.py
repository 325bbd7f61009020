"""Why a token does not fit: the human reason and what to write instead.

In: the token at which the LALR parser stopped and the terminals it would have taken. Out: a `Diagnostic`.
Must not: look at more than the logical line of the token.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lark import Token

from dsl.diagnostics import Diagnostic
from dsl.syntax.layout import span_of

STATIC_CHOICE = "a rule has no control flow; choose by value: dana.where(condition, a, b)"
ARITHMETIC = "comparisons give 1 or 0: use a * b for and, dana.max(a, b) for or, 1 - a for not"
ERRORS = "a rule handles no exceptions; it is checked as a whole before it runs"
NAMES = "a name belongs to the block that assigns it; pass values as arguments and return them"

UNSUPPORTED: dict[str, str] = {
    "IF": STATIC_CHOICE,
    "ELIF": STATIC_CHOICE,
    "ELSE": STATIC_CHOICE,
    "WHILE": "loops are unrolled: for i in range(k), with k known when the rule is compiled",
    "BREAK": "loops are unrolled in full; choose their length in range(k)",
    "CONTINUE": "loops are unrolled in full; choose by value: dana.where(condition, a, b)",
    "LAMBDA": "write a function: def name(arguments):",
    "CLASS": "a rule consists of declarations, expressions, functions and loops",
    "WITH": "a rule consists of declarations, expressions, functions and loops",
    "ASYNC": "a rule consists of declarations, expressions, functions and loops",
    "AWAIT": "a rule consists of declarations, expressions, functions and loops",
    "YIELD": "return the value",
    "TRY": ERRORS,
    "EXCEPT": ERRORS,
    "FINALLY": ERRORS,
    "RAISE": ERRORS,
    "ASSERT": ERRORS,
    "AND": ARITHMETIC,
    "OR": ARITHMETIC,
    "NOT": ARITHMETIC,
    "IS": "compare with ==",
    "DEL": "a name may simply be left unused",
    "GLOBAL": NAMES,
    "NONLOCAL": NAMES,
    "NONE": "leave the argument out",
    "TRUE": "write 1",
    "FALSE": "write 0",
    "POWER": "write x * x; dana.exp(k * dana.log(x)) for other powers",
    "NOT_EQUAL": "write 1 - (a == b)",
    "WALRUS": "assign in a statement of its own",
    "OTHER_AUGMENT": "write name = name <operator> value",
    "BITWISE": ARITHMETIC,
}
"""Replacements for Python keywords and operators that the language lacks."""

MEANT: dict[str, str] = {
    **dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb", 'a straight quote: "'),
    **dict.fromkeys("\u2018\u2019\u201a\u0060\u00b4", "a straight quote: '"),
    **dict.fromkeys("\u2212\u2013\u2014", "a hyphen: -"),
    **dict.fromkeys("\u00d7\u00b7\u22c5\u2217", "an asterisk: *"),
    **dict.fromkeys("\u00f7\u2215", "a slash: /"),
    **dict.fromkeys("\u00a0\u2009\u202f\u3000", "an ordinary space"),
    **dict.fromkeys("\u200b\ufeff", "nothing here: the character is invisible"),
    "\u2264": "<=",
    "\u2265": ">=",
    "\u2260": "1 - (a == b)",
    "\uff08": "(",
    "\uff09": ")",
    "\uff0c": "a comma: ,",
    "\u00b2": "x * x",
    "!": "1 - a for not a",
    "?": "dana.where(condition, a, b)",
}
"""Probable intended characters for those substituted by word processors and web pages."""

NAMED = {
    "NEWLINE": "the end of the line",
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "EQUAL": "'='",
    "COLON": "':'",
    "COMMA": "','",
    "DOT": "'.'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "MINUSGREATERTHAN": "'->'",
    "STAR": "'*'",
    "AT": "'@'",
    "IN": "'in'",
    "IMPORT": "'import'",
    "AS": "'as'",
    "DEF": "'def'",
}
CLOSING = {"RPAR": "(", "RSQB": "["}
OPENING = {"RPAR": "LPAR", "RSQB": "LSQB"}
STARTS_EXPRESSION = frozenset({"NAME", "NUMBER", "STRING", "LPAR", "LSQB", "SIGN"})
OPERATORS = frozenset({"SIGN", "STAR", "FACTOR", "AT", "COMPARE"})


def unexpected(token: Token, accepted: Collection[str], line: Sequence[Token]) -> Diagnostic:
    """Say why `token` does not fit.

    Parameters
    ----------
    token
        Where the parser stopped.
    accepted
        Terminals that would have fitted.
    line
        The logical line's tokens.
    """
    span = span_of(token)
    if token.type == "UNKNOWN":
        return Diagnostic(
            code="E101",
            title=f"the character {token.value!r} is not part of the language",
            span=span,
            label="this character",
            expected="" if token.value in MEANT else expectation(accepted),
            help=f"write {MEANT[token.value]}" if token.value in MEANT else "remove it",
        )
    if token.type == "UNCLOSED":
        return Diagnostic(
            code="E102",
            title="the string is never closed",
            span=span,
            label="begins here",
            expected="the same quote at the end of the string",
            help="add the closing quote",
        )
    if token.type in UNSUPPORTED:
        return Diagnostic(
            code="E103",
            title=f"{token.value!r} is not part of the language",
            span=span,
            label="not available in rules",
            help=UNSUPPORTED[token.type],
        )
    # a line that begins with `for` is a loop, and wrong for another reason
    if token.type == "FOR" and line[0] is not token:
        return Diagnostic(
            code="E103",
            title="comprehensions are not part of the language",
            span=span,
            label="not available in rules",
            help="write a for statement",
        )
    found = "the end of the line" if token.type in {"NEWLINE", "INDENT", "DEDENT"} else repr(token.value)
    return Diagnostic(
        code="E104",
        title="the statement does not fit the grammar",
        span=span,
        label="unexpected here",
        expected=expectation(accepted),
        found=found,
        help=_advice(token, line),
    )


def expectation(accepted: Collection[str]) -> str:
    """Name the accepted terminals, expressions and operators as such."""
    rest = set(accepted)
    parts: list[str] = []
    if rest >= STARTS_EXPRESSION:
        parts.append("an expression")
        rest -= STARTS_EXPRESSION
    # where an operator fits, so do a call, a subscript and an attribute: one word stands for all
    elif rest >= OPERATORS:
        parts.append("an operator")
        rest -= OPERATORS | {"LPAR", "LSQB", "DOT", "AUGMENT"}
    parts += [NAMED[kind] for kind in NAMED if kind in rest]
    if not parts:
        return ""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def _open_bracket(tokens: Sequence[Token]) -> Token | None:
    """The innermost bracket that tokens leave open."""
    opened: list[Token] = []
    for token in tokens:
        if token.type in OPENING.values():
            opened.append(token)
        elif token.type in CLOSING and opened:
            opened.pop()
    return opened[-1] if opened else None


def _advice(token: Token, line: Sequence[Token]) -> str:
    # by identity: tokens are strings, and a line may hold equal ones
    position = next((i for i, other in enumerate(line) if other is token), len(line))
    before = line[position - 1] if position else None
    if token.type == "EQUAL":
        return "to compare, write =="
    if token.type == "AUGMENT":
        return "such an assignment changes one name; write one statement for each"
    if token.type in CLOSING:
        # a closing bracket of the wrong kind, or one too many
        opened = _open_bracket(line[:position])
        if opened is None:
            return f"no {CLOSING[token.type]!r} is open here; remove it"
        if opened.type != OPENING[token.type]:
            return f"the {opened.value!r} in column {opened.column} is still open; close it first"
    if before is not None and before.type in OPERATORS | {"EQUAL", "AUGMENT"} and token.type in {"NEWLINE", "RPAR"}:
        return f"write what follows {before.value!r}, or remove it"
    if token.type == "COLON" and any(t.type == "LSQB" for t in line[:position]):
        return "a slice has a start and a stop: x[1:3]"
    if token.type == "STAR" and before is not None and before.type in {"LPAR", "COMMA"}:
        return "arguments are passed one by one"
    if line and line[0].type in {"DEF", "FOR"} and token.type == "NEWLINE":
        return f"the first line of a {'function' if line[0].type == 'DEF' else 'loop'} ends with ':'"
    if token.type in {"NAME", "NUMBER", "STRING"} and before is not None and before.type in {"NUMBER", "NAME", "RPAR"}:
        return "put an operator such as * or a comma between the two"
    return ""
