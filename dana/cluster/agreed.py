"""What the two that lead a training over shards have in common, and the C header generated from it.

A client leads over the shards of a list (`dana.cluster.train`), a session over those of the map
(pg_extension/src/calls/spread.c); the same rows must give the same model.
"""

from __future__ import annotations

from dana.worker import link

PAGES = 64
"""Pages of a shard in its turn, where rows are gathered."""

LABELS = 1001
"""Different labels that are read of a shard: one more than there may be classes."""

TEXTS, TEXT_BYTES = 100000, 200
"""Different texts of a column that are read of a shard; bytes of a category at most."""

KEYS = 4096
"""Keys of a shard that are compared with those of the others, those of least hash: shards that share any share some."""

DRAWN = 100000
"""Numbers of rows that are told apart: of more, the numbers alone decide which are held out."""

SAMPLE = 1000
"""Rows of each shard that an estimate is made from."""

VALIDATION_SIZE = 0.1
"""That of early_stopping, as scikit-learn's validation_fraction."""

LEADERS = ("model", "warm_start_from", "test_size", "test_by", "test_after", "validation_size", "early_stopping")
"""Options of the leader alone: it sends the initial models, and the filter already excludes rows."""

REJECTED = {"calibrate": "rows for validation", "preprocess": "an encoding of columns"}
"""Options that need the rows of all shards at one server, and what for."""


def header() -> str:
    """Return the text of ``pg_extension/src/values/agreed.h``."""
    numbers = {
        "SHARD_PAGES": (PAGES, "of a shard in its turn"),
        "SHARD_LABELS": (LABELS, "different ones that are read of a shard"),
        "SHARD_TEXTS": (TEXTS, "different ones of a column that are read of a shard"),
        "SHARD_KEYS": (KEYS, "those of least hash, which are compared with those of other shards"),
        "SHARD_SAMPLE": (SAMPLE, "rows of a shard that an estimate is made from"),
        "TEXT_BYTES": (TEXT_BYTES, "of a category at most"),
        "MAX_DRAWN": (DRAWN, "numbers of rows: of more, they alone decide which rows are held out"),
        "VALIDATION_SIZE": (VALIDATION_SIZE, "of early_stopping"),
    }
    kinds = {
        "INTRODUCTION": (link.INTRODUCTION, "the columns of the leader"),
        "COMMAND": (link.COMMAND, "of the leader"),
        "ANSWER": (link.ANSWER, "of a follower"),
        "MERGES": (link.MERGES, "what a follower merged"),
    }
    defined = "".join(f"#define DANA_{name} {value} /* {says} */\n" for name, (value, says) in numbers.items())
    messages = "".join(f"#define DANA_PART_{k} '{value.decode()}' /* {says} */\n" for k, (value, says) in kinds.items())
    leaders = ", ".join(f'"{name}"' for name in LEADERS)
    rejected = ", ".join(f'{{"{name}", "{needs}"}}' for name, needs in REJECTED.items())
    return f"""\
/* Declarations of dana/cluster/agreed.py. Written by python -m dana.generated. */
#ifndef DANA_AGREED_H
#define DANA_AGREED_H

{defined}
/* What a message between parts of a training is, its first byte */
{messages}
/* Options of the leader alone; those that need all rows at one server, and what for */
#define DANA_LEADERS {leaders}
#define DANA_REJECTED {rejected}

#endif
"""
