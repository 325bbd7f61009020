"""Real data for the comparison: what scikit-learn carries, and well-known files where a folder has them.

In: a name, perhaps a folder. Out: training and test rows, features standardised by the training rows' means and
deviations, as scikit-learn's pipelines do it; both sides of a comparison get the same arrays. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy import movielens, zipf
from dana.errors import SetupError

Floats = NDArray[np.float32]
Raw = tuple[NDArray[np.float64], NDArray[np.float64]]
SEED = 7
TRIPLES = ("pixels of digits", "cells of breast_cancer", "signals of ujiindoorloc", "movielens")
"""Data whose features are numbers of rows and columns of a matrix."""
NUMBERED = ("purchases", "neighbours", "clicks", "grades", "movielens 100k")
"""Data whose features are numbers of categories, as they come; a name begins with one of these."""
TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Rows to train on and rows to judge by.

    Attributes
    ----------
    name
        The data's name.
    features, label
        Training rows, shapes (rows, columns) and (rows,).
    test_features, test_label
        The others.
    raw
        Features are as they come; else they are standardised.
    """

    name: str
    features: NDArray[np.floating]
    label: Floats
    test_features: NDArray[np.floating]
    test_label: Floats
    raw: bool = False

    def columns(self, *, test: bool = False) -> dict[str, Floats]:
        """Columns ``x1`` … ``xn`` and ``y``, as a table has them."""
        features, label = (self.test_features, self.test_label) if test else (self.features, self.label)
        return {f"x{k + 1}": features[:, k].astype(np.float32) for k in range(features.shape[1])} | {"y": label}


def split(name: str, raw: Raw) -> Split:
    """Shuffle, cut, standardise; the same for the same rows.

    Of triples, whose features are numbers of rows and columns, the label is brought to deviation 1 instead; categories
    stay as they are.
    """
    features, label = raw
    if name in TRIPLES:
        return cut(name, (features, label / label.std()))
    plain = cut(name, raw)
    if name.startswith(NUMBERED):
        return plain
    mean, deviation = plain.features.mean(axis=0), plain.features.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    return replace(
        plain,
        features=((plain.features - mean) / scale).astype(np.float32),
        test_features=((plain.test_features - mean) / scale).astype(np.float32),
    )


def cut(name: str, raw: Raw, *, by_label: bool = False) -> Split:
    """Shuffle and cut; with `by_label` the rows of each label in the same shares."""
    features, label = raw
    order = np.random.default_rng(SEED).permutation(len(label))
    groups = [order[label[order] == one] for one in np.unique(label)] if by_label else [order]
    ends = [round(len(group) * (1 - TEST_SHARE)) for group in groups]
    train, test = (
        np.concatenate([group[part(end)] for group, end in zip(groups, ends, strict=True)])
        for part in (lambda end: slice(0, end), lambda end: slice(end, None))
    )
    if by_label:
        train = np.random.default_rng(SEED).permutation(train)
    values = label.astype(np.float32)
    return Split(
        name=name, features=features[train], label=values[train], test_features=features[test], test_label=values[test]
    )


def carried(loader: str, **options: bool) -> Callable[[], Raw]:
    """Data of scikit-learn's package."""

    def load() -> Raw:
        try:
            import sklearn.datasets
        except ImportError:
            raise SetupError("the comparison needs scikit-learn; run: pip install scikit-learn") from None
        bunch = getattr(sklearn.datasets, loader)(**options)
        return np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target, dtype=np.float64)

    return load


def _digits_are_even() -> Raw:
    features, label = CARRIED["digits"]()
    return features, (label % 2 == 0).astype(np.float64)


def _pixels() -> Raw:
    """The images' pixels as triples: image, place, brightness."""
    return _triples(CARRIED["digits"]()[0] + 1)  # 0 stands for a missing value


def _cells() -> Raw:
    """The patients' measurements, standardised, as triples: patient, measurement, value."""
    features = CARRIED["breast_cancer"]()[0]
    return _triples((features - features.mean(axis=0)) / features.std(axis=0))


def _triples(matrix: NDArray[np.float64]) -> Raw:
    places = np.indices(matrix.shape).reshape(2, -1).T
    return places.astype(np.float64), matrix.reshape(-1)


CARRIED: dict[str, Callable[[], Raw]] = {
    "diabetes": carried("load_diabetes"),
    "breast_cancer": carried("load_breast_cancer"),
    "iris": carried("load_iris"),
    "wine": carried("load_wine"),
    "digits": carried("load_digits"),
    "even digits": _digits_are_even,
    "pixels of digits": _pixels,
    "cells of breast_cancer": _cells,
    **zipf.DATA,
}
"""Data that scikit-learn's package contains, and made ones."""


def _table(file: Path, *, header: bool) -> NDArray[np.float64]:
    # by way of binary32, in which the largest file takes half the memory while it is read
    return np.loadtxt(file, delimiter=",", dtype=np.float32, skiprows=int(header)).astype(np.float64)


def _last_column(file: Path, *, header: bool) -> Raw:
    table = _table(file, header=header)
    return table[:, :-1], table[:, -1]


def _lodgepole(file: Path) -> Raw:
    features, label = _last_column(file, header=False)
    return features, (label == 2).astype(np.float64)


def _incomes(file: Path) -> Raw:
    import lzma

    from sklearn.datasets import load_svmlight_file

    with lzma.open(file) if file.suffix == ".xz" else file.open("rb") as stream:
        sparse, label = load_svmlight_file(stream, n_features=123)
    return np.asarray(sparse.toarray(), dtype=np.float64), (label > 0).astype(np.float64)


def _ratings(file: Path) -> Raw:
    """MovieLens: user::film::stars::time, numbered from 1."""
    text = file.read_text(encoding="latin-1").replace("::", " ")
    table = np.fromstring(text, dtype=np.float64, sep=" ").reshape(-1, 4)
    return table[:, :2] - 1, table[:, 2]


NOT_HEARD, WEAKEST = 100, -105.0
"""In UJIIndoorLoc: what stands for an access point that is not heard, and a strength below all that are."""


def _floors(file: Path) -> Raw:
    """Strengths of 520 access points; the floor."""
    table = _table(file, header=True)
    strengths = table[:, :520]
    return np.where(strengths == NOT_HEARD, WEAKEST, strengths), table[:, 522]


def _signals(file: Path) -> Raw:
    """What is heard in the first building as triples: place, access point, strength."""
    table = _table(file, header=True)
    strengths = table[table[:, 523] == 0, :520]
    places, points = np.nonzero(strengths != NOT_HEARD)
    numbers = np.unique(points, return_inverse=True)[1]
    return np.stack([places, numbers], axis=1).astype(np.float64), strengths[places, points] - WEAKEST


def _covers(file: Path) -> Raw:
    features, label = _last_column(file, header=False)
    return features, label - 1


FILES: dict[str, tuple[str, Callable[[Path], Raw]]] = {
    **movielens.FILES,
    "california": ("california_housing.csv", lambda file: _last_column(file, header=True)),
    "blog": ("blogData_train.csv", lambda file: _last_column(file, header=False)),
    "a9a": ("a9a.libsvm", _incomes),
    "covertype": ("covtype.data", _lodgepole),
    "covertype, 7 classes": ("covtype.data", _covers),
    "movielens": ("ratings.dat", _ratings),
    "ujiindoorloc": ("ujiindoorloc_trainingData.csv", _floors),
    "signals of ujiindoorloc": ("ujiindoorloc_trainingData.csv", _signals),
}
"""Data of a folder: the file's name, which may end in .xz, .gz, .bz2 or .brotli, and how it is read."""


def available(folder: Path | None) -> dict[str, Callable[[], Raw]]:
    """Loaders by name: what scikit-learn carries, and the files that are in ``folder``."""
    found = dict(CARRIED)
    if folder is None:
        return found
    for name, (stem, read) in FILES.items():
        files = [folder / f"{stem}{suffix}" for suffix in ("", ".xz", ".gz", ".bz2", ".brotli")]
        file = next((file for file in files if file.is_file()), None)
        if file is not None:
            found[name] = partial(read, file)
    return found
