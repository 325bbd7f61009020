"""Access engines under Verilator, one for each machine and test session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hwgen.access.bench import Bench
from tests.hwgen.access.machines import MACHINES, PLAIN


@pytest.fixture(scope="package", params=MACHINES)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Every machine in turn."""
    made = Bench(MACHINES[request.param])
    yield made
    made.close()


@pytest.fixture(scope="package")
def plain() -> Iterator[Bench]:
    """One machine, for what does not depend on its shape."""
    made = Bench(MACHINES[PLAIN])
    yield made
    made.close()
