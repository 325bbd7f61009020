"""The Python client on a real server: rules, trainings, parameters, errors, transactions; and the demonstration."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
import sqlalchemy
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

import dana
from dana import rules
from dana.cli import main
from dana.cli.entry import OK, USAGE
from dana.client.connection import Connection
from dana.demo import tour as demo
from dana.demo.datasets import CUSTOMERS, Dataset, breast_cancer
from dana.errors import UsageError
from dana.server.places import CHECKOUT, PAPER
from dana.session.tables import create_table

ROWS = 200


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    """A client with the logistic rule and a table of `ROWS` rows; what it makes is rolled back."""
    with psycopg.connect(pg_uri) as session:
        client = Connection(session)
        create_table(session, "small", small().columns())
        client.create_rule("client_logistic", dana.load(PAPER / "logistic.py"))
        yield client
        session.rollback()


def small() -> Dataset:
    """A few rows of breast cancer."""
    data = breast_cancer()
    return Dataset(name="small", features=data.features[:ROWS, :7], label=data.label[:ROWS])


def test_what_names_a_server(pg_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = conninfo_to_dict(pg_uri)
    url = sqlalchemy.URL.create(
        "postgresql+psycopg", username=parts["user"], database=parts["dbname"], query={"host": parts["host"]}
    )
    (tmp_path / "services").write_text("[shop]\n" + "".join(f"{name}={value}\n" for name, value in parts.items()))
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    open_one = psycopg.connect(pg_uri)
    places = [pg_uri, "service=shop", url, url.render_as_string(hide_password=False), sqlalchemy.create_engine(url)]
    for place in (*places, open_one):
        with dana.connect(place) as db:
            assert db.session.info.dbname == parts["dbname"]
    assert open_one.closed


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (7, "connect takes a connection string, a connection of psycopg, or an engine or URL of SQLAlchemy, not int"),
        ("mysql://db/shop", r"mysql://… is not a PostgreSQL server"),
        ("sqlite+pysqlite:///x", r"sqlite\+pysqlite://… is not"),
    ],
)
def test_what_names_no_server(place: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        dana.connect(place)


def test_a_connection_of_another_encoding(pg_uri: str) -> None:
    with (
        psycopg.connect(pg_uri, client_encoding="latin1") as session,
        pytest.raises(UsageError, match="client_encoding iso8859-1"),
    ):
        dana.connect(session)


def test_a_training_says_what_it_did(db: Connection) -> None:
    result = db.train("client_logistic", "small", label="y", epochs=4, hyper={"lr": 0.2}, model="mine")
    assert (result.model, result.version, result.epochs, result.converged) == ("mine", 1, 4, False)
    assert (result.tuples, result.skipped) == (ROWS, 0)
    assert result.cycles is not None
    assert result.modelled_seconds == pytest.approx(result.cycles / 150e6)
    assert result.wall_seconds > 0
    assert result.loss is not None
    assert 0 < result.loss < 0.25
    assert db.train("client_logistic", "small", label="y", model="mine").version == 2


def test_it_says_what_a_training_would_run_on(db: Connection) -> None:
    text = db.explain("client_logistic", "small", label="y", design={"threads": 2})
    assert text.startswith("Rule client_logistic on public.small\n  7 columns as features, label y; ")
    assert "Machine: 2 threads × " in text
    numbers = db.explain("client_logistic", "small", label="y", device="xczu7ev", format="json")
    assert numbers["labels"] == ["y"]
    assert numbers["area"]["device"] == "xczu7ev"
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="format"):
        db.explain("client_logistic", "small", label="y", format="xml")  # type: ignore[call-overload]


def test_explain_takes_what_sql_s_takes(db: Connection) -> None:
    declared = db.session.execute("SELECT proargnames FROM pg_proc WHERE proname = 'dana_explain'").fetchall()
    taken = list(inspect.signature(Connection.explain).parameters)
    assert {"training" if name == "options" else name for name in taken[1:]} == {*declared[0][0]}


def test_epochs_are_told_where_somebody_looks(db: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setattr("rich.status.Status.update", lambda _self, text: shown.append(str(text)))
    db.session.execute("SET dana.notices = 'run'")
    db.train("client_logistic", "small", label="y", epochs=2, progress=True)
    assert [text.split(", ")[0] for text in shown[:2]] == [
        f"training client_logistic on small: epoch {k} of 2" for k in (1, 2)
    ]
    assert db.session.execute("SHOW dana.notices").fetchone() == ("run",)
    with pytest.raises(psycopg.Error):
        db.train("client_logistic", "small", label="none", progress=True)
    assert db.session.execute("SHOW dana.notices").fetchone() == ("run",)
    # it belongs to the session's transaction, as without anybody who looks
    assert db.session.info.transaction_status is TransactionStatus.INTRANS
    assert db.session.execute("SELECT count(*) FROM dana.run WHERE rule = 'client_logistic'").fetchone() == (1,)
    db.session.rollback()
    assert db.session.execute("SELECT count(*) FROM dana.run WHERE rule = 'client_logistic'").fetchone() == (0,)


def test_the_session_s_settings_are_left_alone(pg_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a pooler a setting of the session would stay with a server process, for whoever gets that next."""
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    shown: list[str] = []
    monkeypatch.setattr("rich.status.Status.update", lambda _self, text: shown.append(str(text)))
    with psycopg.connect(pg_uri, autocommit=True) as session, (tmp_path / "sent").open("w+b") as sent:
        client = Connection(session)
        create_table(session, "pooled", small().columns())
        client.create_rule("client_pooled", dana.load(PAPER / "logistic.py"))
        session.pgconn.trace(sent.fileno())
        try:
            assert client.train("client_pooled", "pooled", label="y", epochs=2, progress=True).epochs == 2
            found = "SELECT setting, source FROM pg_settings WHERE name = 'dana.notices'"
            assert session.execute(found).fetchone() == ("none", "default")
            with pytest.raises(psycopg.errors.UndefinedColumn):
                client.train("client_pooled", "pooled", label="none", progress=True)
            assert session.execute(found).fetchone() == ("none", "default")
        finally:
            session.pgconn.untrace()
            session.execute("DROP TABLE pooled; SELECT dana_drop_rule('client_pooled')")
        assert len(shown) >= 2
        assert session.execute("SELECT count(*) > 0 FROM dana.run WHERE rule = 'client_pooled'").fetchone() == (True,)
        sent.seek(0)
        said = sent.read().decode()
        assert "set_config('dana.notices', $1, true)" in said
        assert not re.search(r"set_config\([^)]*false|[^_]SET (?!LOCAL)", said)


def test_parts_queries_and_evaluation(db: Connection) -> None:
    kept = db.train("client_logistic", "small", label="y", model="part", test_size=0.25, seed=3, filter="y IN (0, 1)")
    found = db.evaluate("part")
    assert found["part"] == "test"
    assert kept.tuples + found["rows"] == ROWS
    assert 0.5 < found["auc"] <= 1
    words = "SELECT *, CASE y WHEN 1 THEN 'good' ELSE 'bad' END AS kind FROM small"
    columns = db.session.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'small'::regclass AND attnum > 0")
    features = [name for (name,) in columns if name != "y"]
    db.train(
        "client_logistic", query=words, features=features, label="kind", classes=["bad", "good"], warm_start_from="part"
    )
    cold = db.train("client_logistic", "small", label="y", model="cold", nulls=0, nonfinite="error")
    assert (cold.tuples, cold.skipped) == (ROWS, 0)
    assert db.evaluate("client_logistic")["rows"] == ROWS


def test_what_the_compiler_warns_of_reaches_the_session_and_the_client(db: Connection) -> None:
    text = "import dana\nw = dana.model([2])\nb = dana.model()\nx = dana.input([2])\nr = dana.algo(w, b, x)\n"
    text += "r.setModel(w, x)\n"
    heard: list[tuple[str | None, str]] = []
    db.session.add_notice_handler(lambda said: heard.append((said.severity_nonlocalized, said.message_primary or "")))
    shown = (
        "warning[W702]: the model b is never updated\n --> rule:3:1\n  |\n3 | b = dana.model()\n  | ^ declared here\n"
        "  = help: it keeps its start values; write setModel for it, or use a dana.meta"
    )
    with pytest.warns(UserWarning, match="the model b is never updated") as raised:
        db.create_rule("client_warned", text)
    assert heard == [("WARNING", shown)]
    assert [str(warning.message) for warning in raised] == [shown]


def test_parameters_are_arrays_of_the_rule_s_shapes_by_version(db: Connection) -> None:
    db.train("client_logistic", "small", label="y", epochs=1, model="mine")
    db.train("client_logistic", "small", label="y", epochs=5, model="mine")
    first, last = db.parameters("mine", 1), db.parameters("mine")
    assert list(first) == ["w"]
    assert first["w"].shape == (7,)
    assert first["w"].dtype == np.float32
    assert not np.array_equal(first["w"], last["w"])
    assert np.array_equal(last["w"], db.parameters("mine", 2)["w"])


def test_a_model_belongs_to_its_transaction(db: Connection) -> None:
    with db.session.transaction(force_rollback=True):
        db.train("client_logistic", "small", label="y", model="undone")
        assert db.parameters("undone")["w"].shape == (7,)
    with pytest.raises(UsageError, match='model "undone" does not exist'):
        db.parameters("undone")


def test_a_dropped_rule_is_gone(db: Connection) -> None:
    db.drop_rule("client_logistic")
    with pytest.raises(psycopg.Error, match="client_logistic"):
        db.train("client_logistic", "small", label="y")


def test_a_rule_with_errors_is_refused_with_every_error(db: Connection) -> None:
    with pytest.raises(psycopg.Error) as refused:
        db.create_rule("broken", "import dana\nw = dana.modle([3])\nx = dana.inptu([3])\n")
    assert "model" in str(refused.value)
    assert "input" in str(refused.value)


def test_names_cannot_become_sql(db: Connection) -> None:
    with pytest.raises(UsageError, match='table "small; DROP TABLE small" does not exist'):
        db.train("client_logistic", "small; DROP TABLE small", label="y")
    assert db.session.execute("SELECT count(*) FROM small").fetchone() == (ROWS,)


def test_the_command_trains_and_prints(pg_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with psycopg.connect(pg_uri, autocommit=True) as session:
        create_table(session, "command_small", small().columns())
        try:
            rule = str(rules.FOLDER / "logistic.py")
            arguments = ["train", rule, "command_small", "--label", "y", "--epochs", "2", "--dsn", pg_uri]
            assert main([*arguments, "--model", "by_command"]) == OK
            said = dict(line.strip().split("  ", 1) for line in capsys.readouterr().out.splitlines() if line.strip())
            assert said["model"].strip().startswith("by_command, version ")
            assert said["tuples"].strip().startswith("200, 0 skipped")
            assert int(said["cycles"].replace(",", "")) > 0
            for weights in ("balanced", '{"0": 2, "1": 0.5}'):
                assert main([*arguments, "--model", "by_command", "--class-weight", weights]) == OK
                assert capsys.readouterr().out
                given = "SELECT metadata ->> 'class_weight' FROM dana.model WHERE name = 'by_command'"
                kept = session.execute(f"{given} ORDER BY version DESC")
                assert (kept.fetchone() or ())[0].replace("0.50", "0.5") == weights
            assert main([*arguments, "--hyper", "no_such=1"]) == USAGE
            assert "no_such" in capsys.readouterr().err
            assert main([*arguments, "--hyper", "penalty=-1"]) == USAGE
            assert "but hyper makes it penalty = -1" in capsys.readouterr().err
            wrong = tmp_path / "wrong.py"
            wrong.write_text((rules.FOLDER / "logistic.py").read_text().replace("setEpochs(200)", "setEpochs(0)"))
            assert main(["train", str(wrong), *arguments[2:]]) == USAGE
            assert f"--> {wrong}:" in capsys.readouterr().err
        finally:
            session.execute("DROP TABLE command_small")
            session.execute("SELECT dana_drop_model('by_command'), dana_drop_rule('logistic')")


@pytest.mark.filterwarnings("default::dana.ServerNotice")
def test_the_demonstration(pg_uri: str) -> None:
    said: list[str] = []
    with dana.connect(pg_uri) as db:
        db.session.execute("DROP TABLE IF EXISTS customers")
        try:
            rows = demo.prepare(db, said.append)
            assert demo.prepare(db, said.append) == rows, "a table that is there stays"
            assert said == ["registering the rule logistic", "loading the table customers", said[0]]
            one, other = demo.train(db), demo.train(db, "interp")
            assert demo.identical(db)
            assert (one.result.tuples, one.result.skipped) == (1069, 131)
            assert one.said == other.said
            for words in ("customer_id: no feature", "email: no feature", "city: one-hot", "signed_up: year", "131 of"):
                assert any(words in notice for notice in one.said), words
            assert not any("constant prediction" in notice for notice in one.said), "the first epoch is the best"
            assert demo.evaluate(db)["auc"] > 0.75
            for line in demo.PASTE:
                assert len(db.session.execute(line.encode()).fetchall()) >= 5
        finally:
            db.session.execute("DROP TABLE customers")
            db.session.execute("SELECT dana_drop_model('logistic'), dana_drop_model('hardware')")
            db.session.execute("SELECT dana_drop_rule('logistic')")


def test_the_demonstration_s_table_is_in_the_package() -> None:
    package = Path(demo.__file__).parent
    assert CUSTOMERS.is_relative_to(package)
    settings = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert any(CUSTOMERS.match(pattern) for pattern in settings["package-data"]["*"])
    assert (CHECKOUT / "examples" / "customers.csv").samefile(CUSTOMERS)


SLOPE = """
import dana
w = dana.model()
x = dana.input()
y = dana.output()
slope = dana.algo(w, x, y)
slope.setModel(w - 0.01 * slope.merge((w * x - y) * x, 64, "+") / 64)
slope.setPrediction(w * x)
slope.setEpochs(2)
"""


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_of_another_encoding(
    pg_uri: str, encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its names and JSON are UTF-8 to the client and to the command, whatever the database keeps."""
    with psycopg.connect(pg_uri, autocommit=True) as session:
        session.execute("DROP DATABASE IF EXISTS encoded")
        session.execute(f"CREATE DATABASE encoded ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    dsn = psycopg.conninfo.make_conninfo(pg_uri, dbname="encoded")
    report = tmp_path / "run.html"
    with dana.connect(dsn) as db:
        db.session.execute("CREATE EXTENSION dana")
        db.session.execute(
            'CREATE TABLE "Größe" AS SELECT 1::real AS "Fläche", i::real AS "Wert" FROM generate_series(1, 9) i'
        )
        with pytest.warns(UserWarning, match='dana."Müller"'):
            db.create_rule("Müller", SLOPE)
        assert db.train("Müller", '"Größe"', label="Wert", model="Häuser").model == "Häuser"
        assert db.parameters("Häuser")["w"] > 0
        assert main(["export", "Häuser", "--dsn", dsn]) == OK
        assert json.loads(capsys.readouterr().out)["metadata"]["features"] == ["Fläche"]
        assert main(["report", "1", "-o", str(report), "--dsn", dsn]) == OK
        assert "Größe" in report.read_text(encoding="utf-8")
        assert main(["top", "--once", "--dsn", dsn]) == OK
        assert "Häuser@1" in capsys.readouterr().out
        if encoding == "SQL_ASCII":
            for call in (
                "dana_train('Müller', '\"Größe\"', label => 'Wert', model => E'm\\xe8')",
                "dana_train('Müller', '\"Größe\"', label => 'Wert', features => ARRAY[E'm\\xe8'])",
                "dana_start('dana_train', jsonb_build_object('rule', 'Müller', 'model', E'm\\xe8'))",
                "dana_create_udf(E'm\\xe8', '')",
            ):
                with pytest.raises(errors.CharacterNotInRepertoire, match=r'argument "\w+" must be UTF-8'):
                    db.session.execute(f"SELECT {call}")
    with psycopg.connect(pg_uri, autocommit=True) as session:
        session.execute("DROP DATABASE encoded")
