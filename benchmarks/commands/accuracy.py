"""The command ``dana bench accuracy``: rules compared with scikit-learn on held-out rows."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

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
    accuracy.add_argument("--markdown", action="store_true", help="print the table of docs/rules.md, without times")
    accuracy.set_defaults(run=run_accuracy)


def run_accuracy(options: argparse.Namespace) -> int:
    """Print a line as soon as it is known, then how many came within 1 %."""
    from benchmarks.accuracy.table import compare

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
