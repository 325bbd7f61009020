"""The simulator with code of the case's rule attached."""

from __future__ import annotations

from dana.compiler.passes import simplify
from dana.jit import compile_graph
from dana.simulator import Simulator
from dana.simulator.machine import Pages
from hwgen.spec.bundle import Bundle
from hwgen.spec.counters import EpochCounters
from tests.guarded import guarded
from tests.lockstep.cases import Case


class CompiledSimulator(Simulator):
    """Loads a Bundle and what LLVM makes of the rule that the Bundle was made of."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.bundle.config)
        self._graph = simplify(case.binding.graph)

    def load(self, bundle: Bundle) -> None:
        super().load(bundle)
        self.attach(compile_graph(self._graph, bundle))

    def consume(self, pages: Pages) -> bool:
        """A few at a time, which are gone afterwards, as those of a ring are."""
        size = 3 * self.config.page_size
        for first in range(0, len(pages), size):
            some = guarded(pages[first : first + size])
            more = super().consume(some)
            some[:] = 0x7F
            if not more:
                return False
        return True


class LateSimulator(Simulator):
    """Gets the code before an epoch, counted from 0."""

    def __init__(self, case: Case, epoch: int) -> None:
        super().__init__(case.bundle.config)
        self._code_of = simplify(case.binding.graph), case.bundle
        self._before = epoch
        self.attached = False

    def run_epoch(self, pages: Pages) -> EpochCounters:
        if self._before == 0:
            self.attach(compile_graph(*self._code_of))
            self.attached = True
        self._before -= 1
        return super().run_epoch(pages)
