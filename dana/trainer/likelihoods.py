"""The likelihood that a rule maximises, from its prediction and its loss: not from its name.

The normal likelihood belongs to a weighted sum, the binomial to its sigmoid, Poisson's to its exponential.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import inf

import numpy as np

from dana.compiler.binding.weights import weighted
from dana.predictor.affine import Link
from dana.trainer.contract import TrainRequest
from dana.trainer.data.likelihood import Family
from dana.trainer.designs import rule_of
from dana.trainer.losses import is_multiple, loss_graph, losses_at
from dsl import RuleError
from dsl.hdfg.graph import BindError
from dsl.hdfg.ops import Op
from dsl.semantics.program import reachable

WEAK = 1.001e-6
"""Largest penalty that counts as none: it keeps the coefficients of separated rows finite; the last step removes it."""

FAMILIES = {
    Link.NONE: Family.NORMAL,
    Link.LOGIT: Family.BINOMIAL,
    Link.EXP: Family.POISSON,
    Link.LARGEST: Family.MULTINOMIAL,
}


def family_of(link: Link, request: TrainRequest, metas: Mapping[str, float]) -> Family | None:
    """Return the likelihood that a rule maximises; None: it has none, or its prediction is not the likelihood's."""
    family = FAMILIES.get(link)
    likelihood = likelihood_of(request.text, request.rule, tuple(metas.items()))
    return family if family is not None and family is likelihood else None


def penalty_of(request: TrainRequest, metas: Mapping[str, float]) -> float:
    """Return the largest meta that the rule minimises in addition to its loss; infinity for other additions."""
    checked = rule_of(request.text, request.rule).checked
    minimised = [one.value for one in checked.gradients]
    if checked.loss is None or all(one is checked.loss for one in minimised):
        return 0
    added = reachable(minimised) - reachable([checked.loss])
    return max((abs(metas[str(one.name)]) for one in added if one.op is Op.META), default=inf)


@lru_cache(maxsize=64)  # trainings of groups ask again and again
def likelihood_of(text: str, rule: str, metas: tuple[tuple[str, float], ...]) -> Family | None:
    """Return the distribution with a log likelihood proportional to the negative of a rule's loss; None: there is none.

    The loss is a function of a score and the label: it is compared with each likelihood on a few of both.
    """
    graph = weighted(rule_of(text, rule).hdfg, column=False, classes=False)
    given = dict(graph.extents)
    try:
        loss = loss_graph(graph.bind({name: 2 for name in graph.dims if name not in given}))
    except (BindError, RuleError):
        return None
    if loss is None or loss.loss is None:
        return None
    if shape := loss.concrete_shape(loss.inputs[0]):
        several = np.sin(np.arange(5 * shape[0])).reshape(5, -1)
        classes = np.repeat(np.arange(shape[0], dtype=np.float64)[:, None], len(several), axis=1)
        expected = np.log(np.exp(several).sum(axis=1)) - several.T
        return Family.MULTINOMIAL if is_multiple(losses_at(loss, dict(metas), several, classes), expected) else None
    score = np.array([-1.5, -0.5, 0.25, 1, 2])
    for family, highest in ((Family.NORMAL, 3.0), (Family.BINOMIAL, 1.0), (Family.POISSON, 3.0)):
        scores, labels = np.meshgrid(score, np.array([0.0, 1.0, highest]))
        expected = (
            (scores - labels) ** 2
            if family is Family.NORMAL
            else np.log1p(np.exp(scores)) - labels * scores
            if family is Family.BINOMIAL
            else np.exp(scores) - labels * scores
        )
        if is_multiple(losses_at(loss, dict(metas), scores, labels), expected):
            return family
    return None
