"""An exported model as Python values.

In: the JSON of ``dana_export_model``. Out: a `StoredModel`, independent of ONNX and PMML.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dana.errors import UsageError
from dana.predictor.program import Program, decode_predictor
from dana.records import Exported, Preprocessed

FORMAT = "dana model 1"

NUMBERS = ("smallint", "integer", "bigint", "real", "double precision", "numeric")
WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)

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
        Columns of the training, in order, features after encoding (``city=Berlin``); texts of the label's classes, if
        any.
    class_type
        SQL's name of the label's type, if known.
    predicts
        ``probability``, ``score``, ``number``, or several ``numbers``.
    program
        The prediction; None for a rule without one.
    preprocess
        How the source's columns are encoded, as in the metadata.
    """

    name: str
    version: int
    rule: str
    parameters: dict[str, Floats]
    features: tuple[str, ...]
    labels: tuple[str, ...]
    classes: tuple[str, ...] | None
    program: Program | None
    predicts: str = "number"
    class_type: str | None = None
    preprocess: tuple[Preprocessed, ...] = ()

    @property
    def weights(self) -> Floats:
        """All parameters, one after the other, as the program addresses them."""
        return np.concatenate([values.reshape(-1) for values in self.parameters.values()])

    @property
    def prediction(self) -> Program:
        """The prediction.

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
    def class_labels(self) -> tuple[str, ...] | tuple[int, ...] | None:
        """The labels of a classifier, as whole numbers if they are in the table; None for other models."""
        if self.classes is None or self.predicts == "number":
            return None
        texts = self.class_type not in NUMBERS or not all(WHOLE.fullmatch(each) for each in self.classes)
        return self.classes if texts else tuple(map(int, self.classes))

    @property
    def inputs(self) -> tuple[str, ...]:
        """A name for each input of the prediction: the column's, with an index for an array."""
        count = self.prediction.inputs
        if len(self.features) == count:
            return self.features
        base = self.features[0] if len(self.features) == 1 else "feature"
        return tuple(f"{base}_{k + 1}" for k in range(count))


def read_model(exported: Exported) -> StoredModel:
    """Read the JSON of ``dana_export_model``.

    Raises
    ------
    UsageError
        It has another format, or lacks a field.
    """
    if exported.get("format") != FORMAT:
        raise UsageError(f"the model must have the format {FORMAT!r}, not {exported.get('format')!r}")
    try:
        notes, predictor = exported["metadata"], exported["predictor"]
        classes = notes.get("classes")
        return StoredModel(
            name=exported["name"],
            version=exported["version"],
            rule=exported["rule"],
            parameters={
                # texts stand for NaN and infinities, which JSON cannot express
                one["name"]: np.array([float(value) for value in one["values"]], np.float32).reshape(one["shape"])
                for one in exported["parameters"]
            },
            features=tuple(notes.get("encoded", notes.get("features", ()))),
            labels=tuple(notes.get("labels", ())),
            classes=None if classes is None else tuple(classes),
            program=None if predictor is None else decode_predictor(base64.b64decode(predictor)),
            predicts=notes.get("predicts", "number"),
            class_type=notes.get("class_type"),
            preprocess=tuple(notes.get("preprocess") or ()),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"the model's JSON lacks or misnames a field: {error}") from None
