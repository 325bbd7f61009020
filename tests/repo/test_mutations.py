"""The faults of `bench/mutations.py` can be put into the hardware as it is, and documents list them."""

from __future__ import annotations

import pytest

from bench.mutations import MUTATIONS, listed
from dana.server.places import CHECKOUT


def test_every_fault_has_its_place() -> None:
    assert len(MUTATIONS) >= 20
    assert len({mutation.file for mutation in MUTATIONS}) >= 10
    for mutation in MUTATIONS:
        text = (CHECKOUT / mutation.path).read_text(encoding="utf-8")
        assert mutation.applied(text) != text
        assert (CHECKOUT / mutation.tests[0].partition("::")[0]).is_file(), mutation.tests


def test_a_fault_without_a_place_says_so() -> None:
    with pytest.raises(ValueError, match=r"^hwgen/rtl/arith/add\.py must hold .* once, but holds it 0 times"):
        MUTATIONS[0].applied("")


def test_the_document_lists_them() -> None:
    assert listed() in (CHECKOUT / "docs" / "proof.md").read_text(encoding="utf-8"), (
        "write the table again: python -c 'from bench.mutations import listed; print(listed())'"
    )
