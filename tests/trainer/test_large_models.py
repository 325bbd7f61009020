"""Models of chosen rows that no chip holds: in a memory beside it, or simulated; with the interpreter's bits."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dana
from dana.errors import InternalError
from dana.jit import code as jit
from dana.simulator import Simulator, large, structures
from dana.trainer import machine_code
from hwgen.spec.config import MachineConfig

# so many numbers are said, too
pytestmark = pytest.mark.filterwarnings("ignore:.*compiling it takes seconds:UserWarning")
ROWS = 600_000
RULE = f"""
import dana
U = dana.model([{ROWS}, 10], init=dana.normal(0, 0.1))
V = dana.model([300, 10], init=dana.normal(0, 0.1))
i = dana.input()
j = dana.input()
y = dana.output()
large = dana.algo(U, V, i, j, y)
error = dana.sigma(U[i] * V[j], 1) - y
large.setModel(U[i], U[i] - 0.02 * error * V[j])
large.setModel(V[j], V[j] - 0.02 * error * U[i])
large.setLoss(error * error)
large.setPrediction(dana.sigma(U[i] * V[j], 1))
"""
RNG = np.random.default_rng(0)
X = {"i": RNG.permutation(ROWS)[:500], "j": RNG.integers(0, 300, 500)}
Y = RNG.normal(size=500)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "large.py"
    file.write_text(RULE)
    return file


@pytest.fixture(params=["never", "always"])
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without machine code and with it; that asks for rows ahead."""
    monkeypatch.setenv(machine_code.VARIABLE, request.param)
    texts: list[str] = []
    proved: list[bool] = []
    make, close = jit._machine_code, Simulator.close
    monkeypatch.setattr(jit, "_machine_code", lambda text: (texts.append(text), make(text))[1])
    monkeypatch.setattr(Simulator, "close", lambda self: (proved.append(self.proved), close(self))[1])
    yield
    assert set(proved) == {request.param == "always"}
    assert ["call void @llvm.prefetch" in text.replace('"', "") for text in texts] == proved[: len(texts)]


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize("design", [{}, {"record_depth": 0}], ids=["records", "scratchpad"])
def test_rows_of_more_words_than_a_host_addresses(path: Path, design: dict[str, int]) -> None:
    with warnings.catch_warnings() if not design else pytest.warns(UserWarning, match="no hardware has so much"):
        if not design:  # there is hardware: nothing is told
            warnings.filterwarnings("error", message=".*no hardware")
        simulated = dana.load(path).fit(X, Y, epochs=2, design=design)
    interpreted = dana.load(path).fit(X, Y, epochs=2, machine="interp")
    for name, values in interpreted.models.items():
        np.testing.assert_array_equal(simulated.models[name], values)
    assert simulated.losses == interpreted.losses


@pytest.mark.usefixtures("code")
def test_scalars_of_chosen_rows() -> None:
    """A row of lanes for each, in what the host writes and reads, too."""
    rule = dana.load(Path(dana.__file__).parent / "rules" / "lrmf.py")
    sizes = {"m": ROWS, "n": 300}
    simulated = rule.fit({"i": X["i"][:50], "j": X["j"][:50]}, Y[:50], epochs=2, hyper=sizes)
    interpreted = rule.fit({"i": X["i"][:50], "j": X["j"][:50]}, Y[:50], epochs=2, hyper=sizes, machine="interp")
    for name, values in interpreted.models.items():
        np.testing.assert_array_equal(simulated.models[name], values)
    assert simulated.losses == interpreted.losses


@pytest.mark.usefixtures("code")
def test_in_files_it_has_the_same_bits(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays: list[int] = []
    make = large._mapped
    monkeypatch.setattr(large, "_mapped", lambda folder, size: (arrays.append(size), make(folder, size))[1])
    wanted = dana.load(path).fit(X, Y, epochs=3)
    assert not arrays
    large.keep_in(tmp_path)
    try:
        found = dana.load(path).fit(X, Y, epochs=3)
    finally:
        large.keep_in(None)
    trains, copy, measures = [one for one in arrays if one >= 40 * ROWS]
    assert (trains, copy, measures) == (64 * ROWS, 40 * ROWS, 64 * ROWS), "with room for vectors, and one copy"
    for name, values in wanted.models.items():
        np.testing.assert_array_equal(found.models[name], values)


def test_code_that_changes_other_rows_ends_the_training(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that tuples choose are put back as they were; of others nobody knows what they were."""
    monkeypatch.setenv(machine_code.VARIABLE, "always")
    path.write_text(RULE.replace("[300, 10]", f"[{ROWS}, 10]"))
    attach = Simulator.attach

    def crossed(self: Simulator, code: jit.Code) -> None:
        tables = (structures.CompiledTable * 2).from_address(code.data.tables.value)
        tables[0].held, tables[1].held = tables[1].held, tables[0].held
        attach(self, code)

    monkeypatch.setattr(Simulator, "attach", crossed)
    with pytest.raises(InternalError, match="changed rows that no tuple chose"):
        dana.load(path).fit(X, Y, epochs=2)


def test_hardware_is_refused(path: Path) -> None:
    with pytest.raises(dana.UsageError, match="hardware has a scratch_depth of at most"):
        dana.load(path).fit(X, Y, epochs=1, machine="rtl", design={"record_depth": 0})
    assert not MachineConfig(scratch_depth=1 << 21).is_hardware
    assert MachineConfig(scratch_depth=1 << 20).is_hardware


def test_more_rows_than_a_number_can_choose(path: Path) -> None:
    path.write_text(RULE.replace(str(ROWS), str((1 << 24) + 1)))
    with pytest.raises(dana.UsageError, match="has 16,777,217 rows, a number can choose one of 16,777,216"):
        dana.load(path).fit(X, Y, epochs=1)
