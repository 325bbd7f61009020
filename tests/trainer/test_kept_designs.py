"""Designs that are kept on disk: found again, made anew where damaged, within a limit."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dana.jit import code
from dana.storage.builder import build_pages
from dana.trainer import designs, machine_code
from dana.trainer.contract import ExplainRequest, TrainRequest
from dana.trainer.designs import Design, compile_design
from dana.trainer.trainer import MachineTrainer
from dsl import Rule
from hwgen.cache import CacheFolder
from tests.trainer.test_training import LOGISTIC, REALS, STANDARDIZED, relation, request, rows, train


def opened(folder: Path, asked: TrainRequest) -> Any:
    """The design of a training in a new process, as far as its cache on disk goes."""
    training = MachineTrainer(CacheFolder(path=folder, limit=1 << 20)).open(asked, lambda notice: None)
    training.close()
    return training.design


def test_designs_are_found_again_and_damaged_ones_are_made_anew(tmp_path: Path) -> None:
    asked = request(relation(REALS))
    first = opened(tmp_path, asked)
    (cached,) = tmp_path.iterdir()
    made = cached.stat().st_ino
    assert opened(tmp_path, asked) == first
    assert cached.stat().st_ino == made
    whole = cached.read_bytes()
    for damaged in (whole[:-9] + b"123456789", whole[:99] + b"9" + whole[100:], whole[:7], b""):
        cached.write_bytes(damaged)
        assert opened(tmp_path, asked) == first
        assert cached.stat().st_ino != made
        made = cached.stat().st_ino


def test_a_design_is_read_as_it_was_written() -> None:
    for source in (LOGISTIC, STANDARDIZED):
        design = compile_design(request(relation(REALS), text=source))
        again = Design.from_bytes(design.to_bytes())
        assert again.bundle.digest == design.bundle.digest
        for name in {one.name for one in fields(Design)} - {"bundle", "history"}:
            assert getattr(again, name) == getattr(design, name)


def test_a_design_from_disk_begins_as_the_one_that_was_made(tmp_path: Path) -> None:
    table = relation(REALS)
    pages = build_pages(table.schema, rows(60))
    asked = request(table, text=STANDARDIZED)
    found = [
        train(asked, pages, trainer=MachineTrainer(CacheFolder(path=tmp_path, limit=1 << 24))).parameters
        for _ in range(2)
    ]
    assert list(tmp_path.iterdir())
    for made, read in zip(*found, strict=True):
        np.testing.assert_array_equal(made.values, read.values)


def test_designs_on_disk_have_a_byte_limit(tmp_path: Path) -> None:
    table = relation(REALS)
    opened(tmp_path, request(table))
    (first,) = tmp_path.iterdir()
    size = sum(-(-path.stat().st_size // 4096) * 4096 for path in tmp_path.iterdir())
    cache = CacheFolder(path=tmp_path, limit=4 * size)
    trainer = MachineTrainer(cache)
    for latency in range(100, 110):
        first.touch()  # used again and again
        trainer.open(request(table, design={"link_latency": latency}), lambda notice: None).close()
    found = list(tmp_path.iterdir())
    assert first in found
    assert sum(path.stat().st_size for path in found) <= 4 * size
    MachineTrainer(CacheFolder(path=tmp_path / "none", limit=0)).open(request(table), lambda notice: None).close()
    assert not (tmp_path / "none").exists()


def test_what_no_design_depends_on_makes_no_other(tmp_path: Path) -> None:
    columns = [*REALS, ("spare", "real")]
    asked = request(relation(columns), features=("x0", "x1"), label="y")
    opened(tmp_path, asked)
    elsewhere = replace(
        asked.relation,
        name="private.other",
        attributes=tuple(
            replace(one, number=k + 7, by_value=True, name="other" if one.name == "spare" else one.name)
            for k, one in enumerate(asked.relation.attributes)
        ),
    )
    for same in (
        replace(asked, relation=elsewhere),
        replace(asked, design={"page_size": 8192}),
        replace(asked, rule="another", epochs=7, hyper={"lr": 0.5, "size": 8}, nulls="error", caller="another@other"),
    ):
        opened(tmp_path, same)
        assert len(list(tmp_path.iterdir())) == 1
    opened(tmp_path, replace(asked, features=("x1", "x0")))
    assert len(list(tmp_path.iterdir())) == 2


def test_machine_code_is_found_again_and_damaged_one_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within reach of a training that is too short to compile."""
    table = relation(REALS, pages=1000)
    pages = build_pages(table.schema, rows(60))
    asked = request(table)
    texts: list[str] = []
    make = code._machine_code
    monkeypatch.setattr(code, "_machine_code", lambda text: (texts.append(text), make(text))[1])

    def trained(mode: str) -> Any:
        monkeypatch.setenv(machine_code.VARIABLE, mode)
        return train(asked, pages, trainer=MachineTrainer(CacheFolder(path=tmp_path, limit=1 << 24))).parameters

    plain = trained("never")
    assert not list(tmp_path.glob("*.code"))
    monkeypatch.setattr(machine_code, "WORTH_SECONDS", np.inf)
    for mode, compiled in (("", 0), ("always", 2), ("", 2), ("always", 2)):  # for the loss after an epoch, too
        found = trained(mode)
        assert len(texts) == compiled
        assert [one.values.tobytes() for one in found] == [one.values.tobytes() for one in plain]
    kept = {file: file.read_bytes() for file in tmp_path.glob("*.code")}
    assert len(kept) == 2
    for number, cut in enumerate((slice(None, -1), slice(20), slice(0)), start=2):
        for file, whole in kept.items():
            file.write_bytes(whole[cut])
        trained("always")
        assert len(texts) == 2 * number
        assert kept == {file: file.read_bytes() for file in kept}
    monkeypatch.setattr(code, "_processor", lambda: "another")
    trained("always")
    assert len(texts) == 2 * number + 2
    assert all(whole != file.read_bytes() for file, whole in kept.items())


def test_machine_code_that_others_may_have_made_is_not_loaded(tmp_path: Path) -> None:
    history = designs.History(key="ab" * 16, folder=CacheFolder(path=tmp_path, limit=1 << 20))
    history.write_code(b"code")
    assert history.read_code() == b"code"
    (kept,) = tmp_path.iterdir()
    kept.chmod(0o666)
    assert history.read_code() is None
    kept.chmod(0o644)
    tmp_path.chmod(0o777)
    assert history.read_code() is None
    history.write_code(b"other")
    assert kept.read_bytes() == b"code"


def test_a_rule_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    init = Rule.__init__
    monkeypatch.setattr(
        Rule, "__init__", lambda self, *given, **named: (made.append(given[0]), init(self, *given, **named))[1]
    )
    designs.rule_of.cache_clear()
    asked = request(relation(REALS))
    MachineTrainer().open(asked, lambda notice: None).close()
    assert made == [asked.text]


def test_a_question_leaves_nothing_on_disk(tmp_path: Path) -> None:
    asked = request(relation(REALS), design={"threads": 1, "clusters": 1})  # a search through few machines
    trainer = MachineTrainer(CacheFolder(path=tmp_path, limit=1 << 20))
    for device, search in ((None, False), ("lfe5um5g-85", True)):
        question = ExplainRequest(training=asked, device=device, search=search, rows=40, layout=[(40, 40)], last=None)
        trainer.explain(question)
        assert list(tmp_path.iterdir()) == []
    trainer.open(asked, lambda notice: None).close()
    assert len(list(tmp_path.iterdir())) == 1, "what was compiled for a question and is trained on now is cached"


def test_an_edit_after_the_start_of_a_worker_is_not_what_its_sessions_compile_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    designs._sources.cache_clear()
    worker = MachineTrainer(CacheFolder(path=tmp_path, limit=1 << 20))
    with monkeypatch.context() as edited:
        edited.setattr(designs, "COMPILING", ())
        worker.open(request(relation(REALS)), lambda notice: None).close()
    designs._sources.cache_clear()
    (cached,) = tmp_path.iterdir()
    made = cached.stat().st_ino
    opened(tmp_path, request(relation(REALS)))
    assert [one.stat().st_ino for one in tmp_path.iterdir()] == [made]
