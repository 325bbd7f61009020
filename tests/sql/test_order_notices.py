"""What is reported about the order of rows."""

from __future__ import annotations

import pytest

from benchmarks import stochastic
from tests.sql.conftest import Session


@pytest.fixture
def rows(session: Session) -> Session:
    """The rules of these tests."""
    for rule in ("linear", "lrmf", "logistic"):
        session.execute("SELECT dana_create_udf(%s, %s)", (rule, stochastic.text(rule)))
    return session


def test_ratings_in_the_order_of_their_users(rows: Session) -> None:
    rows.execute(
        "CREATE TABLE ratings AS SELECT k / 20 AS i, k * 7 % 90 AS j, (k % 5)::real AS y "
        "FROM generate_series(0, 1999) AS k"
    )
    told: list[str] = []
    rows.execute("SET client_min_messages = notice")
    rows.add_notice_handler(lambda said: told.append(f"{said.message_primary} {said.message_hint}"))
    rows.execute("SELECT dana_train('lrmf', 'ratings', epochs => 2)")
    assert [one for one in told if "the row before them" in one and one.endswith("shuffle => true.")] == told
    assert len(told) == 1
    rows.execute("SELECT dana_train('lrmf', 'ratings', epochs => 2, shuffle => true)")
    assert len(told) == 1


@pytest.fixture
def told(rows: Session) -> list[str]:
    """What is told of a table that lies by region, and of one whose rare class was written last."""
    rows.execute(
        "CREATE TABLE regions AS SELECT g AS id, 'r' || (g - 1) / 334 AS region, sin(g * 12.9898) * 1.4 AS a, "
        "sin(g * 12.9898) + (ARRAY[0.3, -0.2, 0.25])[1 + (g - 1) / 334] AS y FROM generate_series(1, 1000) g"
    )
    rows.execute("ALTER TABLE regions ADD PRIMARY KEY (id)")
    rows.execute(
        "CREATE TABLE fraud AS SELECT g AS id, sin(g * 12.9898) AS a, 'no' AS y FROM generate_series(1, 9000) g"
    )
    rows.execute("UPDATE fraud SET y = 'yes' WHERE id % 80 = 7")
    rows.execute("ALTER TABLE fraud ADD PRIMARY KEY (id)")
    heard: list[str] = []
    rows.execute("SET client_min_messages = notice")
    rows.add_notice_handler(lambda said: heard.append(f"{said.message_primary} {said.message_hint}"))
    return heard


REGIONS = "rows of test.regions that are alike in column region lie together, as in a sorted table"


@pytest.mark.parametrize(
    "call",
    [
        "dana_train('linear', 'regions', label => 'y', epochs => 2, shuffle => false)",
        "dana_train('linear', 'regions', label => 'y', epochs => 2, test_size => 0.2, shuffle => false)",
        "dana_train('linear', 'regions', label => 'y', epochs => 2, machine => 'interp', shuffle => false)",
        'dana_cross_validate(\'linear\', \'regions\', training => \'{"label": "y", "epochs": 2, "shuffle": false}\')',
        """dana_search('linear', 'regions', '{"lr": [0.1, 0.5]}', """
        """training => '{"label": "y", "epochs": 2, "shuffle": false}')""",
    ],
)
def test_categories_that_lie_together_are_told_once(rows: Session, told: list[str], call: str) -> None:
    rows.execute(f"SELECT * FROM {call}".encode())
    assert [one for one in told if "lie together" in one] == [
        f"{REGIONS} Rows are trained in order and the last ones have the greatest effect, so the model may be bad. "
        "Change the order: shuffle => true."
    ]


def test_categories_in_another_order_are_not_told(rows: Session, told: list[str]) -> None:
    rows.execute("SELECT dana_train('linear', 'regions', label => 'y', epochs => 2)")
    rows.execute("SELECT dana_train('linear', query => 'TABLE regions', label => 'y', epochs => 2)")
    query = "query => 'TABLE regions ORDER BY hashint4(id)'"
    rows.execute(f"SELECT dana_train('linear', {query}, label => 'y', epochs => 2, shuffle => false)".encode())
    assert not [one for one in told if "lie together" in one]
    query = "query => 'TABLE regions'"
    rows.execute(f"SELECT dana_train('linear', {query}, label => 'y', epochs => 2, shuffle => false)".encode())
    (one,) = (one for one in told if "lie together" in one)
    assert one.startswith("rows of the query that are alike in column region lie together")
    assert one.endswith("Change the order: shuffle => true.")


@pytest.mark.parametrize("more", ["", ", test_size => 0.2", """, class_weight => '"balanced"'"""])
def test_a_rare_class_that_was_written_last(rows: Session, told: list[str], more: str) -> None:
    rows.execute(f"SELECT dana_train('logistic', 'fraud', label => 'y', epochs => 3, shuffle => false{more})".encode())
    assert len([one for one in told if "alike in column y lie together" in one]) == 1
