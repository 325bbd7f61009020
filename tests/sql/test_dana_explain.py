"""`dana_explain`: the machine of the training that follows, its cycles to the last one, and no trace of itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg.types.json import Jsonb

from dana.client.connection import Connection
from tests.sql.conftest import SUMS, Session

errors = psycopg.errors


@pytest.fixture
def table(session: Session) -> str:
    session.execute(
        "CREATE TABLE t AS SELECT g * 1.5::real AS a, g::real AS b, g % 2 AS y FROM generate_series(1, 5000) g"
    )
    session.execute("VACUUM ANALYZE t")
    session.execute("TRUNCATE dana.run CASCADE")
    return "t"


def explained(
    session: Session, source: str | None, *, device: str | None = None, search: bool | None = None, **training: object
) -> dict[str, Any]:
    row = session.execute(
        "SELECT dana_explain('sums', %s::text::regclass, %s, %s, %s, 'json')", (source, Jsonb(training), device, search)
    ).fetchone()
    assert row is not None
    return dict(json.loads(row[0]))


def lines(session: Session) -> list[str]:
    return [row[0] for row in session.execute("SELECT dana_explain('sums', 't')")]


def test_it_says_what_the_training_then_does(session: Session, table: str) -> None:
    before = explained(session, "t", epochs=3)
    assert before["last_run"] is None
    assert session.execute("SELECT count(*) FROM dana.run").fetchone() == (0,)
    assert session.execute("SELECT count(*) FROM dana.model WHERE name = 'sums'").fetchone() == (0,)
    session.execute("SELECT dana_train('sums', 't', epochs => 3)")
    cycles, pages, tuples, design = session.execute(
        "SELECT cycles, pages, tuples, design FROM dana.run ORDER BY id DESC LIMIT 1"
    ).fetchone() or (0, 0, 0, {})
    machine = {name: value for name, value in before["machine"].items() if name not in ("lanes", "units")}
    assert machine == design["config"]
    assert before["machine"]["units"] == design["units"]
    assert before["program"]["engine"] == design["instructions"]
    assert before["program"]["strider"] == design["strider_instructions"]
    assert before["reads"]["pages"] == pages / 3
    assert before["features"] == ["a", "b"]
    assert before["labels"] == ["y"]
    # pages are alike but for the last, which is not full
    assert before["epoch"]["cycles"] == pytest.approx(cycles / 3, rel=0.05)
    after = explained(session, "t", epochs=3)
    assert after["last_run"]["cycles"] == cycles
    assert after["last_run"]["tuples"] == tuples == 5000
    assert after["last_run"]["same_machine"]
    assert after["last_run"]["estimated_cycles"] == pytest.approx(3 * before["epoch"]["cycles"], abs=3)
    assert after["last_run"]["error"] == pytest.approx(after["last_run"]["estimated_cycles"] / cycles - 1)


def numbers(rows: int, columns: int) -> dict[str, Any]:
    x = np.random.default_rng(columns).standard_normal((rows, columns), dtype=np.float32)
    return {f"x{k}": x[:, k] for k in range(columns)} | {"y": (x[:, 0] > 0).astype(np.float32)}


TABLES: dict[str, Callable[[], dict[str, Any]]] = {
    "few rows": lambda: numbers(300, 3),
    "one column": lambda: numbers(12_000, 1),
    "columns": lambda: numbers(5_000, 54),
    "texts among them": lambda: {"name": [f"{'n' * (k % 30)}" for k in range(8_000)], **numbers(8_000, 4)},
    "float8": lambda: {name: column.astype(np.float64) for name, column in numbers(5_000, 12).items()},
    "more pages than are looked at": lambda: numbers(2_300, 500),
}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_an_epoch_takes_what_was_explained(session: Session, name: str, shuffle: bool) -> None:
    """Within 2 %: of tables that no ANALYZE has seen, with pages behind the last row, with deleted and new rows."""
    made = TABLES[name]()
    features = [column for column in made if column.startswith("x")]
    asked: dict[str, Any] = {"features": features, "label": "y", "epochs": 2, "shuffle": shuffle}
    by_name = ", ".join(made)
    laid_out_by_means = shuffle and name == "texts among them"

    def check(table: str) -> None:
        found = explained(session, table, **asked)
        training = (
            "SELECT dana_train('sums', %s::text::regclass, features => %s, label => 'y', epochs => 2, shuffle => %s)"
        )
        session.execute(training, (table, features, shuffle))
        cycles, pages, rows = session.execute(
            "SELECT cycles / epochs, pages / epochs, tuples FROM dana.run ORDER BY id DESC LIMIT 1"
        ).fetchone() or (0, 0, 0)
        assert found["reads"]["counted"]
        assert found["reads"]["pages"] == (pytest.approx(pages, rel=0.02) if laid_out_by_means else pages)
        assert found["epoch"]["cycles"] == pytest.approx(cycles, rel=0.02), rows
        assert explained(session, table, **asked)["last_run"]["error"] == pytest.approx(0, abs=0.02)

    Connection(session).load(made, "loaded")
    session.execute("ALTER TABLE loaded SET (autovacuum_enabled = false)")
    check("loaded")
    session.execute("CREATE TABLE copied (LIKE loaded) WITH (autovacuum_enabled = false)")
    with (
        session.cursor().copy(f"COPY loaded ({by_name}) TO STDOUT") as rows,
        psycopg.connect(session.info.dsn, autocommit=True) as other,
        other.cursor().copy(f"COPY test.copied ({by_name}) FROM STDIN") as copy,
    ):
        for block in rows:
            copy.write(block)
    check("copied")
    if laid_out_by_means:  # how long the rows are that remain is not known
        return
    for statement in (
        "DELETE FROM copied WHERE x0 > 0.7",
        "VACUUM copied",
        "INSERT INTO copied SELECT * FROM copied WHERE x0 < -1",
        "DELETE FROM copied WHERE x0 < 0.2",
        "DELETE FROM copied WHERE ctid > (SELECT max(ctid) FROM copied WHERE random() < 0.5)",
        "VACUUM ANALYZE copied",
    ):
        session.execute(statement)
        check("copied")


def test_a_table_whose_rows_are_all_deleted(session: Session, table: str) -> None:
    session.execute("DELETE FROM t")
    found = explained(session, "t", shuffle=False)
    assert found["reads"]["empty"] == found["reads"]["pages"] > 0
    said = session.execute("SELECT dana_explain('sums', 't', '{\"shuffle\": false}')").fetchall()
    assert any(line.endswith(f", {found['reads']['pages']} without a row") for (line,) in said)


def test_the_rows_that_a_filter_leaves(session: Session, table: str) -> None:
    session.execute("SELECT dana_train('sums', 't', filter => 'b < 2000')")
    (cycles,) = session.execute("SELECT cycles / epochs FROM dana.run ORDER BY id DESC LIMIT 1").fetchone() or (0,)
    assert explained(session, "t", filter="b < 2000")["epoch"]["cycles"] == pytest.approx(cycles, rel=0.02)


@pytest.mark.parametrize("test_size", [0.25, 0.6])
def test_the_rows_that_are_not_held_out(session: Session, table: str, test_size: float) -> None:
    session.execute("SELECT dana_train('sums', 't', epochs => 2, test_size => %s)", (test_size,))
    (cycles,) = session.execute("SELECT cycles / epochs FROM dana.run ORDER BY id DESC LIMIT 1").fetchone() or (0,)
    found = explained(session, "t", epochs=2, test_size=test_size)
    assert found["epoch"]["cycles"] == pytest.approx(cycles, rel=0.02)
    assert explained(session, "t")["epoch"]["cycles"] > (1 + test_size / 2) * cycles
    explained(session, "t", test_size=test_size, test_by="b")


def test_lines_are_the_same_numbers(session: Session, table: str) -> None:
    session.execute("SELECT dana_train('sums', 't')")
    numbers, text = explained(session, "t"), lines(session)
    assert text[0] == "Rule sums on test.t"
    told = "\n".join(text)
    for value in (
        f"= {numbers['machine']['units']} units",
        "functions of a cluster: all, ",
        f", {numbers['machine']['divide_interval']} cycles between two quotients or roots",
        f"{numbers['program']['engine']} instructions of",
        f"{numbers['cycles']['tuple']:.2f} of a tuple, waits for {numbers['cycles']['waits_for']}",
        f"epoch: {numbers['epoch']['cycles']:,} cycles",
        f"Last run: {numbers['last_run']['id']} ",
        f"{numbers['last_run']['cycles']:,} cycles; estimated {numbers['last_run']['estimated_cycles']:,}",
    ):
        assert value in told


def test_a_run_of_something_else_is_compared_with_nothing(session: Session, table: str) -> None:
    text = SUMS.replace("total = ", "decay = dana.meta(0.5)\ntotal = ").replace("w / 2", "w * decay")
    session.execute("SELECT dana_create_udf('decays', %s)", (text,))
    session.execute("SELECT dana_train('decays', 't', features => '{b,a}', hyper => '{\"decay\": 0.25}')")
    asked = "SELECT dana_explain('decays', 't', %s, format => %s)"

    def told(form: str, **training: object) -> list[str]:
        return [row[0] for row in session.execute(asked, (Jsonb(training), form))]

    last = json.loads(told("json")[0])["last_run"]
    assert last["differences"] == ["features b, a", 'hyper {"decay": 0.25}']
    assert (last["estimated_cycles"], last["error"]) == (None, None)
    assert told("text")[-1].endswith(' cycles, of another training: features b, a; hyper {"decay": 0.25}')
    like = json.loads(told("json", features=["b", "a"], hyper={"decay": 0.25})[0])["last_run"]
    assert like["differences"] == []
    assert like["error"] == pytest.approx(0, abs=0.05)
    session.execute("SELECT dana_create_udf('decays', %s)", (f"# the same\n{text}",))
    last = json.loads(told("json", features=["b", "a"], hyper={"decay": 0.25})[0])["last_run"]
    assert last["differences"] == ["another text of the rule"]
    session.execute("SELECT dana_drop_rule('decays')")


MACHINE = {"threads": 2, "clusters": 1}
"""The one that a search of a device looks at."""


def test_designs_devices_and_the_search(session: Session, table: str) -> None:
    session.execute("SELECT dana_train('sums', 't')")
    small = explained(session, "t", design={"threads": 1, "clusters": 1}, device="lfe5um5g-85")
    assert small["machine"]["units"] == 8
    assert small["area"]["device"] == "lfe5um5g-85"
    assert not small["last_run"]["same_machine"]
    assert small["last_run"]["error"] is None
    best = explained(session, "t", design=MACHINE, search=True, device="xczu7ev")
    assert best["search"]["machines"] == 1
    assert best["search"]["design"]["threads"] == best["machine"]["threads"] == 2
    assert best["area"]["fits"]
    # what the search found can be trained on, and is then the last run's machine
    design = best["search"]["design"]
    session.execute("SELECT dana_train('sums', 't', design => %s)", (Jsonb(design),))
    again = explained(session, "t", design=design)
    assert again["last_run"]["same_machine"]
    assert again["last_run"]["error"] == pytest.approx(0, abs=0.05)


def test_the_device_of_a_session(session: Session, table: str) -> None:
    """Its clock and link are the machine's, modelled seconds are by them, and the model is the same."""
    taken = "SELECT cycles, modelled_seconds, design FROM dana.run ORDER BY id DESC LIMIT 1"
    weights = "SELECT weights FROM dana.model WHERE name = 'sums' ORDER BY version DESC LIMIT 1"
    session.execute("SELECT dana_train('sums', 't')")
    model = session.execute(weights).fetchone()
    session.execute("SET dana.device = 'lfe5um5g-85'")
    try:
        found = explained(session, "t", design=MACHINE)
        assert found["area"]["device"] == "lfe5um5g-85"
        assert found["area"]["fits"]
        assert (found["machine"]["clock_hz"], found["machine"]["link_bytes"]) == (80_000_000, 16)
        assert explained(session, "t", device="xczu7ev", design=MACHINE)["area"]["device"] == "xczu7ev"
        session.execute("SELECT dana_train('sums', 't', design => %s)", (Jsonb(MACHINE),))
        cycles, seconds, design = session.execute(taken).fetchone() or (0, 0, {})
        assert design["config"] == {k: v for k, v in found["machine"].items() if k not in ("lanes", "units")}
        assert seconds == pytest.approx(cycles / 80e6)
        assert session.execute(weights).fetchone() == model
        session.execute("SET dana.device = '/etc/hostname'")
        with pytest.raises(errors.InvalidParameterValue, match=r"dana\.device must be one of agf014, .*, not"):
            session.execute("SELECT dana_train('sums', 't')")
    finally:
        session.execute("RESET dana.device")


def test_rows_that_have_no_pages(session: Session, table: str) -> None:
    session.execute("ALTER TABLE t ALTER COLUMN a TYPE numeric")
    session.execute("ANALYZE t")
    table_rows = explained(session, "t")
    assert table_rows["reads"]["frames"]
    assert table_rows["reads"]["pages"] == -(-5000 // table_rows["reads"]["tuples"])
    query = explained(session, None, query="SELECT a, b, y FROM t")
    assert query["reads"]["frames"]
    assert query["epoch"] is None, "nobody knows how many rows there will be"
    assert query["cycles"]["tuple"] == table_rows["cycles"]["tuple"]


def test_read_only_transactions(session: Session, table: str) -> None:
    with session.transaction():
        session.execute("SET TRANSACTION READ ONLY")
        assert lines(session)


@pytest.mark.parametrize(
    ("source", "arguments", "error", "message"),
    [
        ("t", {"device": "/etc/hostname.toml"}, errors.InvalidParameterValue, "device must be one of"),
        ("t", {"label": "none"}, errors.UndefinedColumn, "column 'none'"),
        ("pg_class", {}, errors.WrongObjectType, "system catalog"),
        (None, {}, errors.NullValueNotAllowed, 'argument "source"'),
        ("t", {"query": "SELECT 1"}, errors.InvalidParameterValue, "not both"),
        ("t", {"epochs": 0}, errors.InvalidParameterValue, 'argument "epochs"'),
        ("t", {"design": {"threads": 3}}, errors.InvalidParameterValue, "threads must be a power of two"),
        (
            "t",
            {"search": True, "device": "lfe5um5g-85", "design": {"threads": 8, "clusters": 2}},
            errors.InvalidParameterValue,
            "fits lfe5um5g-85",
        ),
    ],
)
def test_refusals(
    session: Session, table: str, source: str | None, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        explained(session, source, **arguments)
    assert isinstance(raised.value, psycopg.Error)
    assert message in str(raised.value.diag.message_primary)


def test_rights_are_those_of_a_training(session: Session, table: str) -> None:
    session.execute("SELECT dana_train('sums', 't')")
    session.execute("DROP ROLE IF EXISTS explainer")
    session.execute("CREATE ROLE explainer")
    try:
        session.execute("GRANT USAGE ON SCHEMA test TO explainer")
        session.execute("SET ROLE explainer")
        with pytest.raises(errors.InsufficientPrivilege, match="permission denied for function dana_explain"):
            explained(session, "t")
        session.execute("RESET ROLE")
        session.execute("GRANT EXECUTE ON FUNCTION dana_explain TO explainer")
        session.execute("GRANT SELECT (a) ON t TO explainer")
        session.execute("SET ROLE explainer")
        with pytest.raises(errors.InsufficientPrivilege, match="permission denied for table"):
            explained(session, "t")
        session.execute("RESET ROLE")
        session.execute("GRANT SELECT ON t TO explainer")
        session.execute("SET ROLE explainer")
        assert explained(session, "t")["last_run"] is None, "the run is another role's"
    finally:
        session.execute("RESET ROLE")
        session.execute("DROP OWNED BY explainer")
        session.execute("DROP ROLE explainer")
