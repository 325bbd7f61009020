"""The command line's frame: every kind of error ends with its own exit code and one message on stderr."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from dana.cli import entry
from dana.cli.entry import DATABASE, INTERNAL, INTERRUPTED, OK, SETUP, USAGE, main, parser
from dana.errors import InternalError, SetupError, UsageError
from dana.server.places import CHECKOUT
from hwgen.folders import ForeignFolder, write_file


def raising(error: BaseException) -> Callable[[], argparse.ArgumentParser]:
    """A parser whose one command raises ``error``."""

    def run(_: argparse.Namespace) -> int:
        raise error

    def make() -> argparse.ArgumentParser:
        top = argparse.ArgumentParser()
        top.set_defaults(run=run)
        return top

    return make


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("the table is empty"), USAGE),
        (SetupError("there is no compiler"), SETUP),
        (psycopg.OperationalError("no server"), DATABASE),
        (psycopg.errors.UndefinedTable("no such table"), DATABASE),
        (psycopg.errors.InvalidParameterValue("no such hyperparameter"), USAGE),
        (ForeignFolder("/tmp/x must be a file of this account"), SETUP),
        (KeyboardInterrupt(), INTERRUPTED),
        (InternalError("a queue is negative"), INTERNAL),
        (ZeroDivisionError("division by zero"), INTERNAL),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_becomes_an_exit_code_and_a_message(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entry, "parser", raising(error))
    assert main([]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1].startswith("dana: ")
    # a traceback is for us alone
    assert ("Traceback" in said.err) == (code == INTERNAL)
    assert str(error) in said.err


def test_a_file_that_cannot_be_written_is_no_bug_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entry, "parser", raising(FileNotFoundError(2, "No such file or directory", "/none/model.json")))
    assert main([]) == SETUP
    assert capsys.readouterr().err == "dana: /none/model.json: No such file or directory\n"


@pytest.mark.parametrize(("redirected", "says"), [(">/dev/full", "No space left"), (">&-", "output is closed")])
@pytest.mark.parametrize("arguments", ["rules", f"compile {CHECKOUT}/dana/rules/linear.py --features 2"])
def test_a_full_disk_is_an_error_of_the_machine(arguments: str, redirected: str, says: str) -> None:
    """The shorter output fits into the buffer, which is written at the end."""
    run = f"{sys.executable} -c 'import sys; from dana.cli import main; sys.exit(main(sys.argv[1:]))'"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = ["bash", "-c", f"{run} {arguments} {redirected}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=buffered)
    assert (done.returncode, done.stderr.count("\n")) == (SETUP, 1), done.stderr
    assert says in done.stderr


def test_an_encoding_without_a_character_is_no_bug() -> None:
    run = [sys.executable, "-c", "import sys; from dana.cli import main; sys.exit(main(sys.argv[1:]))"]
    done = subprocess.run(
        [*run, "rules"], capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert (done.returncode, done.stderr) == (OK, b"")
    assert b"\\xd7" in done.stdout


def test_an_argument_that_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Python passes on bytes that the locale's encoding lacks as halves of surrogate pairs."""
    with pytest.raises(SystemExit, match="2"):
        main(["train", "linear", "t", "--label", "\udcc3\udcb6"])
    assert r"argument '\udcc3\udcb6' is not text in utf-8" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["check", ""], ["worker", "--socket", ""], ["hdl", "rule.py", "-o", ""]])
def test_an_empty_path_is_not_the_current_folder(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "a path must not be empty" in capsys.readouterr().err


def test_an_error_of_a_full_disk_names_the_file() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_file(Path("/dev/full"), b"model")


def test_the_version_is_the_extension_s(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == OK
    assert capsys.readouterr().out == f"dana {project['version']}\n"


def test_every_command_is_there_with_a_line_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == OK
    text = capsys.readouterr().out
    for command in ("check", "compile", "train", "start", "stop", "psql", "worker", "demo"):
        line = next(line for line in text.splitlines() if line.split()[:1] == [command])
        assert len(line.split()) > 3


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == USAGE
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "option", "most"),
    [
        (["train", "r", "t", "--epochs"], "--epochs", 2**31 - 1),
        (["train", "r", "t", "--seed"], "--seed", 2**31 - 1),
        (["search", "r", "t", "--folds"], "--folds", 2**31 - 1),
        (["jobs", "--wait"], "--wait", 2**63 - 1),
        (["report"], "RUN", 2**63 - 1),
    ],
)
@pytest.mark.parametrize("value", ["{beyond}", "x", "9" * 5000])
def test_integers_have_a_range(
    capsys: pytest.CaptureFixture[str], arguments: list[str], option: str, most: int, value: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([*arguments, value.format(beyond=most + 1)])
    assert ended.value.code == USAGE
    message = capsys.readouterr().err.splitlines()[-1]
    assert f"argument {option}: a whole number from {-most - 1} to {most} is expected, not " in message
    assert len(message) < 250


def test_training_s_arguments() -> None:
    options = parser().parse_args(
        ["train", "rule.py", "t", "--features", "a, b,c", "--label", "y", "--hyper", "lr=0.5", "--hyper", "reg = 1e-3"]
    )
    assert options.features == ["a", "b", "c"]
    assert dict(options.hyper) == {"lr": 0.5, "reg": 1e-3}
    options = parser().parse_args(["train", "rule.py", "t", "--features", "a", "--features", "b,c", "--epochs", "3"])
    assert options.features == ["a", "b", "c"]
    assert options.epochs == 3


@pytest.mark.parametrize("wrong", ["lr", "lr=", "lr=fast"])
def test_a_meta_must_be_a_number(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["train", "rule.py", "t", "--hyper", wrong])
    assert ended.value.code == USAGE
    assert "NAME=NUMBER is expected" in capsys.readouterr().err


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "dana.cli", "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: dana ")


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -c 'import sys; from dana.cli import main; sys.exit(main([\"--help\"]))' | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
