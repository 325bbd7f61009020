"""Files that repeat what a table says: `python -m dana.generated` writes them again, after a change of the table.

In: the tables of `hwgen.spec` and of the predictor. Out: headers in C, documents, the coefficients. A test compares the
files with what would be written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from dana.predictor import program
from dana.simulator import headers
from hwgen.export import manual, registers
from hwgen.spec.numerics import fit

ROOT = Path(__file__).parent.parent

FILES: Mapping[str, Callable[[], str]] = {
    "dana/simulator/native/contract.h": headers.header,
    "pg_extension/src/predictor_codes.h": program.header,
    "docs/isa.md": manual.manual,
    "docs/registers.md": registers.register_map,
    "hwgen/spec/numerics/native/coefficients.h": lambda: fit.c_source(fit.fit()),
}
"""Path from the repository's root, and its text."""


def main() -> None:
    """Write those that differ."""
    for name, text in FILES.items():
        path, wanted = ROOT / name, text()
        if not path.exists() or path.read_text(encoding="utf-8") != wanted:
            path.write_text(wanted, encoding="utf-8")
            print(name)


if __name__ == "__main__":
    main()
