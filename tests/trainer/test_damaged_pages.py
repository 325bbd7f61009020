"""Trainings on damaged pages, from the survey to the summary: an error that says so, or a model.

The memory behind the pages cannot be read. `tests.simulator.test_sanitized` repeats it with sanitizers for minutes.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from itertools import count

import pytest

from dana import rules
from dana.errors import UsageError
from dana.storage.builder import build_pages
from dana.trainer import arrays
from dana.trainer.contract import OutOfLine, Sink, Training, TrainingError, TrainRequest
from dana.trainer.loop import run
from dana.trainer.machine_code import VARIABLE
from dana.trainer.trainer import MachineTrainer
from tests.guarded import guarded
from tests.scale import SEED, scaled
from tests.storage.schemas import damage, random_value
from tests.trainer.test_training import feed, relation, request

SECONDS = float(os.environ.get("DANA_TEST_FUZZ_SECONDS", "0"))
"""For how long; 0: for some cases."""

COLUMNS = ("real", "double precision", "smallint", "integer", "bigint", "boolean")
RULES = ("linear", "logistic", "poisson", "ridge", "quantile", "mlp", "softmax")
SHORT, LONG = 3, 12
"""Features: those of a short row are packed, a long one is read where it lies."""


def wild(rng: random.Random, number: float) -> float:
    return (
        rng.choice([number, number, number, 1e-40, -0.0, float("nan"), float("inf")]) if rng.random() < 0.01 else number
    )


def case(rng: random.Random) -> tuple[TrainRequest, bytes]:
    """A request, and a table's pages."""
    width, rows, length = rng.choice([1, SHORT, LONG]), rng.choice([1, 40, 400]), rng.choice([2, 9])
    kinds = ["real[]"] if rng.random() < 0.3 else [rng.choice(COLUMNS) for _ in range(width)]
    kinds = [rng.choice(kinds)] * len(kinds) if rng.random() < 0.5 else kinds
    names = [*(f"x{k}" for k in range(len(kinds))), "y", *(["g"] if rng.random() < 0.3 else [])]
    table = relation(
        [*zip(names, kinds, strict=False), *((name, "real") for name in names[len(kinds) :])], array_length=length
    )
    nulls = rng.choice([0, 0, 0.05])
    content = []
    for _ in range(rows):
        values = [
            random_value(rng, a, length) if a.type_name != "real" else wild(rng, rng.gauss(0, 1))
            for a in table.attributes[: len(kinds)]
        ]
        values += [float(rng.randrange(2)), *([rng.choice([0.5, 1.0])] if "g" in names else [])]
        content.append([None if rng.random() < nulls else value for value in values])
    pages = build_pages(table.schema, content)
    rule = rng.choice(RULES)
    asked = request(
        relation([(a.name, a.type_name) for a in table.attributes], len(pages) // 8192, array_length=length),
        rule=rule,
        text=rules.text(rule),
        features=tuple(names[: len(kinds)]),
        weight="g" if "g" in names else None,
        epochs=rng.choice([None, 1, 3]),
        shuffle=rng.choice([None, False, True]),
        seed=rng.randrange(3),
        nonfinite=rng.choice([None, "keep"]),
    )
    damaged = [
        damage(rng, page) if rng.random() < 0.5 else page
        for page in (pages[at : at + 8192] for at in range(0, len(pages), 8192))
    ]
    return asked, b"".join(damaged)


def outcome(asked: TrainRequest, pages: bytes) -> str:
    """The class and the message of the error, if there is one."""
    training: Training | None = None
    permuted = None
    try:
        training = MachineTrainer().open(asked, lambda notice: None)
        if training.order is not None:
            permuted = arrays._permuted(training.order, guarded(pages).reshape(-1, 8192))

        def fed(sink: Sink) -> int:
            if permuted is None:
                return feed(training, sink, pages)
            return arrays._feed(training, sink, permuted)

        run(training, asked, feed=fed, notify=lambda notice: None)
    except (TrainingError, UsageError, OutOfLine) as error:
        return f"{getattr(error, 'sqlstate', '')} {error}"
    finally:
        if permuted is not None:
            permuted.close()
        if training is not None:
            training.close()
    return ""


def test_damaged_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "always")
    began, states = time.monotonic(), Counter[str]()
    for seed in count(SEED):
        if time.monotonic() - began > SECONDS and seed >= SEED + scaled(60):
            break
        said = outcome(*case(random.Random(seed)))
        assert not said.startswith("XX000"), f"seed {seed}: {said}"
        states[said[:5]] += 1
    assert min(states[""], states["XX001"]) > 0, states
