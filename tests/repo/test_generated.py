"""Files that tables are written to: what `python -m dana.generated` would write, and they say so."""

from __future__ import annotations

import pytest

from dana.generated import FILES, ROOT


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_what_its_table_says(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text == FILES[name](), "write it again: python -m dana.generated"
    whole = name.endswith((".h", ".md")) and "language" not in name
    assert "Written by python -m dana.generated" in (text.splitlines()[0] if whole else text)
