"""`dana top` on a real server: a training that runs is there, and so is the last that ended."""

from __future__ import annotations

import re
import threading
import time

import psycopg
import pytest

from dana.cli import main
from dana.server.places import PAPER

NAME = "watched [bold]by top[/bold]"
CURVE = re.compile("[▁▂▃▄▅▆▇█]{2}")


def shown(uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["top", "--once", "--dsn", uri]) == 0
    return capsys.readouterr().out


def test_what_runs_and_what_ended(
    pg_uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(pg_uri, autocommit=True) as session:
        session.execute(
            "CREATE TABLE watched AS SELECT random()::real a, random()::real y FROM generate_series(1, 20000)"
        )
        session.execute("SELECT dana_create_udf('watched', %s)", ((PAPER / "linear.py").read_text(),))
        session.execute("SELECT dana_train('watched', 'watched', %s, label => 'y')", (NAME,))

        # so slow that the rule's convergence test, which random rows pass by chance, does not end it
        endless = """SELECT dana_train('watched', 'watched', label => 'y', epochs => 100000, patience => 0,
            hyper => '{"lr": 1e-9}')"""

        def train() -> None:
            with pytest.raises(psycopg.errors.QueryCanceled):
                session.execute(endless)

        training = threading.Thread(target=train)
        training.start()
        try:
            running = ""
            for _ in range(100):
                text = shown(pg_uri, capsys, monkeypatch)
                running, ended = text.split("ended", 1)
                assert NAME + "@" in ended  # as it is called: brackets are no markup
                if "/100,000" in running and CURVE.search(running):
                    break
                time.sleep(0.1)
        finally:
            session.cancel()
            training.join()
            session.execute(
                "DROP TABLE watched; SELECT dana_drop_rule('watched'); SELECT dana_drop_model($$" + NAME + "$$)"
            )
    assert "watched" in running
    assert CURVE.search(running), running
    assert CURVE.search(ended), ended
    assert "watched" not in shown(pg_uri, capsys, monkeypatch).split("ended", 1)[0]


@pytest.mark.parametrize("interval", ["0", "nan", "fast"])
def test_an_interval_is_a_number_of_seconds(interval: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["top", "--interval", interval])
    assert "seconds from 0.1 to 3600 are expected" in capsys.readouterr().err
