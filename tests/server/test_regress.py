"""The pg_regress suite of the extension, run as pg_regress runs it: ``make -C pg_extension installcheck`` without make.

Its own program is not to be had everywhere, so psql reads each file here, in the same order and with the same settings.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dana.server import installation
from dana.server.embedded import EmbeddedServer
from dana.server.places import CHECKOUT
from tests.golden import Golden
from tests.postgres.cluster import whole_server

SUITE = CHECKOUT / "pg_extension" / "test"
DATABASE = "dana_regression"
SUPERUSER = "another superuser"
"""Not the one that initdb made: the suite passes for any."""

SETTINGS = {"PGTZ": "America/Los_Angeles", "PGDATESTYLE": "Postgres, MDY", "LC_MESSAGES": "C", "LD_LIBRARY_PATH": ""}
"""As pg_regress.c, initialize_environment()."""


def listed() -> list[str]:
    """The suite's files in order, as the Makefile names them."""
    found = re.search(r"^REGRESS = (.*)$", (CHECKOUT / "pg_extension" / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].split()


def test_every_file_is_listed() -> None:
    names = {file.stem for file in (SUITE / "sql").glob("*.sql")}
    assert names == set(listed()) == {file.stem for file in (SUITE / "expected").glob("*.out")}


def run_suite(psql: Path, dsn: str, update: bool) -> None:
    """Run the files in a new database; each must print what is expected."""
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        session.execute(f"CREATE DATABASE {DATABASE} TEMPLATE template0")
        session.execute(f'CREATE ROLE "{SUPERUSER}" SUPERUSER LOGIN')
        try:
            for name in listed():
                with open(SUITE / "sql" / f"{name}.sql") as script:
                    done = subprocess.run(
                        [str(psql), "-X", "-a", "-q", make_conninfo(dsn, dbname=DATABASE, user=SUPERUSER)],
                        stdin=script,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        text=True,
                        check=True,
                        env=SETTINGS,
                    )
                expected = SUITE / "expected" / f"{name}.out"
                if update:
                    expected.write_text(done.stdout)
                assert done.stdout == expected.read_text()
        finally:
            session.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")
            session.execute(f'DROP ROLE "{SUPERUSER}"')


def test_suite(server: EmbeddedServer, golden: Golden) -> None:
    run_suite(server.program("psql"), server.dsn, golden.update)


@pytest.mark.parametrize("major", sorted({14, 15, 16, 17, 18} - set(installation.MAJORS)))
def test_suite_on_every_other_major(major: int, own_root: Path) -> None:
    """On the servers that ``make test`` fetched, or ``make -C pg_extension check-headers``."""
    with whole_server(own_root, major) as (installed, dsn):
        run_suite(installed.program("psql"), dsn, update=False)
