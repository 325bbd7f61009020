"""Passes over the rows in binary64, for the sums of a model.

A simulator reads the pages without training; every machine uses the same code, so that models stay equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dana.errors import UsageError
from dana.predictor.affine import Scores, scores
from dana.predictor.program import Program, decode_predictor
from dana.trainer.contract import Notify, Parameter, Sink, Training, TrainRequest, TrainResult
from dana.trainer.data.coefficients import MOST
from dana.trainer.data.likelihood import Basis, Doubles, Family, Floats, LikelihoodObserver
from dana.trainer.likelihoods import family_of, penalty_of

MAX_COLUMNS = 100
"""Columns beyond which the curvature, which grows with their square, costs more than the training of many rows."""

MAX_WIDTH = 600
"""The same of few rows: the solution of the equations, which grows with the cube, costs seconds."""

MAX_PRODUCTS = 1e10
"""Rows times columns squared up to which rows are few: a pass takes some seconds."""

MAX_WEIGHTS = 300
"""Weights of all classes but the first, with intercepts, beyond which Newton's method does not follow."""


@dataclass(slots=True, kw_only=True)
class Model:
    """A program with its parameters: one holds the weights, another the intercept."""

    program: Program
    parameters: list[Parameter]

    def scores(self, changed: dict[str, Floats] | None = None) -> Scores | None:
        """Return the sums, with other values for some parameters."""
        values = [(changed or {}).get(one.name, one.values) for one in self.parameters]
        return scores(self.program, np.concatenate([one.reshape(-1) for one in values]).astype(np.float32), MOST)

    def weights(self, at: Scores) -> tuple[str, str, Doubles] | None:
        """Return the names of weights and intercepts, and the coefficient of a column for a weight of 1.

        Parameters
        ----------
        at
            The sums of the parameters; each has weights and an intercept.
        """
        sums = len(at.intercepts)
        shape = at.coefficients.shape if sums > 1 else at.coefficients.shape[1:]
        single = [one for one in self.parameters if one.values.shape == ((sums,) if sums > 1 else ())]
        for one in self.parameters:
            if one.values.shape != shape:
                continue
            ones = self.scores({one.name: np.ones_like(one.values)})
            if ones is None or not np.isfinite(ones.coefficients).all():
                continue
            if not np.allclose(ones.coefficients * one.values, at.coefficients, rtol=1e-9, atol=0):
                continue
            for other in single:
                # with weights of 1: sums without columns are no sums to `scores`
                zero = {one.name: np.ones_like(one.values), other.name: np.float32(0) * other.values}
                less, more = self.scores(zero), self.scores({**zero, other.name: zero[other.name] + np.float32(1)})
                if less is None or more is None or (less.coefficients != more.coefficients).any():
                    continue
                if np.allclose(more.intercepts - less.intercepts, 1, rtol=0, atol=1e-6):
                    return one.name, other.name, ones.coefficients if sums > 1 else ones.coefficients[0]
        return None

    def set(self, name: str, values: Floats) -> None:
        """Replace a parameter."""
        self.parameters = [replace(one, values=values) if one.name == name else one for one in self.parameters]


@dataclass(slots=True, kw_only=True)
class Passes:
    """Passes over the rows of a training that has found a model.

    Attributes
    ----------
    result
        The result of the training so far.
    measured
        Makes a pass, and returns its observer: of a family, in a basis, at weights; of labels less ``middle``.
    model, found
        The model, and its sums.
    rows
        Rows trained on.
    notify
        Receives what is reported.
    """

    training: Training
    request: TrainRequest
    result: TrainResult
    measured: Callable[..., LikelihoodObserver]
    model: Model
    found: Scores
    rows: int
    notify: Notify

    @property
    def family(self) -> Family | None:
        """The likelihood that the rule maximises; None: it has none, or its prediction is not the likelihood's."""
        return family_of(self.found.link, self.request, self.metas)

    @property
    def metas(self) -> Mapping[str, float]:
        """The rule's numbers by name."""
        metas: Mapping[str, float] = self.result.metadata["hyper"]
        return metas

    @property
    def penalty(self) -> float:
        """See `penalty_of`."""
        return penalty_of(self.request, self.metas)

    def is_narrow(self, count: int) -> bool:
        """Return whether so many columns are few enough for passes in binary64."""
        return count <= MAX_COLUMNS or (count <= MAX_WIDTH and self.rows * count**2 <= MAX_PRODUCTS)

    def own_basis(self, count: int) -> Basis:
        """Return the columns as the rule scales them."""
        basis = Basis(centre=np.zeros(count), scale=np.ones(count))
        for name in (".mean", ".scale"):
            own = [one.values for one in self.model.parameters if one.name.endswith(name)]
            if len(own) == 1 and own[0].shape == (count,):
                basis = replace(basis, **{"centre" if name == ".mean" else "scale": own[0].astype(np.float64)})
        return replace(basis, scale=np.where(basis.scale > 0, basis.scale, 1))

    def set_weights(self, mapped: tuple[str, str, Doubles], basis: Basis, weights: Doubles) -> None:
        """Set the parameters to new weights of the basis; the intercept makes up for the rounding of the others."""
        name, intercept, each = mapped
        coefficients = weights[1:] * basis.scale
        old = next(one.values for one in self.model.parameters if one.name == name)
        new = np.divide(coefficients, each, out=old.astype(np.float64), where=each != 0)
        self.model.set(name, new.astype(np.float32))
        at, rounded = self.model.scores(), new.astype(np.float32).astype(np.float64) * each
        assert at is not None
        # at the centre of the columns
        missing = weights[0] - (at.intercepts[0] + rounded @ basis.centre)
        own = next(one.values for one in self.model.parameters if one.name == intercept)
        self.model.set(intercept, np.asarray(np.float64(own) + missing, np.float32))


def opened(
    training: Training,
    request: TrainRequest,
    result: TrainResult,
    *,
    rows: int,
    feed: Callable[[Sink], int],
    notify: Notify,
) -> Passes | None:
    """Return what makes passes over the rows of a training; None if its prediction is no function of sums.

    Parameters
    ----------
    result
        The result of the training so far, with its parameters.
    rows
        Rows trained on.
    feed
        Feeds all pages to a sink.
    notify
        Receives what is reported about the rows and the model.
    """
    layout = training.layout
    if result.predictor is None or layout.label < 0 or sum(one.values.size for one in result.parameters) > MOST:
        return None
    try:
        model = Model(program=decode_predictor(result.predictor), parameters=list(result.parameters))
        found = model.scores()
    except UsageError:
        return None
    if found is None or found.coefficients.shape[1] != len(layout.features):
        return None

    def measured(family: Family, basis: Basis, weights: Doubles, middle: float = 0.0) -> LikelihoodObserver:
        observer = LikelihoodObserver(family=family, layout=layout, basis=basis, weights=weights, middle=middle)
        feed(training.look(observer))
        training.end_look()
        return observer

    return Passes(
        training=training,
        request=request,
        result=result,
        measured=measured,
        model=model,
        found=found,
        rows=rows,
        notify=notify,
    )


def in_basis(found: Scores, basis: Basis) -> Doubles:
    """Return intercept and weights of the basis, shape [features + 1]."""
    coefficients = found.coefficients[0]
    return np.concatenate([found.intercepts + coefficients @ basis.centre, coefficients / basis.scale])
