"""Random columns that fit a graph's inputs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsl.hdfg.graph import Graph, Op


def index_limits(graph: Graph) -> dict[int, int]:
    """Rows that each index input may choose from, by node id."""
    pairs = [node.inputs for node in graph.nodes if node.op is Op.GATHER]
    pairs += [(update.model, update.index) for update in graph.updates if update.index is not None]
    limits: dict[int, int] = {}
    for model, index in pairs:
        rows = graph.concrete_shape(model)[0]
        limits[index] = min(rows, limits.get(index, rows))
    return limits


def random_columns(graph: Graph, count: int, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Normally distributed numbers for values, whole numbers for indices."""
    rng = np.random.default_rng(seed)
    limits = index_limits(graph)
    columns = {}
    for i in graph.inputs:
        shape = (count, *graph.concrete_shape(i))
        if i in limits:
            columns[str(graph.nodes[i].name)] = rng.integers(0, limits[i], shape).astype(np.float32)
        else:
            columns[str(graph.nodes[i].name)] = rng.standard_normal(shape).astype(np.float32)
    return columns
