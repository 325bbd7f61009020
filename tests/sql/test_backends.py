"""The generated hardware behind SQL: the simulator's models and cycles, and a call that ends when it is cancelled."""

from __future__ import annotations

import json
import os
import shutil
import time

import psycopg
import pytest
from psycopg import errors

from dana.server.embedded import EmbeddedServer
from hwgen.harness.build import build, verilog_of
from tests.hwgen.harness.test_rtl_machine import CONFIG
from tests.servers import MAJORS
from tests.sql.conftest import Session

DESIGN = {name: value for name, value in CONFIG.to_json().items() if name != "page_size"}
"""The machine of `tests/hwgen/harness`, which is compiled once for all tests."""
ROWS = "SELECT i / 7.0::real AS x, (i %% 3)::real AS y FROM generate_series(1, %s) i"
LONG = 400_000
"""Rows of an epoch that the hardware takes longer for than the worker waits for what was abandoned."""


def share_compiled_designs(server: EmbeddedServer) -> None:
    """What this account has compiled of the machine, where the worker, another account, looks for it."""
    library = build(verilog_of(CONFIG))
    if not server.account.switched:
        return
    kept = server.worker_log.parents[1] / "cache" / "dana" / library.parent.name
    kept.mkdir(parents=True, exist_ok=True)
    # what was read last is the design's Verilog
    verilog = max(library.parent.glob("*.v"), key=lambda path: path.stat().st_mtime)
    for path in (library, verilog):
        shutil.copy(path, kept)
    for made in (kept.parent, kept, kept / library.name, kept / verilog.name):
        os.chown(made, server.account.uid, server.account.gid)


def trained(session: Session, machine: str) -> tuple[object, ...]:
    """Values of the model, cycles, tuples."""
    call = "SELECT model, version, cycles, tuples FROM dana_train('sums', 't', machine => %s, design => %s)"
    row = session.execute(call, (machine, json.dumps(DESIGN))).fetchone()
    assert row is not None
    values = session.execute('SELECT "values" FROM dana_parameters(%s, %s)', row[:2]).fetchone()
    assert values is not None
    return values[0], row[2], row[3]


@pytest.mark.parametrize("server", MAJORS[-1:], indirect=True)
def test_hardware_is_the_simulator_and_is_cancelled_in_an_epoch(session: Session, server: EmbeddedServer) -> None:
    share_compiled_designs(server)
    session.execute(f"CREATE TABLE t AS {ROWS}", (500,))
    found = trained(session, "rtl")
    assert found == trained(session, "sim")
    assert found[2] == 500
    session.execute(f"INSERT INTO t {ROWS}", (LONG,))
    log = server.worker_log
    before = log.stat().st_size
    with psycopg.connect(server.dsn, autocommit=True) as other:
        other.execute("SET search_path = test, public")
        other.execute("SET statement_timeout = '2s'")
        with pytest.raises(errors.QueryCanceled):
            trained(other, "rtl")
    end = time.monotonic() + 60
    # the worker's session says so itself: it was not ended in the middle of a call
    while 'outcome="abandoned"' not in (said := log.read_bytes()[before:].decode()):
        assert time.monotonic() < end, said
        time.sleep(0.05)
    assert "did not end after its backend did" not in said
    session.execute("TRUNCATE t")
    session.execute(f"INSERT INTO t {ROWS}", (40,))
    assert trained(session, "rtl") == trained(session, "sim")
