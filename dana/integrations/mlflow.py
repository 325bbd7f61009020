"""A stored model in MLflow: its run with parameters, losses and metrics, and a model that predicts without a database.

In: a session, the name of a model. Out: a run of MLflow, as its tracking address and experiment are set. It reads.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
import onnx
from mlflow.entities import Metric
from mlflow.models.model import ModelInfo

from dana.client.connection import Connection
from dana.client.models import Model, read_exported
from dana.errors import UsageError
from dana.interchange.onnx_graph import onnx_model
from dana.interchange.stored import read_model
from dana.metrics import BY_NAME
from dana.report.history import Run, read_run

SCRIPT = Path(__file__).with_name("pyfunc.py")
"""What predicts: MLflow executes it, and dana does not import it."""

PACKAGES = ["mlflow-skinny", "numpy", "onnxruntime", "pandas"]


def log_model(
    db: Connection, model: str, *, evaluate: bool = True, registered_model_name: str | None = None
) -> ModelInfo:
    """Log a model, and the run that trained it, to the active run of MLflow, or to a new one.

    Parameters
    ----------
    model
        ``name``, or ``name@version``.
    evaluate
        Evaluate it on the rows that were left out, if there are any, and log its metrics.
    registered_model_name
        Name in MLflow's registry; by default it is not registered.

    Returns
    -------
    mlflow.models.model.ModelInfo
        Its ``run_id``, and the ``model_uri`` for `mlflow.pyfunc.load_model`.

    Raises
    ------
    UsageError
        There is no such model, or ONNX cannot express its prediction.
    """
    chosen = _version(db, model)
    name = f"{chosen.name}@{chosen.version}"
    stored = read_model(read_exported(db.session, name))
    file = onnx_model(stored)
    active = mlflow.active_run()
    with mlflow.start_run(run_id=active.info.run_id, nested=True) if active else mlflow.start_run(run_name=name):
        mlflow.set_tags({"dana.model": name, "dana.rule": chosen.rule, "dana.source": chosen.source})
        if chosen.run is not None:
            _log_run(read_run(db.session, chosen.run))
        if evaluate:
            found = db.evaluate(name)
            metrics = {f"{found['part']}_{key}": value for key, value in found.items() if key in BY_NAME}
            mlflow.log_metrics({key: value for key, value in metrics.items() if isinstance(value, int | float)})
        with TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            path.write_bytes(file)
            inputs = onnx.load_model_from_string(file).graph.input if stored.encoded else ()
            logged: ModelInfo = mlflow.pyfunc.log_model(
                name="model",
                python_model=str(SCRIPT),
                artifacts={"onnx": str(path)},
                model_config={
                    "inputs": {one.name: one.doc_string for one in inputs},
                    "columns": [one.name for one in stored.columns] or list(stored.features),
                },
                pip_requirements=PACKAGES,
                registered_model_name=registered_model_name,
            )
    return logged


def _version(db: Connection, model: str) -> Model:
    name, _, version = model.rpartition("@") if "@" in model else (model, "", "")
    for one in db.models(name):
        if str(one.version) == version or (not version and one.active):
            return one
    raise UsageError(f"model {model} does not exist, or is not yours to use", hint="db.models() lists them.")


def _log_run(run: Run) -> None:
    """Parameters, tags, the rule's text, and a point of the curve for each epoch, at its time."""
    mlflow.set_tag("dana.run", run.id)
    hyper = {f"hyper.{name}": value for name, value in run.metas.items()}
    shown = {"machine": run.machine, "features": ", ".join(run.features), "label": ", ".join(run.labels)}
    mlflow.log_params(shown | {"epochs": run.epochs, "kept": run.kept, "rows": run.tuples} | hyper)
    if run.text is not None:
        mlflow.log_text(run.text, "rule.py")
    logged = mlflow.active_run()
    assert logged is not None
    at = run.started.timestamp()
    points = []
    for epoch in run.curve:
        at += epoch.seconds
        for name, loss in (("loss", epoch.loss), ("validation_loss", epoch.validation_loss)):
            if loss is not None:
                points.append(Metric(name, loss, int(1000 * at), epoch.epoch))
    client = mlflow.MlflowClient()
    # a batch has at most 1000
    for k in range(0, len(points), 1000):
        client.log_batch(logged.info.run_id, metrics=points[k : k + 1000])
