"""The dbt project of the examples: ``dbt build`` loads, trains, predicts and tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

import dana
from dana.server.places import CHECKOUT

PROJECT = CHECKOUT / "examples" / "dbt"
PACKAGES = ("dbt-core>=1.8,<1.11", "dbt-postgres>=1.8,<1.11")  # later ones are not on PyPI as a whole


@pytest.fixture(scope="module")
def dbt() -> Path:
    """The program, in an environment of its own: it needs older packages than the tests."""
    folder = CHECKOUT / "build" / "dbt"
    program = folder / "bin" / "dbt"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", *PACKAGES], check=True)
    return program


def test_the_project(dbt: Path, pg_uri: str, tmp_path: Path) -> None:
    project = tmp_path / "dbt"
    shutil.copytree(PROJECT, project)
    parts = conninfo_to_dict(pg_uri)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}
    environment = {names[key]: str(value) for key, value in parts.items() if key in names} | {"DO_NOT_TRACK": "1"}
    build = [dbt, "build", "--profiles-dir", "."]
    with dana.connect(pg_uri) as db:
        db.create_rules("logistic")
        try:
            for version in (1, 2):
                done = subprocess.run(
                    build, cwd=project, env=os.environ | environment, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, done.stdout
                assert "PASS=4 " in done.stdout
                assert [one.version for one in db.models("leaving") if one.active] == [version]
            risks = db.session.execute("SELECT count(*), min(risk), max(risk) FROM dana_example.risks").fetchall()
            assert risks[0][0] == 1500
            assert 0 <= risks[0][1] < 0.2 < 0.6 < risks[0][2] <= 1
        finally:
            db.session.execute("DROP SCHEMA IF EXISTS dana_example CASCADE")
            if db.models("leaving"):
                db.drop_model("leaving")
            db.drop_rule("logistic")
