"""A model's prediction as PMML 4.4, if PMML can express it.

In: a `StoredModel`. Out: XML. Weighted sums become a RegressionModel: a classification for a logistic function or the
largest of several scores, a regression with normalisation ``exp`` for an exponential function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from xml.etree import ElementTree as Xml

from dana.errors import UsageError
from dana.interchange.pmml_fields import Fields
from dana.interchange.stored import StoredModel
from dana.predictor.affine import Link, Scores, scores
from dana.predictor.centres import NO_CENTRES

NAMESPACE = "http://www.dmg.org/PMML-4_4"

NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML does not allow, not even as a reference (XML 1.0, production 2)."""


def pmml(model: StoredModel) -> str:
    """Make the document.

    Raises
    ------
    UsageError
        The model cannot predict, or PMML cannot express its prediction or a name.
    """
    if model.predicts == "numbers":
        raise UsageError(
            f"PMML cannot express the {model.prediction.width} numbers that model {model.name!r} predicts",
            hint="Export it as ONNX.",
        )
    for what, text in _texts(model):
        if (wrong := NO_XML.search(text)) is not None:
            raise UsageError(
                f"PMML is XML, which does not allow the character U+{ord(wrong[0]):04X} in the {what} {text!r}",
                hint="Export it as ONNX or JSON, or train it under another name.",
            )
    found = scores(model.prediction, model.weights)
    if found is None:
        raise UsageError(
            f"PMML cannot express the prediction of model {model.name!r}: it is not a function of weighted sums",
            hint="Export it as ONNX.",
        )
    found = found.of_columns(model.centres)
    root = Xml.Element("PMML", version="4.4", xmlns=NAMESPACE)
    header = Xml.SubElement(root, "Header", description=f"model {model.name}@{model.version} of rule {model.rule}")
    Xml.SubElement(header, "Application", name="dana", version=version("dana-db"))
    classes = _classes(model, found)
    # of a centred column or label, binary32 would lose the digits
    kind = "float" if model.centres == NO_CENTRES else "double"
    fields = Fields(model.scalars, kind)
    target = fields.free(model.labels[0] if model.labels else "target")
    _dictionary(root, model, fields, target, classes, kind)
    regression = Xml.SubElement(
        root,
        "RegressionModel",
        modelName=model.name,
        functionName="regression" if classes is None else "classification",
        algorithmName=model.rule,
        normalizationMethod=_normalisation(found, classes),
        targetFieldName=target,
    )
    schema = Xml.SubElement(regression, "MiningSchema")
    schema.extend(fields.mining)
    Xml.SubElement(schema, "MiningField", name=target, usageType="target")
    _output(regression, fields.free("prediction"), found, classes, kind)
    if fields.derived:
        Xml.SubElement(regression, "LocalTransformations").extend(fields.derived)
    # of a logistic function there is one sum, for the second class
    for row, intercept in enumerate(found.intercepts):
        chosen = None if classes is None else classes[row + (found.link is Link.LOGIT)]
        table = Xml.SubElement(regression, "RegressionTable", intercept=repr(float(intercept)))
        if chosen is not None:
            table.set("targetCategory", chosen)
        for names, coefficient in zip(fields.terms, found.coefficients[row], strict=True):
            for name in names:
                Xml.SubElement(table, "NumericPredictor", name=name, coefficient=repr(float(coefficient)))
    if found.link is Link.LOGIT:
        assert classes is not None
        # the first class has the score 0, so that softmax of both is the logistic function of the sum
        Xml.SubElement(regression, "RegressionTable", intercept="0.0", targetCategory=classes[0])
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _texts(model: StoredModel) -> Iterator[tuple[str, str]]:
    """The texts that come from users."""
    yield "model's name", model.name
    yield "rule's name", model.rule
    for column in model.scalars:
        yield "column's name", column.name
        yield from (("category", text) for text in column.categories)
    for what, names in (("label", model.labels), ("class", model.classes or ())):
        yield from ((what, name) for name in names)


def _classes(model: StoredModel, found: Scores) -> list[str] | None:
    """Categories of the target, in the order of their numbers; None for a number."""
    if found.link is Link.LOGIT:
        count = 2
    elif found.link is Link.LARGEST:
        count = len(found.intercepts)
    else:
        return None
    # a rule of another number of scores than classes predicts numbers of classes
    if model.classes is not None and len(model.classes) == count:
        return list(model.classes)
    return [str(k) for k in range(count)]


def _normalisation(found: Scores, classes: list[str] | None) -> str:
    if classes is not None:
        return "softmax"  # of a score and 0 it is the logistic function
    return "exp" if found.link is Link.EXP else "none"


def _dictionary(
    root: Xml.Element, model: StoredModel, fields: Fields, target: str, classes: list[str] | None, type: str
) -> None:
    dictionary = Xml.SubElement(root, "DataDictionary", numberOfFields=str(len(fields.data) + 1))
    dictionary.extend(fields.data)
    if classes is None:
        Xml.SubElement(dictionary, "DataField", name=target, optype="continuous", dataType=type)
        return
    kind = "string" if model.classes is not None else "integer"
    field = Xml.SubElement(dictionary, "DataField", name=target, optype="categorical", dataType=kind)
    for text in classes:
        Xml.SubElement(field, "Value", value=text)


def _output(regression: Xml.Element, name: str, found: Scores, classes: list[str] | None, type: str) -> None:
    """The prediction of dana_predict: the probability for a logistic function, else the predicted value."""
    output = Xml.SubElement(regression, "Output")
    if found.link is Link.LOGIT:
        assert classes is not None
        Xml.SubElement(
            output,
            "OutputField",
            name=name,
            optype="continuous",
            dataType=type,
            feature="probability",
            value=classes[1],
        )
        return
    kind = ("continuous", type) if classes is None else ("categorical", "string")
    Xml.SubElement(output, "OutputField", name=name, optype=kind[0], dataType=kind[1], feature="predictedValue")
