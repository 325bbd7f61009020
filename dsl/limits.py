"""How large a rule may be: bounds that keep hostile or generated text from costing more than about a second.

In: nothing. Out: named numbers, each used by the stage that can exceed it first.
Must not: bound data; columns, rows and model sizes are not rule text.
"""

from __future__ import annotations

from typing import Final

MAX_SOURCE_BYTES: Final = 64 * 1024
"""UTF-8 length of one rule."""

MAX_NESTING: Final = 64
"""Brackets inside brackets, blocks inside blocks, unary operators in a row."""

MAX_CALL_DEPTH: Final = 16
"""Rule functions that are in the middle of a call at once."""

MAX_STEPS: Final = 100_000
"""Expressions and statements elaborated, loops and calls unrolled."""

MAX_VALUES: Final = 10_000
"""Operations in the unrolled rule."""

MAX_RANK: Final = 3
"""Axes of a value."""

MAX_SYNTAX_ERRORS: Final = 20
"""Syntax errors reported before the parser gives up on the rest of the file."""

MAX_ERRORS: Final = 50
"""Diagnostics reported for one rule."""

MAX_INTEGER: Final = 1 << 53
"""Largest magnitude of a whole number in rule text; binary64 still holds it exactly."""

MAX_EXTENT: Final = 1 << 31
"""Largest number of elements along one axis."""

MAX_EPOCHS: Final = 1_000_000_000
"""Largest argument of setEpochs."""
