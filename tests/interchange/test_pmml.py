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
from dana.interchange.columns import Column, Kind
from dana.interchange.pmml import NAMESPACE, pmml
from dana.interchange.pmml_fields import Fields
from dana.interchange.stored import StoredModel
from dsl import compile_rule
from tests.interchange.models import Case, case, library_case, rule_case

SUMS = ("linear", "ridge", "lasso", "elastic_net", "huber", "quantile", "linear_svm")
OTHERS = ("mlp", "kmeans", "pca", "lrmf", "lrmf_dense", "bpr", "word2vec", "fm", "dlrm", "autoint")
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


def test_several_numbers_are_refused() -> None:
    made = rule_case("W = dana.model([5, 7]); x = dana.input([7])", "W, x", "dana.sigma(W * x, 2)", {"x": (7,)})
    with pytest.raises(UsageError, match="cannot express the 5 numbers that model 'm' predicts") as raised:
        pmml(made.model)
    assert "ONNX" in raised.value.hint


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
    tables = root.findall(f".//{{{NAMESPACE}}}RegressionTable")
    assert [one.get("targetCategory") for one in tables] == list(classes or ("0", "1"))[::-1]
    field = root.findall(f".//{{{NAMESPACE}}}DataField")[-1]
    assert field.get("dataType") == ("integer" if classes is None else "string")
    output = root.find(f".//{{{NAMESPACE}}}OutputField")
    assert output is not None
    assert (output.get("feature"), output.get("value")) == ("probability", (classes or ("0", "1"))[1])


def test_softmax() -> None:
    made = library_case("softmax")
    text, root = document(made)
    assert regression(root).get("normalizationMethod") == "softmax"
    assert len(root.findall(f".//{{{NAMESPACE}}}RegressionTable")) == 3
    loaded = PMMLLogisticRegression(io.StringIO(text))
    found = loaded.predict_proba(made.rows)
    assert len(set(np.argmax(found, axis=1))) == 3
    made.check(found)


def test_a_score_for_each_class() -> None:
    """The largest is chosen, whatever is made of the others."""
    text = "\n".join(
        [
            "import dana",
            "W = dana.model([3, 4])",
            "x = dana.input([4])",
            "y = dana.output(classes=3)",
            "r = dana.algo(W, x, y)",
            "r.setModel(W, W + 0 * y)",
            "r.setPrediction(dana.sigma(W * x, 2))",
        ]
    )
    rows = np.random.default_rng(5).normal(0, 1, (40, 4)).astype(np.float32)
    made = case(compile_rule(text, filename="rule").hdfg.bind({}), {"x": rows}, seed=9, classes=("a", "b", "c"))
    text, root = document(made)
    assert regression(root).get("functionName") == "classification"
    chosen = PMMLLogisticRegression(io.StringIO(text)).predict(made.rows)
    assert [str(one) for one in chosen] == ["abc"[k] for k in np.argmax(made.expected, axis=1)]
    assert len(set(chosen)) == 3


def test_the_place_of_another_vector_s_largest_has_no_form() -> None:
    """As dana.argmax computes it, but of two vectors: it looks for the largest of one in the other."""
    text = "\n".join(
        [
            "import dana",
            "W = dana.model([3, 4])",
            "V = dana.model([3, 4])",
            "x = dana.input([4])",
            "y = dana.output()",
            "r = dana.algo(W, V, x, y)",
            "r.setModel(W, W + 0 * y)",
            "s = dana.sigma(W * x, 2)",
            "t = dana.sigma(V * x, 2)",
            "top = dana.amax(s)",
            "place = -dana.amax(dana.where({other} == top, -dana.arange(3), -3))",
            "r.setPrediction(dana.where(top == top, place, top))",
        ]
    )
    rows = np.random.default_rng(5).normal(0, 1, (40, 4)).astype(np.float32)
    for other, fits in (("s", True), ("t", False)):
        graph = compile_rule(text.format(other=other), filename="rule").hdfg.bind({})
        model = case(graph, {"x": rows}, seed=9, classes=("a", "b", "c")).model
        if fits:
            assert "softmax" in pmml(model)
            continue
        with pytest.raises(UsageError, match="PMML cannot express"):
            pmml(model)


@pytest.mark.parametrize("name", OTHERS)
def test_what_pmml_has_no_form_for(name: str) -> None:
    with pytest.raises(UsageError, match="PMML cannot express") as raised:
        pmml(library_case(name).model)
    assert "ONNX" in raised.value.hint


TWO = "w = dana.model([4]); b = dana.model(); x = dana.input([4]); t = dana.meta(3)"


@pytest.mark.parametrize(
    ("prediction", "fits"),
    [
        ("(dana.sigma((x - w) / 2, 1) - b) / t + dana.sigma(-x * w, 1)", True),
        ("dana.sigma(w * w * x, 1) * b * 2", True),
        ("dana.sigma(w * x * x, 1)", False),
        ("dana.sigma(w * x, 1) / (b - b)", False),
        ("dana.sigma(x / dana.max(w, 9), 1)", False),
        ("dana.sigma(1 / x, 1) + b", False),
        ("dana.sigmoid(dana.sigma(w * x, 1)) + b", False),
        ("dana.max(dana.sigma(w * x, 1), 0)", False),
        ("dana.sigma(w * x, 1) > 0", False),
    ],
)
def test_found_by_what_is_computed(prediction: str, fits: bool) -> None:
    made = rule_case(TWO, "w, b, x", prediction, {"x": (4,)})
    if not fits:
        with pytest.raises(UsageError, match="PMML cannot express"):
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


ODD = "\t\n\r <&>\"' \\ é\x85\u202e\U0001f600"


def named(name: str, where: str) -> StoredModel:
    """A model with a name in one place."""
    model = replace(library_case("logistic").model, classes=("no", "yes"))
    if where in ("name", "rule"):
        return replace(model, **{where: name})
    return replace(model, **{where: (name, *getattr(model, where)[1:])})


@pytest.mark.parametrize("where", ["name", "rule", "features", "labels", "classes"])
def test_names_come_back_as_they_were_or_are_an_error(where: str) -> None:
    root = Xml.fromstring(pmml(named(ODD, where)))
    assert any(
        ODD in (value, value.removeprefix("model m@3 of rule ")) for one in root.iter() for value in one.attrib.values()
    )
    for wrong in "\0\x01\x0b\x1f\ufffe\uffff\ud800":
        with pytest.raises(UsageError, match=f"not allow the character U\\+{ord(wrong):04X} in the .*a.*b") as raised:
            pmml(named(f"a{wrong}b", where))
        assert "ONNX" in raised.value.hint


@pytest.mark.parametrize(("text", "numbers"), [(None, [0.25, 0.75]), ("a", [1, 0]), ("a  ", [1, 0]), ("bcd", [0, 1])])
def test_the_spellings_of_a_category_are_one_number(text: str | None, numbers: list[float]) -> None:
    """Of char(n), with and without blanks at the end; the fields of both are added up, for a NULL, too."""
    names = ("a", "bcd")
    column = Column(
        name="code", type="character(3)", kind=Kind.CATEGORY, numbers=names, categories=names, fill=(0.25, 0.75)
    )
    fields = Fields([column])
    indicators = {one.get("name"): one[0].attrib for one in fields.derived}

    def value(name: str) -> float:
        one = indicators[name]
        return float(one["mapMissingTo"]) if text is None else float(one["value"] == text)

    assert [sum(map(value, names)) for names in fields.terms] == numbers
