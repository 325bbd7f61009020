"""Why the core rejected a Bundle, in words.

In: the core's problem and the Bundle. Out: the exception. What `hwgen.spec.legal` finds is rejected before.
"""

from dana.simulator.structures import Problem, ProblemKind
from hwgen.spec import engine
from hwgen.spec.bundle import Bundle, BundleError

NO_MEMORY = "the host has not enough memory for the machine"
KINDS = {
    ProblemKind.DST_OUTSIDE: "{where} writes row {found} of a scratchpad of {limit}",
    ProblemKind.A_OUTSIDE: "{where} reads operand a from row {found} of {limit}",
    ProblemKind.B_OUTSIDE: "{where} reads operand b from row {found} of {limit}",
    ProblemKind.TOO_SHORT: "{where} takes {found} cycles, an instruction takes at least {limit}",
    ProblemKind.WRITES_COLLIDE: "{where} writes a result in cycle {found} of the section, as another instruction does",
    ProblemKind.RESULTS_OUTSTAND: "section {section} ends {found} cycles before its last result can be read",
    ProblemKind.INDEX_OVERLAPS: "{where} reads a row before it is visible, which a program with SETX must not",
}


def refusal(problem: Problem, bundle: Bundle) -> BundleError | MemoryError:
    """The exception for a Bundle that the machine does not run, or that the host has no memory for."""
    if problem.kind == ProblemKind.NO_MEMORY:
        return MemoryError(NO_MEMORY)
    section = list(engine.Section)[problem.section].value
    where = f"instruction {problem.position} ({bundle.program[problem.position].op.name} in section {section})"
    words = KINDS[ProblemKind(problem.kind)]
    return BundleError(words.format(where=where, found=problem.found, limit=problem.limit, section=section))
