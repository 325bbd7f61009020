"""`dana bench paper`, quick: each of 14 data sets in each table, each cell marked, and nothing only remembered."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks.paper.cells import Cell, Mark, Table, computed, written
from benchmarks.paper.cold import NotCold, chill, disk_rate
from benchmarks.paper.evidence import evidence
from benchmarks.paper.page import curves, dots
from benchmarks.peers.history import read
from dana.cli import main
from dana.cli.entry import OK, USAGE
from dana.client.connection import Connection
from tests.benchmarks.recalled import RATIOS, RECALLED
from tests.benchmarks.test_evidence import DATASETS

OF_DATASETS = ("datasets", "machines", "end to end", "striders", "threads", "link", "pages", "elements", "tabla")
TABLES = ("claims", "headline", *OF_DATASETS[:1], "device", *OF_DATASETS[1:], "libraries", "madlib")
VOID = {"meta", "br", "link", "hr", "img"}


@dataclass(frozen=True)
class Ran:
    """What the command wrote."""

    document: dict[str, Any]
    page: str
    printed: str
    history: Path

    def table(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in self.document["tables"] if one["name"] == name)
        return found

    def cells(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for table in self.document["tables"]:
            for row in table["rows"]:
                for cell in row["cells"]:
                    yield table["name"], row["name"], cell


@pytest.fixture(scope="module")
def ran(pg_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("paper")
    figures, page, history = (folder / name for name in ("f.json", "f.html", "history"))
    asked = ["bench", "paper", "--quick", "--scale", "0.01", "--dsn", pg_uri, "--history", str(history)]
    with redirect_stdout(io.StringIO()) as printed:
        assert main([*asked, "--json", str(figures), "--html", str(page)]) == OK
    return Ran(json.loads(figures.read_text()), page.read_text(), printed.getvalue(), history)


def test_each_data_set_is_in_each_table(ran: Ran) -> None:
    assert tuple(one["name"] for one in ran.document["tables"]) == TABLES
    for name in OF_DATASETS:
        assert tuple(row["name"] for row in ran.table(name)["rows"]) == DATASETS, name
    assert {row["name"] for row in ran.table("libraries")["rows"]} <= set(DATASETS)


def test_the_document_has_a_shape(ran: Ran) -> None:
    kinds = {
        "time": str, "machine": str, "cores": int, "version": str, "device": str, "quick": bool, "measured": bool,
        "scale": float, "server": str, "sources": dict, "tables": list,
    }  # fmt: skip
    for key, kind in kinds.items():
        assert isinstance(ran.document[key], kind), key
    assert set(ran.document) == {*kinds, "commit"}
    for table in ran.document["tables"]:
        assert set(table) == {"name", "title", "about", "columns", "rows"}
        for row in table["rows"]:
            assert len(row["cells"]) == len(table["columns"])
    for _, _, cell in ran.cells():
        assert set(cell) == {"text", "value", "unit", "mark", "note", "source"}
        assert cell["value"] is None or isinstance(cell["value"], float | int)


def test_each_cell_says_where_it_is_from(ran: Ran) -> None:
    marks = {mark.value for mark in Mark}
    for table, row, cell in ran.cells():
        assert cell["mark"] in marks
        where = (table, row, cell)
        if cell["mark"] == "quoted":
            assert cell["source"] in ran.document["sources"], where
        else:
            assert cell["source"] in ("", "chosen"), where
        assert (cell["mark"] in ("missing", "label")) <= (cell["value"] is None), where
    # what is missing has its reason in its row
    for table in ran.document["tables"]:
        if table["name"] in ("machines", "link", "pages", "elements", "striders", "tabla"):
            for row in table["rows"]:
                missing = [cell for cell in row["cells"] if cell["mark"] == "missing"]
                assert not missing or any(cell["note"] for cell in missing), (table["name"], row["name"])


def test_nothing_only_remembered_is_printed(ran: Ran) -> None:
    for table, row, cell in ran.cells():
        if cell["mark"] in ("quoted", "chosen"):
            assert cell["value"] not in RECALLED, (table, row, cell)
    claims = [row["cells"][0]["value"] for row in ran.table("claims")["rows"]]
    assert claims == [8.3, 28.2, 4.0]
    assert set(claims) & set(RATIOS) == set()
    for number in RECALLED:
        assert f"{number:,}" not in ran.page


def test_each_data_set_has_a_machine(ran: Ran) -> None:
    """What no machine holds: tests/benchmarks/test_model.py."""
    for row in ran.table("machines")["rows"]:
        assert {cell["mark"] for cell in row["cells"]} == {"computed"}, row["name"]


def test_what_is_missing_is_shown_with_its_reason(ran: Ran) -> None:
    reasons = {cell["note"] for *_, cell in ran.cells() if cell["mark"] == "missing" and cell["note"]}
    assert reasons
    for reason in reasons:
        assert reason in unescape(ran.page)


def test_what_is_printed_says_it_too(ran: Ran) -> None:
    lines = ran.printed.splitlines()
    (line,) = (one for one in lines if "LIBLINEAR 2.20 multicore, logistic, e = 1, 16 threads" in one)
    place = list(ran.document["sources"]).index("logs") + 1
    assert f"151 s q{place}" in line
    assert any("│ S/E SVM" in one and "1,000,000 *" in one for one in lines)
    assert f"  {place}  {ran.document['sources']['logs']}" in lines
    assert any("not cold: " in one for one in lines)


def test_measured_cells(ran: Ran) -> None:
    rows = {row["name"]: row["cells"] for row in ran.table("end to end")["rows"]}
    columns = ran.table("end to end")["columns"]
    warm = columns.index("dana_train here, warm")
    for name in DATASETS:
        cell = rows[name][warm]
        assert cell["mark"] == "measured" or cell["note"], name
    peers = {cell["text"] for row in ran.table("libraries")["rows"] for cell in row["cells"][:1]}
    assert {"scikit-learn", "LIBLINEAR", "numba", "NumPy", "exporting to NumPy"} <= peers
    assert [one["case"] if isinstance(one, dict) else one.case for one in read(ran.history)[0]["contests"]] == [
        "Remote Sensing LR", "Remote Sensing SVM", "WLAN", "Patient", "Blog Feedback", "Netflix",
    ]  # fmt: skip


def test_madlib_and_this_project_read_the_same_table(ran: Ran) -> None:
    """A ratio is of two times on tables of one type; no row has the paper's ratios and ours."""
    table = ran.table("madlib")
    assert table["columns"] == [
        "method", "MADlib", "machine, modelled", "MADlib ÷ machine, modelled", "dana_train here",
        "MADlib ÷ dana_train here",
    ]  # fmt: skip
    by_row: dict[str, list[dict[str, Any]]] = {row["name"]: row["cells"] for row in table["rows"]}
    assert {name.rpartition(", ")[2] for name in by_row} == {"float8[]", "float8[] PLAIN", "float4[] PLAIN", "triples"}
    for name, (_, theirs, machine, ratio, here, times) in by_row.items():
        assert (theirs["mark"], machine["mark"]) == ("quoted", "computed"), name
        assert ratio["value"] == pytest.approx(theirs["value"] / machine["value"]), name
        assert here["mark"] == "measured" or here["note"], name
        assert here["value"] is None or times["value"] == pytest.approx(theirs["value"] / here["value"]), name
    wide, narrow = (by_row[f"Patient, float{size}[] PLAIN"][2]["value"] for size in (8, 4))
    assert wide < 3 * narrow, "the link brings twice the bytes, and pages have fewer rows to fill them"
    headline = {row["name"]: row["cells"] for row in ran.table("headline")["rows"]}
    assert list(headline) == ["float8[]: the headline", "float4[]", "ratings as triples"]
    assert 30 < headline["float8[]: the headline"][1]["value"] < headline["float4[]"][1]["value"]
    assert [{cell["mark"] for cell in row["cells"]} for row in ran.table("claims")["rows"]] == [{"quoted"}] * 3
    assert "MADlib" not in ran.table("end to end")["columns"]


def test_float8_takes_the_machine_no_longer_than_its_bytes(ran: Ran) -> None:
    compared = [row["cells"] for row in ran.table("elements")["rows"] if row["cells"][1]["value"] is not None]
    assert len(compared) >= 10
    for narrow, wide, _, link in (tuple(cell["value"] for cell in row) for row in compared):
        assert wide <= max(1.3 * narrow, 1.05 * link)


class Tags(HTMLParser):
    """That each tag that is opened is closed, in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed(ran: Ran) -> None:
    tags = Tags()
    tags.feed(ran.page)
    tags.close()
    assert tags.open == []
    assert tags.seen.count("svg") == 8
    assert tags.seen.count("h2") == len(TABLES) + 1
    for source in evidence().sources.values():
        assert source in unescape(ran.page)
    for mark in ("computed", "measured", "quoted", "chosen", "missing"):
        assert f'class="n {mark}"' in ran.page


def test_nothing_is_measured_where_nothing_shall_be(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--scale", "0.1"], ["--dsn", "x"], ["--history", "x"]):
        assert main(["bench", "paper", "--computed", *wrong]) == USAGE
    assert "--computed measures nothing" in capsys.readouterr().err
    assert main(["bench", "paper", "--device", "abacus"]) == USAGE
    assert "no device 'abacus'" in capsys.readouterr().err


def test_a_cold_table_is_in_no_memory(pg_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(pg_uri, autocommit=True) as session:
        session.execute("CREATE TABLE chilled AS SELECT i, 0.5::real AS x FROM generate_series(1, 200000) AS i")
        try:
            files = chill(Connection(session).session, "chilled")
            assert sum(file.stat().st_size for file in files) > 200_000 * 28
            assert disk_rate(files) > 0
            # it is in memory now, and a system that keeps it there would be said to
            monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
            session.execute("SELECT count(*) FROM chilled")
            with pytest.raises(NotCold, match="the system keeps the files in memory"):
                chill(Connection(session).session, "chilled")
        finally:
            session.execute("DROP TABLE chilled")


def test_arrays_out_of_line_are_not_cold(pg_uri: str) -> None:
    with psycopg.connect(pg_uri, autocommit=True) as session:
        session.execute("CREATE TABLE chilled AS SELECT array_agg(random()::real) AS x FROM generate_series(1, 5000)")
        try:
            with pytest.raises(NotCold, match="arrays that lie out of line"):
                chill(Connection(session).session, "chilled")
        finally:
            session.execute("DROP TABLE chilled")


def test_numbers_as_people_read_them() -> None:
    assert [written(value, "s") for value in (12.0, 3.456, 0.01812, 0.0000123)] == [
        "12 s",
        "3.46 s",
        "18.1 ms",
        "12.3 µs",
    ]
    assert (written(0.66, "%"), written(1234567, ""), written(28.2, "×")) == ("66 %", "1,234,567", "28.2 ×")


def test_drawings_show_what_is_there() -> None:
    rows = (("a", (computed(1.0, "s"), computed("no"))), ("b", (computed(2.0, "s"), computed(4.0, "s"))))
    table = Table(name="t", title="t", about="", first="", heads=("one", "two"), rows=rows)
    assert "one (computed)" not in dots(table, ("two",))  # drawn as paths; no such series either
    assert dots(table, ("one", "two")).count("<svg") == 1
    assert curves(table, "across", "up", "one").startswith("<svg")
    assert rows[0][1][1] == Cell(text="–", mark=Mark.MISSING, note="no")
    assert table.notes() == ["a: two: no"]
