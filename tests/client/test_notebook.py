"""The notebooks of examples/: every cell runs, and what they claim is so."""

from __future__ import annotations

import ast
import json
import shutil
import warnings
from pathlib import Path
from textwrap import dedent
from typing import Any

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient

import dana
from dana.demo import tour as demo
from dana.server.places import CHECKOUT
from dana.session.notices import ServerNotice
from tests.client.test_python_page import uri as uri

FOLDER = CHECKOUT / "examples"
SOURCES = [
    "".join(cell["source"])
    for cell in json.loads((FOLDER / "customers.ipynb").read_text(encoding="utf-8"))["cells"]
    if cell["cell_type"] == "code"
]


HELD = {
    "design": "assert found['fitting'] > 1 and abs(estimate / result.cycles - 1) < 0.02",
    "factors": "assert best['k'] == 3 and ours < 0.7 * theirs and alike > 0.9",
    "rule": "assert (table.loc['promise'] < 0.9 * table.loc['mean']).all() and table.loc['promise', 'late'] < 0.3",
    "servers": "assert result.tuples == 12000 and 0.85 < accuracy < 1",
}
"""What holds after the last cell of each of the others."""


def run(source: str, names: dict[str, Any]) -> Any:
    """A cell, and what a notebook shows of it: the value of its last line."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.filterwarnings("ignore::dana.ServerNotice")
def test_what_the_tutorial_says_of_scikit_learn(uri: str) -> None:
    """The last cell, on the table as the demonstration makes it."""
    with dana.connect(uri) as db:
        demo.prepare(db, str)
        db.train("logistic", "customers", label="churned", test_size=0.2, nulls="mean")
        customers = pd.read_csv(FOLDER / "customers.csv", parse_dates=["signed_up"])
        names: dict[str, Any] = {"db": db, "customers": customers}
        run(SOURCES[-1], names)
    said = (CHECKOUT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert f"has {names['theirs']:.2f} on the same rows" in said
    assert f" auc      | {names['ours']}\n" in said


@pytest.mark.usefixtures("uri")
def test_every_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(FOLDER / "customers.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notebook"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        shown = [run(source, names) for source in SOURCES]
    told = "\n".join(str(one.message) for one in caught if issubclass(one.category, ServerNotice))
    for words in (
        "column customer_id: no feature, it is the primary key",
        "column email: no feature, it has",
        "column city: one-hot, 6 categories",
        "column signed_up: year, month, dow",
        '"income" is null (',
        "131 of 1200 rows of public.customers are left out",
        "column income: NULL becomes",
    ):
        assert words in told
    with names["db"]:
        assert names["ours"] > names["theirs"] - 0.02
        html = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert len(html) >= 6
    assert "<svg" in "".join(html)
    newcomers = next(value for value in shown if isinstance(value, pd.DataFrame) and len(value) == 3)
    assert newcomers["prediction"].between(0, 1).all(), "also with a city that nobody was from, and without an income"


def test_every_notebook_is_run() -> None:
    assert {one.stem for one in FOLDER.glob("*.ipynb")} == {"customers", *HELD}
    for name in HELD:
        notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        nbformat.validate(notebook)
        assert all(cell.get("outputs", []) == [] for cell in notebook.cells), "they are stored without outputs"


@pytest.mark.parametrize("name", HELD)
def test_what_a_notebook_claims(name: str, uri: str) -> None:
    """In a kernel, because a rule under `@dana.rule` is read from its cell."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    server = f"""
        from dana.client import connection
        of_a_user = connection.connect
        connection.connect = lambda dsn=None: of_a_user(dsn or {uri!r})"""
    notebook.cells.insert(0, nbformat.v4.new_code_cell(dedent(server)))
    notebook.cells.append(nbformat.v4.new_code_cell(HELD[name]))
    try:
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(FOLDER)}}).execute()
    finally:
        with dana.connect(uri) as db:
            db.session.execute("DROP TABLE IF EXISTS deliveries, ratings, signals")
