"""Groups, folds and searches that end in the middle: nothing is kept, and the next statement works."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session

errors = psycopg.errors
CALLS = {
    "groups": "SELECT count(error) FROM dana_train_groups(%s, 't', '{g}')",
    "folds": "SELECT count(*) FROM dana_cross_validate(%s, 't', folds => 2)",
    "search": "SELECT count(error) FROM dana_search(%s, 't', '[{}, {}]', folds => 2)",
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("mishap", "error", "message"),
    [
        ("refuse", errors.UndefinedColumn, 'column "q" does not exist'),
        ("fail", errors.InternalError_, "ZeroDivisionError"),
        ("abort", errors.ConnectionFailure, "closed the connection"),
        ("allocate", errors.OutOfMemory, "needs more memory than"),
    ],
)
def test_a_mishap_of_the_worker_ends_the_statement(
    cluster: Cluster,
    session: Session,
    rule: Callable[..., str],
    call: str,
    mishap: str,
    error: type[psycopg.Error],
    message: str,
) -> None:
    """It is not taken for an error of one group's or one point's data."""
    session.execute("CREATE TABLE t AS SELECT i AS x, i % 3 AS g FROM generate_series(1, 100) i")
    with pytest.raises(error, match=message):
        session.execute(CALLS[call], (rule(rows=True, on_open=mishap),))
    assert session.execute("SELECT FROM dana.model UNION ALL SELECT FROM dana.run").rowcount == 0
    found = session.execute(CALLS["groups"], (rule(rows=True),)).fetchone()
    assert found == (0,)
    assert session.execute("SELECT name FROM dana.model ORDER BY 1").fetchall() == [(f"rule2[{g}]",) for g in range(3)]


def test_groups_read_a_table_once(session: Session, rule: Callable[..., str]) -> None:
    """However many groups and epochs there are: the table's pages are read or found as often as for one query."""
    session.execute("CREATE TABLE t AS SELECT i AS x, i % 50 AS g FROM generate_series(1, 20000) i")
    name = rule(rows=True, epochs=3)
    with session.transaction():
        session.execute("SELECT count(*) FROM dana_train_groups(%s, 't', '{g}')", (name,))
        assert session.execute("SELECT pg_stat_get_xact_numscans('t'::regclass)").fetchone() == (1,)
