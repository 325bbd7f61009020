"""Constants and statements shared by both leaders of a training over shards, and the C header generated from them.

A client leads a training over a list of shards (`dana.cluster.train`), a session one over the map
(pg_extension/src/calls/spread.c); the same rows must give the same model.
"""

from __future__ import annotations

import re

from dana.worker import link

PAGES = 64
"""Pages that a shard sends in one turn when rows are gathered."""

LABELS = 1001
"""Most distinct labels that are read from a shard: one more than the limit on classes."""

TEXTS, TEXT_BYTES = 100000, 200
"""Most distinct texts of a column that are read from a shard; most bytes of a category."""

KEYS = 4096
"""Keys of a shard that are compared with those of the others, those of least hash: shards that share any share some."""

DRAWN = 100000
"""Most row numbers that are read from a shard; with more, each number decides by itself whether its row is held out."""

SAMPLE = 1000
"""Rows that an estimate samples from each shard."""

VALIDATION_SIZE = 0.1
"""That of early_stopping, as scikit-learn's validation_fraction."""

LEADERS = ("model", "warm_start_from", "test_size", "test_by", "test_after", "validation_size", "early_stopping")
"""Options for the leader only: it sends the initial models, and the filter already excludes the held-out rows."""

REJECTED = {"calibrate": "rows for validation", "preprocess": "an encoding of columns"}
"""Options that need the rows of all shards on one server, with the reason."""

SELECT_KEYS = f"""
SELECT pg_catalog.hashtextextended(ROW({{key}})::text COLLATE "C", 0) AS hash FROM {{table}} ORDER BY 1 LIMIT {KEYS}
"""
SELECT_LABELS = f"""
SELECT DISTINCT pg_catalog.format('%s', {{label}}) AS label FROM {{table}} WHERE {{where}} LIMIT {LABELS}
"""
SELECT_DRAWN = f"""
SELECT d.v[1] AS class, d.v[2] AS number, pg_catalog.count(*) AS count
FROM (SELECT dana.dana_draws({{row}}) AS v FROM {{table}} WHERE {{where}}) AS d GROUP BY 1, 2 LIMIT {DRAWN + 1}
"""
SELECT_ANY = "SELECT EXISTS (SELECT FROM {table} WHERE {where} AND {condition}) AS found"
SELECT_TEXTS = f"""
SELECT CASE WHEN pg_catalog.octet_length(g.v) OPERATOR(pg_catalog.>) {TEXT_BYTES}
    THEN pg_catalog.rpad(pg_catalog.hashtextextended(g.v, 0)::pg_catalog.text, {TEXT_BYTES + 1}) ELSE g.v END AS v,
    g.n AS n
FROM (SELECT dana.dana_fixed_text({{column}}) COLLATE pg_catalog."C" AS v, pg_catalog.count(*) AS n
    FROM {{table}} WHERE {{where}} GROUP BY 1 LIMIT {TEXTS + 1}) AS g
"""
"""A text that is too long for a category is replaced by its hash, which is enough to count it."""

SELECT_NUMBERS = "SELECT ARRAY[{numbers}]::pg_catalog.float8[] AS numbers FROM {table} WHERE {where}"
NUMBERS = 4
"""Of a column: the sum and count of its finite numbers, whether there are NULLs, the most seconds since a midnight."""
NUMBERS_OF = """
pg_catalog.sum(dana.dana_number({column}))
    FILTER (WHERE pg_catalog.abs(dana.dana_number({column})) OPERATOR(pg_catalog.<=) 3.4e38::pg_catalog.float8),
pg_catalog.count(dana.dana_number({column}))
    FILTER (WHERE pg_catalog.abs(dana.dana_number({column})) OPERATOR(pg_catalog.<=) 3.4e38::pg_catalog.float8),
pg_catalog.bool_or(dana.dana_number({column}) IS NULL)::pg_catalog.int4,
pg_catalog.max(dana.dana_number({column}) OPERATOR(pg_catalog.-) (86400::pg_catalog.float8 OPERATOR(pg_catalog.*)
    pg_catalog.floor(dana.dana_number({column}) OPERATOR(pg_catalog./) 86400::pg_catalog.float8)))
    FILTER (WHERE pg_catalog.abs(dana.dana_number({column})) OPERATOR(pg_catalog.<=) 3.4e38::pg_catalog.float8)
"""

STATEMENTS = {
    "SELECT_KEYS": SELECT_KEYS,
    "SELECT_LABELS": SELECT_LABELS,
    "SELECT_DRAWN": SELECT_DRAWN,
    "SELECT_ANY": SELECT_ANY,
    "SELECT_TEXTS": SELECT_TEXTS,
    "SELECT_NUMBERS": SELECT_NUMBERS,
    "NUMBERS_OF": NUMBERS_OF,
}
"""Statements that shards execute, for ``str.format``. Operators are qualified, since the search_path may be the user's;
labels are written by their type's output function, since another role may have created a cast to text."""


def _formatted(name: str, statement: str) -> str:
    """A statement for psprintf, with its arguments in the order of their first places."""
    names = list(dict.fromkeys(re.findall(r"{(\w+)}", statement)))
    text = " ".join(statement.split()).replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    for number, argument in enumerate(names, 1):
        text = text.replace(f"{{{argument}}}", f"%{number}$s")
    return f'#define DANA_{name} /* {", ".join(names)} */ \\\n\t"{text}"\n'


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
        "ALIVE": (link.ALIVE, "all of it: a follower is at work"),
    }
    defined = "".join(f"#define DANA_{name} {value} /* {says} */\n" for name, (value, says) in numbers.items())
    messages = "".join(f"#define DANA_PART_{k} '{value.decode()}' /* {says} */\n" for k, (value, says) in kinds.items())
    leaders = ", ".join(f'"{name}"' for name in LEADERS)
    rejected = ", ".join(f'{{"{name}", "{needs}"}}' for name, needs in REJECTED.items())
    statements = "".join(_formatted(name, text) for name, text in STATEMENTS.items())
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

/* What runs at the shards, for psprintf() */
{statements}
#endif
"""
