"""A database with names that would act as markup, and two versions of a model on it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import dana
from dana import rules
from dana.client.connection import Connection

MARKUP = "\"'><script src=/static/x.js></script><img src=x onerror=\"document.title='owned'\">"
TABLE = f"t{MARKUP}"
COLUMN = f"c{MARKUP[:40]}"
MODEL = f"m{MARKUP}"
RULE = "r\"<b>&amp;'</b>"


def quoted(name: str) -> str:
    return '"' + name[:63].replace('"', '""') + '"'


@pytest.fixture(scope="module")
def db(pg_uri: str) -> Iterator[Connection]:
    """A client in autocommit mode; a table with hostile names, and two versions of a model, the second in use."""
    random = np.random.default_rng(3)
    with dana.connect(pg_uri) as db:
        db.session.execute("DROP SCHEMA IF EXISTS ui CASCADE; CREATE SCHEMA ui")
        a, b = random.standard_normal((2, 200))
        db.load({"k": np.arange(200), COLUMN: a, "b": b, "y": np.where(a + b > 0, "<i>yes", "<i>no")}, "ui.raw")
        db.session.execute("ALTER TABLE ui.raw ADD PRIMARY KEY (k)")
        db.session.execute(f"ALTER TABLE ui.raw RENAME TO {quoted(TABLE)}")
        db.create_rule(RULE, rules.text("logistic"))
        for features in ([COLUMN], [COLUMN, "b"]):
            db.train(RULE, f"ui.{quoted(TABLE)}", model=MODEL, features=features, label="y", epochs=5, test_size=0.2)
        yield db
        db.drop_rule(RULE)
        db.drop_model(MODEL)
        db.session.execute("DROP SCHEMA ui CASCADE")
