"""Models for the tests of exports: rules, random weights, and predictions by the interpreter, as `dana_predict`'s."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dana import rules
from dana.interchange.stored import StoredModel
from dana.predictor.program import decode_predictor, encode_predictor
from dana.trainer.data.classes import prediction_kind
from dsl import compile_rule
from dsl.hdfg.graph import Graph, Op
from dsl.hdfg.init import OF_COLUMNS
from dsl.hdfg.interpreter import Interpreter
from hwgen.spec import numerics
from tests.interchange.bounds import predictions
from tests.oracles.running_error import Bounded
from tests.rules.tables import EXTENTS, table

Floats = NDArray[np.float32]

CATEGORIES = "c"
"""What rules of the library call the input that is numbers of categories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, rows of features, and their predictions bit for bit."""

    model: StoredModel
    rows: Floats
    expected: Floats

    @property
    def bounded(self) -> Bounded:
        """The predictions in real arithmetic, and how far binary32 may be from them."""
        weights = self.model.weights.astype(np.float64)
        return predictions(self.model.prediction, weights, self.rows.astype(np.float64))

    def check(self, found: NDArray[np.floating], *, decided: float = 0.9) -> None:
        """Compare with somebody else's predictions: both are within the bound of the same real numbers.

        Where it depends on a rounding which way a comparison goes, nothing can be said; `decided` is the least part of
        the rows where it can.
        """
        bounded = self.bounded
        room = np.maximum(2 * bounded.error, 1e-37)
        known = np.isfinite(room) & np.isfinite(bounded.value)
        known &= room < 0.1 * np.maximum(1, np.abs(bounded.value))
        assert np.mean(known) >= decided
        assert np.all(np.abs(found.astype(np.float64) - self.expected)[known] <= room[known])


def case(graph: Graph, columns: dict[str, Floats], *, seed: int, classes: tuple[str, ...] | None = None) -> Case:
    """Weights at random; `columns` are the inputs' values, of shape (rows, *shape)."""
    random = np.random.default_rng(seed)
    nodes = graph.nodes
    names = [str(nodes[k].name) for k in graph.inputs if nodes[k].op is Op.INPUT]
    parameters = {
        str(nodes[k].name): np.asarray(random.normal(0, 1, graph.concrete_shape(k)), np.float32) for k in graph.models
    }
    for node in (nodes[k] for k in graph.models if nodes[k].init.kind in OF_COLUMNS):
        parameters[str(node.name)] = np.float32(node.init.first) + np.float32(0.1) * parameters[str(node.name)]
    assert graph.prediction is not None
    needed = {str(nodes[k].name) for k in graph.reachable([graph.prediction])}
    with np.errstate(all="ignore"):
        used = {name: columns[name] for name in names if name in needed}
        expected = Interpreter(graph, numerics).predict(used, parameters)
    rows = np.concatenate([columns[name].reshape(len(columns[name]), -1) for name in names], axis=1)
    model = StoredModel(
        name="m",
        version=3,
        rule=graph.name,
        parameters=parameters,
        features=tuple(f"x{k + 1}" for k in range(rows.shape[1])),
        labels=("y",),
        classes=classes,
        program=decode_predictor(encode_predictor(graph)),
        predicts=prediction_kind(graph),
    )
    return Case(model=model, rows=np.asarray(rows, np.float32), expected=np.asarray(expected, np.float32))


def library_case(name: str) -> Case:
    """A rule of the library on its small table."""
    graph = compile_rule(rules.text(name), filename=name).hdfg
    columns = table(name)
    features = [values for column, values in columns.items() if column != "y"]
    extents = dict(graph.extents) | EXTENTS.get(name, {})
    inputs = [graph.nodes[k] for k in graph.inputs if graph.nodes[k].op is Op.INPUT]
    shapes = [node.shape[0] if node.shape else 1 for node in inputs]
    fixed = sum(wide for wide in shapes if isinstance(wide, int))
    extents |= {str(wide): len(features) - fixed for wide in shapes if not isinstance(wide, int)}
    bound = graph.bind(extents)
    given, at = {}, 0
    for node in (bound.nodes[k] for k in bound.inputs if bound.nodes[k].op is Op.INPUT):
        wide = bound.concrete_shape(node.id)[0] if node.shape else 1
        given[str(node.name)] = _values(str(node.name), np.stack(features[at : at + wide], axis=1), bool(node.shape))
        at += wide
    assert at == len(features)
    return case(bound, {key: np.asarray(value, np.float32) for key, value in given.items()}, seed=7)


def _values(name: str, block: Floats, is_vector: bool) -> Floats:
    """Values of an input: numbers of rows and categories as they are, some of the latter unknown, others made small."""
    if not is_vector:
        return block[:, 0]
    if name == CATEGORIES:
        block = block.copy()
        block[::5, 1:] = -1
        block[::10] = -1  # each alone, and all of a row
        unknown = np.unique(block < 0, axis=0)
        assert len(unknown) == 2 ** block.shape[1]
        return block
    return 4 * block / np.maximum(np.abs(block).max(axis=0), 1)


def rule_case(declarations: str, names: str, prediction: str, shapes: dict[str, tuple[int, ...]]) -> Case:
    """A rule of one line, on 40 rows of positive and negative numbers."""
    model = names.split(",")[0]
    text = "\n".join(
        [
            "import dana",
            *declarations.split("; "),
            "y = dana.output()",
            f"r = dana.algo({names}, y)",
            f"r.setModel({model}, {model} + 0 * y)",
            f"r.setPrediction({prediction})",
        ]
    )
    random = np.random.default_rng(5)
    columns = {name: np.asarray(random.normal(0, 1, (40, *shape)), np.float32) for name, shape in shapes.items()}
    if "i" in columns:
        columns["i"] = np.asarray(np.arange(40) % 12, np.float32)
    return case(compile_rule(text, filename="rule").hdfg.bind({}), columns, seed=9)
