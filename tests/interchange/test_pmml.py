"""Models as PMML: sklearn-pmml-model, which we did not write, predicts the same within a bound that is derived."""

from __future__ import annotations

import io
from dataclasses import replace
from xml.etree import ElementTree as Xml

import numpy as np
import pytest
from sklearn_pmml_model.linear_model import PMMLLinearRegression, PMMLLogisticRegression

from dana import rules
from dana.errors import UsageError
from dana.interchange.pmml import NAMESPACE, pmml
from tests.interchange.models import Case, library_case, rule_case

SUMS = ("linear", "ridge", "lasso", "elastic_net", "huber", "quantile", "linear_svm")
OTHERS = ("mlp", "kmeans", "pca", "lrmf", "lrmf_dense")
# the library speaks of attributes of scikit-learn that newer versions have renamed
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")


def document(made: Case) -> tuple[str, Xml.Element]:
    text = pmml(made.model)
    return text, Xml.fromstring(text)


def regression(root: Xml.Element) -> Xml.Element:
    found = root.find(f"{{{NAMESPACE}}}RegressionModel")
    assert found is not None
    return found


def test_every_rule_is_tried() -> None:
    assert sorted([*SUMS, *OTHERS, "logistic", "poisson", "softmax"]) == sorted(rules.NAMES)


@pytest.mark.parametrize("name", SUMS)
def test_weighted_sums(name: str) -> None:
    made = library_case(name)
    text, root = document(made)
    assert regression(root).get("functionName") == "regression"
    assert regression(root).get("normalizationMethod") == "none"
    made.check(PMMLLinearRegression(io.StringIO(text)).predict(made.rows))


def test_exponential() -> None:
    """The library leaves the normalisation to its caller."""
    made = library_case("poisson")
    text, root = document(made)
    assert regression(root).get("normalizationMethod") == "exp"
    made.check(np.exp(PMMLLinearRegression(io.StringIO(text)).predict(made.rows)))


@pytest.mark.parametrize("classes", [None, ("well", "ill")])
def test_logistic(classes: tuple[str, ...] | None) -> None:
    made = library_case("logistic")
    made = replace(made, model=replace(made.model, classes=classes))
    text, root = document(made)
    assert regression(root).get("functionName") == "classification"
    loaded = PMMLLogisticRegression(io.StringIO(text))
    # integers in PMML become integers here
    assert [str(one) for one in loaded.classes_] == list(classes or ("0", "1"))
    made.check(loaded.predict_proba(made.rows)[:, 1])
    output = root.find(f".//{{{NAMESPACE}}}OutputField")
    assert output is not None
    assert (output.get("feature"), output.get("value")) == ("probability", (classes or ("0", "1"))[1])


def test_softmax() -> None:
    made = library_case("softmax")
    text, root = document(made)
    assert regression(root).get("normalizationMethod") == "softmax"
    assert len(root.findall(f".//{{{NAMESPACE}}}RegressionTable")) == 3
    loaded = PMMLLogisticRegression(io.StringIO(text))
    found = np.argmax(loaded.predict_proba(made.rows), axis=1).astype(np.float64)
    assert len(set(found)) == 3
    made.check(found)


@pytest.mark.parametrize("name", OTHERS)
def test_what_pmml_has_no_form_for(name: str) -> None:
    with pytest.raises(UsageError, match="PMML has no form") as raised:
        pmml(library_case(name).model)
    assert "ONNX" in raised.value.hint


TWO = "w = dana.model([4]); b = dana.model(); x = dana.input([4]); t = dana.meta(3)"


@pytest.mark.parametrize(
    ("prediction", "fits"),
    [
        ("(dana.sigma((x - w) / 2, 1) - b) / t + dana.sigma(-x * w, 1)", True),
        ("dana.sigma(w * w * x, 1) * b * 2", True),
        ("dana.sigma(w * x * x, 1)", False),
        ("dana.sigma(1 / x, 1) + b", False),
        ("dana.sigmoid(dana.sigma(w * x, 1)) + b", False),
        ("dana.max(dana.sigma(w * x, 1), 0)", False),
        ("dana.sigma(w * x, 1) > 0", False),
    ],
)
def test_found_by_what_is_computed(prediction: str, fits: bool) -> None:
    made = rule_case(TWO, "w, b, x", prediction, {"x": (4,)})
    if not fits:
        with pytest.raises(UsageError, match="PMML has no form"):
            pmml(made.model)
        return
    text, _ = document(made)
    made.check(PMMLLinearRegression(io.StringIO(text)).predict(made.rows))


def test_an_array_column_and_a_label_named_as_a_feature() -> None:
    made = library_case("linear")
    model = replace(made.model, features=("x",), labels=("x_1",))
    _, root = document(replace(made, model=model))
    names = [one.get("name") for one in root.findall(f".//{{{NAMESPACE}}}DataField")]
    assert names == ["x_1", "x_2", "x_3", "x_4", "x_5", "x_1_"]
