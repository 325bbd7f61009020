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
from dana.interchange.columns import NUMBERS, Column, Kind, read_columns
from dana.predictor.centres import NO_CENTRES, Centres, centres_of
from dana.predictor.program import Program, decode_predictor
from dana.records import Exported

FORMAT = "dana model 1"

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
    columns
        The table's columns, in the order of the features.
    encoded
        Whether a column is encoded, or has its NULLs replaced.
    centres
        What is subtracted from features before the prediction, and added to it.
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
    columns: tuple[Column, ...] = ()
    encoded: bool = False
    centres: Centres = NO_CENTRES

    @property
    def weights(self) -> Floats:
        """All parameters, one after the other, as the program addresses them."""
        # the order of dana.model's parameters is that of the predictor's addresses
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
        # labels such as 1.5 or 1e3 stay the texts that the database shows
        texts = self.class_type not in NUMBERS or not all(WHOLE.fullmatch(each) for each in self.classes)
        return self.classes if texts else tuple(map(int, self.classes))

    @property
    def array_length(self) -> int:
        """Number of elements of the array among the columns, or of each if there are none.

        Raises
        ------
        UsageError
            The columns have another number of numbers than the prediction needs.
        """
        arrays = [column.name for column in self.columns if column.kind is Kind.ARRAY]
        others = sum(len(column.numbers) for column in self.columns if column.kind is not Kind.ARRAY)
        length = self.prediction.inputs - others
        if len(arrays) > 1:
            raise UsageError(
                f"exports cannot express how many elements each of the arrays {', '.join(map(repr, arrays))} of model "
                f"{self.name!r} has",
                hint="Export it as JSON, or train it with one array, or without replacing NULLs.",
            )
        if length < len(arrays) or (length and not arrays):
            raise UsageError(f"model {self.name!r} has {others} features, but predicts from {self.prediction.inputs}")
        return length

    @property
    def scalars(self) -> tuple[Column, ...]:
        """A column for each that is not an array, and for each element of one."""
        if not self.encoded:
            if len(self.columns) == self.prediction.inputs:
                return self.columns
            return tuple(Column(name=name, numbers=(name,)) for name in self.inputs)
        length, names = self.array_length, {column.name for column in self.columns}
        return tuple(
            each
            for column in self.columns
            for each in (column.elements(length, names) if column.kind is Kind.ARRAY else (column,))
        )

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
            columns=read_columns(notes),
            encoded=bool(notes.get("preprocess")),
            centres=centres_of(notes),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"the model's JSON lacks or misnames a field: {error}") from None
