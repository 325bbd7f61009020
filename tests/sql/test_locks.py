"""What a training holds while it trains: none of the extension's tables."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from dana.server.embedded import EmbeddedServer
from tests.sql.conftest import Session
from tests.sql.test_administration import HOLD


@pytest.mark.parametrize(
    "call",
    [
        "dana_train('sums', 't', warm_start_from => 'm', filter => 'hold(x) > 0')",
        "dana.sums('t', '{\"filter\": \"hold(x) > 0\"}')",
        "dana_cross_validate('sums', 't', 2, '{\"filter\": \"hold(x) > 0\"}')",
        "dana_search('sums', 't', '[{}]', folds => 2, training => '{\"filter\": \"hold(x) > 0\"}')",
        'dana_train_groups(\'sums\', \'t\', \'{y}\', \'{"features": ["x"], "label": "y", "filter": "hold(x) > 0"}\')',
    ],
)
def test_a_training_locks_no_table_of_the_extension(session: Session, server: EmbeddedServer, call: str) -> None:
    """While its rows are read, somebody may have dana.model and dana.rule for himself, and predict."""
    session.execute("CREATE TABLE t AS SELECT i::real AS x, 1::real AS y FROM generate_series(1, 20) i")
    session.execute("SELECT dana_train('sums', 't', 'm', epochs => 1)")
    session.execute(HOLD)
    session.execute("SELECT pg_advisory_lock(5); SET lock_timeout = '10s'")
    ended: list[Any] = []
    with psycopg.connect(server.dsn, autocommit=True) as other:
        other.execute("SET search_path = test, public")
        pid = other.info.backend_pid
        thread = threading.Thread(target=lambda: ended.append(other.execute(f"SELECT * FROM {call}").rowcount))  # type: ignore[arg-type]
        thread.start()
        try:
            waits = "SELECT count(*) FROM pg_locks WHERE pid = %s AND locktype = 'advisory' AND NOT granted"
            while session.execute(waits, (pid,)).fetchone() == (0,):
                assert thread.is_alive()
            held = session.execute(
                "SELECT relation::regclass::text, mode FROM pg_locks WHERE pid = %s AND relation IN"
                " (SELECT oid FROM pg_class WHERE relnamespace = 'dana'::regnamespace AND relkind <> 'v')",
                (pid,),
            ).fetchall()
            for table in ("model", "rule", "run", "epoch"):
                session.execute(f"VACUUM FULL dana.{table}")
            assert session.execute("SELECT dana_predict('m', 1) = dana_predict('m@1', 1)").fetchone() == (True,)
        finally:
            session.execute("SELECT pg_advisory_unlock(5); RESET lock_timeout")
            thread.join()
    assert held == []
    assert ended[0] > 0
