"""Names in drawings: no control character of a name reaches the SVG."""

from __future__ import annotations

import pytest

from dana.report.figure import drawn

HOSTILE = "a\x1b[31m\u202e-->b"


@pytest.mark.filterwarnings("ignore:Glyph")
def test_names_are_shown_as_shapes_alone() -> None:
    """Matplotlib draws glyphs as paths, and repeats each text in a comment."""
    made: list[str] = []
    with drawn(2.0, HOSTILE, made) as axes:
        axes.set_yticks([0], [HOSTILE])
        axes.set_xlabel(HOSTILE)
    (text,) = made
    assert "</svg>" in text
    assert not {"\x1b", "\u202e"} & set(text)
