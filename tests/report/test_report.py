"""The page about a run, made from a real one: what it says is what the database has, and nothing in it can escape."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import psycopg
import pytest

from dana.client import Connection
from dana.datasets import Dataset, breast_cancer
from dana.errors import UsageError
from dana.report.history import Run, read_run
from dana.report.machine import machine_of
from dana.report.page import render
from dana.rulefile import read_rule
from dana.server.places import EXAMPLES
from dana.tables import create_table

ROWS = 300
HOSTILE = 'odd "name" <script>alert(1)</script>'


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    with psycopg.connect(pg_uri) as session:
        data = breast_cancer()
        table = Dataset(name="reported", features=data.features[:ROWS, :7], label=data.label[:ROWS])
        create_table(session, "reported", table.columns())
        client = Connection(session)
        client.create_udf("reported_logistic", read_rule(EXAMPLES / "logistic.py"))
        yield client
        session.rollback()


def trained(db: Connection, table: str = "reported", **arguments: object) -> Run:
    result = db.train("reported_logistic", table, label="y", **{"epochs": 4, **arguments})  # type: ignore[arg-type]
    return read_run(db.session, result.run)


def drawings(page: str) -> list[ET.Element]:
    """The page's SVG elements, parsed."""
    return [ET.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.S)]


def test_what_the_page_says_is_what_was_trained(db: Connection) -> None:
    run = trained(db, hyper={"lr": 0.25})
    machine = machine_of(run)
    assert machine is not None
    assert machine.bundle.config.to_json() == run.config
    assert len(machine.bundle.program) == run.design["instructions"]

    page = render(run, machine)
    text = re.sub(r"<[^>]*>", " ", page)
    assert re.search(rf"cycles\s+{run.cycles:,}\b", text)
    assert re.search(r"metas\s+lr = 0.25\b", text)
    counters = [epoch.counters for epoch in run.curve]
    assert f"Counted in this run: {run.cycles:,} cycles for {run.pages:,} pages, " in text
    each = run.cycles / run.epochs / run.tuples
    assert re.search(rf" each\s+and\s+{each:.2f} for each row", text)
    for name in ("engine_busy", "waiting_for_pages", "waiting_for_tuples"):
        assert f" %, {sum(counted[name] for counted in counters):,} cycles " in page
    assert page.index("waited for: measured") < page.index("In the long run")
    assert re.search(r"In the long run it waits for: (link|engine|unpacker|striders) \(an estimate\)", text)
    assert len(re.findall(r"<tr><td class=\"n\">\d", page)) == 4  # epochs
    # loss, what was measured, use, roofline, and each section's schedule
    assert page.count(f"<title>rule reported_logistic on {run.source}, run {run.id}") == len(drawings(page))
    assert len(drawings(page)) == 4 + sum(1 for _, _, bars in machine.sections if bars)
    assert not re.findall(r'(?:src|href)="(?!#)', page)  # needs nothing else
    assert render(run, machine_of(run)) == page


def test_a_run_of_rows_over_several_pages_has_its_machine(db: Connection) -> None:
    db.session.execute(
        "CREATE TEMP TABLE reported_wide AS SELECT array_fill(y::real, '{9000}') AS x, y FROM reported LIMIT 3"
    )
    run = trained(db, "reported_wide", features=["x"])
    machine = machine_of(run)
    assert machine is not None
    assert machine.bundle.config.to_json() == run.config
    assert (run.tuples, run.pages_of_epoch) == (3, 15)


def test_a_run_of_the_interpreter_has_no_machine(db: Connection) -> None:
    run = trained(db, backend="interp")
    assert machine_of(run) is None
    page = render(run, None)
    assert len(drawings(page)) == 1
    assert "roofline" not in page.lower()


def test_rule_or_table_gone_leaves_the_rest(db: Connection) -> None:
    run = trained(db)
    db.drop_udf("reported_logistic")
    db.session.execute("DROP TABLE reported")
    later = read_run(db.session, run.id)
    assert (later.rule, later.attributes) == (None, ())
    assert machine_of(later) is None
    assert "cannot be made again" in render(later, None)


def test_names_cannot_become_markup(db: Connection) -> None:
    db.session.execute(psycopg.sql.SQL("ALTER TABLE reported RENAME TO {}").format(psycopg.sql.Identifier(HOSTILE)))
    run = trained(db, '"' + HOSTILE.replace('"', '""') + '"', model=HOSTILE)
    assert run.attributes  # found again under that name
    page = render(run, machine_of(run))
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_no_such_run(db: Connection) -> None:
    last = trained(db).id
    with pytest.raises(UsageError, match=r"there is no run 999999999, or it is somebody else's") as caught:
        read_run(db.session, 999_999_999)
    assert f"The last is {last}." in str(caught.value)
