"""Start values that are centres of clusters: as good as scikit-learn's, and the same wherever the rows come from."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler

from dana import rules
from dana.trainer.arrays import Trained, train
from dana.trainer.contract import TrainingError, TupleLayout
from dana.trainer.data import clusters
from dana.trainer.data.clusters import centres_of
from dana.trainer.data.likelihood import Basis, Family, LikelihoodObserver

Doubles = NDArray[np.float64]


def data(name: str) -> Doubles:
    if name == "blobs":
        return datasets.make_blobs(3000, 5, centers=8, cluster_std=2, random_state=1)[0]  # type: ignore[no-any-return]
    return getattr(datasets, f"load_{name}")().data.astype(np.float64)  # type: ignore[no-any-return]


def fitted(x: Doubles, k: int, **options: object) -> Trained:
    columns = {f"x{j:02}": column for j, column in enumerate(x.T)}
    options["hyper"] = {"k": k, **options.pop("hyper", {})}  # type: ignore[dict-item]
    return train(rules.text("kmeans"), columns, **options)  # type: ignore[arg-type]


def standardised(x: Doubles) -> Doubles:
    return StandardScaler().fit_transform(x.astype(np.float32).astype(np.float64))  # type: ignore[no-any-return]


def inertia(rows: Doubles, found: Doubles) -> float:
    return float(np.min([((rows - one) ** 2).sum(axis=1) for one in found], axis=0).sum())


@pytest.mark.parametrize("name", ["iris", "wine", "digits", "blobs"])
@pytest.mark.parametrize("k", [3, 8, 20])
def test_within_one_percent_of_scikit_learn(name: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # it warns where it finds no list of processors
    x = data(name)
    rows = standardised(x)
    found = fitted(x, k)
    ours = inertia(rows, found.models["C"].astype(np.float64))
    assert found.converged
    assert ours <= 1.01 * KMeans(k, n_init=10, random_state=0).fit(rows).inertia_
    assert found.losses[-1] * len(rows) == pytest.approx(ours, rel=1e-3)


def test_more_rows_than_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    x = data("blobs")
    whole = fitted(x, 8)
    monkeypatch.setattr(clusters, "ROWS", 250)
    sampled = fitted(x, 8)
    assert len(sampled.losses) > len(whole.losses)
    rows = standardised(x)
    ours, theirs = (inertia(rows, one.models["C"].astype(np.float64)) for one in (sampled, whole))
    assert ours <= 1.01 * theirs


def test_seed_and_runs_choose() -> None:
    x = data("wine")
    first, again, other = (fitted(x, 8, seed=seed, epochs=1).models["C"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    rows = standardised(x)
    single, best = (
        inertia(rows, fitted(x, 20, hyper={"n_init": runs}).models["C"].astype(np.float64)) for runs in (1, 10)
    )
    assert best < single
    with pytest.raises(TrainingError, match="n_init"):
        fitted(x, 8, hyper={"n_init": 0})


@pytest.mark.parametrize("standardize", [True, False])
def test_every_machine_starts_alike(standardize: bool) -> None:
    x = data("iris")
    of_machine, of_interpreter = (
        fitted(x, 3, machine=machine, standardize=standardize, epochs=2).models for machine in ("sim", "interp")
    )
    for name, values in of_machine.items():
        np.testing.assert_array_equal(values, of_interpreter[name])


def test_a_warm_start_keeps_its_centres() -> None:
    x = data("iris")
    found = fitted(x, 3)
    again = fitted(x, 3, models=found.models, seed=9)
    np.testing.assert_allclose(again.models["C"], found.models["C"], atol=1e-4)
    assert len(again.losses) <= 2


def test_sums_are_exact() -> None:
    """So no order of additions, and no library or processor, can change the centres."""
    rows = data("digits")
    bits = (50 - rows.shape[1].bit_length()) // 2
    assert 4 * rows.shape[1] * 2.0 ** (2 * bits) <= 2.0**53
    order = np.random.default_rng(0).permutation(rows.shape[1])
    found, again = (centres_of(each, 5, runs=2, seed=3) for each in (rows, rows[:, order]))
    np.testing.assert_array_equal(again, found[:, order])


def test_the_sample_is_uniform() -> None:
    """Every row has the same chance, and no row is kept twice."""
    layout = TupleLayout(
        lanes=1, elements=1, features=np.zeros(1, np.int64), inputs={"x": np.zeros(1, np.int64)}, label=-1, weight=-1
    )
    seen = np.zeros(40)
    for seed in range(400):
        observer = LikelihoodObserver(
            family=Family.SAMPLE,
            layout=layout,
            basis=Basis(centre=np.zeros(1), scale=np.ones(1)),
            weights=np.zeros((1, 2)),
            rows=10,
            seed=seed,
        )
        numbers = np.arange(41, dtype=np.float32)[:, None]
        numbers[7] = np.nan  # left out
        observer.add(numbers)
        kept = observer.matrix[:, 1].astype(int)
        assert len(set(kept.tolist())) == 10
        seen[kept - (kept > 7)] += 1
    assert 7 not in observer.matrix[:, 1]
    # 400 draws of 10 of 40: a hundred each, with a deviation below 9
    assert np.abs(seen - 100).max() < 40


def test_every_centre_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of small tables with heavy tails, runs find unlike centres: better than scikit-learn's by 1 % on average."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    ratios = []
    for seed in range(16):
        rows = np.random.default_rng(seed).standard_t(3, size=(80, 6))
        best = KMeans(8, n_init=10, random_state=0).fit(rows).inertia_
        found = centres_of(rows, 8, runs=10, seed=1)
        ratios.append(inertia(rows, found) / best)
    assert np.mean(ratios) < 0.99
