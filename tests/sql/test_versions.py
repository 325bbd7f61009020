"""Script and library belong together: every entry point says so where they do not, also in sessions that were open."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dana.server.embedded import EmbeddedServer
from tests.sql.conftest import SUMS, Session

errors = psycopg.errors
DATABASE = "dana_versions"


@pytest.fixture
def database(server: EmbeddedServer) -> Iterator[str]:
    """A database with the extension in a schema of its own."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        admin.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0")
        dsn = make_conninfo(server.dsn, dbname=DATABASE, options="-c search_path=ml,public")
        with psycopg.connect(dsn, autocommit=True) as session:
            session.execute("CREATE SCHEMA ml; CREATE EXTENSION dana SCHEMA ml; CREATE TABLE public.t (x real, y real)")
        yield dsn
        admin.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def entry_points(session: Session) -> list[tuple[str, list[str]]]:
    """Calls of what SQL can call in C, functions and procedures; of aggregates for those they are made of."""
    return session.execute(
        """
        SELECT CASE p.prokind WHEN 'p' THEN 'CALL ' ELSE 'SELECT ' END || p.oid::regproc,
            ARRAY(SELECT CASE WHEN p.provariadic <> 0 AND t = 'text[]'::regtype THEN 'VARIADIC ' ELSE '' END
                || format_type(t, NULL) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (t, n) ORDER BY n)
        FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid JOIN pg_language AS l ON l.oid = p.prolang
        WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND d.classid = 'pg_proc'::regclass
            AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'dana')
            AND (l.lanname = 'c' OR p.prokind = 'a') AND p.proargtypes[0] IS DISTINCT FROM 'internal'::regtype
            AND NOT EXISTS (SELECT FROM pg_type WHERE p.oid IN (typinput, typoutput))
        ORDER BY (p.proname <> 'dana_predict'), 1
        """
    ).fetchall()


GIVEN = {
    "text": "'m'::text",
    "text[]": "'{x}'::text[]",
    "VARIADIC text[]": "'x'",
    '"any"': "1",
    "regclass": "'t'::regclass",
    "jsonb": "'{}'::jsonb",
    "json": "NULL",
    "integer": "2",
    "bigint": "2::bigint",
    "bigint[]": "'{1,2}'::bigint[]",
    "double precision": "0.5::float8",
    "regrole": "'postgres'::regrole",
    "oid": "'date'::regtype::oid",
    "interval": "'1 day'::interval",
    "boolean": "true",
    "bytea": "''::bytea",
    "real[]": "'{1}'::real[]",
    "double precision[]": "'{{2,0.5}}'::float8[]",
    "tid": "'(0,1)'::tid",
    "record": "ROW(1)",
}


def test_every_entry_point_asks(database: str) -> None:
    """First of all, whatever its arguments are."""
    with psycopg.connect(database) as session:
        session.execute("UPDATE pg_extension SET extversion = '0.0.1' WHERE extname = 'dana'")
        asked = 0
        for name, types in entry_points(session):
            call = f"{name}({', '.join(GIVEN[one] for one in types)})"
            with pytest.raises(errors.ObjectNotInPrerequisiteState) as raised, session.transaction():
                session.execute(call.encode())
            said = str(raised.value.diag.message_primary)
            assert said.startswith('extension "dana" has version 0.0.1 in this database, and its library version '), (
                call
            )
            assert "ALTER EXTENSION dana UPDATE" in str(raised.value.diag.message_hint)
            asked += 1
        assert asked > 35
        session.rollback()
        session.execute("SELECT dana_group('m', 'a')")


def test_what_is_written_in_sql_asks_too(database: str) -> None:
    with psycopg.connect(database) as session:
        session.execute("UPDATE pg_extension SET extversion = '0.0.1' WHERE extname = 'dana'")
        for call in (
            "dana.progress",
            "dana.curve",
            "dana_parameters('m')",
            "dana_export_model('m')",
            "dana_predict_table('m', 't')",
            "dana_rollback_model('m')",
            "dana_cross_validate('m', 't')",
            "dana_search('m', 't', '[{}]')",
        ):
            with pytest.raises(errors.ObjectNotInPrerequisiteState, match="0.0.1"), session.transaction():  # noqa: RUF043
                session.execute(f"SELECT * FROM {call}")  # type: ignore[arg-type]
        session.rollback()


@pytest.fixture
def newer(server: EmbeddedServer, session: Session) -> Iterator[str]:
    """A version 99, whose script from this version makes one of the functions anew."""
    (version,) = session.execute("SELECT default_version FROM pg_available_extensions WHERE name = 'dana'").fetchall()[
        0
    ]
    program = server.program("pg_config").resolve()
    (script,) = program.parents[1].rglob(f"dana--{version}.sql")
    made = script.with_name(f"dana--{version}--99.sql")
    made.write_text("ALTER FUNCTION @extschema@.dana_group COST 2;\n", encoding="utf-8")
    made.chmod(0o644)
    yield version
    made.unlink()


def test_a_session_that_is_open_notices(database: str, newer: str) -> None:
    """ALTER EXTENSION in another session, and DROP EXTENSION, too; a call that works costs no look at the catalog."""
    group = "SELECT dana_group('m', 'a')"
    with psycopg.connect(database, autocommit=True) as session, psycopg.connect(database, autocommit=True) as admin:
        assert session.execute(group).fetchone() == ("m[a]",)
        admin.execute("ALTER EXTENSION dana UPDATE TO '99'")
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=rf"has version 99 .* version {newer}\n"):
            session.execute(group)
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="has version 99"):
            session.execute("SELECT dana_predict('m', 1)")
        admin.execute("DROP EXTENSION dana; CREATE EXTENSION dana SCHEMA ml")
        assert session.execute(group).fetchone() == ("m[a]",)
        with session.transaction(force_rollback=True):
            session.execute("ALTER EXTENSION dana UPDATE TO '99'")
            with pytest.raises(errors.ObjectNotInPrerequisiteState), session.transaction():
                session.execute(group)
        assert session.execute(group).fetchone() == ("m[a]",), "the update was rolled back"


def test_made_anew_in_another_schema(database: str) -> None:
    """What calls functions by their place finds them where they are now."""
    with psycopg.connect(database, autocommit=True) as session, psycopg.connect(database, autocommit=True) as admin:
        for schema in ("ml", "other"):
            if schema == "other":
                admin.execute("CREATE SCHEMA other; DROP EXTENSION dana CASCADE; CREATE EXTENSION dana SCHEMA other")
            session.execute(f"SET search_path = {schema}, public")
            session.execute("SELECT dana_create_udf('sums', %s)", (SUMS,))
            session.execute("TRUNCATE t; INSERT INTO t SELECT i, i % 2 FROM generate_series(1, 50) AS i")
            session.execute("SELECT dana_train('sums', 't', test_size => 0.2)")
            assert session.execute("SELECT dana_evaluate('sums') ->> 'part'").fetchone() == ("test",)
            assert session.execute("SELECT count(*) FROM dana_cross_validate('sums', 't', 2)").fetchone() == (4,)
