"""The meaning of a rule: training and prediction in NumPy, the oracle of simulator and hardware.

In: a bound graph, an `Arithmetic`, columns of a table in heap order. Out: models, bit for bit as
docs/language.md ("What happens when a rule trains") and docs/arithmetic.md define them. Must not: reorder, fuse or
widen any operation for speed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dsl.binary32 import round32
from dsl.hdfg.arithmetic import Arithmetic, Floats
from dsl.hdfg.evaluate import DataError, Evaluator, row_numbers
from dsl.hdfg.graph import LEAVES, BindError, EachEpoch, Graph, Op, Update
from dsl.hdfg.init import Init, InitKind
from dsl.hdfg.start import start_values

PREDICTED_AT_ONCE = 4096
"""Tuples per NumPy call in `predict`, to bound memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """Result of a training run.

    Parameters
    ----------
    models
        Final values by name.
    losses
        Mean loss of each epoch run; empty if the rule sets no loss.
    epochs
        Epochs run.
    converged
        Whether the convergence test ended the run.
    """

    models: dict[str, Floats]
    losses: tuple[float, ...]
    epochs: int
    converged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Result of one batch.

    Attributes
    ----------
    models
        Values by name after the batch, states included.
    loss
        Mean over the batch's tuples; None if the rule sets none.
    converged
        Whether the convergence test holds after it; None if the rule sets none.
    values
        What the rule gives a name, by that name, computed from the models before the batch. Of what depends on a tuple
        the tuples lie along axis 0. The last value counts where the text gives a name twice.
    """

    models: dict[str, Floats]
    loss: float | None
    converged: bool | None
    values: dict[str, Floats]


class Interpreter:
    """Runs one graph.

    Parameters
    ----------
    graph
        Bound: every shape concrete.
    arithmetic
        How single operations round, such as `hwgen.spec.numerics`.

    Raises
    ------
    BindError
        If a dim of the graph is not bound.
    """

    def __init__(self, graph: Graph, arithmetic: Arithmetic) -> None:
        if not graph.is_bound:
            raise BindError(f"rule {graph.name!r} must be bound before it runs; unbound: {', '.join(graph.dims)}")
        self.graph = graph
        self._arithmetic = arithmetic

    def start(self, rows: int | None = None) -> dict[str, Floats]:
        """Return the models as the rule says they start, on a table of so many rows if that is known."""
        models = {}
        for i in self.graph.models:
            node = self.graph.nodes[i]
            init = Init(first=rows) if node.init.kind is InitKind.ROWS and rows is not None else node.init
            models[str(node.name)] = start_values(init, str(node.name), self.graph.concrete_shape(i))
        return models

    def train(
        self,
        columns: Mapping[str, npt.ArrayLike],
        models: Mapping[str, npt.ArrayLike] | None = None,
        metas: Mapping[str, float] | None = None,
        epochs: int | None = None,
    ) -> TrainResult:
        """Train over a table.

        Parameters
        ----------
        columns
            For each input and output, binary32 values `[tuples, *shape]` in heap order; and for the weight, which is 1
            where it is left out.
        models
            Start values that replace the rule's, by name.
        metas
            Values that replace the rule's defaults, by name.
        epochs
            Replaces the rule's number of epochs.

        Raises
        ------
        DataError
            If a name, a shape or a row index does not fit, or the table is empty.
        """
        graph = self.graph
        data, count = self._columns(columns, graph.inputs)
        if count == 0:
            raise DataError(f"rule {graph.name!r} needs at least one tuple to train on")
        values_of_metas = self._metas(metas or {})
        # a batch longer than the table is the table
        size = min(self._batch(values_of_metas) or count, count)
        state = self._own_tables(self.start(count) | self._models(models or {}))
        losses: list[float] = []
        limit = graph.epochs if epochs is None else epochs
        # only an epoch's last batch decides on convergence, so that the others need not compute the test
        within = replace(graph, convergence=None).training_roots
        inner = Evaluator(graph, self._arithmetic, within)
        last = Evaluator(graph, self._arithmetic, graph.training_roots)
        converged = False
        done = 0
        while done < limit and not converged:
            # binary32, with the errors of rounding summed apart: simulator and hardware give the same bits
            total = errors = np.float32(0.0)
            for start in range(0, count, size):
                stop = min(start + size, count)
                batch = {name: column[start:stop] for name, column in data.items()}
                evaluator = last if stop == count else inner
                values = self._computed(evaluator, stop - start, batch, state, values_of_metas)
                if graph.loss is not None:
                    loss = self._summed(graph.loss, values, evaluator, stop - start)
                    total, errors = self._added(total, errors, loss)
                state = self._updated(state, values, evaluator, stop - start)
                if stop == count and graph.convergence is not None:
                    converged = bool(np.any(values[graph.convergence] != 0.0))
            done += 1
            state |= self._after_epoch(state)
            if graph.loss is not None:
                # the division is the host's, in binary64; no machine divides a loss
                losses.append(float(np.float64(self._arithmetic.add(total, errors))) / count)
        return TrainResult(models=state, losses=tuple(losses), epochs=done, converged=converged)

    def step(
        self,
        columns: Mapping[str, npt.ArrayLike],
        models: Mapping[str, npt.ArrayLike] | None = None,
        metas: Mapping[str, float] | None = None,
    ) -> Step:
        """Train on one batch and return the intermediate values as well; the parameters are those of `train`.

        Raises
        ------
        DataError
            As `train`; or there are more tuples than a batch has.
        """
        graph = self.graph
        data, count = self._columns(columns, graph.inputs)
        values_of_metas = self._metas(metas or {})
        most = self._batch(values_of_metas) or count
        if not 1 <= count <= max(most, 1):
            wanted = "at least 1 tuple" if count == 0 else f"at most {most} as the rule says"
            raise DataError(f"a batch of rule {graph.name!r} has {wanted}, not {count}")
        state = self._own_tables(self.start(count) | self._models(models or {}))
        named = {str(node.name): node.id for node in graph.nodes if node.name is not None and node.op not in LEAVES}
        # a value that differs where the rule does not train is there twice
        trained = graph.reachable(graph.training_roots)
        named |= {name: node.id for node in graph.nodes if node.id in trained and (name := str(node.name)) in named}
        evaluator = Evaluator(graph, self._arithmetic, (*graph.training_roots, *named.values()))
        values = self._computed(evaluator, count, data, state, values_of_metas)
        loss = converged = None
        if graph.loss is not None:
            loss = float(self._summed(graph.loss, values, evaluator, count)) / count
        if graph.convergence is not None:
            converged = bool(np.any(values[graph.convergence] != 0.0))
        return Step(
            models=self._updated(state, values, evaluator, count),
            loss=loss,
            converged=converged,
            values={name: values[i] for name, i in named.items()},
        )

    def predict(
        self,
        columns: Mapping[str, npt.ArrayLike],
        models: Mapping[str, npt.ArrayLike],
        metas: Mapping[str, float] | None = None,
    ) -> Floats:
        """Return the rule's prediction for each tuple, `[tuples]`, or `[tuples, numbers]` where it is a vector.

        Only the inputs that the prediction depends on are needed in `columns`.

        Raises
        ------
        DataError
            If the rule sets no prediction, or a name, a shape or a row index does not fit.
        """
        graph = self.graph
        if graph.prediction is None:
            raise DataError(f"rule {graph.name!r} has no setPrediction")
        needed = graph.reachable([graph.prediction])
        # a column that is not needed still says how many tuples there are
        taken = tuple(i for i in graph.inputs if i in needed or graph.nodes[i].name in columns)
        data, count = self._columns(columns, taken)
        state = self.start() | self._models(models)
        values_of_metas = self._metas(metas or {})
        evaluator = Evaluator(graph, self._arithmetic, [graph.prediction])
        result = np.empty((count, *graph.concrete_shape(graph.prediction)), dtype=np.float32)
        for start in range(0, count, PREDICTED_AT_ONCE):
            stop = min(start + PREDICTED_AT_ONCE, count)
            batch = {name: column[start:stop] for name, column in data.items()}
            values = evaluator.run(stop - start, batch, state, values_of_metas)
            result[start:stop] = evaluator.per_tuple(graph.prediction, values, stop - start)
        return result

    # one batch

    def _computed(
        self,
        evaluator: Evaluator,
        count: int,
        columns: Mapping[str, Floats],
        state: Mapping[str, Floats],
        metas: Mapping[str, Floats],
    ) -> dict[int, Floats]:
        """The values of a batch; rows that its tuples write at once are in `state` then."""
        written = [update for update in self.graph.updates if update.at_once]
        if not written:
            return evaluator.run(count, columns, state, metas)

        def behind(values: Mapping[int, Floats]) -> None:
            for update in written:
                self._write_row(state, update, values, evaluator)

        return evaluator.run_each(count, columns, state, metas, behind)

    def _write_row(
        self,
        state: Mapping[str, Floats],
        update: Update,
        values: Mapping[int, Floats],
        evaluator: Evaluator,
        t: int = 0,
    ) -> None:
        """Write the row that the batch's tuple t chooses, or add to it."""
        assert update.index is not None
        rows = state[str(self.graph.nodes[update.model].name)]
        index, value = (evaluator.per_tuple(k, values, t + 1)[t] for k in (update.index, update.value))
        number = row_numbers(index, rows.shape[0], self.graph, update.model)
        # in place: two tuples of a batch that choose one row follow one another
        rows[number] = self._arithmetic.add(rows[number], value) if update.adds else value

    def _summed(self, node: int, values: Mapping[int, Floats], evaluator: Evaluator, count: int) -> Floats:
        """A tuple's value, summed over the batch as a merge does."""
        return self._arithmetic.tree(evaluator.per_tuple(node, values, count), "add")

    def _updated(
        self, state: Mapping[str, Floats], values: Mapping[int, Floats], evaluator: Evaluator, count: int
    ) -> dict[str, Floats]:
        """Return the models after a batch: every new value was computed from the models before it."""
        after = dict(state)
        rows: dict[int, list[tuple[npt.NDArray[np.int64], Floats]]] = {}
        # tables first, in both dictionaries at once: `_own_tables` has copied them, and no other update writes a table
        added = [update for update in self.graph.updates if update.adds and not update.at_once]
        for t in range(count if added else 0):
            for update in added:
                self._write_row(after, update, values, evaluator, t)
        for update in self.graph.updates:
            model = self.graph.nodes[update.model]
            name = str(model.name)
            shape = self.graph.concrete_shape(update.model)
            value = values[update.value]
            if self.graph.nodes[update.model].table:
                continue
            if update.index is None:
                # per tuple only without a merge, where a batch is one tuple
                whole = value[0] if value.ndim > len(self.graph.nodes[update.value].shape) else value
                after[name] = np.array(np.broadcast_to(whole, shape))
                continue
            numbers = row_numbers(values[update.index], shape[0], self.graph, update.model)
            if self.graph.nodes[update.index].op is Op.CONST:
                whole = value[0] if value.ndim > len(self.graph.nodes[update.value].shape) else value
                # once for a batch: a second copy would lose the row that an earlier update has written
                if after[name] is state[name]:
                    after[name] = state[name].copy()
                after[name][numbers] = whole
                continue
            each = evaluator.per_tuple(update.value, values, count)
            # the value's axes belong at the end of a row's, behind the tuples' axis
            each = each.reshape(count, *(1,) * (len(shape) - each.ndim), *each.shape[1:])
            rows.setdefault(update.model, []).append((numbers, np.broadcast_to(each, (count, *shape[1:]))))
        for i, parts in rows.items():
            name = str(self.graph.nodes[i].name)
            # of the models before the batch: no other update writes this one (E507), so that nothing is lost
            after[name] = state[name].copy()
            # tuple by tuple, within a tuple in the order of the text; NumPy keeps the last value of a repeated row
            numbers = np.stack([part[0] for part in parts], axis=1).reshape(-1)
            each = np.stack([part[1] for part in parts], axis=1)
            after[name][numbers] = each.reshape(-1, *each.shape[2:])
        return after

    def _after_epoch(self, state: Mapping[str, Floats]) -> dict[str, Floats]:
        """The models that the end of an epoch changes."""
        counting = [node for node in (self.graph.nodes[i] for i in self.graph.models) if node.each_epoch is not None]
        one = np.float32(1)
        return {
            str(node.name): np.asarray(self._arithmetic.add(state[str(node.name)], one))
            if node.each_epoch is EachEpoch.COUNT
            else start_values(node.init, str(node.name), ())
            for node in counting
        }

    def _added(self, total: npt.ArrayLike, errors: npt.ArrayLike, loss: npt.ArrayLike) -> tuple[np.float32, np.float32]:
        """Add a batch's loss to the epoch's sum, and what rounding took from it (Dekker 1971) to the sum of these."""
        arithmetic = self._arithmetic
        # exact where |total| >= |loss|; elsewhere the error is near, and the same on every machine
        after = arithmetic.add(total, loss)
        error = arithmetic.sub(loss, arithmetic.sub(after, total))
        return np.float32(after), np.float32(arithmetic.add(errors, error))

    # what comes from outside

    def _own_tables(self, state: dict[str, Floats]) -> dict[str, Floats]:
        """Copy the tables once: they are updated in place, since a copy per tuple would be too slow."""
        tables = [str(self.graph.nodes[i].name) for i in self.graph.models if self.graph.nodes[i].table]
        return state | {name: state[name].copy() for name in tables}

    def _columns(self, columns: Mapping[str, npt.ArrayLike], needed: tuple[int, ...]) -> tuple[dict[str, Floats], int]:
        data: dict[str, Floats] = {}
        counts: dict[str, int] = {}
        known = {self.graph.nodes[i].name for i in self.graph.inputs}
        unknown = [name for name in columns if name not in known]
        if unknown:
            raise DataError(f"rule {self.graph.name!r} has no input or output {unknown[0]!r}")
        for i in needed:
            name = str(self.graph.nodes[i].name)
            if name not in columns and self.graph.nodes[i].op is Op.WEIGHT:
                continue
            if name not in columns:
                raise DataError(f"rule {self.graph.name!r} needs a column for {name}")
            # operands of every operation are canonical; later only results are flushed
            column = self._arithmetic.flush(np.asarray(columns[name], dtype=np.float32))
            shape = self.graph.concrete_shape(i)
            if column.shape[1:] != shape or column.ndim != len(shape) + 1:
                raise DataError(f"column {name} must have shape [tuples, *{list(shape)}], not {list(column.shape)}")
            data[name] = column
            counts[name] = column.shape[0]
        if len(set(counts.values())) > 1:
            raise DataError(f"columns must have the same number of tuples, not {counts}")
        count = next(iter(counts.values()), 0)
        for i in needed:
            if self.graph.nodes[i].op is Op.WEIGHT:
                data.setdefault(str(self.graph.nodes[i].name), np.ones(count, np.float32))
        return data, count

    def _models(self, models: Mapping[str, npt.ArrayLike]) -> dict[str, Floats]:
        shapes = {str(self.graph.nodes[i].name): self.graph.concrete_shape(i) for i in self.graph.models}
        narrow = self.graph.narrow_models
        result: dict[str, Floats] = {}
        for name, values in models.items():
            if name not in shapes:
                raise DataError(f"rule {self.graph.name!r} has no model {name!r}")
            # a copy even of a binary32 array, since tables are updated in place
            array = self._arithmetic.flush(np.array(values, dtype=np.float32))
            if name in narrow:
                array = self._arithmetic.bfloat16(array)
            if array.shape != shapes[name]:
                raise DataError(f"model {name} must have shape {list(shapes[name])}, not {list(array.shape)}")
            result[name] = array
        return result

    def _metas(self, metas: Mapping[str, float]) -> dict[str, Floats]:
        nodes = {str(self.graph.nodes[i].name): self.graph.nodes[i] for i in self.graph.metas}
        unknown = [name for name in metas if name not in nodes]
        if unknown:
            raise DataError(f"rule {self.graph.name!r} has no meta {unknown[0]!r}; it has {', '.join(nodes) or 'none'}")
        chosen = {name: node.value if name not in metas else float(metas[name]) for name, node in nodes.items()}
        return {name: np.asarray(round32(value or 0.0), dtype=np.float32) for name, value in chosen.items()}

    def _batch(self, metas: Mapping[str, Floats]) -> int | None:
        """Return the tuples per batch; None for the whole table."""
        if self.graph.batch_meta is None:
            return self.graph.batch
        name = str(self.graph.nodes[self.graph.batch_meta].name)
        size = float(metas[name])
        if not (1 <= size < math.inf and size == int(size)):
            raise DataError(f"meta {name} is the batch size: it must be a whole number, at least 1, not {size:g}")
        return int(size)
