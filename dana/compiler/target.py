"""Target of a compilation: the machine's shape, and the rounds in which it takes a batch.

In: nothing. Out: the data type that every pass after `plan` reads, and the error where no machine will do. It must not
know memories: those are compared with what the passes made (`dana.compiler.fit`).
"""

from dataclasses import dataclass

from dana.errors import UsageError


class DoesNotFit(UsageError):
    """A rule that the machine cannot hold; says by how much, and what would make it fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A machine's shape and a round's.

    Attributes
    ----------
    threads
        Threads, which run one program in lockstep.
    lanes
        Lanes of a thread, the words of a row.
    group
        Tuples of a thread in a round.
    together
        Tuples of a batch at most that ends where a row is chosen again; 1: batches are the rule's.
    records
        Whether models with rows chosen by watched columns lie in the record memory (docs/machine.md, "Records").
    levels
        Levels of the merge stack; 0 if every batch is one round.
    divide_interval
        Cycles from one quotient of a division unit to the next.
    crossed
        Whether exchanges may cross (docs/machine.md, "Exchanges").
    pauses
        Whether the machine pauses behind the merges of a batch (docs/machine.md, "Pauses"), where the plan lets it.
    triangles
        Whether symmetric matrices of tuples may be computed and merged by half.
    """

    threads: int
    lanes: int
    group: int
    together: int = 1
    records: bool = False
    levels: int = 0
    divide_interval: int
    crossed: bool
    pauses: bool = False
    triangles: bool = True

    @property
    def round_tuples(self) -> int:
        """Tuples of a round, of all threads."""
        return self.threads * self.group
