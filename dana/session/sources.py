"""The names of tables and columns that a caller gives, as the server takes them.

In: what the caller passed for a table or for columns. Out: texts; an error that suggests a correction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import psycopg

from dana.errors import UsageError
from dana.printable import printable
from dana.session.results import Rows, html_text
from dana.session.tables import checked_name

PART = r'(?:[^\W\d][\w$]*|"(?:[^"\0]|"")+")'
IDENTIFIERS = re.compile(rf"\s*{PART}\s*(?:\.\s*{PART}\s*)*")
"""A name as SQL has it, of one part or more: what PostgreSQL can read."""

MAX_NAMED = 8

TABLES = """
SELECT c.relname::text, n.nspname::text, c.oid::pg_catalog.regclass::text FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = ANY ('{r,p,v,m,f}'::"char"[]) AND n.nspname <> ALL ('{pg_catalog,information_schema,dana}'::name[])
    AND n.nspname !~ '^pg_toast|^pg_temp_'::text AND pg_catalog.has_schema_privilege(n.oid, 'USAGE'::text)
ORDER BY pg_catalog.pg_table_is_visible(c.oid) DESC, c.relname, n.nspname LIMIT 10000
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedColumn:
    """A column of a table that was loaded: its name, its type in SQL, and how many of its values are NULL."""

    name: str
    type: str
    nulls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """What became of a data frame; it stands for its table wherever one is named.

    Attributes
    ----------
    name
        As SQL writes it.
    """

    name: str
    rows: int
    columns: Rows[LoadedColumn]

    def __repr__(self) -> str:
        return f"{printable(self.name)}, {self.rows:,} rows\n{self.columns!r}"

    def _repr_html_(self) -> str:
        return f"{html_text(self.name)}, {self.rows:,} rows{self.columns._repr_html_()}"


def identifier(table: object) -> str:
    """The name of a table, as SQL writes it; a text that needs quotes, such as ``Größe 2024``, is quoted.

    Raises
    ------
    TypeError
        It is a data frame, or something else.
    UsageError
        It has dots or quotes, and is not a valid name in SQL.
    """
    if isinstance(table, LoadedTable):
        return table.name
    if not isinstance(table, str):
        kind, hint = type(table).__name__, ""
        if hasattr(table, "columns") or hasattr(table, "__arrow_c_stream__"):
            hint = '; make it a table with db.load(frame, "name") first'
        raise TypeError(f"a table's name is expected, not a {kind}{hint}")
    if IDENTIFIERS.fullmatch(table):
        # PostgreSQL would cut a longer part without an error, to the name of another table perhaps
        for part in re.findall(PART, table):
            checked_name("table", part[1:-1].replace('""', '"') if part.startswith('"') else part)
        return table
    if table.strip() and not set('."\0') & set(table):
        return f'"{checked_name("table", table)}"'
    raise UsageError(
        f"{table!r} is not a valid name of a table", hint='Quote its parts as SQL does: \'"My schema"."My table"\'.'
    )


def table_of(session: psycopg.Connection, table: object) -> str:
    """The name of a table that exists, as the server writes it.

    Raises
    ------
    TypeError, UsageError
        As `identifier`; or there is no such table.
    """
    name = identifier(table)
    # to_regclass returns NULL for a missing table, where a cast would end the caller's transaction
    found = session.execute("SELECT pg_catalog.to_regclass(%s::text)::text", (name,)).fetchall()[0][0]
    if found is not None:
        return str(found)
    known: dict[str, str] = {}
    for relation, schema, written in session.execute(TABLES):
        for spelt in (relation, f"{schema}.{relation}"):
            # visible tables come first, so that a name without a schema stays theirs
            known.setdefault(spelt.lower(), written)
    close = get_close_matches(name.replace('"', "").lower(), known, n=1)
    some = list(dict.fromkeys(known.values()))
    if close:
        hint = f"Perhaps you meant {known[close[0]]}."
    elif some:
        hint = f"There are {', '.join(some[:MAX_NAMED])}{', …' if len(some) > MAX_NAMED else ''}."
    else:
        hint = "The database has no table that you may see."
    raise UsageError(f"table {name} does not exist", hint=hint)


def names_of(argument: str, value: object) -> list[str]:
    """A list of names, from one name or several.

    Raises
    ------
    TypeError
        It is neither.
    """
    if isinstance(value, str):
        return [value]
    found = None if isinstance(value, Mapping) or not isinstance(value, Iterable) else list(value)
    if found is None or not all(isinstance(name, str) for name in found):
        shown = type(value).__name__ if found is None else ", ".join(map(repr, found))
        raise TypeError(f"{argument} must be a name or a sequence of names, not {shown}")
    return [str(name) for name in found]  # NumPy has a str of its own
