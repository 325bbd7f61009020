"""Lines with a fault put into them, and the test that is to notice each, by area.

In: nothing. Out: `AREAS`, `MUTATIONS`. A mutation names its text in the file, which stands there once; a test looks
that it does, so that the list follows the code.
"""

from __future__ import annotations

from benchmarks.faults.calls import CALLS
from benchmarks.faults.compiler import COMPILER
from benchmarks.faults.defences import DEFENCES
from benchmarks.faults.extension import EXTENSION
from benchmarks.faults.fault import Mutation
from benchmarks.faults.hardware import HARDWARE
from benchmarks.faults.interchange import INTERCHANGE
from benchmarks.faults.jit import JIT
from benchmarks.faults.language import LANGUAGE
from benchmarks.faults.rights import RIGHTS
from benchmarks.faults.runtime import RUNTIME
from benchmarks.faults.simulator import SIMULATOR
from benchmarks.faults.spec import SPEC
from benchmarks.faults.storage import STORAGE

AREAS: dict[str, tuple[Mutation, ...]] = {
    "hardware": HARDWARE,
    "language": LANGUAGE,
    "compiler": COMPILER,
    "spec": SPEC,
    "storage": STORAGE,
    "interchange": INTERCHANGE,
    "runtime": RUNTIME,
    "simulator": SIMULATOR,
    "jit": JIT,
    "extension": EXTENSION,
    "rights": (*RIGHTS, *CALLS),
    "defences": DEFENCES,
}
MUTATIONS = tuple(mutation for mutations in AREAS.values() for mutation in mutations)


def listed() -> str:
    """The table of `docs/proof.md`."""
    lines = ["| file | fault | noticed by |", "|---|---|---|"]
    lines += [
        f"| {mutation.file} | {mutation.what} | {mutation.tests[0].partition('::')[0].removeprefix('tests/hwgen/')} |"
        for mutation in HARDWARE
    ]
    return "\n".join(lines)
