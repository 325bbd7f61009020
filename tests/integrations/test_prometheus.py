"""``dana metrics``: what a scrape of a real server has, and the files for Prometheus and Grafana that name it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import make_conninfo

import dana
from dana.cli import main
from dana.client.connection import Connection
from dana.integrations.prometheus import PHASES, STATES, serve
from dana.loopback import MAX_CONNECTIONS
from dana.server.places import CHECKOUT

Samples = dict[tuple[str, ...], float]
MONITORING = CHECKOUT / "examples" / "monitoring"


@contextmanager
def scraped(dsn: str, host: str = "127.0.0.1") -> Iterator[str]:
    """The address of the metrics of a database."""
    server, thread = serve(dsn, host, 0)
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def scrape(address: str | Request) -> Samples:
    """Values by the name of the metric and the values of its labels."""
    with urlopen(address) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    with dana.connect(pg_uri) as db:
        db.create_rules("linear")
        db.load({"a": [1.0, 2.0, 3.0, 4.0] * 500, "y": [2.0, 4.0, 6.0, 8.0] * 500}, "measured")
        yield db
        db.session.execute("DROP TABLE measured")
        for model in {one.name for one in db.models() if one.name.startswith("measured")}:
            db.drop_model(model)
        db.drop_rule("linear")


def test_runs_are_counted_once(pg_uri: str, db: Connection) -> None:
    train = "SELECT dana_train('linear', 'measured', 'measured {}', label => 'y', epochs => 2, patience => 0)"
    with scraped(pg_uri) as address, psycopg.connect(pg_uri) as other:
        db.train("linear", "measured", model="measured", label="y", epochs=2)
        before = scrape(address)
        assert ("dana_run_seconds_count", "sim", "linear") not in before
        other.execute(train.format("late"))  # its number is the smaller one, but it is committed last
        result = db.train("linear", "measured", model="measured", label="y", epochs=2, patience=0)
        for finish, runs in ((lambda: None, 1), (other.commit, 2), (lambda: None, 2)):
            finish()
            now = scrape(address)
            assert now["dana_run_seconds_count", "sim", "linear"] == runs
            assert now["dana_run_rows_total", "sim", "linear"] == runs * 2 * 2000
            assert now["dana_run_cycles_total", "sim", "linear"] == runs * (result.cycles or 0)
        assert now["dana_models",] == before["dana_models",] + 1
        assert now["dana_model_versions",] == before["dana_model_versions",] + 2
        assert now["dana_table_bytes", "model"] > 0


def test_what_runs_now(pg_uri: str, db: Connection) -> None:
    idle = dict.fromkeys((("dana_trainings", phase) for phase in PHASES), 0.0)
    with scraped(pg_uri) as address, psycopg.connect(pg_uri, autocommit=True) as session:
        assert idle.items() <= scrape(address).items()

        def train() -> None:
            with pytest.raises(psycopg.errors.QueryCanceled):
                session.execute(
                    "SELECT dana_train('linear', label => 'y', "
                    "query => 'SELECT m.* FROM measured AS m, LATERAL pg_sleep(m.a)')"
                )

        training = threading.Thread(target=train)
        training.start()
        try:
            for _ in range(100):
                now = scrape(address)
                if now["dana_training_longest_seconds",] > 0:
                    break
                time.sleep(0.1)
        finally:
            session.cancel()
            training.join()
        assert sum(now["dana_trainings", phase] for phase in PHASES) == 1
        assert now["dana_training_longest_seconds",] > 0


def test_jobs_by_state(pg_uri: str, db: Connection) -> None:
    with scraped(pg_uri) as address:
        before = scrape(address)
        db.wait(db.start("train", "linear", "measured", model="measured", label="y", epochs=2))
        db.wait(db.start("train", "linear", "measured", model="measured", label="no such column", epochs=2))
        after = scrape(address)
    changed = {state: after["dana_jobs", state] - before["dana_jobs", state] for state in STATES}
    assert changed == dict.fromkeys(STATES, 0.0) | {"done": 1.0, "failed": 1.0}


def test_problems(pg_uri: str, capfd: pytest.CaptureFixture[str]) -> None:
    with scraped(pg_uri) as address:
        found = scrape(address)
        assert {key[1]: value for key, value in found.items() if key[0] == "dana_problem"} == dict.fromkeys(
            ("server", "extension", "rights", "worker", "settings", "memory"), 0.0
        )
        assert found["dana_up",] == 1
    with scraped(make_conninfo(pg_uri, options="-c dana.socket_path=/nowhere/w.sock")) as address:
        found = scrape(address)
        assert (found["dana_problem", "rights"], found["dana_problem", "worker"]) == (0, 1)
    with scraped("host=/nowhere password=geheim") as address:
        for _ in range(2):
            assert scrape(address)["dana_up",] == 0
    said = capfd.readouterr()
    assert said.out == "dana: the database cannot be reached; dana doctor finds out why\n"  # once
    assert "geheim" not in said.err


def test_a_name_that_another_site_owns(pg_uri: str) -> None:
    with scraped(pg_uri) as address:
        port = urlsplit(address).port
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
            assert scrape(Request(address, headers={"Host": host}))["dana_up",] == 1
        for host in ("evil.example", f"localhost.evil.example:{port}", "127.0.0.1.evil.example", ""):
            with pytest.raises(HTTPError, match="421") as refused:
                urlopen(Request(address, headers={"Host": host}))
            refused.value.close()
    with scraped(pg_uri, "0.0.0.0") as address:  # it serves others than this machine, which have names for it
        assert scrape(Request(address, headers={"Host": "db.example"}))["dana_up",] == 1


def test_connections_of_others_do_not_keep_prometheus_out(capfd: pytest.CaptureFixture[str]) -> None:
    """Silent ones, and those in the middle of a request's head; a scrape that waits for the database is not ended."""
    before = threading.active_count()
    with ExitStack() as stack:
        database = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = stack.enter_context(scraped(f"host=127.0.0.1 port={database.getsockname()[1]}"))
        up: list[float] = []
        scraping = threading.Thread(target=lambda: up.append(scrape(address)["dana_up",]))
        scraping.start()
        asked = stack.enter_context(database.accept()[0])
        made = []
        for i in range(4 * MAX_CONNECTIONS):
            made.append(stack.enter_context(socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), 10)))
            made[-1].sendall(b"GET / HTTP/1.1\r\n"[: i % 2 * 99])
        assert made[0].recv(9) == b""
        asked.close()
        database.close()
        scraping.join()
        assert up == [0]
        deadline = time.monotonic() + 30
        while threading.active_count() - before > MAX_CONNECTIONS + 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert scrape(address)["dana_up",] == 0
    assert capfd.readouterr().err == ""


def test_a_role_for_it(pg_uri: str, db: Connection) -> None:
    statements = re.findall(
        "(?m)^(?:CREATE ROLE monitor|GRANT EXECUTE).*; ", (CHECKOUT / "docs" / "operating.md").read_text()
    )
    assert len(statements) == 2
    for statement in statements:
        db.session.execute(statement)
    try:
        with scraped(make_conninfo(pg_uri, user="monitor")) as address:
            scrape(address)
            db.train("linear", "measured", model="measured", label="y", epochs=2)
            found = scrape(address)
        assert found["dana_run_seconds_count", "sim", "linear"] == 1
        assert found["dana_models",] == len({one.name for one in db.models()})
        assert found["dana_problem", "worker"] == 0
    finally:
        db.session.execute("DROP OWNED BY monitor; DROP ROLE monitor")


def test_the_files_name_metrics_that_there_are(pg_uri: str, db: Connection) -> None:
    with scraped(pg_uri) as address:
        scrape(address)
        db.train("linear", "measured", model="measured", label="y", epochs=2)
        known = {key[0] for key in scrape(address)}
    board = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    shown = {target["expr"] for panel in board["panels"] for target in panel["targets"]}
    alerts = set(re.findall("expr: (.*)", (MONITORING / "alerts.yml").read_text(encoding="utf-8")))
    assert len(shown) > 10
    assert len(alerts) == 5
    for expression in shown | alerts:
        named = set(re.findall(r"dana_\w+", expression))
        assert named
        assert named <= known


def test_the_command(pg_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "dana.cli", "metrics", "--dsn", pg_uri, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as exporter:
        assert exporter.stdout is not None
        address = exporter.stdout.readline().split()[-1]
        assert scrape(address)["dana_up",] == 1
        port = re.findall(r":(\d+)/", address)[0]
        assert main(["metrics", "--dsn", pg_uri, "--port", port]) == 4
        assert f"cannot listen on port {port} of 127.0.0.1: " in capsys.readouterr().err
        exporter.terminate()
    assert main(["metrics", "--dsn", "host=/nowhere"]) == 3
