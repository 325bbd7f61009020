"""Lines with a fault put into them, and the test that is to notice each, by area.

In: nothing. Out: `AREAS`, `MUTATIONS`. A mutation names its text in the file, which stands there once; a test looks
that it does, so that the list follows the code.
"""

from __future__ import annotations

from bench.mutations.calls import CALLS
from bench.mutations.compiler import COMPILER
from bench.mutations.defences import DEFENCES
from bench.mutations.extension import EXTENSION
from bench.mutations.fault import Mutation
from bench.mutations.hardware import HARDWARE
from bench.mutations.interchange import INTERCHANGE
from bench.mutations.jit import JIT
from bench.mutations.language import LANGUAGE
from bench.mutations.rights import RIGHTS
from bench.mutations.runtime import RUNTIME
from bench.mutations.simulator import SIMULATOR
from bench.mutations.spec import SPEC
from bench.mutations.storage import STORAGE

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
