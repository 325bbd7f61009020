"""Every command of the documents is run as it is written: SQL by psql, Python, and what a shell gets by bash.

Each document begins where `make demo` ends, in a database and a folder of its own, and is pasted block after block. A
block ``output`` says what the blocks before it print; a … in it stands for what depends on the machine or the day. What
cannot run here is in `NOT_RUN`, with the reason.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dana import estimator
from dana.client.connection import Connection, connect
from dana.demo import tour as demo
from dana.server import cluster
from dana.server.embedded import EmbeddedServer
from dana.server.installation import DEFAULT_MAJOR
from dana.server.places import CHECKOUT, HOME_VARIABLE
from dsl import compile_rule
from tests.servers import install

DOCUMENTS = (
    "README.md",
    *sorted(f"docs/{file.name}" for file in (CHECKOUT / "docs").glob("*.md")),
    "examples/README.md",
    "pg_extension/README.md",
    "CONTRIBUTING.md",
)
LANGUAGES = {"sh", "sql", "python", "output", "text", "toml", "ini", "c", ""}
"""``text`` and no language are drawings, and what other tests compare; the others are commands, files and output."""

ACTIVATE = ". .venv/bin/activate"
FIRST = "the tests run in that environment, and begin where the demo ends; test_client.py runs that"
LONG = "minutes, and it is what runs this test"
WHEEL = "tests/server/test_installed_package.py and .ci/bare"
OTHER_SERVER = "root's, for a PostgreSQL that is installed for the whole machine"
NOT_RUN = {
    ("README.md", "pip install"): WHEEL,
    ("README.md", "dana demo "): FIRST,
    ("README.md", "make demo "): FIRST,
    ("README.md", "make test "): LONG,
    ("README.md", ACTIVATE): FIRST,
    ("docs/tutorial.md", "make demo\n"): FIRST,
    ("docs/tutorial.md", ACTIVATE): FIRST,
    ("docs/install.md", "python3 -m venv dana-venv"): WHEEL,
    ("docs/install.md", "pip install"): WHEEL,
    ("docs/install.md", "dana demo "): FIRST,
    ("docs/install.md", ACTIVATE): FIRST,
    ("docs/install.md", "dana start"): FIRST,
    ("docs/install.md", "/usr/bin/python3 -m venv /opt/dana"): OTHER_SERVER,
    ("docs/install.md", "/opt/dana/bin/pip install"): OTHER_SERVER,
    ("docs/install.md", "/opt/dana/bin/dana install"): OTHER_SERVER,
    ("docs/install.md", "install -d -m 0700"): OTHER_SERVER,
    ("docs/install.md", "runuser -u postgres"): OTHER_SERVER,
    ("docs/install.md", "dana doctor --dsn"): OTHER_SERVER,
    ("docs/install.md", ".ci/deb"): "root and an hour",
    ("docs/install.md", "apt install"): OTHER_SERVER,
    ("docs/install.md", "CREATE EXTENSION dana;"): OTHER_SERVER,
    ("docs/install.md", "ALTER SYSTEM SET dana.socket_path"): OTHER_SERVER,
    ("docs/install.md", "docker build"): "Docker, which tests/servers.py uses where there is one",
    ("docs/install.md", "docker run"): "Docker",
    ("docs/install.md", "POSTGRES_PASSWORD=secret docker compose up"): "Docker",
    ("docs/install.md", "PG_MAJOR=16 POSTGRES_PASSWORD=secret docker compose"): "Docker",
    ("docs/cluster.md", "export RAY_AUTH_MODE…"): "a Ray cluster",
    ("docs/cluster.md", "from dana.integrations import ray…"): "a Ray cluster",
    ("docs/cluster.md", "SELECT * FROM dana_train('logistic', 'ratings'…"): "postgres_fdw, as below",
    ("docs/cluster.md", 'db.train("logistic", "ratings"…'): "postgres_fdw, which the embedded PostgreSQL has not",
    ("docs/cluster.md", "CREATE TABLE ratings…"): "postgres_fdw, which the embedded PostgreSQL has not",
    ("docs/cluster.md", "CREATE EXTENSION dana;…"): "as above",
    ("docs/cluster.md", "CREATE EXTENSION IF NOT EXISTS postgres_fdw…"): "as above",
    ("docs/cluster.md", "DELETE FROM dana.shard WHERE…"): "Citus; tests/cluster/test_map.py runs it on a view",
    ("docs/operating.md", "dana worker --socket"): "it does not end; the embedded server starts its worker so",
    ("docs/operating.md", "pip install"): WHEEL,
    ("docs/operating.md", "dana metrics"): "it does not end; tests/integrations starts it so",
    ("docs/operating.md", "CREATE ROLE monitor"): "tests/integrations/test_prometheus.py",
    ("docs/operating.md", "GRANT EXECUTE ON FUNCTION dana_create_udf, dana_train TO monitor"): "the same",
    ("docs/operating.md", "export PG_CONFIG…"): OTHER_SERVER,
    ("docs/export.md", "dana hdl"): "half a minute of yosys each; tests/hwgen/export",
    ("docs/export.md", "dana synth"): "minutes of yosys and nextpnr; tests/hwgen/export",
    ("docs/export.md", "from hwgen.driver…"): "a board; tests/hwgen/export drives a simulated one so",
    ("docs/export.md", "fusesoc"): "minutes; tests/hwgen/export/test_integration.py sets the targets up",
    ("docs/export.md", "cd FOLDER/synth…"): "Vivado; tests/hwgen/export/test_integration.py runs the script in a Tcl",
    ("docs/export.md", "peakrdl"): "a reader's tool; tests/hwgen/export/test_integration.py has its parts",
    ("docs/export.md", "dtc"): "a reader's tool; tests/hwgen/export/test_drivers.py reads the tree with another",
    ("docs/export.md", "import pynq…"): "a board; tests/hwgen/export/test_drivers.py has the class on a simulated one",
    ("docs/export.md", "from dana_litex…"): "a SoC; tests/hwgen/export/test_litex.py makes one",
    ("docs/export.md", "pip install litex"): "a reader's tools, which make test-all installs",
    ("docs/export.md", "python3 FOLDER/driver/litex_soc.py"): "minutes of Verilator; tests/hwgen/export/test_litex.py",
    ("docs/hardware.md", "dana hdl"): "half a minute of yosys; tests/hwgen/export",
    ("docs/hardware.md", "unit = Unit(…"): "a part of a test that the reader writes",
    (
        "docs/language-reference.md",
        "import dana\nfrom dana.functions import *…",
    ): "names for the page's tables: tests/dsl compiles them",
    ("docs/proof.md", "python -m benchmarks"): "minutes to hours",
    ("docs/proof.md", "python -m pytest"): "a test of this suite",
    ("docs/proof.md", "DANA_SEED="): "minutes",
    ("docs/proof.md", "make mutants"): "minutes",
    ("docs/proof.md", "DANA_FAULTS="): "minutes to hours",
    ("docs/paper.md", "dana bench paper"): "minutes; tests/benchmarks/test_paper_command.py",
    ("docs/python.md", "pip install"): "a download",
    ("docs/security.md", "DANA_FAULTS="): "minutes to hours",
    ("docs/rules.md", "dana bench accuracy"): "a minute; the page's tables are what it prints",
    ("docs/rules.md", "dana bench peers"): "minutes; tests/benchmarks/test_peers.py",
    ("docs/rules.md", "dana bench history"): "tests/benchmarks/test_peers.py",
    ("docs/rules.md", "z = standardized(x)…"): "a line of a rule",
    ("docs/integrations.md", "import dana…"): "a server of MLflow; tests/integrations/test_mlflow.py",
    ("docs/integrations.md", "dana rules install"): "another server; tests/integrations/test_dbt.py",
    ("docs/integrations.md", "cd examples/dbt"): "tests/integrations/test_dbt.py",
    ("docs/ui.md", "pip install"): WHEEL,
    ("docs/ui.md", "dana ui"): "it does not end; tests/ui starts it so",
    ("docs/ui.md", "ssh -L"): "another machine",
    ("examples/README.md", "make demo"): FIRST,
    ("examples/README.md", ACTIVATE): FIRST,
    ("examples/README.md", "pip install"): "a download",
    ("examples/README.md", "cd examples && jupyter"): "a browser; tests/client/test_notebook.py runs the cells",
    ("pg_extension/README.md", "make -C pg_extension install PG_CONFIG"): OTHER_SERVER,
    ("pg_extension/README.md", "make -C pg_extension installcheck"): OTHER_SERVER,
    ("pg_extension/README.md", "make -C pg_extension check-headers"): LONG,
    ("pg_extension/README.md", "python -m pytest tests/server/test_regress.py"): LONG,
    ("pg_extension/README.md", "python -m pytest tests/postgres "): LONG,
    ("CONTRIBUTING.md", ACTIVATE): FIRST,
    ("CONTRIBUTING.md", "make lint "): LONG,
    ("CONTRIBUTING.md", "python -m pytest"): "tests of this suite",
    ("CONTRIBUTING.md", "make -C pg_extension check-headers"): LONG,
    ("CONTRIBUTING.md", "make test "): LONG,
    ("CONTRIBUTING.md", "make test-all"): LONG,
    ("CONTRIBUTING.md", "make site"): LONG,
    ("CONTRIBUTING.md", "make wheel"): WHEEL,
    ("CONTRIBUTING.md", ".ci/bare"): "root and an hour",
}
"""Beginnings of lines that are not run, with … of all lines from there to the block's end: where they are, and why."""

ROLES = ("ana", "bob", "analysts")
"""Roles that pages speak of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block.

    Attributes
    ----------
    line
        Where it begins.
    before
        The text since the block before it.
    """

    language: str
    text: str
    line: int
    before: str


def blocks_of(text: str) -> list[Block]:
    found, last = [], 0
    for match in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.S | re.M):
        indent, language, body = match.groups()
        body = re.sub(f"^{indent}", "", body, flags=re.M)
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(language=language, text=body, line=line, before=text[last : match.start()]))
        last = match.end()
    return found


def without_what_is_not_run(document: str, text: str) -> str:
    beginnings = [start for name, start in NOT_RUN if name == document]
    for start in beginnings:
        if start.endswith("…") and f"\n{start[:-1]}" in f"\n{text}":
            text = f"\n{text}".split(f"\n{start[:-1]}", 1)[0]
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(tuple(beginnings)))


@dataclass
class Reader:
    """Somebody who pastes a document's blocks.

    Attributes
    ----------
    document
        Its path in the checkout.
    server, dsn, folder
        Where the commands run.
    printed
        What they printed since the last block ``output``.
    """

    document: str
    server: EmbeddedServer
    dsn: str
    folder: Path
    printed: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "notebook"})

    def paste(self, block: Block) -> None:
        text = without_what_is_not_run(self.document, block.text)
        file = re.search(r"into a file `([\w.]+)`", block.before)
        if file:
            (self.folder / file[1]).write_text(block.text, encoding="utf-8")
        if block.language == "sql":
            self._run([self.server.program("psql"), "-X", "-v", "ON_ERROR_STOP=1", "-d", self.dsn], text)
            for notice in re.findall(r"^-- (NOTICE: .*)$", text, re.M):
                assert notice in self.printed, f"{notice}\n\nis not in\n\n" + "\n".join(self.printed)
        elif block.language == "sh":
            if text.strip():
                self._run(["bash", "-ec", text], "")
        elif block.language == "python" and re.search(r"^\w+ = (dana\.)?algo\(", text, re.M):
            assert compile_rule(text).report == ""
        elif block.language == "python":
            cell = self.folder / f"cell_{block.line}.py"  # @dana.rule looks its function up, as in a notebook's cell
            cell.write_text(text, encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile(text, str(cell), "exec"), self.names)
            self.printed += said.getvalue().splitlines()
        elif block.language == "output":
            compare(block.text.splitlines(), self.printed)

    def _run(self, command: list[Any], text: str) -> None:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, cwd=self.folder, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}\n{text}\n{done.stdout}{done.stderr}"
        self.printed += [*done.stderr.splitlines(), *done.stdout.splitlines()]


def compare(shown: list[str], printed: list[str]) -> None:
    """Find the lines shown, one below the other, among those printed; then those before are forgotten."""
    patterns = [re.compile(".*".join(map(re.escape, line.rstrip().split("…"))) + r"\s*") for line in shown]
    for start in range(len(printed)):
        here = printed[start : start + len(shown)]
        if len(here) == len(shown) and all(p.fullmatch(line) for p, line in zip(patterns, here, strict=True)):
            del printed[: start + len(shown)]
            return
    pytest.fail("\n".join(["these lines are not printed:", *shown, "", "but these:", *printed]))


@pytest.fixture(scope="module")
def machine() -> Iterator[EmbeddedServer]:
    """An embedded server whose settings and roles documents may change, as the demo leaves it."""
    with tempfile.TemporaryDirectory(prefix="dana-test-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        install(root, DEFAULT_MAJOR)
        server = EmbeddedServer.start(root)
        try:
            with warnings.catch_warnings(), connect(server.dsn) as db:
                warnings.simplefilter("ignore")
                demo.prepare(db, str)
                demo.train(db)
                for role in ROLES:
                    db.session.execute(f"CREATE ROLE {role}")
            with administrator(server) as session:
                session.execute(f"ALTER DATABASE {cluster.DATABASE} RENAME TO demonstrated")
            yield server
        finally:
            server.stop()


def administrator(server: EmbeddedServer) -> psycopg.Connection[Any]:
    """A session in a database that no document uses."""
    return psycopg.connect(make_conninfo(server.dsn, dbname="template1"), autocommit=True)


@pytest.fixture
def reader(
    request: pytest.FixtureRequest, machine: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    """The document's reader: `dana` and `python` are those of the tests, the server is the embedded one."""
    with administrator(machine) as session:
        session.execute(f"CREATE DATABASE {cluster.DATABASE} TEMPLATE demonstrated")
        for entry in CHECKOUT.iterdir():
            (tmp_path / entry.name).symlink_to(entry)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv(HOME_VARIABLE, str(machine.root))
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        made = Reader(document=request.param, server=machine, dsn=machine.dsn, folder=tmp_path)
        yield made
        # what a page leaves open; the estimators' sessions are for the next test, which has another server
        left = [*made.names.values(), *estimator._sessions.values()]
        for db in left:
            if isinstance(db, Connection):
                db.close()
        estimator._sessions.clear()
        session.execute(f"DROP DATABASE {cluster.DATABASE} WITH (FORCE)")


@pytest.mark.filterwarnings("ignore::dana.ServerNotice", "ignore::dana.ServerWarning")
@pytest.mark.parametrize("reader", DOCUMENTS, indirect=True)
def test_the_commands_run(reader: Reader) -> None:
    for block in blocks_of((CHECKOUT / reader.document).read_text(encoding="utf-8")):
        assert block.language in LANGUAGES, f"line {block.line}"
        try:
            reader.paste(block)
        except BaseException as error:
            error.add_note(f"{reader.document}, block of line {block.line}")
            raise


def test_what_is_not_run_stands_there() -> None:
    for document, beginning in NOT_RUN:
        blocks = blocks_of((CHECKOUT / document).read_text(encoding="utf-8"))
        assert any(re.search("^" + re.escape(beginning.removesuffix("…")), block.text, re.M) for block in blocks), (
            document,
            beginning,
        )
