"""The faults of `benchmarks/faults/faults.toml` can be inserted into the code as it is."""

from __future__ import annotations

import pytest

from benchmarks.faults.fault import FAULTS, Fault
from dana.server.places import CHECKOUT


def test_every_fault_has_its_place() -> None:
    assert 100 <= len(FAULTS) <= 160
    for fault in FAULTS:
        text = (CHECKOUT / fault.path).read_text(encoding="utf-8")
        changed = text.replace(fault.old, fault.new)
        assert changed != text
        if fault.path.suffix == ".py":
            compile(changed, str(fault.path), "exec")  # invalid Python would be noticed by any test
        files = [word for word in fault.tests if word.startswith("tests/")]
        assert files, fault.tests
        assert all((CHECKOUT / file.partition("::")[0]).is_file() for file in files), fault.tests


@pytest.mark.parametrize("text", ["no file holds this text", "import"])
def test_a_text_that_does_not_occur_once(text: str) -> None:
    with pytest.raises(ValueError, match=r"must occur once.*faults\.toml"):
        _ = Fault(old=text, new="", what="", tests=()).path
