"""The names of the rule language, for editors and notebooks: signatures, types and docstrings.

In: nothing at run time. A rule is read as text, by ``dana_create_udf``, the command line or `rule`; the functions
here are what an editor completes and a type checker checks. Called by Python itself they raise `NotInRule`, so that a
rule run by mistake says what to do instead of training nothing. Must not: import anything heavy, or compute.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NoReturn, overload

from dana.errors import UsageError

if TYPE_CHECKING:
    from dana.language.trainable import TrainableRule


class NotInRule(RuntimeError):
    """A name of the rule language was called by Python."""


def not_in_rule(name: str) -> NoReturn:
    """Raise NotInRule: names of the rule language cannot be called from Python."""
    raise NotInRule(
        f"dana.{name} describes a rule, which is read as text and never run by Python; put the statements into a "
        "function under @dana.rule, or into a file given to dana check, dana train or dana_create_udf"
    )


class Value:
    """A number, vector, matrix or three-axis array of the dataflow; exists in rule text only.

    Operators work elementwise and broadcast by NumPy's rule; comparisons give 1.0 or 0.0.
    """

    # for type checkers alone: at run time no value exists
    if TYPE_CHECKING:

        def __add__(self, other: Operand) -> Value: ...
        def __radd__(self, other: Operand) -> Value: ...
        def __sub__(self, other: Operand) -> Value: ...
        def __rsub__(self, other: Operand) -> Value: ...
        def __mul__(self, other: Operand) -> Value: ...
        def __rmul__(self, other: Operand) -> Value: ...
        def __truediv__(self, other: Operand) -> Value: ...
        def __rtruediv__(self, other: Operand) -> Value: ...
        def __floordiv__(self, other: Operand) -> Value: ...
        def __rfloordiv__(self, other: Operand) -> Value: ...
        def __mod__(self, other: Operand) -> Value: ...
        def __rmod__(self, other: Operand) -> Value: ...
        def __lt__(self, other: Operand) -> Value: ...
        def __gt__(self, other: Operand) -> Value: ...
        def __le__(self, other: Operand) -> Value: ...
        def __ge__(self, other: Operand) -> Value: ...
        def __eq__(self, other: Operand) -> Value: ...  # type: ignore[override]
        def __matmul__(self, other: Operand) -> Value: ...
        def __rmatmul__(self, other: Operand) -> Value: ...
        def __neg__(self) -> Value: ...
        def __pos__(self) -> Value: ...
        @property
        def T(self) -> Value:
            """A matrix with its axes exchanged."""

        def __getitem__(self, place: Place | Sequence[Value] | tuple[Place, ...]) -> Value:
            """Elements, counted from 0, or from the end below 0; of a model the rows that a tuple's numbers choose."""


class Given(Value):
    """A value that a rule finds without declaring it."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"dana.{self.__name__}"


class Dim:
    """The extent of an axis, bound to the table at train time; exists in rule text only.

    Sums and products with whole numbers and other extents are extents; in other arithmetic it is a number.
    """

    if TYPE_CHECKING:

        @overload
        def __add__(self, other: Dim | int) -> Dim: ...
        @overload
        def __add__(self, other: float) -> Value: ...
        def __add__(self, other: Dim | float) -> Dim | Value: ...
        @overload
        def __radd__(self, other: int) -> Dim: ...
        @overload
        def __radd__(self, other: float) -> Value: ...
        def __radd__(self, other: Dim | float) -> Dim | Value: ...
        @overload
        def __sub__(self, other: Dim | int) -> Dim: ...
        @overload
        def __sub__(self, other: float) -> Value: ...
        def __sub__(self, other: Dim | float) -> Dim | Value: ...
        @overload
        def __rsub__(self, other: int) -> Dim: ...
        @overload
        def __rsub__(self, other: float) -> Value: ...
        def __rsub__(self, other: Dim | float) -> Dim | Value: ...
        @overload
        def __mul__(self, other: Dim | int) -> Dim: ...
        @overload
        def __mul__(self, other: float) -> Value: ...
        def __mul__(self, other: Dim | float) -> Dim | Value: ...
        @overload
        def __rmul__(self, other: int) -> Dim: ...
        @overload
        def __rmul__(self, other: float) -> Value: ...
        def __rmul__(self, other: Dim | float) -> Dim | Value: ...
        def __truediv__(self, other: Dim | float) -> Value: ...
        def __rtruediv__(self, other: float) -> Value: ...
        def __lt__(self, other: Dim | float) -> Value: ...
        def __gt__(self, other: Dim | float) -> Value: ...
        def __le__(self, other: Dim | float) -> Value: ...
        def __ge__(self, other: Dim | float) -> Value: ...
        def __eq__(self, other: Operand) -> Value: ...  # type: ignore[override]
        def __neg__(self) -> Dim: ...
        def __pos__(self) -> Dim: ...


class Start:
    """How a model starts; exists in rule text only."""


class AllTuples:
    """The whole table as one batch."""

    def __repr__(self) -> str:
        return "dana.all"


Number = Value | float
Batch = int | Value
Part = tuple[Value, Value, Value, Value]
Operand = Number | Dim | Sequence["Operand"]
Place = Value | Dim | int | slice
MergeOp = Literal["+", "*", "max", "min", "mean"]
Optimizer = Callable[..., Value | tuple[list[Value], Value]]
Shape = Sequence[Dim | int] | Dim | int


class Algo:
    """A rule: what `algo` gives; exists in rule text only."""

    if TYPE_CHECKING:

        def merge(self, value: Operand, batch: Batch | AllTuples, op: MergeOp) -> Value:
            """Join a value of each tuple over a batch, by sum, product, maximum, minimum or mean.

            What feeds it is computed per tuple, on the models as they stood before the batch; what follows it once per
            batch. `batch` is a number, a meta or `dana.all`.
            """

        def minimize(
            self,
            optimizer: Optimizer,
            batch: Batch | AllTuples = 64,
            models: Value | Sequence[Value] = ...,
            loss: Operand = ...,
            **options: Operand,
        ) -> Value:
            """Update the models that the loss depends on: ``rule.minimize(dana.optimizers.adam, rate=lr, batch=64)``.

            `optimizer` is a function of a model and its mean gradient over a batch; `options` are handed on to it. A
            row that each tuple chooses, such as ``U[i]``, is updated tuple by tuple. `models`: these alone; `loss`: a
            value other than that of setLoss. Of `conjugate_gradients` the result is what its last passes gained.
            """

        def setModel(self, value: Operand, *more: Operand) -> None:
            """Say what a model becomes: ``setModel(value)`` with one model, else ``setModel(model, value)``.

            ``setModel(U[i], value)`` writes one row.
            """

        def addRows(self, rows: Operand, value: Operand, batch: Batch | AllTuples = ..., op: MergeOp = ...) -> None:
            """Add to rows of a table: ``addRows(U[c], delta)``; a number chosen twice takes both.

            The next tuple sees it; with a batch and an operation, ``addRows(U[c], delta, 64, "mean")``, the batch's
            tuples see the rows before it, and all is added behind it.
            """

        def setLoss(self, loss: Operand) -> None:
            """Say what a tuple's loss is; its mean over each epoch is the training curve."""

        def setPrediction(self, prediction: Operand) -> None:
            """Say what is predicted from models and inputs: a scalar or a vector, of classes a number for each."""

        def setConvergence(self, condition: Operand) -> None:
            """Say when to stop: looked at after each epoch, on the last batch's values."""

        def setEpochs(self, epochs: int) -> None:
            """Say how many passes over the table to make at most."""


def dim(extent: int = 1) -> Dim:
    """Declare the extent of an axis that the table decides, ``n = dana.dim()``, or the caller: ``k = dana.dim(10)``."""
    not_in_rule("dim")


def model(shape: Shape = (), init: float | Start = 0.0) -> Value:
    """Declare state that training changes: ``w = dana.model([n])``; it starts at `init` everywhere."""
    not_in_rule("model")


def table(shape: Shape, init: float | Start = 0.0) -> Value:
    """Declare rows that tuples read and write by number: ``U = dana.table([m, k])``, then ``U[i]`` or ``U[c]``.

    A tuple sees the rows that the tuples before it wrote, in the same batch, too.
    """
    not_in_rule("table")


def input(shape: Shape = (), categories: Dim | int | None = None) -> Value:
    """Declare features of a tuple: ``x = dana.input([n])``; with `categories` each is one of these, numbered from 0."""
    not_in_rule("input")


def output(shape: Shape = (), classes: Dim | int | None = None) -> Value:
    """Declare a label of a tuple: ``y = dana.output()``; with `classes` it is one of these, numbered from 0."""
    not_in_rule("output")


def weight() -> Value:
    """Declare how much a row counts: ``weight = dana.weight()``; 1 unless a training names weights."""
    not_in_rule("weight")


def meta(value: float) -> Value:
    """Declare a number that can be changed at train time: ``lr = dana.meta(0.1)``."""
    not_in_rule("meta")


def inter(shape: Shape = ()) -> Value:
    """Declare the shape of a value that is assigned later: ``g = dana.inter([n])``."""
    not_in_rule("inter")


def state(like: Operand, shape: Shape = (), init: float | Start = 0.0) -> Value:
    """Declare a model that a function keeps for itself: ``velocity = dana.state(w)``.

    It has the shape of `like` unless another is given, and belongs to the algo without being listed there. A row that
    an input chooses, ``dana.state(U[i])``, has a state for each row.
    """
    not_in_rule("state")


def require(condition: Operand) -> None:
    """Report an error if numbers or metas violate a condition, mostly in a function: ``dana.require(rate < 1)``."""
    not_in_rule("require")


def setState(state: Value, value: Operand) -> None:
    """Say what a state becomes after the batch: ``dana.setState(velocity, 0.9 * velocity + grad)``."""
    not_in_rule("setState")


def algo(*members: Value | Sequence[Value]) -> Algo:
    """Declare the rule over its models, inputs and outputs: ``rule = dana.algo(w, x, y)``; names the rule."""
    not_in_rule("algo")


def sigma(value: Operand, axis: int | None = None) -> Value:
    """Sum along an axis, counted from 1: ``dana.sigma(w * x, 1)``; a vector's axis may be left out."""
    not_in_rule("sigma")


def pi(value: Operand, axis: int | None = None) -> Value:
    """Multiply along an axis, counted from 1: ``dana.pi(x, 1)``."""
    not_in_rule("pi")


def amax(value: Operand, axis: int | None = None) -> Value:
    """The largest along an axis, counted from 1: ``dana.amax(score, 1)``."""
    not_in_rule("amax")


def amin(value: Operand, axis: int | None = None) -> Value:
    """The smallest along an axis, counted from 1: ``dana.amin(distance, 1)``."""
    not_in_rule("amin")


def argmax(value: Operand, axis: int | None = None) -> Value:
    """Where the largest along an axis is, counted from 0, the first of equals: ``dana.argmax(score)``."""
    not_in_rule("argmax")


def argmin(value: Operand, axis: int | None = None) -> Value:
    """Where the smallest along an axis is, counted from 0, the first of equals: ``dana.argmin(distance)``."""
    not_in_rule("argmin")


def softmax(value: Operand, axis: int | None = None) -> Value:
    """Probabilities from scores along an axis, without overflow: ``dana.softmax(score)``."""
    not_in_rule("softmax")


def log_softmax(value: Operand, axis: int | None = None) -> Value:
    """Logarithms of the probabilities that `softmax` gives, also of those that are too small for a number."""
    not_in_rule("log_softmax")


def norm(value: Operand, axis: int | None = None) -> Value:
    """Euclidean norm along an axis, counted from 1: ``dana.norm(grad, 1)``."""
    not_in_rule("norm")


def total(value: Operand) -> Value:
    """The sum of all elements of a value of any shape; a scalar is its own."""
    not_in_rule("total")


def where(condition: Operand, then: Operand, otherwise: Operand) -> Value:
    """`then` where the condition is other than zero, else `otherwise`; elementwise."""
    not_in_rule("where")


@overload
def gradient(value: Operand, by: Value) -> Value: ...
@overload
def gradient(value: Operand, by: Sequence[Value]) -> Sequence[Value]: ...
def gradient(value: Operand, by: Value | Sequence[Value]) -> Value | Sequence[Value]:
    """The derivative of a scalar by a value, in its shape: ``dana.gradient(loss, w)``; of a list one by each."""
    not_in_rule("gradient")


def stop_gradient(value: Operand) -> Value:
    """The same value, which `gradient` and `minimize` take for a constant."""
    not_in_rule("stop_gradient")


def concat(first: Operand, *more: Operand) -> Value:
    """Vectors and scalars one after the other: ``dana.concat(x, 1)``."""
    not_in_rule("concat")


def transpose(value: Operand) -> Value:
    """A matrix with its axes exchanged: ``W.T``."""
    not_in_rule("transpose")


def expand(value: Operand, axis: int) -> Value:
    """Give a value a new axis of one element: ``dana.expand(e, 2) * x`` is the outer product of two vectors."""
    not_in_rule("expand")


def arange(count: Dim | int) -> Value:
    """Vector 0, 1, 2 … of `count` elements: ``dana.arange(k) == y`` is the one-hot vector of a class."""
    not_in_rule("arange")


def random(shape: Shape | Value = (), seed: int = 0) -> Value:
    """Random numbers from 0 to just below 1, others in each row and epoch: ``dana.random([n])``, ``dana.random(h)``.

    A value's shape may stand for its extents. The same numbers on every machine; others for each call and seed.
    """
    not_in_rule("random")


def uniform(low: float, high: float, seed: int = 0) -> Start:
    """Start a model with numbers from low to high: ``dana.model([n], init=dana.uniform(-0.1, 0.1))``."""
    not_in_rule("uniform")


def normal(mean: float, deviation: float, seed: int = 0) -> Start:
    """Start a model with normally distributed numbers: ``dana.model([n], init=dana.normal(0, 0.1))``."""
    not_in_rule("normal")


def column_mean(value: Value) -> Start:
    """Start a model with the mean of each column that fills an input: ``dana.state(x, init=dana.column_mean(x))``."""
    not_in_rule("column_mean")


def column_deviation(value: Value) -> Start:
    """Start a model with the standard deviation of each column that fills an input."""
    not_in_rule("column_deviation")


def column_scale(value: Value) -> Start:
    """Start a model with 1 / the standard deviation of each column that fills an input, with 1 for a constant one."""
    not_in_rule("column_scale")


def centres(value: Value, runs: Value | None = None) -> Start:
    """Start a model with centres of clusters of the rows: ``dana.model([k, n], init=dana.centres(x))``; by k-means++.

    They are those of `standardized` where the rule has it of the input. The best of `runs` counts, a meta; 10 without.
    """
    not_in_rule("centres")


# hides Python's `all` in this module, as `input` above does
all = AllTuples()

training = Given("training")
"""1 while a rule trains, 0 in what it predicts: ``dana.where(dana.training, a, b)`` is a while it trains, b later."""
epoch = Given("epoch")
"""The number of the epoch, 0 in the first; a warm start counts on."""
batch = Given("batch")
"""The number of the batch in its epoch, 0 in the first."""
rows = Given("rows")
"""How many rows the training has."""


def rule(function: Callable[[], object]) -> TrainableRule:
    """Make the body of a function a rule; the function is read, never called.

    Numbers that the function takes from the module around it become part of the rule. What is legal and surely not
    meant becomes a `UserWarning`.

    Examples
    --------
    ::

        @dana.rule
        def linear():
            w = dana.model([8])
            ...

    Raises
    ------
    dsl.RuleError
        With every error of the rule.
    UsageError
        Python does not know the function's text, as in its own shell.
    """
    from dana.language.trainable import TrainableRule  # the front end is loaded only when it is needed
    from dsl.embed import function_source

    try:
        source = function_source(function)
    except OSError:
        raise UsageError(
            f"the text of {getattr(function, '__name__', 'the rule')} is needed, and Python did not keep it",
            hint="Write the function into a file or a notebook; create_rule also takes a rule as text.",
        ) from None
    rule = TrainableRule(source.text, filename=source.filename, first_line=source.first_line)
    # all stages now, so that errors come with the definition, not with the first training
    _ = rule.hdfg
    if rule.warnings:
        # the line of the decorator
        warnings.warn(rule.report, stacklevel=2)
    return rule


# Written by python -m dana.generated: from here on
__all__ = [
    "Algo",
    "Batch",
    "Dim",
    "NotInRule",
    "Number",
    "Part",
    "Value",
    "algo",
    "all",
    "amax",
    "amin",
    "arange",
    "argmax",
    "argmin",
    "batch",
    "centres",
    "column_deviation",
    "column_mean",
    "column_scale",
    "concat",
    "dim",
    "epoch",
    "expand",
    "gradient",
    "input",
    "inter",
    "log_softmax",
    "meta",
    "model",
    "norm",
    "normal",
    "output",
    "pi",
    "random",
    "require",
    "rows",
    "rule",
    "setState",
    "sigma",
    "softmax",
    "state",
    "stop_gradient",
    "table",
    "total",
    "training",
    "transpose",
    "uniform",
    "weight",
    "where",
]
