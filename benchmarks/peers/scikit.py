"""What scikit-learn has in the place of a shipped rule, on the same arrays as `benchmarks.peers.learners`.

Out: `Learner`s. Constant steps and batches are scikit-learn's own, so that a pass is a pass of what its users run; it
has no batches of 64 for linear models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.learners import Floats, Learner, nearest

SGD: dict[str, Mapping[str, Any] | None] = {
    "linear": {"loss": "squared_error", "penalty": None},
    "ridge": {"loss": "squared_error"},
    "lasso": {"loss": "squared_error", "penalty": "l1"},
    "elastic_net": {"loss": "squared_error", "penalty": "elasticnet"},
    "huber": {"loss": "huber"},
    "quantile": {"loss": "epsilon_insensitive", "epsilon": 0.0},
    "poisson": None,
    "logistic": {"loss": "log_loss"},
    "linear_svm": {"loss": "squared_hinge"},
}
"""Arguments of SGDClassifier or SGDRegressor by rule; there is no Poisson."""
TWO_CLASSES = ("logistic", "linear_svm")


def sgd(x: Floats, y: Floats, rule: str, *, eta0: float = 1e-3) -> Learner:
    """Stochastic gradient descent, a row at a time."""
    from sklearn.linear_model import SGDClassifier, SGDRegressor

    options = SGD[rule] or {}
    if rule in TWO_CLASSES:
        classifier = SGDClassifier(learning_rate="constant", eta0=eta0, **options)
        return Learner(lambda: classifier.partial_fit(x, y, classes=[0, 1]), lambda rows: _scores(classifier, rows))
    regressor = SGDRegressor(learning_rate="constant", eta0=eta0, **options)
    return Learner(lambda: regressor.partial_fit(x, y), lambda rows: np.asarray(regressor.predict(rows)))


def _scores(estimator: Any, rows: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(estimator.decision_function(rows))


def classes_by_sgd(x: Floats, y: Floats) -> Learner:
    """One against the rest, a row at a time."""
    from sklearn.linear_model import SGDClassifier

    classifier = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=1e-3)
    return Learner(lambda: classifier.partial_fit(x, y, classes=range(10)), lambda rows: _scores(classifier, rows))


def network(x: Floats, y: Floats) -> Learner:
    """A hidden layer of 32 rectified units, Adam, batches of 64."""
    from sklearn.neural_network import MLPClassifier

    made = MLPClassifier((32,), batch_size=64, shuffle=False)

    def score(rows: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.log(np.maximum(made.predict_proba(rows), 1e-30)))

    return Learner(lambda: made.partial_fit(x, y, classes=range(10)), score)


def centres(x: Floats, k: int) -> Learner:
    """K-means by mini-batches of its own size, each pass from the start."""
    from sklearn.cluster import MiniBatchKMeans

    made = MiniBatchKMeans(k, max_iter=1, n_init=1, init="random", max_no_improvement=None)
    return Learner(lambda: made.fit(x), lambda rows: nearest(rows, made.cluster_centers_))


def components(x: Floats, k: int) -> Learner:
    """Principal components by batches of 64."""
    from sklearn.decomposition import IncrementalPCA

    made = IncrementalPCA(k, batch_size=64)
    return Learner(lambda: made.fit(x), lambda rows: np.asarray(made.transform(rows)))


def _logistic(iterations: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(solver="liblinear", max_iter=iterations)


def _svm(iterations: int) -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC(dual=False, max_iter=iterations)


LIBLINEAR: Mapping[str, Callable[[int], Any]] = {"logistic": _logistic, "linear_svm": _svm}
"""Estimators of at most so many outer iterations, by rule."""
