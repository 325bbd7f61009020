"""Faults for models in other software's formats."""

from __future__ import annotations

from benchmarks.faults.fault import faults

INTERCHANGE = (
    *faults(
        "dana",
        "tests/interchange/test_pmml.py",
        (
            "predictor/affine.py",
            "or (code is Op.DIV and not b[..., -1:].all())",
            "",
            "a coefficient is divided by zero",
        ),
        ("predictor/affine.py", "if code is Op.MUL and not a[..., :-1].any():", "if False:", "a number times x"),
        ("predictor/affine.py", "if b[..., :-1].any() or", "if", "a product of features is a weighted sum"),
        ("predictor/affine.py", "return -values[0]", "return values[0]", "signs"),
        ("predictor/affine.py", "Link.NONE if width == 1 else Link.LARGEST", "Link.NONE", "classes are numbers"),
        ("predictor/affine.py", "if len(made) > 1 or any(", "if any(", "the largest of two values"),
        ("interchange/pmml.py", "classes[row + (found.link is Link.LOGIT)]", "classes[row]", "the other class"),
        (
            "interchange/pmml.py",
            '"exp" if found.link is Link.EXP',
            '"none" if found.link is Link.EXP',
            "no exponential",
        ),
        ("interchange/pmml.py", "while name in model.inputs:", "while False:", "a label named as a feature"),
        ("interchange/pmml.py", "value=classes[1],", "value=classes[0],", "the probability of the other class"),
        ("interchange/pmml.py", 'kind = "string" if model.classes is not None', 'kind = "string" if True', "texts"),
    ),
    *faults(
        "dana/interchange",
        "tests/interchange/test_onnx.py",
        (
            "onnx_graph.py",
            'self._node("Where", zero, values[2], values[1])',
            'self._node("Where", zero, values[1], values[2])',
            "the other choice",
        ),
        ("onnx_graph.py", 'Op.LE: "LessOrEqual"', 'Op.LE: "Less"', "<= is <"),
        ("onnx_graph.py", '"GreaterOrEqual", one, least', '"Greater", one, least', "a half is the first class"),
        ("onnx_graph.py", "0.5 if probable else 0", "0.5", "scores above a half"),
        (
            "onnx_graph.py",
            'bounded = self._node("Where", good, self._node("Min", chosen, beyond), beyond)',
            "bounded = chosen",
            "rows from the end",
        ),
        ("onnx_graph.py", "first, column, axis=1", "column, first, axis=1", "probabilities are swapped"),
        ("onnx_graph.py", "if one.name in read]", "if True]", "constants that nobody reads"),
        ("onnx_graph.py", 'self._node("Mul", values[0], values[0])', "values[0]", "exp(-x) for a Gaussian"),
        (
            "onnx_graph.py",
            "self._ints(read.start), self._ints(read.start + read.size)",
            "self._ints(0), self._ints(read.size)",
            "the first features for others",
        ),
        ("onnx_graph.py", "tuple(tensor.dims) == values.shape and", "", "constants of another shape"),
        (
            "onnx_graph.py",
            "keepdims=0)  # the first",
            "keepdims=0, select_last_index=1)  # the first",
            "the last of equals",
        ),
        ("stored.py", "if self.program.weights != self.weights.size:", "if False:", "a predictor of other weights"),
        ("stored.py", "self.class_type not in NUMBERS or not all(", "not all(", "texts of digits are numbers"),
    ),
)
