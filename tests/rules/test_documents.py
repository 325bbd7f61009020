"""docs/rules.md: its SQL runs, line by line, and its defaults are the rules' own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import psycopg
import pytest

from dana import rules
from dana.accuracy.table import ENOUGH
from dana.accuracy.tasks import TASKS
from dana.client import Connection
from dana.server.places import CHECKOUT
from dana.tables import create_table
from dsl import compile_rule
from dsl.binary32 import round32

TEXT = (CHECKOUT / "docs" / "rules.md").read_text(encoding="utf-8")
STATEMENTS = [
    statement.strip()
    for block in re.findall(r"```sql\n(.*?)```", TEXT, re.S)
    for statement in block.split(";")
    if statement.strip()
]
ROWS = {
    cells[0].strip("`"): cells[-1]
    for cells in (re.split(r"\s*(?<!\\)\|\s*", line)[1:-1] for line in TEXT.splitlines() if line.startswith("| `"))
}


@pytest.fixture(scope="module")
def db(pg_uri: str) -> Iterator[Connection]:
    """A session with the library and the tables that the page speaks of; rolled back."""
    random = np.random.default_rng(2)
    with psycopg.connect(pg_uri) as session:
        client = Connection(session)
        client.create_rules()
        a, b, noise = random.standard_normal((3, 120))
        patients = {"a": a, "b": 10 + 5 * b, "pressure": 100 + a + noise, "y": (a + noise > 0).astype(np.float64)}
        create_table(session, "patients", patients)
        i, j = random.integers(0, 20, 120), random.integers(0, 10, 120)
        create_table(session, "ratings", {"i": i, "j": j, "y": random.uniform(1, 5, 120)})
        create_table(
            session, "rated", {"i": np.arange(20), **dict(zip("abc", random.uniform(1, 5, (3, 20)), strict=True))}
        )
        yield client
        session.rollback()


def test_the_page_s_sql_works(db: Connection) -> None:
    assert len(STATEMENTS) > 15
    for statement in STATEMENTS:
        answer = db.session.execute(statement.encode())
        assert answer.description is None or answer.fetchall(), statement
    trained = {
        re.findall(r"dana_train\('(\w+)'", statement)[0] for statement in STATEMENTS if "dana_train" in statement
    }
    assert trained == set(rules.NAMES)


def test_a_number_beyond_the_matrix_is_an_error(db: Connection) -> None:
    with pytest.raises(psycopg.Error, match="row"), db.session.transaction():
        db.train("lrmf", "ratings", features=["i", "j"], label="y", hyper={"m": 5, "n": 10})


@pytest.mark.parametrize("name", rules.NAMES)
def test_defaults_are_the_rule_s(name: str) -> None:
    graph = compile_rule(rules.text(name)).hdfg
    said = {word: float(number) for word, number in re.findall(r"`(\w+)` ([\d.]+)", ROWS[name])}
    metas = {str(graph.nodes[k].name): graph.nodes[k].value for k in graph.metas}
    assert {word: round32(number) for word, number in said.items()} == {**metas, **dict(graph.extents)}


def test_the_table_of_accuracy_is_whole_and_within_the_aim() -> None:
    """All that the command compares, but for MovieLens, which nobody may pass on; ratios are those of the numbers."""
    table = [line for line in TEXT[TEXT.index("## Accuracy") :].splitlines() if line.startswith("|")]
    rows = [line.strip("| ").split(" | ") for line in table[2:]]
    compared = [(name, data) for name, task in TASKS.items() for data in task.data if data != "movielens"]
    assert [(row[0], row[1]) for row in rows] == compared
    for name, _, _, metric, ours, theirs, counterpart, ratio in rows:
        assert (metric, counterpart) == (TASKS[name].metric.name, TASKS[name].counterpart)
        assert float(ratio) == pytest.approx(TASKS[name].metric.ratio(float(ours), float(theirs)), abs=2e-3)
        assert float(ratio) >= ENOUGH
