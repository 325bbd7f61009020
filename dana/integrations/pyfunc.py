"""An exported model as a pyfunc of MLflow: rows of a data frame in, predictions out, by onnxruntime.

MLflow copies this file into the model's folder and executes it where the model is loaded, so it must not need this
package.
"""

from __future__ import annotations

import mlflow
import numpy as np
import onnxruntime
import pandas as pd
from mlflow.pyfunc.model import PythonModel, PythonModelContext

KINDS = {"tensor(float)": np.float32, "tensor(double)": np.float64}


class OnnxModel(PythonModel):
    """Its inputs are the columns of the table; without encoded columns, one tensor of all features."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the file."""
        self._session = onnxruntime.InferenceSession(context.artifacts["onnx"], providers=["CPUExecutionProvider"])

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, object] | None = None
    ) -> pd.DataFrame:
        """Return a column for each output, or for each number of one: ``probabilities_0``.

        Parameters
        ----------
        model_input
            The columns that the model was trained on, in any order; others are ignored.
        params
            Ignored.
        """
        about: dict[str, str] = context.model_config["inputs"]
        columns: list[str] = context.model_config["columns"]
        inputs = {
            one.name: tensor(model_input[one.name], one.type, about[one.name])
            if about
            # one input for all of them
            else np.hstack([tensor(model_input[name], one.type) for name in columns])
            for one in self._session.get_inputs()
        }
        found = {}
        for output, values in zip(self._session.get_outputs(), self._session.run(None, inputs), strict=True):
            block = np.asarray(values).reshape(len(model_input), -1)
            for k in range(block.shape[1]):
                found[output.name if block.shape[1] == 1 else f"{output.name}_{k}"] = block[:, k]
        return pd.DataFrame(found, index=model_input.index)


def tensor(column: pd.Series, kind: str, about: str = "") -> np.ndarray:
    """A column as an input, of shape rows × 1 or rows × elements; ``about`` is the file's description of it."""
    values: np.ndarray
    if kind == "tensor(string)":
        null = about.rpartition("NULL is ")[2]
        values = column.astype(object).where(column.notna(), null).to_numpy(object)
    elif kind == "tensor(int64)":
        # NaT is the least int64, which stands for NULL
        values = column.to_numpy("datetime64[D]" if "days since" in about else "datetime64[us]").astype(np.int64)
    else:
        # pandas' own NA is no number, and None becomes NaN
        values = np.array(column.astype(object).where(column.notna(), None).to_list(), KINDS[kind])
    return values.reshape(len(column), -1)


mlflow.models.set_model(OnnxModel())
