"""A rule that is tried on arrays, without a database: what `dana.load`, `@dana.rule` and `dana.rules` give.

In: rule text, and arrays of NumPy. Out: what the front end makes of the text, and trainings, predictions, single
batches of it. A training is the worker's own (`dana.trainer.arrays`), on the machines of ``dana_train``; a prediction
and a single batch are the interpreter's, which gives the same bits. It must not load NumPy before a rule is tried.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dana.errors import UsageError
from dsl import Rule
from dsl.hdfg.graph import Graph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from dana.trainer.arrays import Trained
    from dana.trainer.data.inputs import Arrays
    from dsl.hdfg.interpreter import Step


class TrainableRule(Rule):
    """A rule that can be tried.

    Attributes
    ----------
    trained
        What the last `fit` gave; None before it.

    Notes
    -----
    Everywhere ``X`` is the array of the rule's only input, with the rows along axis 0, or a mapping with an array for
    each input by its name; ``y`` the same of its outputs, None where it has none. Numbers are rounded to binary32, less
    their column's centre where that keeps digits; of a rule with classes `fit` takes labels that are texts, too. A NaN,
    an infinity, a missing or a misshapen array is a `UsageError`. ``hyper`` are new values for metas and for dims that
    have a default; all other dims follow from the shapes.
    """

    def __init__(self, text: str, *, filename: str = "<rule>", first_line: int = 1) -> None:
        super().__init__(text, filename=filename, first_line=first_line)
        self.trained: Trained | None = None

    def fit(
        self,
        X: Arrays,
        y: Arrays | None = None,
        *,
        epochs: int | None = None,
        hyper: Mapping[str, float] | None = None,
        weight: ArrayLike | None = None,
        class_weight: Mapping[str, float] | str | None = None,
        models: Mapping[str, ArrayLike] | None = None,
        machine: str = "sim",
        design: Mapping[str, object] | None = None,
        patience: int | None = None,
        tolerance: float | None = None,
        standardize: bool | None = None,
        stored_as: str | None = None,
        shuffle: bool | None = None,
        seed: int | None = None,
    ) -> Trained:
        """Train on rows, as ``dana_train`` does on a table of them in this order.

        Parameters
        ----------
        weight
            How much each row counts, of shape (rows,).
        models
            Values to start from; the others, states among them, start as the rule says.
        machine
            ``sim``, ``interp`` or ``rtl``: the same bits.
        epochs, class_weight, design, patience, tolerance, standardize, stored_as, shuffle, seed
            As for ``dana_train``; patience 0 runs all epochs.

        Returns
        -------
        Trained
            With `models` by name, their `loss`, `losses` by epoch, `cycles`, `converged`.

        Warns
        -----
        UserWarning
            Where ``dana_train`` raises a NOTICE or a WARNING.

        Raises
        ------
        UsageError
            Arrays or arguments do not fit the rule.
        RuleError
            The text has errors.
        """
        from dana.trainer.arrays import train
        from dana.trainer.contract import Level, Notice
        from dana.trainer.data.inputs import columns_of, dims_of, models_of

        said: list[Notice] = []
        graph = self.hdfg
        columns = columns_of(graph, X, y, weight)
        start = None if models is None else models_of(graph, models, ())
        # not shared with tables: errors name shapes here and columns there, and a table's columns have one axis
        dims = _with_hyper(graph, dims_of(graph, _shapes(columns, start or {})), hyper)
        chosen = {name: extent for name, extent in dims.items() if name in dict(graph.extents)}
        self.trained = train(
            self.text,
            # a table's array columns have one dimension: rows of matrices follow one another
            {name: values.reshape(len(values), -1) if values.ndim > 2 else values for name, values in columns.items()},
            epochs=epochs,
            patience=patience,
            tolerance=tolerance,
            hyper={**(hyper or {}), **chosen},
            machine=machine,
            design=design,
            standardize=standardize,
            stored_as=stored_as,
            weight=None if weight is None or graph.weight is None else str(graph.weight.name),
            class_weight=class_weight,
            shuffle=shuffle,
            seed=seed,
            models=start,
            notify=said.append,
        )
        # each text once: several columns or batches may be reason for the same notice
        for text in dict.fromkeys(one.text for one in said if one.level in (Level.NOTICE, Level.WARNING)):
            warnings.warn(text, stacklevel=2)
        return self.trained

    def predict(
        self, X: Arrays, *, models: Mapping[str, ArrayLike] | None = None, hyper: Mapping[str, float] | None = None
    ) -> NDArray[np.float32] | NDArray[np.float64]:
        """The rule's prediction for each row, as ``dana_predict`` computes it: shape (rows,), or (rows, k) of a vector.
        They are binary32, or binary64 where a label was trained on less its centre.

        Parameters
        ----------
        models
            Values of the models that the prediction depends on; None: those of the last `fit`, with its metas.

        Raises
        ------
        UsageError
            Arrays do not fit the rule, it sets no prediction, or it was not trained.
        """
        from dana.trainer.arrays import less_centres
        from dana.trainer.data.inputs import inputs_of, models_of
        from dsl.hdfg.interpreter import Interpreter
        from hwgen.spec import numerics

        graph, centres = self.hdfg, None
        if graph.prediction is None:
            raise UsageError(f"rule {graph.name!r} predicts nothing", hint="Add setPrediction to it.")
        if models is None:
            if self.trained is None:
                raise UsageError(
                    f"rule {graph.name!r} has not been trained",
                    hint="Call fit before, on the same object, or give the models' values: models={…}.",
                )
            # bound to the dims of the training, which shapes alone may leave open
            graph, centres = self.trained.graph, self.trained.centres
            models, hyper = self.trained.models, {**self.trained.metas, **(hyper or {})}
        assert graph.prediction is not None, "training leaves predictions alone"
        needed = graph.reachable([graph.prediction])
        state = models_of(graph, models, needed)
        inputs = inputs_of(graph, X, None if centres and centres.features else needed)
        graph, metas = self._bound(graph, _shapes(inputs, state), hyper)
        if centres is not None:
            inputs = less_centres(inputs, centres, list(inputs))
        with _data_errors():
            predicted = Interpreter(graph, numerics).predict(inputs, state, metas)
        return predicted if centres is None else centres.predicted(predicted)

    def classify(self, X: Arrays) -> NDArray[np.generic]:
        """The label of each row by the last `fit`, as ``dana_classify`` chooses it: texts where those were texts.

        Raises
        ------
        UsageError
            As `predict`; or the rule has no classes.
        """
        predicted = self.predict(X)
        assert self.trained is not None, "predict asks for it"
        return self.trained.classify(predicted)

    def step(
        self,
        X: Arrays,
        y: Arrays | None = None,
        *,
        models: Mapping[str, ArrayLike] | None = None,
        hyper: Mapping[str, float] | None = None,
        weight: ArrayLike | None = None,
    ) -> Step:
        """Train on one batch, the rows given, and show what was computed on the way.

        It leaves `trained` as it is. Models that begin with statistics of columns begin as without a table.

        Parameters
        ----------
        models
            Values to start from; the others start as the rule says.

        Returns
        -------
        Step
            With `models` after the batch, its mean `loss`, `converged`, and the `values` of what has a name in the
            rule.

        Raises
        ------
        UsageError
            Arrays do not fit the rule, or there are more rows than a batch has.
        """
        from dana.trainer.data.inputs import check_classes, columns_of, models_of
        from dsl.hdfg.interpreter import Interpreter
        from hwgen.spec import numerics

        graph = self.hdfg
        columns, state = columns_of(graph, X, y, weight), models_of(graph, models or {}, ())
        graph, metas = self._bound(graph, _shapes(columns, state), hyper)
        check_classes(graph, columns)
        with _data_errors():
            return Interpreter(graph, numerics).step(columns, state, metas)

    def _bound(
        self, graph: Graph, shapes: Mapping[str, tuple[int, ...]], hyper: Mapping[str, float] | None
    ) -> tuple[Graph, dict[str, float]]:
        """The graph with its dims, and the values of its metas."""
        from dana.trainer.data.inputs import bound, dims_of
        from dana.trainer.metas import check_requirements, meta_values

        extents = dict(self.hdfg.extents)
        dims = dims_of(graph, shapes)
        if graph.dims:
            dims = _with_hyper(graph, dims, hyper)
        defaults = {str(graph.nodes[k].name): float(graph.nodes[k].value or 0.0) for k in graph.metas}
        metas = meta_values(defaults, hyper or {}, extents)
        check_requirements(self, metas)
        return bound(graph, dims), metas


def _with_hyper(graph: Graph, dims: Mapping[str, int], hyper: Mapping[str, float] | None) -> dict[str, int]:
    """The dims that shapes decide, and those that the caller chooses."""
    from dana.trainer.designs import chosen_extents

    both = dict(dims)
    for name, extent in chosen_extents(dict(graph.extents), hyper or {}).items():
        if both.setdefault(name, extent) != extent:
            raise UsageError(f"{name} is {both[name]} by the shapes of the arrays, not {extent}")
    return both


def _shapes(
    columns: Mapping[str, NDArray[np.generic]], models: Mapping[str, NDArray[np.float32]]
) -> dict[str, tuple[int, ...]]:
    """Shapes as the rule has them, in which rows are no axis."""
    return {**{name: values.shape[1:] for name, values in columns.items()}, **{k: v.shape for k, v in models.items()}}


@contextmanager
def _data_errors() -> Iterator[None]:
    """The interpreter's errors are the caller's."""
    from dsl.hdfg.evaluate import DataError

    try:
        yield
    except DataError as error:
        raise UsageError(str(error)) from None
