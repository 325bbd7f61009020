"""Runs of the comparison, kept one to a line of a JSON file, and how they moved from run to run.

In: contests. Out: documents with the machine, the versions and the commit; a table of ratios.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.contest import Contest, Line
from benchmarks.peers.participants import COUNT, DANA
from benchmarks.peers.parts import Part
from dana.errors import UsageError
from dana.server.places import CHECKOUT
from hwgen.folders import create_file, make_folder


def default_file() -> Path:
    """``$XDG_STATE_HOME/dana/bench.jsonl``, else below ``~/.local/state``."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "dana" / "bench.jsonl"


def document(contests: Sequence[Contest]) -> dict[str, Any]:
    """A run: when, where, what, and each contest's lines."""
    return circumstances() | {"contests": [asdict(one) for one in contests]}


def circumstances() -> dict[str, Any]:
    """Of a run: when, where, what."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "version": version("dana-db"),
        "commit": _commit(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


def _commit() -> str | None:
    """Of the checkout, with a + where files are changed; None outside of one."""
    if not (CHECKOUT / ".git").exists():
        return None
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty=+", "--abbrev=9"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def keep(run: dict[str, Any], file: Path) -> None:
    """Add a run to a file."""
    make_folder(file.parent)
    with open(file, "a", encoding="utf-8", opener=create_file) as stream:
        stream.write(json.dumps(run) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    """The runs of a file, the oldest first.

    Raises
    ------
    UsageError
        There is no such file, or a line of it is no run.
    """
    if not file.is_file():
        raise UsageError(f"there is no history in {file}", hint="`dana bench peers` begins one.")
    runs = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            run = json.loads(line)
            run["contests"] = [
                Contest(
                    **one
                    | {
                        "lines": tuple(Line(**line) for line in one["lines"]),
                        "parts": tuple(Part(**part) for part in one.get("parts", ())),
                        "unused": tuple(one.get("unused", ())),
                    }
                )
                for one in run["contests"]
            ]
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{file}, line {number}, is no run of the comparison: {error}") from None
        runs.append(run)
    return runs


def trend(runs: Sequence[dict[str, Any]], case: str | None = None) -> Iterator[tuple[str, ...]]:
    """For each run and case: time, commit, machine, case, rows, DAnA's seconds of a pass, the fastest peer's and
    count(*)'s, DAnA's being 1."""
    for run in runs:
        for contest in run["contests"]:
            if case not in (None, contest.case):
                continue
            seconds = contest.seconds(DANA)
            best = fastest(contest)
            count = next((contest.ratio(line) for line in contest.lines if line.peer == COUNT), None)
            yield (
                run["time"][:16].replace("T", " "),
                run["commit"] or run["version"],
                run["machine"],
                contest.case,
                f"{contest.rows:,}",
                f"{1e3 * seconds:.1f} ms",
                "–" if best is None else f"{best.peer} {contest.ratio(best):.2f}",
                "–" if count is None else f"{count:.2f}",
            )


def fastest(contest: Contest) -> Line | None:
    """The peer that takes the least for a pass."""
    here = [line for line in contest.lines if line.trains and line.peer != DANA and line.seconds is not None]
    return min(here, key=lambda line: line.seconds or 0.0, default=None)
