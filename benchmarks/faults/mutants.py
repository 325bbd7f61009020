"""Run mutmut on Python files: ``python -m benchmarks.faults.mutants FILE … [--tests TEST …]``.

mutmut changes one operator, constant or argument at a time, and runs the tests that reach the changed function. It
works in a copy of the tree. Surviving mutants are printed as diffs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.faults.run import copy
from dana.server.places import CHECKOUT

OTHERS = ("benchmarks", "docs", "examples", "pg_extension", "README.md")
"""What the tests read and mutmut would not copy."""


def main() -> int:
    """Run mutmut; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.mutants", description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="FILE", help="files or folders of dsl, dana or hwgen")
    parser.add_argument("--tests", nargs="+", default=["tests/dsl"], help="tests that must notice (tests/dsl)")
    options = parser.parse_args()
    for path in (*options.paths, *(test.partition("::")[0] for test in options.tests)):
        if not (CHECKOUT / path).exists():
            parser.error(f"no file or folder {path} in {CHECKOUT}")
    settings = {
        "source_paths": ["dsl", "dana", "hwgen"],
        "only_mutate": [path if path.endswith(".py") else f"{path.rstrip('/')}/*" for path in options.paths],
        "also_copy": list(OTHERS),
        "pytest_add_cli_args": ["-p", "no:cacheprovider"],
        "pytest_add_cli_args_test_selection": options.tests,
        "use_git_change_detection": False,
    }
    with tempfile.TemporaryDirectory(prefix="dana-mutants-") as folder:
        tree = Path(folder) / "tree"
        copy(tree)
        lines = ["", "[tool.mutmut]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items()), ""]
        with (tree / "pyproject.toml").open("a", encoding="utf-8") as file:
            file.write("\n".join(lines))
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        mutmut = (sys.executable, "-m", "mutmut")
        done = subprocess.run([*mutmut, "run"], cwd=tree, env=environment, check=False)
        results = subprocess.run([*mutmut, "results"], cwd=tree, check=True, capture_output=True, text=True).stdout
        for line in results.splitlines():
            name, _, state = line.strip().partition(": ")
            if state == "survived":
                subprocess.run([*mutmut, "show", name], cwd=tree, check=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
