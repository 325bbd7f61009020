"""The page about a run, made from a real one: what it says is what the database has, and nothing in it can escape."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from dana import rules
from dana.client.connection import Connection
from dana.demo.datasets import Dataset, breast_cancer
from dana.errors import UsageError
from dana.language.rulefile import read_rule
from dana.report.history import Run, read_run
from dana.report.machine import Machine, machine_of
from dana.report.page import render
from dana.session.tables import create_table

LOGISTIC = rules.FOLDER / "logistic.py"
ROWS = 300
HOSTILE = 'odd "name" <script>alert(1)</script>'


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    with psycopg.connect(pg_uri) as session:
        data = breast_cancer()
        table = Dataset(name="reported", features=data.features[:ROWS, :7], label=data.label[:ROWS])
        create_table(session, "reported", table.columns())
        client = Connection(session)
        client.create_rule("reported_logistic", read_rule(LOGISTIC))
        yield client
        session.rollback()


def trained(db: Connection, table: str | None = "reported", **arguments: object) -> Run:
    result = db.train("reported_logistic", table, label="y", **{"epochs": 4, **arguments})  # type: ignore[arg-type]
    return read_run(db.session, result.run)


def drawings(page: str) -> list[ET.Element]:
    """The page's SVG elements, parsed."""
    return [ET.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.S)]


def test_what_the_page_says_is_what_was_trained(db: Connection) -> None:
    run = trained(db, hyper={"penalty": 0.25})
    machine = the_machine(run)
    assert len(machine.bundle.program) == run.design["instructions"]

    page = render(run, machine)
    text = re.sub(r"<[^>]*>", " ", page)
    assert re.search(rf"cycles\s+{run.cycles:,}\b", text)
    assert re.search(r"metas\s+penalty = 0.25\b", text)
    counters = [epoch.counters for epoch in run.curve]
    assert f"Counted in this run: {run.cycles:,} cycles for {run.pages:,} pages, " in text
    each = run.cycles / run.epochs / run.tuples
    assert re.search(rf" each\s+and\s+{each:.2f} for each row", text)
    for name in ("engine_busy", "waiting_for_pages", "waiting_for_tuples"):
        assert f" %, {sum(counted[name] for counted in counters):,} cycles " in page
    assert page.index("waited for: measured") < page.index("In the long run")
    assert re.search(r"In the long run it waits for: (link|engine|unpacker|striders) \(an estimate\)", text)
    assert len(re.findall(r"<tr(?: class=\"kept\")?><td class=\"n\">\d", page)) == 4  # epochs
    assert re.findall(r"<tr class=\"kept\"><td class=\"n\">(\d) \(kept\)</td>", page) == [str(run.kept)]
    # loss, what was measured, use, roofline, and each section's schedule
    assert page.count(f"<title>rule reported_logistic on {run.source}, run {run.id}") == len(drawings(page))
    assert len(drawings(page)) == 4 + sum(1 for _, _, bars in machine.sections if bars)
    assert {one.get("role") for one in drawings(page)} == {"img"}
    assert not re.findall(r'(?:src|href)="(?!#)', page)  # needs nothing else
    assert render(run, machine_of(run)) == page


def the_machine(run: Run) -> Machine:
    """The machine that trained, made again."""
    machine = machine_of(run)
    assert isinstance(machine, Machine), machine
    assert machine.bundle.config.to_json() == run.config
    return machine


def test_a_run_of_rows_over_several_pages_has_its_machine(db: Connection) -> None:
    db.session.execute(
        "CREATE TEMP TABLE reported_wide AS SELECT array_fill((i % 2)::real, '{9000}') AS x, i % 2 AS y"
        " FROM generate_series(1, 3) i"
    )
    run = trained(db, "reported_wide", features=["x"])
    the_machine(run)
    assert (run.tuples, run.pages_of_epoch) == (3, 15)


ODD = """
CREATE TABLE odd (a bigint NOT NULL, gone text, "Big" double precision, note text, x real[], flag boolean, b smallint,
    y real);
INSERT INTO odd SELECT i, 'z', i / 7.0, repeat('n', i % 9), ARRAY[i % 3, 1, 2], i % 2 = 0, i % 5, i % 2
    FROM generate_series(1, 400) AS i;
ALTER TABLE odd DROP COLUMN gone;
"""
ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"features": ["x"]},
    {"features": ["Big", "b"]},
    {"features": ["b", "flag", "a"], "filter": "a > 10"},
    {"features": ["a"], "design": {"threads": 2}, "nulls": "error"},
    {"features": ["note"]},
    {"query": "SELECT x, b AS other, y FROM odd", "features": ["other"]},
)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_the_machine_is_the_one_that_trained_whatever_became_of_its_table(
    db: Connection, arguments: dict[str, Any]
) -> None:
    db.session.execute(ODD)
    if arguments["features"] == ["note"]:
        db.session.execute("ALTER TABLE odd ALTER note TYPE numeric USING length(note)")  # which comes as rows
    run = trained(db, None if "query" in arguments else "odd", **arguments)
    before = the_machine(run)
    db.session.execute("ALTER TABLE odd DROP COLUMN b, ALTER a TYPE integer, ALTER x TYPE float8[]")
    assert the_machine(read_run(db.session, run.id)).bundle.digest == before.bundle.digest
    db.session.execute("DROP TABLE odd")
    assert render(read_run(db.session, run.id), before) == render(run, before)


def test_metas_and_dims_that_a_machine_is_made_of(db: Connection) -> None:
    db.create_rule("reported_mlp", rules.text("mlp"))
    run = read_run(
        db.session, db.train("reported_mlp", "reported", label="y", epochs=1, hyper={"h": 3, "lr": 0.01}).run
    )
    assert run.metas["lr"] == pytest.approx(0.01)
    assert run.design["dims"]["h"] == 3
    assert the_machine(run).bundle.digest == run.design["bundle"]


def test_the_weights_are_part_of_the_machine(db: Connection) -> None:
    db.session.execute("ALTER TABLE reported ADD importance numeric DEFAULT 2")
    given = {"weight": "importance", "class_weight": "balanced", "query": "SELECT * FROM reported", "features": ["x1"]}
    for more in (given, {**given, "class_weight": None}, {**given, "weight": None, "class_weight": {1: 3}}):
        run = trained(db, None, **more)
        assert the_machine(run).bundle.digest == run.design["bundle"]


def test_columns_of_a_wide_table_are_told_in_few_words(db: Connection) -> None:
    columns = ", ".join(f"a_column_that_nobody_reads_{k} real" for k in range(1200))
    db.session.execute(f"CREATE TABLE wide (x real, y real, {columns})")
    db.session.execute("INSERT INTO wide (x, y) SELECT i % 3, i % 2 FROM generate_series(1, 50) AS i")
    run = trained(db, "wide", features=["x"])
    the_machine(run)
    assert len(run.design["columns"]) == 1
    assert "nobody_reads" not in json.dumps(run.design)


SPY = """
CREATE TABLE spied (who name);
CREATE ROLE reported_spy;
GRANT USAGE, CREATE ON SCHEMA public TO reported_spy;
GRANT INSERT ON spied TO reported_spy;
GRANT SELECT ON reported TO reported_spy;
GRANT EXECUTE ON FUNCTION {train} TO reported_spy;
GRANT SELECT ON dana.run, dana.epoch TO reported_spy;
SET LOCAL ROLE reported_spy;
CREATE FUNCTION spy(value real) RETURNS real[] LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.spied VALUES (current_user); RETURN ARRAY[value]; END $$;
CREATE VIEW spying AS SELECT spy(x0::real) AS x, y FROM reported;
"""


def test_a_reader_runs_nothing_that_the_trainer_named(db: Connection) -> None:
    """Where a run names a view as its source, a superuser who reports on it must not call the view's functions."""
    db.session.execute("SELECT dana_grant_rule('reported_logistic')")
    train = db.session.execute("SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'dana_train'").fetchone()
    assert train
    column = db.session.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'reported'::regclass AND attnum = 1"
    ).fetchone()
    assert column
    db.session.execute(SPY.format(train=train[0]).replace("x0", column[0]))
    number = trained(db, "spying", features=["x"]).id
    db.session.execute("RESET ROLE")
    assert db.session.execute("DELETE FROM spied RETURNING who").fetchone() == ("reported_spy",)
    run = read_run(db.session, number)
    render(run, the_machine(run))
    assert db.session.execute("SELECT who FROM spied").fetchall() == []


def test_a_run_of_the_interpreter_has_no_machine(db: Connection) -> None:
    run = trained(db, machine="interp")
    assert machine_of(run) == ""
    assert run.metas["penalty"] > 0
    page = render(run, "")
    assert len(drawings(page)) == 1
    assert "roofline" not in page.lower()
    assert "again" not in page


def test_a_rule_that_is_gone_or_another_leaves_the_rest(db: Connection) -> None:
    run = trained(db)
    text = read_rule(LOGISTIC)
    db.create_rule("reported_logistic", text + "# as it was, but for this remark\n")
    later = read_run(db.session, run.id)
    assert later.text is None
    assert machine_of(later) == "The rule has been replaced since this run."
    page = render(later, machine_of(later))
    assert "replaced since this run. So the machine&#39;s schedule cannot be made again" in page.replace("'", "&#39;")
    assert "remark" not in page
    db.create_rule("reported_logistic", text)
    the_machine(read_run(db.session, run.id))
    db.drop_rule("reported_logistic")
    later = read_run(db.session, run.id)
    assert later.text is None
    assert machine_of(later) == "The rule has been dropped, or is not yours to read."


def test_no_other_machine_is_shown_than_the_one_that_trained(db: Connection) -> None:
    """As after an update, whose compiler makes another program of the same rule."""
    run = trained(db)
    other = replace(run, design=run.design | {"bundle": "0" * 64})
    assert "this version compiles the rule to another machine" in str(machine_of(other))


def test_names_cannot_become_markup(db: Connection) -> None:
    db.session.execute(psycopg.sql.SQL("ALTER TABLE reported RENAME TO {}").format(psycopg.sql.Identifier(HOSTILE)))
    run = trained(db, '"' + HOSTILE.replace('"', '""') + '"', model=HOSTILE)
    page = render(run, machine_of(run))
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_no_such_run(db: Connection) -> None:
    last = trained(db).id
    with pytest.raises(UsageError, match=r"run 999999999 does not exist") as caught:
        read_run(db.session, 999_999_999)
    assert f"The last is {last}." in str(caught.value)
