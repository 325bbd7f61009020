"""A training that leaves the rows where they are: its parts run on the shards' servers.

In: a session on the server that leads, a table, shards, the options of a training. Out: the row of ``dana_train``. The
leader has no rows: its table has the shards' columns, and a row for each label, from which it numbers the classes; what
it needs to know of other columns, the shards count and sum.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg
from psycopg import sql

from dana.cluster.agreed import (
    LEADERS,
    NUMBERS,
    NUMBERS_OF,
    REJECTED,
    SELECT_ANY,
    SELECT_DRAWN,
    SELECT_KEYS,
    SELECT_LABELS,
    SELECT_NUMBERS,
    SELECT_TEXTS,
    TEXTS,
    VALIDATION_SIZE,
)
from dana.cluster.gather import create_like
from dana.cluster.relay import Introduction, relay
from dana.cluster.shards import Column, Look, Shard, check_alike, opened
from dana.errors import UsageError
from dana.session.notices import Messages, repeat
from dana.storage.types import TYPES

MODES = ("batch", "epoch")
"""Values of ``sync`` for which rows stay at their shards."""

LEAST_TIMEOUT = 3.0
"""Least number of seconds without a message; a part that has nothing to say shows once a second that it is alive."""

NUMBER_TYPES = frozenset(one.name for one in TYPES)
"""Types of columns of numbers, dates and times; with ``[]`` of arrays of them."""

DATES = frozenset({"date", "timestamp without time zone", "timestamp with time zone"})
"""Those that are encoded by their parts."""

TEXT_TYPES = frozenset({"text", "character varying", "character", "name"})
"""Types of columns that are encoded as categories, as enums are."""


def train(
    session: psycopg.Connection,
    rule: str,
    table: str,
    shards: Sequence[str],
    options: Mapping[str, object],
    *,
    sync: str,
    into: str,
    timeout: float,
) -> str:
    """Train a rule over the rows of all shards, each on its own server, and store the model on the session's.

    Parameters
    ----------
    table
        Name of the table on each shard, as SQL writes it.
    options
        The other arguments of ``dana_train``, as JSON has them.
    sync
        One of `MODES`.
    into
        Name of the leader's temporary table, unquoted.
    timeout
        Seconds without a message after which a shard is lost.

    Returns
    -------
    str
        The row that ``dana_train`` returns, as JSON.

    Raises
    ------
    UsageError
        The shards are not alike, or an option or a column needs all rows at one server.
    ShardError
        An error of one shard; the message names it and its server.
    psycopg.Error
        An error of the server that leads, such as a rule that cannot be trained in this way.
    """
    if not timeout >= LEAST_TIMEOUT:
        raise UsageError(f"timeout must be at least {LEAST_TIMEOUT:g} s, not {timeout:g}")
    for name, what in REJECTED.items():
        if options.get(name):
            raise UsageError(f"{name} cannot be given with sync={sync!r}: it needs {what}", hint=GATHER)
    nulls = str(options.get("nulls") or "skip")
    if nulls == "median":
        raise UsageError(
            f"nulls={nulls!r} cannot be given with sync={sync!r}",
            hint=f"Give 'mean', 'indicator' or a number. {GATHER}",
        )
    averaged = nulls in ("mean", "indicator")
    made = sql.Identifier("pg_temp", into)
    with opened(shards, table, timeout) as parts, ExitStack() as heard, session.transaction():
        for shard in parts:
            heard.enter_context(Messages(shard.session, f"{shard}: "))
        looks = [shard.look() for shard in parts]
        check_alike(parts, looks)
        text, numbers_classes, output = _rule(session, rule)
        _check_releases(session, parts)
        label = _label(options, output, looks[0])
        targets = (label, options.get("weight"))
        key = looks[0].key if len(looks[0].key) == 1 else ()
        features = _features(options.get("features"), (*targets, *key), looks[0], sync, averaged=averaged)
        _compare_keys(parts, looks[0].key)
        for shard in parts:
            shard.take_user_path()
        types = create_like(session, made, looks[0])
        if label is not None and numbers_classes and options.get("classes") is None:
            [column] = (each for each in looks[0].columns if each.name == label)
            if column.builtin is None and not column.enum:
                raise UsageError(
                    f"the label {label} is {column.type}: with sync={sync!r} labels are of a type of PostgreSQL",
                    hint=f"Make it a text in a view on each shard. {GATHER}",
                )
            _take_labels(session, parts, made, label, types[label], options.get("filter"))
        asked = {**options, "label": label}
        filter_, held_out = options.get("filter"), None
        divided: dict[str, object] = {}
        rows = _Rows(session, parts, looks[0].key, types, options, label if numbers_classes else None)
        if options.get("test_after") is not None or options.get("test_size") is not None:
            test, divided = rows.for_test(_where(session, filter_))
            filter_ = f"NOT {test} AND {_where(session, filter_)}"
        validates = options.get("early_stopping") or options.get("validation_size")
        if validates:
            size = VALIDATION_SIZE if options.get("validation_size") is None else options["validation_size"]
            validation, _ = rows.part(size, _where(session, filter_), rows.validation_seed)
            held_out = f"{validation} AND {_where(session, filter_)}"
            filter_ = f"NOT {validation} AND {_where(session, filter_)}"
        where = _where(session, filter_, *(name for name in targets if isinstance(name, str)))
        texts = [column for column in features if _is_text(column)]
        numbers = [column for column in features if _kind(column) in DATES or (averaged and column not in texts)]
        found = _numbers(session, parts, numbers, where)
        if options.get("warm_start_from") is None:
            found |= {column.name: _texts(session, parts, column.name, where) for column in texts}
        part = {"mode": sync, "number": 0, "count": len(parts)}
        # the filter chooses rows of the shards; the leader's have labels alone
        known = {"found": found, "key": looks[0].key, **divided}
        led = _call(session, rule, made.as_string(session), {**asked, "filter": None}, {**part, "known": known}, None)

        def follows(shard: Shard, introduction: Introduction) -> str:
            # the leader sends the initial models; the filter already excludes the test rows
            columns = {name: introduction[name] for name in ("classes", "features")}
            given = {**asked, **columns, **dict.fromkeys(LEADERS), "filter": filter_}
            known = {"preprocess": introduction["preprocess"], "held_out": held_out}
            return _call(session, rule, table, given, {**part, "number": shard.number, "known": known}, text)

        row = relay(session, parts, led, follows)
        session.execute(sql.SQL("DROP TABLE {}").format(made))
        return row


GATHER = "With sync='gather', the default, the rows of all shards are at one server, and it can."


def _call(
    session: psycopg.Connection,
    rule: str,
    table: str,
    options: Mapping[str, object],
    part: Mapping[str, object],
    text: str | None,
) -> str:
    training = json.dumps({name: value for name, value in options.items() if value is not None})
    given = {rule: "text", table: "regclass", training: "jsonb", json.dumps(part): "jsonb"}
    values = [f"{sql.Literal(value).as_string(session)}::{type_}" for value, type_ in given.items()]
    values.append(f"{sql.Literal(text).as_string(session)}::text")
    return "CALL dana.dana_train_part({}::text, {}::regclass, {}::jsonb, {}::jsonb, {}::text, NULL::json)".format(
        *values
    )


RULE = """
SELECT r.text, r.description -> 'classes' <> 'null', coalesce(r.description -> 'outputs' -> 0 ->> 'name', '')
FROM dana.rule AS r WHERE r.name = %s
"""


def _rule(session: psycopg.Connection, rule: str) -> tuple[str, bool, str]:
    """A rule's text, whether its label has classes, and its name."""
    found = session.execute(RULE, (rule,)).fetchone()
    if found is None:
        raise UsageError(f"rule {rule!r} does not exist, or is not yours to use")
    text, classes, output = found
    return text, classes, output


RELEASE = "SELECT e.extversion FROM pg_catalog.pg_extension AS e WHERE e.extname = 'dana'"


def _check_releases(session: psycopg.Connection, shards: Sequence[Shard]) -> None:
    """Raise an error for a shard without the extension, or with another release of it."""
    [[here]] = session.execute(RELEASE).fetchall()
    for shard in shards:
        found = shard.rows(RELEASE)
        there = f"release {found[0][0]}" if found else "no extension dana"
        if there != f"release {here}":
            raise UsageError(
                f"{shard} has {there}, and the server that trains release {here}",
                hint="Run CREATE EXTENSION dana there, of the same release; or train with sync='gather'.",
            )


def _label(options: Mapping[str, object], output: str, look: Look) -> str | None:
    """The label's column, chosen as ``dana_train`` does; None for a rule without an output (an empty name)."""
    names = [column.name for column in look.columns if column.name != options.get("weight")]
    if not output:
        return None
    label = options.get("label") or (output if output in names else names[-1])
    if label not in names:
        raise UsageError(f"the shards have no column {label!r} for the label")
    return str(label)


def _features(given: object, others: Collection[object], look: Look, sync: str, *, averaged: bool) -> list[Column]:
    """The features: those given, or all columns but others."""
    columns = {column.name: column for column in look.columns}
    features = given if isinstance(given, list) else [name for name in columns if name not in others]
    for name in features:
        if name not in columns:
            raise UsageError(f"the shards have no column {name!r} for a feature")
        column = columns[name]
        if not _is_text(column) and _kind(column).removesuffix("[]") not in NUMBER_TYPES:
            raise UsageError(
                f"column {column.name} is {column.type}: with sync={sync!r} features are numbers, texts or dates",
                hint=f"List features without it, or make it one of them in a view on each shard. {GATHER}",
            )
        if averaged and column.type.endswith("[]"):
            raise UsageError(
                f"column {column.name} is {column.type}: with sync={sync!r} its NULLs have no mean", hint=GATHER
            )
    return [columns[name] for name in features]


def _kind(column: Column) -> str:
    """A column's type without modifiers, such as the length of a text."""
    return re.sub(r"\(.*\)", "", column.type)


def _is_text(column: Column) -> bool:
    return column.enum or (column.builtin is not None and _kind(column) in TEXT_TYPES)


def _compare_keys(shards: Sequence[Shard], key: Sequence[str]) -> None:
    """Warn of shards that have the same keys."""
    columns = ", ".join(sql.Identifier(name).as_string(shards[0].session) for name in key)
    seen: dict[int, Shard] = {}
    for shard in shards if key else ():
        for (hash_,) in shard.rows(SELECT_KEYS.format(key=columns, table=shard.table)):
            other = seen.setdefault(hash_, shard)
            if other is not shard:
                repeat(
                    [
                        f"WARNING: {other} and {shard} have the same primary key ({', '.join(key)}) in rows, which "
                        "count for both; have each row on one shard alone"
                    ]
                )
                return


@dataclass(frozen=True, slots=True)
class _Rows:
    """Chooses the rows that are held out at the shards: those that one server with all rows would choose.

    Attributes
    ----------
    types
        The columns' types on the leader's server.
    label
        Column of classes, which are sampled one by one; None if the rule has no classes.
    """

    session: psycopg.Connection
    shards: Sequence[Shard]
    key: Sequence[str]
    types: Mapping[str, str]
    options: Mapping[str, object]
    label: str | None

    @property
    def seed(self) -> int:
        seed = self.options.get("seed")
        return seed if isinstance(seed, int) else 1

    @property
    def validation_seed(self) -> int:
        """Another one, a signed number of 32 bits as in pg_extension/src/request/split.c."""
        return (self.seed + 1 + 2**31) % 2**32 - 2**31

    def for_test(self, where: str) -> tuple[str, dict[str, object]]:
        """The condition of the rows for a test, and what the leader is to know of it."""
        after = self.options.get("test_after")
        divided: dict[str, object] = {}
        if isinstance(after, Mapping) and len(after) == 1:
            [(name, value)] = after.items()
            if name not in self.types:
                raise UsageError(f"the shards have no column {name!r}, which test_after names")
            # as JSON has it: shards may write dates in another order
            time = sql.SQL("SELECT pg_catalog.to_jsonb(%s::{}) OPERATOR(pg_catalog.#>>) '{{}}'")
            [[text]] = self.session.execute(time.format(sql.SQL(self.types[name])), (str(value),)).fetchall()
            column, literal = (one.as_string(self.session) for one in (sql.Identifier(name), sql.Literal(text)))
            condition = f"COALESCE({column} OPERATOR(pg_catalog.>) {literal}, false)"
        else:
            condition, divided = self.part(self.options.get("test_size"), where, self.seed)
        if not any(
            shard.rows(SELECT_ANY.format(table=shard.table, where=where, condition=condition))[0][0]
            for shard in self.shards
        ):
            raise UsageError(f"{'test_size' if after is None else 'test_after'} leaves no row for a test")
        return condition, divided

    def part(self, size: object, where: str, seed: int) -> tuple[str, dict[str, object]]:
        """The condition of a part of this size, and its bounds."""
        by = self.options.get("test_by")
        key = self.key if by is None else (str(by),)
        if not key:
            raise UsageError(
                "the shards have no primary key, by which rows for a test or validation are chosen",
                hint=f"Name a column that identifies rows with test_by, or add a primary key on each shard. {GATHER}",
            )
        stratum = self.label if by is None else None
        of_class = "NULL::pg_catalog.int4" if stratum is None else sql.Identifier(stratum).as_string(self.session)
        row = ", ".join([str(seed), of_class, *(sql.Identifier(name).as_string(self.session) for name in key)])
        drawn: list[int] = []
        for shard in self.shards if by is not None or stratum is not None else ():
            for class_, number, count in shard.rows(SELECT_DRAWN.format(row=row, table=shard.table, where=where)):
                drawn += [class_, number, count]
        cut = "SELECT parts, classes FROM dana.dana_part_bounds(%s::pg_catalog.int8[], %s, %s)"
        [[parts, classes]] = self.session.execute(cut, (drawn, size, stratum is not None)).fetchall()
        bounds = sql.Literal(parts).as_string(self.session)
        condition = f"(dana.dana_part({bounds}::pg_catalog.float8[], {row}) OPERATOR(pg_catalog.=) 0)"
        return condition, {"parts": parts, "classes": stratum if classes else None}


def _numbers(
    session: psycopg.Connection, shards: Sequence[Shard], columns: Sequence[Column], where: str
) -> dict[str, object]:
    """What columns of numbers have in the rows of all shards: their means, NULLs, times other than midnight."""
    if not columns:
        return {}
    wanted = ", ".join(NUMBERS_OF.format(column=sql.Identifier(one.name).as_string(session)) for one in columns)
    answers = [
        shard.rows(SELECT_NUMBERS.format(numbers=wanted, table=shard.table, where=where))[0][0] for shard in shards
    ]
    found: dict[str, object] = {}
    for place, column in enumerate(columns):
        of_shards = [each[NUMBERS * place : NUMBERS * (place + 1)] for each in answers]
        total, count = (sum(each[k] or 0 for each in of_shards) for k in (0, 1))
        found[column.name] = {
            "mean": total / count if count else None,
            "nulls": any(each[2] for each in of_shards),
            "hours": any(each[3] for each in of_shards),
        }
    return found


def _texts(
    session: psycopg.Connection, shards: Sequence[Shard], column: str, where: str
) -> list[dict[str, str | int | None]]:
    """The texts of a column, with the number of rows that have each on a shard."""
    name = sql.Identifier(column).as_string(session)
    found = []
    for shard in shards:
        rows = shard.rows(SELECT_TEXTS.format(column=name, table=shard.table, where=where))
        if len(rows) > TEXTS:
            raise UsageError(
                f"{shard} has more than {TEXTS} different values in column {column}",
                hint=f"List features without it. {GATHER}",
            )
        found += [{"v": text, "n": count} for text, count in rows]
    return found


def _where(session: psycopg.Connection, filter_: object, *columns: str) -> str:
    """The condition of rows that the filter takes and that have all these columns."""
    known = (sql.SQL("{} IS NOT NULL").format(sql.Identifier(name)).as_string(session) for name in columns)
    # the line break ends a comment in the filter's last line
    return " AND ".join([f"({filter_ or 'true'}\n)", *known])


def _take_labels(
    session: psycopg.Connection, shards: Sequence[Shard], made: sql.Identifier, label: str, type_: str, filter_: object
) -> None:
    """Have the leader's table contain each label once."""
    column = sql.Identifier(label).as_string(session)
    where = _where(session, filter_, label)
    found = {
        row[0]
        for shard in shards
        for row in shard.rows(SELECT_LABELS.format(label=column, table=shard.table, where=where))
    }
    insert = sql.SQL("INSERT INTO {} ({}) SELECT pg_catalog.unnest(%s::pg_catalog.text[])::{}")
    session.execute(insert.format(made, sql.Identifier(label), sql.SQL(type_)), (sorted(found),))
