"""`dana export` on a server: what it writes predicts what `dana_predict` says there."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import psycopg
import pytest
from sklearn_pmml_model.linear_model import PMMLLogisticRegression

from dana.cli import main
from dana.cli.entry import DATABASE, OK, USAGE
from dana.client.connection import Connection
from dana.interchange.stored import read_model
from dana.session.tables import create_table
from tests.rules.tables import table

NAME = "exported to others"


@pytest.fixture(scope="module")
def db(pg_uri: str) -> Iterator[Connection]:
    """A session with a model of classes that have names, and one that PMML cannot express for."""
    with psycopg.connect(pg_uri, autocommit=True) as session:
        client = Connection(session)
        client.create_rules()
        create_table(session, "patients_exported", table("logistic"))
        session.execute(
            "ALTER TABLE patients_exported ALTER y TYPE text USING CASE y WHEN 1 THEN 'ill' ELSE 'well' END"
        )
        for _ in range(2):
            session.execute(
                "SELECT dana_train('logistic', 'patients_exported', %s, epochs => 3, classes => '{well,ill}')", (NAME,)
            )
        session.execute("SELECT dana_train('pca', 'patients_exported', 'axes', '{x1,x2,x3}', epochs => 1)")
        yield client
        session.execute("SELECT dana_drop_model(%s), dana_drop_model('axes')", (NAME,))
        session.execute("SELECT dana_drop_rule(name) FROM dana.rule")
        session.execute("DROP TABLE patients_exported")


def predicted(db: Connection, model: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of features, and the predictions in SQL."""
    found = db.session.execute(
        "SELECT x1, x2, x3, x4, x5, dana_predict(%s, r.*) FROM patients_exported AS r", (model,)
    ).fetchall()
    values = np.array(found, dtype=np.float32)
    return values[:, :5], values[:, 5]


def test_files_that_others_load(
    db: Connection, pg_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, expected = predicted(db, NAME)
    files = {kind: tmp_path / f"model.{kind}" for kind in ("onnx", "pmml", "json")}
    for kind, file in files.items():
        assert main(["export", NAME, "-o", str(file), "--dsn", pg_uri]) == OK
        assert f"model {NAME}@2 as {kind}" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(files["onnx"].read_bytes(), providers=["CPUExecutionProvider"])
    # five products, their sum, and a logistic function of slope 1/4 at most
    sums = np.abs(rows * db.parameters(NAME)["w"]).sum(axis=1) + np.abs(db.parameters(NAME)["b"])
    room = 2 * (7 * 2.0**-24 * sums / 4 + 2.0**-21)
    label, probabilities, found = session.run(None, {"features": rows})
    assert np.all(np.abs(found - expected) <= room)
    assert np.array_equal(probabilities[:, 1], found)
    classes = db.session.execute("SELECT dana_classify(%s, r.*) FROM patients_exported AS r", (NAME,)).fetchall()
    decided = np.abs(expected - 0.5) > room
    assert decided.mean() > 0.9
    assert list(label[decided]) == list(np.array(classes)[decided, 0])
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr("warnings.warn", lambda *_, **__: None)  # of the library, about scikit-learn
        loaded = PMMLLogisticRegression(io.StringIO(files["pmml"].read_text(encoding="utf-8")))
        assert list(loaded.classes_) == ["well", "ill"]
        assert np.all(np.abs(loaded.predict_proba(rows)[:, 1] - expected) <= room)
    stored = read_model(json.loads(files["json"].read_text(encoding="utf-8")))
    for name, values in db.parameters(NAME).items():
        assert stored.parameters[name].tobytes() == values.tobytes()
    assert stored.classes == ("well", "ill")


def test_versions_and_the_terminal(db: Connection, pg_uri: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["export", f"{NAME}@1", "--dsn", pg_uri]) == OK
    written = json.loads(capsysbinary.readouterr().out)
    assert (written["name"], written["version"], written["rule"]) == (NAME, 1, "logistic")
    assert main(["export", "axes", "--format", "pmml", "--dsn", pg_uri]) == USAGE
    assert b"PMML cannot express" in capsysbinary.readouterr().err
    assert main(["export", "none", "--dsn", pg_uri]) == DATABASE
    said = capsysbinary.readouterr().err
    assert b'model "none" does not exist' in said
    assert b"CONTEXT" not in said  # of the extension's own functions
    assert main(["export", NAME, "-o", "model.xml", "--dsn", pg_uri]) == USAGE
    assert b"the suffix of model.xml must be .json, .onnx, .pmml" in capsysbinary.readouterr().err


def test_who_may_not_see_a_model_does_not_export_it(db: Connection) -> None:
    session = db.session
    session.execute("DROP ROLE IF EXISTS stranger_to_models")
    session.execute("CREATE ROLE stranger_to_models")
    try:
        session.execute("SET ROLE stranger_to_models")
        with pytest.raises(psycopg.errors.UndefinedObject, match="does not exist"):
            session.execute("SELECT dana_export_model(%s)", (f"postgres.{NAME}",))
        session.execute("RESET ROLE")
        session.execute("SELECT dana_grant_model(%s, 'stranger_to_models')", (NAME,))
        session.execute("SET ROLE stranger_to_models")
        row = session.execute("SELECT dana_export_model(%s) ->> 'version'", (f"postgres.{NAME}",)).fetchone()
        assert row == ("2",)
    finally:
        session.execute("RESET ROLE")
        session.execute("SELECT dana_revoke_model(%s, 'stranger_to_models')", (NAME,))
        session.execute("DROP ROLE stranger_to_models")
