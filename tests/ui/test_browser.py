"""The pages of ``dana ui`` in Chromium: a walk through all of them, and attacks by other pages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from dana import rules
from dana.cli import main
from dana.cli.entry import OK
from dana.client.connection import Connection
from tests.ui.conftest import COLUMN, MODEL, TABLE, quoted

SOURCE = f"ui.{quoted(TABLE)}"


expect.set_options(timeout=30_000)  # a busy machine takes longer than the five seconds of playwright


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program, "install Debian's package chromium; make test-all does it as root"
    with sync_playwright() as playwright:
        # another site's name that leads here, as after DNS rebinding
        arguments = ["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"]
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def link(pg_uri: str, db: Connection) -> Iterator[str]:
    """The one-time link of a running ``dana ui``."""
    command = [sys.executable, "-m", "dana.cli", "ui", "--port", "0", "--dsn", pg_uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, process.stdout.read()
        yield found[0]
        process.terminate()
        said = process.stdout.read()
    assert "Traceback" not in said, said
    assert found[0] not in said


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    made = chromium.new_context(viewport={"width": 400, "height": 800}, color_scheme="dark")
    yield made
    made.close()


def watched(context: BrowserContext, link: str) -> tuple[Page, list[str]]:
    """A page, and what it did that it should not: errors, violations of the policy, requests to elsewhere."""
    page, wrong = context.new_page(), []
    origin = link.partition("/enter")[0]
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(origin) else wrong.append(asked.url))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    return page, wrong


def check(page: Page) -> None:
    """Fits 400 pixels, has one heading, a title, and a label for each field; no name has become an element."""
    page.wait_for_load_state()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400, page.url
    assert page.locator("h1").count() == 1
    assert page.title().endswith(" – DAnA")
    unnamed = """[...document.querySelectorAll('input:not([type=hidden]), select')]
        .filter(one => !one.labels.length && !one.ariaLabel).length"""
    assert page.evaluate(unnamed) == 0, page.url
    assert page.locator("img, body script").count() == 0


def test_a_walk(context: BrowserContext, link: str, db: Connection) -> None:
    page, wrong = watched(context, link)
    # a file that comes late changes nothing
    page.route("**/hx-sse.min.js", lambda route: (time.sleep(0.3), route.continue_()))
    page.goto(link)
    expect(page.get_by_role("heading", name="Trainings")).to_be_visible()
    check(page)

    # by the keyboard alone to the form of a training; the first stop skips the navigation
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Train", exact=True)).to_be_visible()
    db.create_rule("endless", rules.text("linear_svm"))  # with patience 0 nothing ends it early
    page.reload()
    page.get_by_label("Rule", exact=True).select_option("endless")
    page.get_by_label("Table or view").fill(SOURCE)
    page.keyboard.press("Tab")
    page.get_by_label("Label", exact=True).select_option("y")
    page.get_by_role("checkbox", name=f"{COLUMN} double precision").check()
    page.get_by_label("model", exact=True).fill("watched")
    page.get_by_label("epochs", exact=True).fill("100000")
    page.get_by_text("More options").click()
    page.get_by_label("patience", exact=True).fill("0")
    page.get_by_label("hyper", exact=True).fill('{"penalty": 0.5}')
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_role("heading", name="Bound by")).to_be_visible()
    check(page)
    assert page.locator("dana-chart").evaluate("x => x.shadowRoot.querySelector('canvas').width") > 0
    page.get_by_label("epochs", exact=True).fill("99999")  # the plan was another
    expect(page.get_by_role("button", name="Start the training")).to_have_count(0)
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_role("button", name="Start the training").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("has started")
    check(page)

    # the training as it runs: the page changes without a click, keeps what is open and focused, and cancels it
    page.get_by_role("link", name="Trainings").first.click()
    expect(page.locator("article")).to_be_visible(timeout=60_000)
    page.get_by_text("Cancel …").click()
    button = page.get_by_role("button", name="Cancel this training")
    button.focus()
    before = page.locator("dana-chart").get_attribute("data-chart")
    expect(page.locator("dana-chart")).not_to_have_attribute("data-chart", before or "", timeout=30_000)
    expect(button).to_be_focused()
    check(page)
    button.press("Enter")
    expect(page.get_by_text("Nothing is being trained")).to_be_visible(timeout=60_000)
    assert db.wait(db.jobs(1)[0].id).state == "cancelled"
    db.drop_rule("endless")

    page.locator("table a").first.click()
    expect(page.get_by_role("heading", name="What was done to the data")).to_be_visible()
    check(page)
    page.get_by_role("link", name="Models").click()
    check(page)
    page.get_by_role("link", name=MODEL).click()
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator("#metrics")).to_contain_text("accuracy")
    page.get_by_role("button", name="Store it").click()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#drift")).to_contain_text(COLUMN)
    check(page)
    page.get_by_role("link", name="1", exact=True).click()
    page.get_by_role("button", name="Put version 1 into use").click()
    expect(page.locator("p.lead").first).to_contain_text("in use")
    assert [one.version for one in db.models(MODEL) if one.active] == [1]
    for version in (1, 2):
        page.get_by_label(f"compare version {version}").check()
    page.get_by_role("button", name="Compare two versions").click()
    page.get_by_role("button", name="Evaluate both").click()
    expect(page.locator("#metrics")).to_contain_text("✓")
    check(page)
    page.get_by_role("link", name="Shards").click()
    expect(page.get_by_role("heading", name="Shards")).to_be_visible()
    check(page)
    page.get_by_role("link", name="Health").click()
    finding = page.locator("tr").filter(has_text="worker").first
    expect(finding).to_contain_text("ok")
    finding.locator("td").last.evaluate("cell => cell.textContent = 'answers at ' + '/folder'.repeat(20)")
    check(page)
    assert wrong == []


def test_a_report_on_a_narrow_page(context: BrowserContext, pg_uri: str, db: Connection, tmp_path: Path) -> None:
    """The page fits, what is wider scrolls in its place, and the keyboard reaches it."""
    run = db.models(MODEL)[0].run
    assert main(["report", str(run), "-o", str(tmp_path / "run.html"), "--dsn", pg_uri]) == OK
    page = context.new_page()
    for part in ("", "#machine"):
        page.goto((tmp_path / "run.html").as_uri() + part)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        drawings = page.locator("svg:visible")
        assert drawings.count() >= 3
        for drawing in drawings.all():
            assert drawing.get_attribute("role") == "img"
            assert drawing.locator("title").count() == 1
            # 9 pixels where it is drawn as wide as its viewBox
            scale = drawing.evaluate("one => one.getBoundingClientRect().width / one.viewBox.baseVal.width")
            assert 9 * scale >= 9, part
            assert drawing.evaluate("one => one.closest('[tabindex=\"0\"]') !== null")


class Attacker(BaseHTTPRequestHandler):
    """A page on another port of this machine; cookies do not depend on the port."""

    page = b""
    cookies: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.cookies.append(self.headers["cookie"])
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *said: object) -> None:
        pass


def test_attacks(context: BrowserContext, link: str, db: Connection, chromium: Browser) -> None:
    port = re.findall(r":(\d+)/", link)[0]
    page, _ = watched(context, link)
    page.goto(link)
    expect(page.get_by_role("heading", name="Trainings")).to_be_visible()

    # the link once more, from another browser
    with chromium.new_context() as second:
        other = second.new_page()
        answer = other.goto(link)
        assert answer is not None
        assert answer.status == 403
        answer = other.goto(f"http://127.0.0.1:{port}/models")
        assert answer is not None
        assert answer.status == 403
    assert page.evaluate("document.cookie") == ""
    home = page.url.rstrip("/")

    # a name that its owner has rebound to this machine
    answer = page.goto(f"http://evil.example:{port}/models")
    assert answer is not None
    assert answer.status == 421
    assert MODEL not in page.content()

    used = [one.version for one in db.models(MODEL) if one.active]
    assert len(context.cookies()) == 1
    target = home  # even if it knew the path
    other_version = next(one.version for one in db.models(MODEL) if not one.active)
    Attacker.page = f"""<!DOCTYPE html><title>attack</title><iframe src="{target}/models"></iframe>
        <form method="post" action="{target}/activate">
            <input name="name"><input name="version" value="{other_version}"></form>
        <script>
        window.read = [];
        const ask = (mode, method) => fetch("{target}/models", {{mode, method, credentials: "include"}})
            .then(x => x.text()).then(x => window.read.push(x)).catch(() => window.read.push("blocked"));
        ask("cors", "GET").then(() => ask("no-cors", "GET")).then(() => ask("no-cors", "POST")).then(() => {{
            document.title = "ready";
        }});
        </script>""".encode()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Attacker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for host in ("127.0.0.1", "evil.example"):  # of the same site, and of another one
            attack = context.new_page()
            statuses: list[int] = []
            attack.on("response", lambda got, to=statuses: got.url.startswith(target) and to.append(got.status))
            attack.goto(f"http://{host}:{server.server_address[1]}/")
            attack.wait_for_function("document.title === 'ready'")
            assert not any(MODEL[:9] in text or "Models" in text for text in attack.evaluate("window.read"))
            attack.locator("input").first.fill(MODEL)
            with attack.expect_response(f"{target}/activate") as sent:
                attack.evaluate("document.forms[0].submit()")
            assert sent.value.status == 403
            assert statuses
            assert set(statuses) == {403}, host
    finally:
        server.shutdown()
        server.server_close()
    assert set(Attacker.cookies) == {None}
    assert [one.version for one in db.models(MODEL) if one.active] == used
