"""What keeps a server from training: checks of the packages, the server, the extension, the rights and the worker.

In: a connection string, or none for the embedded server. Out: findings, each problem with a command that solves it.
It changes nothing: what it asks of the worker is rolled back.
"""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from dana import ours
from dana.errors import UsageError
from dana.server.conninfo import SECRETS, parts_of
from dana.server.embedded import EmbeddedServer
from dana.server.installation import SUPPORTED

RULE = """
import dana
w, x, y = dana.model(), dana.input(), dana.output()
dana_doctor = dana.algo(w, x, y)
dana_doctor.setModel(w, w - dana_doctor.merge(w * x - y, 8, "+"))
"""

SCHEMA = "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'dana'"
SOCKET = """
SELECT CASE WHEN s.setting LIKE '/%' THEN s.setting ELSE concat_ws('/', d.setting, s.setting) END
FROM pg_settings AS s LEFT JOIN pg_settings AS d ON d.name = 'data_directory' WHERE s.name = 'dana.socket_path'
"""
"""The worker's socket; without the data directory for a role that may not see it."""

MISSING = """
SELECT string_agg(p.oid::regproc::text, ', ' ORDER BY proname) FROM pg_proc AS p
JOIN pg_extension AS e ON extname = 'dana' AND pronamespace = extnamespace
WHERE proname IN ('dana_train', 'dana_create_udf') AND NOT has_function_privilege(p.oid, 'EXECUTE')
"""
"""Functions for training that the role may not call."""

CHANGED = """
SELECT string_agg(name || ' = ' || current_setting(name), ', ' ORDER BY name) FROM pg_settings
WHERE name LIKE 'dana.%' AND source <> 'default'
"""

MEMORY = """
SELECT pg_size_bytes(current_setting(name)), source, quote_ident(current_database()), quote_ident(current_user)
FROM pg_settings WHERE name = 'dana.max_memory'
"""
"""The limit in bytes, and the place where it is set."""

MEMORY_FILE = Path("/proc/meminfo")

UNREACHABLE = ("08001", "08006")

ANSWER = 15
"""Seconds in which a worker answers, with a margin for a busy machine."""

LEAST_MEMORY = 256
"""Megabytes that a session of the worker needs to train a small table (docs/operating.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that was checked.

    Attributes
    ----------
    what
        Its name.
    text
        What was found.
    fix
        A command that solves the problem; empty if there is none.
    """

    what: str
    text: str
    fix: str = ""


def examine(dsn: str | None) -> Iterator[Finding]:
    """Check one thing after another; ends early where the next checks need what is missing.

    Parameters
    ----------
    dsn
        Connection string of the server; None is the embedded one.
    """
    release = version("dana-db")
    if foreign := ours.foreign_distributions():
        names = " ".join(foreign)
        fix = f"pip uninstall {names} && pip install --force-reinstall --no-deps dana-db"
        yield Finding(what="packages", text=f"other distributions have packages of the same names: {names}", fix=fix)
    else:
        yield Finding(what="packages", text=f"dana-db {release}, Python {platform.python_version()}")
    if dsn is None:
        server = EmbeddedServer.at()
        if not server.is_running:
            yield Finding(what="server", text=f"the embedded server in {server.root} does not run", fix="dana start")
            return
        dsn = server.dsn
    try:
        parts = parts_of(dsn)
    except UsageError as error:
        yield Finding(what="server", text=error.message, fix="dana doctor --dsn 'host=… dbname=… user=…'")
        return
    # people show what is printed here to others; psql asks for the password
    shown = shlex.quote(make_conninfo(**{key: value for key, value in parts.items() if key not in SECRETS}))
    try:
        connection = psycopg.connect(dsn, autocommit=True)
    except psycopg.OperationalError as error:
        yield Finding(what="server", text=_one_line(str(error)), fix=f"psql {shown}, until it connects")
        return
    with connection:
        yield from examine_session(connection, f"psql {shown} -c")


def examine_session(connection: psycopg.Connection, psql: str) -> Iterator[Finding]:
    """The same for a session in autocommit mode, which becomes useless for others.

    Parameters
    ----------
    psql
        Beginning of a command that executes SQL there.
    """
    connection.execute("SET search_path = pg_catalog")  # a superuser may ask, and others own what lies elsewhere
    yield from _Examination(connection=connection, release=version("dana-db"), psql=psql).findings()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examination:
    """The checks of a server.

    Attributes
    ----------
    connection
        A session in autocommit mode.
    release
        This package's version.
    psql
        Beginning of a command that executes SQL there.
    """

    connection: psycopg.Connection
    release: str
    psql: str

    def findings(self) -> Iterator[Finding]:
        for check in (self._server, self._extension, self._rights, self._worker, self._settings, self._memory):
            finding = check()
            yield finding
            # what comes next needs this
            if finding.fix:
                return

    def _ask(self, query: LiteralString) -> Any:
        row = self.connection.execute(query).fetchone()
        return None if row is None else row[0]

    def _sql(self, statement: str) -> str:
        return f"{self.psql} {shlex.quote(statement)}"

    def _server(self) -> Finding:
        found = self._ask("SHOW server_version")
        text = f"PostgreSQL {found}, role {self._ask('SELECT current_user')}"
        known = self.connection.info.server_version // 10000 in SUPPORTED
        fix = "" if known else f"use a server of PostgreSQL {SUPPORTED[0]} to {SUPPORTED[-1]}"
        return Finding(what="server", text=text, fix=fix)

    def _extension(self) -> Finding:
        script = self._ask("SELECT extversion FROM pg_extension WHERE extname = 'dana'")
        files = self._ask("SELECT default_version FROM pg_available_extensions WHERE name = 'dana'")
        text, fix = f"version {script} in database {self.connection.info.dbname}", ""
        if files != self.release:
            text = (
                "none in the server's installation"
                if files is None
                else f"version {files}, this package {self.release}"
            )
            fix = "dana install --pg-config /path/to/pg_config, on the server's machine"
        elif script is None:
            text, fix = f"none in database {self.connection.info.dbname}", self._sql("CREATE EXTENSION dana")
        elif script != files:
            text, fix = f"version {script}, its library {files}", self._sql("ALTER EXTENSION dana UPDATE")
        return Finding(what="extension", text=text, fix=fix)

    def _rights(self) -> Finding:
        missing = self._ask(MISSING)
        if missing is None:
            return Finding(what="rights", text="may create rules and train")
        role = self._ask("SELECT quote_ident(current_user)")
        fix = f"GRANT EXECUTE ON FUNCTION {missing} TO {role};  -- as a superuser"
        return Finding(what="rights", text=f"may not execute {missing}", fix=fix)

    def _worker(self) -> Finding:
        """Have it check a rule, and keep nothing."""
        schema = self._ask(SCHEMA)
        call = sql.SQL("SELECT {}.dana_create_udf('dana_doctor', %s)").format(sql.SQL(schema))
        try:
            with self.connection.transaction(force_rollback=True):
                self.connection.execute("SET LOCAL client_min_messages = error")
                self.connection.execute(f"SET LOCAL statement_timeout = '{ANSWER}s'")
                self.connection.execute(call, (RULE,))
        except psycopg.errors.QueryCanceled:
            socket = self._ask(SOCKET)
            fix = f"dana stop && dana start, systemctl restart dana-worker, or end what listens at {socket}"
            return Finding(what="worker", text=f"does not answer at {socket} in {ANSWER} seconds", fix=fix)
        except psycopg.Error as error:
            hint = error.diag.message_hint
            text = _one_line(error.diag.message_primary or str(error))
            return Finding(what="worker", text=f"{text} ({error.sqlstate})", fix=self._start(error.sqlstate, hint))
        return Finding(what="worker", text=f"answers at {self._ask(SOCKET)}")

    def _start(self, sqlstate: str | None, hint: str | None) -> str:
        if sqlstate in UNREACHABLE:
            return f"dana worker --socket {shlex.quote(self._ask(SOCKET))}, as the server's account"
        return hint or "see the worker's log"

    def _settings(self) -> Finding:
        text, fix = self._ask(CHANGED) or "those of the extension have their defaults", ""
        ((memory, source, database, user),) = self.connection.execute(MEMORY).fetchall()
        if 0 < memory < LEAST_MEMORY << 20:
            places = {
                "user": f"ROLE {user}",
                "database": f"DATABASE {database}",
                "database user": f"ROLE {user} IN DATABASE {database}",
            }
            fix = self._sql(f"ALTER {places.get(source, 'SYSTEM')} SET dana.max_memory = '{LEAST_MEMORY}MB'")
        return Finding(what="settings", text=text, fix=fix)

    def _memory(self) -> Finding:
        if not self._ask("SELECT inet_server_addr() IS NOT DISTINCT FROM inet_client_addr()"):
            return Finding(what="memory", text="not checked, the server is on another machine")
        (available,) = re.findall(r"^MemAvailable: +(\d+) kB", MEMORY_FILE.read_text(), re.M)
        text = f"{int(available) // 1024} MB available"
        few = int(available) // 1024 < LEAST_MEMORY
        fix = f"stop other programs, or add memory: a training needs {LEAST_MEMORY} MB" if few else ""
        return Finding(what="memory", text=text, fix=fix)


def _one_line(text: str) -> str:
    return " ".join(text.split())
