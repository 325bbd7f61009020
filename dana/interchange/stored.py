"""A trained model as it is stored: what ``dana_export_model`` returns, as Python values.

In: that function's JSON. Out: a `StoredModel`. It knows neither ONNX nor PMML.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dana.compiler.predictor import Program, decode_predictor
from dana.errors import UsageError

FORMAT = "dana model 1"

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A version of a model.

    Attributes
    ----------
    name, version, rule
        As in dana.model.
    parameters
        The rule's models by name, in its order.
    features, labels, classes
        Columns of the training, in order; texts of the label's classes where it had some.
    program
        What predicts; None where the rule has no prediction.
    """

    name: str
    version: int
    rule: str
    parameters: dict[str, Floats]
    features: tuple[str, ...]
    labels: tuple[str, ...]
    classes: tuple[str, ...] | None
    program: Program | None

    @property
    def weights(self) -> Floats:
        """All parameters, one after the other, as the program addresses them."""
        return np.concatenate([values.reshape(-1) for values in self.parameters.values()])

    @property
    def prediction(self) -> Program:
        """What predicts.

        Raises
        ------
        UsageError
            The rule has no prediction, or it does not fit the parameters.
        """
        if self.program is None:
            raise UsageError(
                f"model {self.name!r} cannot predict", hint="Add setPrediction(...) to its rule and train again."
            )
        if self.program.weights != self.weights.size:
            raise UsageError(
                f"model {self.name!r} has {self.weights.size} weights, but its predictor needs {self.program.weights}"
            )
        return self.program

    @property
    def inputs(self) -> tuple[str, ...]:
        """A name for each number that a prediction takes: the column's, with a number where it is an array's."""
        count = self.prediction.inputs
        if len(self.features) == count:
            return self.features
        base = self.features[0] if len(self.features) == 1 else "feature"
        return tuple(f"{base}_{k + 1}" for k in range(count))


def read_model(exported: dict[str, Any]) -> StoredModel:
    """Read the JSON of ``dana_export_model``.

    Raises
    ------
    UsageError
        It is something else.
    """
    if exported.get("format") != FORMAT:
        raise UsageError(f"a model is expected whose format is {FORMAT!r}, not {exported.get('format')!r}")
    try:
        notes, predictor = exported["metadata"], exported["predictor"]
        classes = notes.get("classes")
        return StoredModel(
            name=exported["name"],
            version=exported["version"],
            rule=exported["rule"],
            parameters={
                # float() reads the words for what JSON has no numbers for
                one["name"]: np.array([float(value) for value in one["values"]], np.float32).reshape(one["shape"])
                for one in exported["parameters"]
            },
            features=tuple(notes.get("features", ())),
            labels=tuple(notes.get("labels", ())),
            classes=None if classes is None else tuple(classes),
            program=None if predictor is None else decode_predictor(base64.b64decode(predictor)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"the model's JSON lacks or misnames a field: {error}") from None
