"""The faults of `benchmarks/faults` can be put into the code as it is, and documents list those of the hardware."""

from __future__ import annotations

import pytest

from benchmarks.faults import AREAS, MUTATIONS, listed
from dana.server.places import CHECKOUT


def test_every_fault_has_its_place() -> None:
    assert all(mutations for mutations in AREAS.values())
    assert len(set(MUTATIONS)) == len(MUTATIONS) >= 225
    for mutation in MUTATIONS:
        text = (CHECKOUT / mutation.path).read_text(encoding="utf-8")
        assert mutation.applied(text) != text
        if mutation.path.suffix == ".py":
            compile(mutation.applied(text), str(mutation.path), "exec")  # a text that is no Python proves nothing
        files = [word for word in mutation.tests if word.startswith("tests/")]
        assert files, mutation.tests
        assert all((CHECKOUT / file.partition("::")[0]).is_file() for file in files), mutation.tests


def test_a_fault_without_a_place_says_so() -> None:
    with pytest.raises(ValueError, match=r"^hwgen/rtl/arith/add\.py must hold .* once, but holds it 0 times"):
        MUTATIONS[0].applied("")


def test_the_document_lists_them() -> None:
    assert listed() in (CHECKOUT / "docs" / "proof.md").read_text(encoding="utf-8"), (
        "write the table again: python -c 'from benchmarks.faults import listed; print(listed())'"
    )
