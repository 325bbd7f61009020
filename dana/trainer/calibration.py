"""Platt scaling: the probability of the second of two classes from a score, fitted to rows that trained nothing.

The probability 1 / (1 + exp(a * score + b)) is appended to the prediction of the rule, so everything that predicts or
exports a model has it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dana.predictor.program import encode_predictor
from dana.trainer.contract import HeldOut, Level, Notice, Notify, SqlState, TrainingError, TrainRequest, TrainResult
from dana.trainer.data.likelihood import Doubles
from dana.trainer.data.weights import bind_request
from dana.trainer.designs import chosen_extents, rule_graph
from dsl.binary32 import round32
from dsl.hdfg.graph import Graph, Node, Op, Region
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics

STEPS = 100
"""Steps of Newton's method at most, and halvings of a step."""

SETTLED = 1e-12
"""Gain of a step, relative to the weight of the rows, that ends it."""


def check_calibrate(request: TrainRequest) -> None:
    """Raise TrainingError if the prediction of the rule cannot be calibrated."""
    if request.calibrate is None:
        return
    if request.calibrate != "platt":
        raise TrainingError(f"argument \"calibrate\" must be 'platt', not {request.calibrate!r}")
    graph = rule_graph(request)
    if graph.classes != 2 or graph.loss is None or graph.prediction is None or graph.nodes[graph.prediction].shape:
        raise TrainingError(
            f'argument "calibrate" needs a score of two classes and a loss, which rule {request.rule!r} does not have',
            hint="Such rules have dana.output(classes=2), setLoss and one number as prediction, as linear_svm has.",
        )


def calibrated(request: TrainRequest, result: TrainResult, held_out: HeldOut | None, notify: Notify) -> TrainResult:
    """Return the result with a prediction that is calibrated on the held-out rows.

    Raises
    ------
    TrainingError
        The held-out rows do not have both classes.
    """
    assert held_out is not None, "the rule has a loss"
    columns, labels, weights = held_out.rows()
    second = labels > 0.5
    if second.all() or not second.any():
        raise TrainingError(
            f"a calibration needs rows for validation of both classes, and {int(second.sum())} of {labels.size} usable "
            "rows are of the second",
            sqlstate=SqlState.DATA_EXCEPTION,
            hint="Increase validation_size. Rows with a NULL in a column in use and rows of weight 0 do not count.",
        )
    asked, hyper = held_out.request, result.metadata["hyper"]
    graph = bind_request(rule_graph(asked), asked, chosen_extents(result.metadata["dims"], asked.hyper)).graph
    models = {one.name: one.values for one in result.parameters}
    score = replace(graph, prediction=_score(graph))
    scores = Interpreter(score, numerics).predict(columns, models, hyper).astype(np.float64)
    a, b = platt(scores, second, weights)
    notify(
        Notice(
            level=Level.WARNING if a >= 0 else Level.NOTICE,
            message=f"calibrated on {labels.size} rows: the probability of the second class is "
            f"1 / (1 + exp({a:.6g} * score {'-' if b < 0 else '+'} {abs(b):.6g}))",
            hint="On these rows larger scores do not mean the second class: the model has learnt nothing for them."
            if a >= 0
            else "",
        )
    )
    return replace(
        result,
        predictor=encode_predictor(_with_sigmoid(score, a, b), hyper),
        metadata={
            **result.metadata,
            "predicts": "probability",
            "calibration": {"method": request.calibrate, "a": a, "b": b, "rows": labels.size},
        },
    )


def platt(scores: Doubles, second: np.ndarray, weights: Doubles) -> tuple[float, float]:
    """Return a and b of the probability 1 / (1 + exp(a * score + b)) of the second class.

    Newton's method with the smoothed targets of Platt (1999), as Lin, Lin and Weng (2007) describe it.

    Parameters
    ----------
    scores, second, weights
        Of each row, shape (rows,): the score, whether it is of the second class, and how much it counts.
    """
    ones, zeros = float(weights[second].sum()), float(weights[~second].sum())
    targets = np.where(second, (ones + 1) / (ones + 2), 1 / (zeros + 2))
    scale = max(float(np.abs(scores).max()), 1e-30)
    values = np.stack([scores / scale, np.ones(scores.size)])
    found = np.array([0.0, np.log((zeros + 1) / (ones + 1))])

    def loss(at: Doubles) -> float:
        exponents = at @ values
        return float(weights @ (np.logaddexp(0, exponents) - (1 - targets) * exponents))

    least = loss(found)
    for _ in range(STEPS):
        p = np.exp(-np.logaddexp(0, found @ values))
        gradient = values @ (weights * (targets - p))
        curvature = (values * (weights * p * (1 - p))) @ values.T
        step = np.linalg.solve(curvature + SETTLED * np.eye(2), gradient)
        for _ in range(STEPS):
            if loss(found - step) <= least:
                break
            step /= 2
        found, before, least = found - step, least, loss(found - step)
        if before - least <= SETTLED * (ones + zeros):
            break
    return float(found[0] / scale), float(found[1])


def _score(graph: Graph) -> int:
    """The node of the score: the prediction, or what a probability is the sigmoid of."""
    assert graph.prediction is not None
    node = graph.nodes[graph.prediction]
    return node.inputs[0] if node.op is Op.SIGMOID else node.id


def _with_sigmoid(graph: Graph, a: float, b: float) -> Graph:
    assert graph.prediction is not None
    first = len(graph.nodes)
    slope, shift = (
        Node(id=first + k, op=Op.CONST, region=Region.CONST, value=round32(-each)) for k, each in enumerate((a, b))
    )
    operations = ((Op.MUL, (graph.prediction, slope.id)), (Op.ADD, (first + 2, shift.id)), (Op.SIGMOID, (first + 3,)))
    made = (
        Node(id=first + 2 + k, op=op, inputs=inputs, region=Region.TUPLE) for k, (op, inputs) in enumerate(operations)
    )
    return replace(graph, nodes=(*graph.nodes, slope, shift, *made), prediction=first + 4)
