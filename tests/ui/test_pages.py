"""The pages of ``dana ui`` by HTTP: each is there, escapes names, and answers only its own browser."""

from __future__ import annotations

import html
import json
import os
import re
import resource
import signal
import socket
import stat
import sys
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any, get_type_hints
from urllib.parse import urlsplit

import anyio
import pytest
from psycopg.conninfo import make_conninfo
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from dana.cli import main
from dana.cli.entry import DATABASE, SETUP, USAGE
from dana.client.activity import NOTHING, Running
from dana.client.connection import Connection
from dana.client.options import TrainOptions
from dana.errors import SetupError, UsageError
from dana.ui.app import COMPUTING, MAX_BODY, READING, _Endpoint, application
from dana.ui.charts import live_chart, loss_chart
from dana.ui.database import Database
from dana.ui.forms import FIELDS, training
from dana.ui.serve import listen, listen_at
from tests.ui.conftest import COLUMN, MODEL, RULE, TABLE, quoted

TOKEN = "the token"
ORIGIN = "http://localhost:8765"
SOURCE = f"ui.{quoted(TABLE)}"


def stranger(dsn: str) -> TestClient:
    """A browser that has not been admitted."""
    return TestClient(application(Database(dsn), TOKEN), base_url=ORIGIN, follow_redirects=False)


@pytest.fixture(scope="module")
def browser(pg_uri: str, db: Connection) -> TestClient:
    client = stranger(pg_uri)
    enter(client)
    client.headers["origin"] = ORIGIN
    return client


def enter(client: TestClient) -> Response:
    """Exchange the token; from here the client asks below the path that it was told."""
    answer = client.get("/enter", params={"token": TOKEN})
    assert answer.status_code == 200
    (path,) = re.findall(r"url=([^\"]+)", answer.text)
    client.base_url = client.base_url.join(path)
    return answer


def text_of(page: str) -> str:
    """The text of a page; an element in a name would be missing there."""
    return html.unescape(re.sub(r"<[^>]*>", "", page))


def model(version: int) -> dict[str, str]:
    return {"name": MODEL, "version": str(version)}


def test_every_page(browser: TestClient, db: Connection) -> None:
    """Reading changes nothing: the sessions are read-only."""
    run = db.models(MODEL)[0].run
    pages = {
        "/": {},
        "/models": {},
        "/model": model(1),
        "/run": {"id": str(run)},
        "/compare": {"of": [f"{MODEL}@1", f"{MODEL}@2"]},
        "/train": {"rule": RULE, "source": SOURCE},
        "/columns": {"source": SOURCE},
        "/jobs": {},
        "/shards": {},
        "/health": {},
    }
    assert {*READING, "/health"} == pages.keys()
    for path, query in pages.items():
        answer = browser.get(path, params=query)
        assert answer.status_code == 200, (path, text_of(answer.text))
        assert "<script src=/" not in answer.text, path
        assert not re.search(r"<(?:i|b|img)>", answer.text.replace("<b>postgres</b>", "").replace("<b>dana", "")), path
        assert answer.text.count("<h1>") == 1 or path == "/columns"
        if path in ("/", "/models", "/model", "/run", "/compare"):
            assert MODEL in text_of(answer.text), path
        # what a page loads is here
        for name in re.findall(r'(?:src|href)="\.(/static/[^"]+)"', answer.text):
            assert browser.get(name).status_code == 200
    assert browser.get("/static/../app.py").status_code == 404


def test_what_a_model_does(browser: TestClient, db: Connection) -> None:
    """Metrics, comparison, versions, drift; each form sends back what its page has."""
    part = {"hx-request": "true"}
    found = browser.post("/evaluate", data=model(2), headers=part)
    accuracy = db.evaluate(f"{MODEL}@2")["accuracy"]
    assert f"<b>{accuracy:.4g}</b><span>accuracy" in found.text
    assert "<html" not in found.text  # htmx puts it into the page
    both = browser.post("/compare", data={"of": [f"{MODEL}@1", f"{MODEL}@2"]}, headers=part)
    assert f"<b>{accuracy:.4g} ✓</b>" in both.text

    assert browser.post("/activate", data=model(1)).status_code == 303
    assert [one.version for one in db.models(MODEL) if one.active] == [1]
    assert browser.post("/profile", data=model(1)).status_code == 303
    assert "not stored" not in browser.get("/model", params=model(1)).text
    db.session.execute(f"CREATE TABLE ui.moved AS SELECT * FROM {SOURCE}")
    db.session.execute(f"UPDATE ui.moved SET {quoted(COLUMN)} = {quoted(COLUMN)} + 9")
    moved = browser.post("/drift", data=model(1) | {"source": "ui.moved"}, headers=part)
    assert "train again" in moved.text
    assert COLUMN in text_of(moved.text)
    browser.post("/activate", data=model(2))


def test_shards(browser: TestClient, db: Connection) -> None:
    """Tables with a map and tables with foreign partitions; what each server answers, after a click."""
    assert "No table that this role may read" in browser.get("/shards").text
    here = make_conninfo(db.session.info.dsn, connect_timeout=2)
    away = make_conninfo(here, dbname="nowhere")
    db.session.execute("""
        CREATE TABLE ui."<b>whole" AS SELECT i AS a FROM generate_series(1, 9) AS i;
        CREATE TABLE ui.parts (a int) PARTITION BY LIST (a);
        CREATE FOREIGN DATA WRAPPER elsewhere; CREATE SERVER away FOREIGN DATA WRAPPER elsewhere;
        CREATE FOREIGN TABLE ui.part PARTITION OF ui.parts FOR VALUES IN (1) SERVER away""")
    try:
        insert = "INSERT INTO dana.shard (source, shard, conninfo) VALUES ('ui.\"<b>whole\"', %s, %s)"
        for number, place in enumerate((here, away), 1):
            db.session.execute(insert, (number, place))
        page = browser.get("/shards")
        assert "<b>whole" not in page.text
        assert re.findall(r"(\d+ [\w ]+)\. ", text_of(page.text)) == ["2 shards", "1 foreign partition"]
        asked = browser.post("/shards", data={"source": 'ui."<b>whole"'}, headers={"hx-request": "true"})
        assert asked.text.count("can be gathered") == 1
        assert re.search(r'not reached: .*database "nowhere" does not exist', text_of(asked.text))
    finally:
        db.session.execute("""DELETE FROM dana.shard; DROP TABLE ui."<b>whole", ui.parts;
            DROP FOREIGN DATA WRAPPER elsewhere CASCADE""")


def test_a_training(browser: TestClient, db: Connection) -> None:
    """The plan says what will be done to the columns, and starts what was shown."""
    form = {"rule": RULE, "source": SOURCE, "label": "y", "features": [COLUMN, "b"], "epochs": "3", "model": MODEL}
    plan = browser.post("/plan", data=form | {"device": "xczu7ev"}, headers={"hx-request": "true"})
    assert plan.status_code == 200, text_of(plan.text)
    for said in ("What will be done to the columns", "Bound by:", "What would help", "Roofline", "area on xczu7ev"):
        assert said in text_of(plan.text)
    pairs = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', plan.text)
    sent: dict[str, list[str]] = {}
    for name, value in pairs:
        sent.setdefault(name, []).append(html.unescape(value))
    assert sent == {name: each if isinstance(each, list) else [each] for name, each in form.items()}
    (chart,) = re.findall(r'data-chart="([^"]*)"', plan.text)
    limit, point = json.loads(html.unescape(chart))["lines"]
    reached = [one for one in point["values"] if one is not None]
    assert len(reached) == 1
    assert reached[0] <= max(limit["values"])

    started = browser.post("/start", data=sent)
    assert started.status_code == 303, text_of(started.text)
    job = db.jobs(1)[0]
    assert started.headers["location"] == f"./jobs?started={job.id}"
    assert db.wait(job.id).state == "done"
    assert f"version {db.models(MODEL)[0].version}, run" in browser.get("/jobs").text
    # over: to cancel it does nothing, and neither does a process that trains nothing
    assert browser.post("/cancel-job", data={"job": job.id}).status_code == 303
    assert browser.post("/cancel", data={"pid": db.session.info.backend_pid}).status_code == 303
    db.drop_model(MODEL, db.models(MODEL)[0].version)


def test_only_forms_that_say_so_write(browser: TestClient, db: Connection) -> None:
    db.session.execute("CREATE TABLE ui.written (a real, b real, y text)")
    db.session.execute("""CREATE FUNCTION ui.write() RETURNS SETOF ui.written LANGUAGE sql
        AS 'INSERT INTO ui.written VALUES (1, 2, ''no''), (3, 4, ''yes'') RETURNING *'""")
    form = {"rule": RULE, "query": "SELECT * FROM ui.write()", "label": "y"}
    answer = browser.post("/plan", data=form)
    assert answer.status_code == 400
    assert "25006" in answer.text
    assert db.session.execute("SELECT count(*) FROM ui.written").fetchone() == (0,)


@pytest.mark.parametrize(
    ("path", "fields", "said"),
    [
        ("/run", {"id": "0"}, "run 0 does not exist"),
        ("/run", {"id": "1e3"}, "a whole number is expected"),
        ("/run", {"id": "9" * 30}, "a whole number is expected"),
        ("/model", {"name": "none\0"}, "model none does not exist"),
        ("/model", {"name": MODEL, "version": "77"}, "does not exist"),
        ("/compare", {"of": "one"}, "choose two versions"),
        ("/compare", {"of": ["a@1", "b@2"]}, "model a@1 does not exist"),
        ("/columns", {"source": "nowhere"}, "table nowhere does not exist"),
    ],
)
def test_what_is_not_there(browser: TestClient, path: str, fields: dict[str, str], said: str) -> None:
    answer = browser.get(path, params=fields)
    assert answer.status_code == 400
    assert said in text_of(answer.text)


@pytest.mark.parametrize("pieces", [1, 64])
def test_a_form_has_an_end(pg_uri: str, pieces: int) -> None:
    """In however many pieces it comes; what follows is not read."""
    left = [b"a" * (MAX_BODY // pieces)] * (pieces + 3)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": left.pop(), "more_body": True}

    async def post() -> Response:
        request = Request({"type": "http", "method": "POST", "path": "/plan", "headers": []}, receive)
        return await _Endpoint(Database(pg_uri), COMPUTING["/plan"]).post(request)

    assert anyio.run(post).status_code == 413
    assert len(left) == 2


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8765", "10.0.0.1", ""]
)
def test_a_name_that_another_site_owns(browser: TestClient, host: str) -> None:
    """A page of evil.example that has rebound its name to 127.0.0.1 is of the same origin as this server."""
    answer = browser.get("/", headers={"host": host})
    assert answer.status_code == 421


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1:8765", "[::1]:8765", "localhost"])
def test_names_of_this_machine(browser: TestClient, host: str) -> None:
    # the cookie jar of the client belongs to one name; a browser's too
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    assert browser.get("/", headers={"host": host, "cookie": cookie}).status_code == 200


def test_a_token_admits_one_browser(pg_uri: str) -> None:
    app = application(Database(pg_uri), TOKEN)
    first, second = (TestClient(app, base_url=ORIGIN) for _ in range(2))
    for wrong in ("", "the", "the tokeN", "ü"):
        assert first.get("/enter", params={"token": wrong}).status_code == 403
    assert first.get("/").status_code == 403
    entered = enter(first)
    home = first.base_url.path
    assert {"HttpOnly", "SameSite=strict", f"Path={home}"} <= set(entered.headers["set-cookie"].split("; "))
    assert first.get("/").status_code == 200
    assert second.get("/enter", params={"token": TOKEN}).status_code == 403
    for path in ("/", "/events", "/static/app.js"):
        assert second.get(path).status_code == 403
    ((name, cookie),) = first.cookies.items()
    given = {"cookie": f"{name}={cookie}"}
    assert second.get(home, headers=given).status_code == 200
    for wrong in ("/", "/models", home[:-1], f"{home[:-2]}/"):
        assert second.get(wrong, headers=given).status_code == 403
    assert second.get(home, headers={"cookie": f"{name}={TOKEN}"}).status_code == 403


@pytest.mark.parametrize(
    "sent",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:9999"},
        {"origin": "https://localhost:8765"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": ORIGIN, "sec-fetch-site": "cross-site"},
        {"origin": ORIGIN, "sec-fetch-site": "same-site"},  # another port of this machine
        {"origin": ORIGIN, "sec-fetch-site": "none"},
        {},  # of no page
    ],
    ids=str,
)
def test_a_form_of_another_page(
    browser: TestClient, db: Connection, sent: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(browser.headers, "origin")
    before = [one.version for one in db.models(MODEL) if one.active]
    assert browser.post("/activate", data=model(1), headers=sent).status_code == 403
    assert [one.version for one in db.models(MODEL) if one.active] == before
    if sent.get("sec-fetch-site", "none") != "none":
        assert browser.get("/models", headers=sent).status_code == 403


def test_every_answer_is_protected(browser: TestClient, pg_uri: str) -> None:
    answers = [browser.get(path) for path in ("/", "/nowhere", "/static/ui.css", "/run")]
    answers += [browser.post("/"), stranger(pg_uri).get("/")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert [answer.status_code for answer in answers[:4]] == [200, 404, 200, 400]


def test_no_page_has_a_password(
    pg_uri: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A server that is gone, a role that does not exist; and the page of the checks, which shows commands."""
    secret = "s3cret-word"
    texts = []
    for change in ({"host": "/nowhere"}, {"user": "no such role"}, {}):
        client = stranger(make_conninfo(pg_uri, password=secret, **change))
        enter(client)
        texts += [client.get(path).text for path in ("/", "/health", "/jobs")]
    assert any("cannot be reached" in text for text in texts)
    assert main(["ui", "--dsn", make_conninfo(pg_uri, password=secret, host="/nowhere")]) == DATABASE
    assert secret not in "".join(texts) + "".join(capfd.readouterr()) + caplog.text
    assert main(["ui", "--dsn", f"postgres:/u:{secret}@h/d"]) == USAGE
    assert secret not in "".join(capfd.readouterr())


def test_where_it_listens(tmp_path: Path, pg_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    with listen(0) as taken:
        address, port = taken.getsockname()
        assert address == "127.0.0.1"
        socket.create_connection((address, port)).close()  # before anything is served
        assert main(["ui", "--dsn", pg_uri, "--port", str(port)]) == SETUP
        assert f"port {port}" in capsys.readouterr().err
    file = tmp_path / "socket"
    listen_at(file).close()
    with listen_at(file), socket.socket(socket.AF_UNIX) as client:  # one that was left there
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        client.connect(str(file))
    other = tmp_path / "file"
    other.write_text("kept")
    for path in (other, tmp_path / "no" / "socket", tmp_path / ("s" * 200)):
        with pytest.raises(SetupError, match="cannot listen"):
            listen_at(path)
    assert other.read_text() == "kept"


def test_texts_of_the_form() -> None:
    given = {
        "rule": ["r"], "source": [""], "query": ["SELECT 1"], "epochs": ["3"], "test_size": ["0.5"],
        "shuffle": ["false"], "hyper": ['{"lr": 1}'], "classes": ["a, b"], "class_weight": ["balanced"],
        "nulls": ["mean"], "device": ["x"],
    }  # fmt: skip
    assert training(given) == ("r", None, {
        "query": "SELECT 1", "epochs": 3, "test_size": 0.5, "shuffle": False, "hyper": {"lr": 1}, "classes": ["a", "b"],
        "class_weight": "balanced", "nulls": "mean",
    })  # fmt: skip
    assert training(given | {"class_weight": ['{"a": 2}']})[2]["class_weight"] == {"a": 2}
    wrong = {
        "epochs": "many",
        "test_size": "half",
        "shuffle": "perhaps",
        "hyper": "lr",
        "preprocess": "[1]",
        "rule": "",
    }
    for name, text in wrong.items():
        with pytest.raises(UsageError, match=f"{name}|choose a rule"):
            training(given | {name: [text]})
    assert {one.name for one in FIELDS} | {"features", "label"} == get_type_hints(TrainOptions).keys()


def test_what_the_machine_waits_for() -> None:
    def waits(phase: str, event: str | None) -> str:
        return Running.waits_for.fget(SimpleNamespace(phase=phase, wait_event=event))  # type: ignore[attr-defined]

    assert waits("streaming", None) == "pages from PostgreSQL"
    assert waits("streaming", "DanaRing") == waits("training", "DanaWorker") == NOTHING
    assert "dana.max_runs" in waits("waiting", None)


def test_json_has_no_nan() -> None:
    lines = live_chart([(1, 2.0), (2, float("nan")), (3, float("inf")), (4, None)])["lines"]
    assert json.loads(json.dumps(lines, allow_nan=False))[0]["values"] == [2.0, None, None, None]


def test_names_in_charts_are_shown_as_they_are() -> None:
    """Scripts draw them, so that no template shows what turns a line of text around."""
    run: Any = SimpleNamespace(curve=[SimpleNamespace(epoch=1, loss=1.0, validation_loss=None)])
    chart: Any = loss_chart(("a\u202eb", run), ("c\x1b", run))
    assert [line["name"] for line in chart["lines"]] == ["a\\u202eb", "c\\x1b"]


def test_a_socket_is_one() -> None:
    with listen(0) as one:
        assert one.family == socket.AF_INET


def test_connections_of_others_do_not_keep_a_browser_out(pg_uri: str) -> None:
    """Silent ones, and those in the middle of a request's head: more than the process may have files."""
    command = [sys.executable, "-m", "dana.cli", "ui", "--port", "0", "--dsn", pg_uri]
    limited = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (160, 160))
    with ExitStack() as stack:
        pages = Popen(command, stdout=PIPE, stderr=PIPE, text=True, preexec_fn=limited)
        stack.callback(pages.communicate)
        stack.callback(pages.terminate)
        assert pages.stdout is not None
        assert pages.stderr is not None
        link = urlsplit(pages.stdout.readline().split()[-1])
        where, made = ("127.0.0.1", link.port or 0), []
        for _ in range(200):
            made.append(stack.enter_context(socket.create_connection(where, 10)))
            made[-1].sendall(b"GET / HTTP/1.1\r\n")
        os.kill(pages.pid, signal.SIGSTOP)
        for _ in range(200):  # all at once
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(where)
        os.kill(pages.pid, signal.SIGCONT)
        browser = HTTPConnection("127.0.0.1", link.port, timeout=30)
        browser.request("GET", f"{link.path}?{link.query}")
        assert browser.getresponse().status == 200
        assert made[0].recv(9) == b""
        pages.terminate()
        assert pages.stderr.read() == ""
