"""Files that repeat what a table says: `python -m dana.generated` writes them again, after a change of the table.

In: the tables of `hwgen.spec`, of the language, of metrics and of the predictor. Out: headers in C, a view, documents,
the coefficients, names for editors. A test compares the files with what would be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from dana import metrics
from dana.cluster import agreed
from dana.predictor import program
from dana.simulator import headers
from dana.trainer.data import likelihood, surveyed
from dana.worker import messages
from dsl.semantics.library import FUNCTIONS, NAMES, SAID
from hwgen.export import manual, registers
from hwgen.spec.config import MachineConfig
from hwgen.spec.numerics import fit

ROOT = Path(__file__).parent.parent

TYPES = ("Algo", "Batch", "Dim", "NotInRule", "Number", "Part", "Value")
"""What `dana.language.names` offers in addition to the language's names."""


def _between(name: str, text: str, *, until: str = "") -> str:
    """A file with a text in the place of what is between its line that says so and the line `until`, or its end."""
    before, mark, rest = (ROOT / name).read_text(encoding="utf-8").partition("Written by python -m dana.generated: ")
    line, _, rest = rest.partition("\n")
    return f"{before}{mark}{line}\n{text}{rest[rest.index(until) :] if until else ''}"


def _listed(names: Iterable[str]) -> str:
    return "__all__ = [\n" + "".join(f'    "{name}",\n' for name in sorted(names)) + "]\n"


def _elementwise() -> str:
    functions = ""
    for name, text in SAID.items():
        operands = FUNCTIONS[name].required
        header = f"def {name}({', '.join(f'{operand}: Operand' for operand in operands)}) -> Value:"
        of = "each element a" if len(operands) == 1 else "elements a and b"
        functions += f'\n\n{header}\n    """For {of}: {text}."""\n    not_in_rule("{name}")\n'
    return f'''"""Written by python -m dana.generated: functions of each element; see `dana.language.names`."""

from dana.language.names import Operand, Value, not_in_rule

{_listed(SAID)}{functions}'''


def _for_readers() -> str:
    rows = "| construct | rule | example | gives |\n|---|---|---|---|\n"
    for name, text in SAID.items():
        count = len(FUNCTIONS[name].required)
        operands, example = ", ".join("ab"[:count]), ", ".join("xw"[:count])
        rows += f"| `dana.{name}({operands})` | {text} | `v = dana.{name}({example})` | `[n]` |\n"
    return rows


FILES: Mapping[str, Callable[[], str]] = {
    "dana/worker/native/messages.h": messages.header,
    "dana/trainer/data/native/likelihood.h": likelihood.header,
    "dana/trainer/data/native/survey.h": surveyed.header,
    "dana/records.py": lambda: _between("dana/records.py", metrics.types(), until="    # to here"),
    "dana/simulator/native/contract.h": headers.header,
    "pg_extension/src/models/predictor_codes.h": program.header,
    "pg_extension/sql/dana.sql": lambda: _between("pg_extension/sql/dana.sql", metrics.rows(), until="-- to here"),
    "pg_extension/src/predict/metric_names.h": metrics.header,
    "pg_extension/src/values/agreed.h": agreed.header,
    "dana/language/elementwise.py": _elementwise,
    "dana/language/names.py": lambda: _between("dana/language/names.py", _listed({*TYPES, *NAMES} - SAID.keys())),
    "docs/isa.md": lambda: manual.manual(machine="[machine.md](machine.md)"),
    "docs/language-reference.md": lambda: _between(
        "docs/language-reference.md", _for_readers(), until="<!-- to here -->"
    ),
    "docs/registers.md": lambda: registers.register_map(MachineConfig()),
    "hwgen/spec/numerics/native/coefficients.h": lambda: fit.c_source(fit.fit()),
}
"""Path from the repository's root, and its text."""


def main() -> None:
    """Write those that differ."""
    for name, text in FILES.items():
        path, wanted = ROOT / name, text()
        # unchanged files keep their time, so that nothing is compiled again
        if not path.exists() or path.read_text(encoding="utf-8") != wanted:
            path.write_text(wanted, encoding="utf-8")
            print(name)


if __name__ == "__main__":
    main()
