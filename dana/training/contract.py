"""The seam between the worker and whatever trains: requests, reports, and two protocols.

In: what a backend asks for (rule text, the relation's schema, arguments). Out: what it is answered. Nothing here
knows sockets, rings or PostgreSQL's processes, and nothing here knows compilers or simulators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dana.errors import UsageError
from dana.storage.schema import Attribute, TableSchema

Json = Mapping[str, Any]
"""A JSON object: string keys, JSON values."""


class SqlState(StrEnum):
    """SQLSTATE codes that a trainer uses (PostgreSQL's errcodes.txt)."""

    INVALID_PARAMETER = "22023"
    SYNTAX_ERROR = "42601"
    UNDEFINED_COLUMN = "42703"
    DATATYPE_MISMATCH = "42804"
    FEATURE_NOT_SUPPORTED = "0A000"
    DATA_EXCEPTION = "22000"
    NULL_VALUE = "22004"
    DATA_CORRUPTED = "XX001"
    DISK_FULL = "53100"
    OUT_OF_MEMORY = "53200"
    TOO_MANY_CONNECTIONS = "53300"
    LIMIT_EXCEEDED = "54000"
    IO_ERROR = "58030"
    INTERNAL = "XX000"


class TrainingError(UsageError):
    """A request that cannot be met; becomes one SQL error.

    Parameters
    ----------
    message
        What was expected and what was found; PostgreSQL's style: lower case, no full stop.
    sqlstate
        Five characters; says which kind.
    detail, hint
        Whole sentences, or empty.
    """

    def __init__(
        self, message: str, *, sqlstate: str = SqlState.INVALID_PARAMETER, detail: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.sqlstate = str(sqlstate)
        self.detail = detail


class OutOfLine(TrainingError):
    """A page holds a value that is compressed or stored elsewhere; frames would hold it."""


class Level(StrEnum):
    """How loud a notice is, in PostgreSQL's terms."""

    DEBUG = "debug"
    INFO = "info"
    NOTICE = "notice"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that the user should see and that ends nothing."""

    level: Level
    message: str
    hint: str = ""

    @property
    def text(self) -> str:
        """The message, and the hint on a line of its own, as clients show a server's."""
        return self.message + (f"\nHint: {self.hint}" if self.hint else "")


Notify = Callable[[Notice], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table whose pages will be streamed.

    Attributes
    ----------
    name
        Qualified and quoted, for messages.
    pages
        Pages of a stream: the sink gets exactly so many in every epoch. None: unknown until the stream ends.
    page_size
        Bytes of a page (BLCKSZ, or the size of frames).
    attributes
        Every column in attnum order.
    rows
        Only rows can be had, not pages: they come as frames.
    part
        Values of a part, where each row lies over several frames; 0: a row is a tuple.
    """

    name: str
    pages: int | None
    page_size: int
    attributes: tuple[Attribute, ...]
    rows: bool = False
    part: int = 0

    @property
    def schema(self) -> TableSchema:
        """The same, as readers of its pages want it."""
        return TableSchema(relation=self.name, attributes=self.attributes, part=self.part)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """What ``dana_train`` was called with.

    Attributes
    ----------
    rule, source
        The rule's name and text.
    relation
        The table.
    features, label, weight
        Column names; None where the caller left the choice to the trainer, or where each row weighs 1.
    class_weight
        Weights by the texts of the label's classes, or 'balanced'; None: each class weighs 1.
    epochs
        The caller's number, or None: the rule's.
    patience, tolerance
        When a training ends that no longer improves (`dana.training.stopping`); None: the defaults. Patience 0: never.
    hyper
        New values for the rule's metas.
    backend
        'sim', 'rtl', 'interp'.
    design
        Overrides of the machine (threads, clusters …).
    nulls
        What to do with a row that has a NULL in a used column: 'skip' it, or raise an 'error'.
    nonfinite
        Likewise of a NaN or an infinity: 'skip', 'keep' or an 'error'; None: 'skip'.
    standardize
        False: models that begin with statistics of columns begin as without a table, which leaves columns as they are.
    classes
        Texts of the label's classes, in the order of their numbers from 0; None: the label is a number.
    warm_start_from
        Values to start the rule's models from, by name; None: as the rule says.
    warm_start_features
        Columns that the model to start from was trained on, in their order; empty: unknown.
    warm_start_whole
        They are those of a trained model, so none that the rule declares is missing; else others begin as it says.
    held_out
        Rows were left out for a test, and can be had.
    largest
        Of columns whose numbers are categories the largest number, None where there is none; empty: nobody looked.
    metadata
        What the caller wants kept in the model's metadata.
    device
        Name of the FPGA whose clock and link the machine has, and that it fits; None: of none.
    max_epochs
        Most epochs that are allowed; None: any number.
    max_memory
        Most memory of the process, bytes; 0: what it was started with.
    caller
        Role and database, for the log.
    """

    rule: str
    source: str
    relation: Relation
    features: tuple[str, ...] | None
    label: str | None
    epochs: int | None
    hyper: Json
    backend: str
    design: Json
    patience: int | None = None
    tolerance: float | None = None
    nulls: str = "skip"
    nonfinite: str | None = None
    standardize: bool | None = None
    classes: tuple[str, ...] | None = None
    weight: str | None = None
    class_weight: Json | str | bool | float | None = None
    warm_start_from: Mapping[str, NDArray[np.float32]] | None = None
    warm_start_features: tuple[str, ...] = ()
    warm_start_whole: bool = True
    held_out: bool = False
    largest: Mapping[str, float | None] = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    device: str | None = None
    max_epochs: int | None = None
    max_memory: int = 0
    caller: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories:
    """Columns whose numbers choose rows of models; of ``columns`` the largest one is to be known before the training.

    In those of ``unknown`` a number below 0 is no category, and chooses nothing.
    """

    columns: Sequence[str]
    choosing: Sequence[str]
    unknown: Sequence[str]


PageCounts = Sequence[tuple[int, int]]
"""Tuples and line pointers of each page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRequest:
    """What ``dana_explain`` was called with.

    Attributes
    ----------
    training
        The training that would be.
    device
        Name of the FPGA that the machine is made for, in the place of the training's; None: the training's.
    search
        Explain the best machine of the device, not the one that the training would take.
    rows
        Rows that the training would read; None: unknown.
    layout
        Of the pages of a heap in their order, or of a sample of them; None: the source has none.
    last
        The last run of the rule on the source, columns of dana.run; None: there is none.
    """

    training: TrainRequest
    device: str | None
    search: bool
    rows: int | None
    layout: PageCounts | None
    last: Json | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Frames that a backend is asked for.

    Attributes
    ----------
    numbers
        Attribute numbers of the columns in a frame, in order; the label last.
    lengths
        Elements of each array column; 0 for a number.
    page_size
        Bytes of a frame.
    part
        Values of a part of a row, all its columns' one after another; 0: a row is a tuple.
    """

    numbers: tuple[int, ...]
    lengths: tuple[int, ...]
    page_size: int
    part: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """A native function that takes pages.

    Attributes
    ----------
    function
        Address of ``int function(void *context, const uint8_t *pages, size_t n_pages)``: 0, or a status that ends
        the training. Called without the GIL, on the caller's thread.
    context
        Address passed as its first argument.
    again
        Address of the function for pages that are those of the epoch before, in their order; 0: the same function.
    """

    function: int
    context: int
    again: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """One pass over the table.

    Attributes
    ----------
    loss
        Mean of the rule's setLoss over the epoch's tuples; None without one.
    converged
        Whether the rule's setConvergence held; ends the training.
    tuples, skipped
        Rows trained on, rows left out for a NULL.
    cycles
        Machine cycles of the epoch; None where the backend has no machine.
    counters
        Further counts by name (stalls, busy …).
    test_loss
        Mean loss of the model that the epoch left, over the rows held out; None where there are none.
    """

    loss: float | None
    converged: bool
    tuples: int
    skipped: int
    cycles: int | None
    counters: Mapping[str, int] = field(default_factory=dict)
    test_loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A trained model of the rule.

    Attributes
    ----------
    name
        Its name in the rule.
    values
        binary32, of the model's shape.
    """

    name: str
    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What is kept of a training.

    Attributes
    ----------
    parameters
        The models in the rule's order.
    predictor
        Program for ``dana_predict`` (`dana.predictor.program`); None where the rule has no setPrediction.
    modelled_seconds
        Time on the modelled machine; None where the backend has none.
    metadata
        What a reader of the model needs to know: features, label, metas, versions.
    """

    parameters: Sequence[Parameter]
    predictor: bytes | None
    modelled_seconds: float | None
    metadata: Json


class Training(Protocol):
    """A rule, compiled for a table, in the middle of its training."""

    @property
    def design(self) -> Json:
        """Summary of the machine, for dana.run.

        The backend looks at one of its members: ``classes``, if there is one, names the ``label``'s column, and rows in
        which it is none of 0 … ``count`` − 1 are refused.
        """

    @property
    def stream(self) -> Stream | None:
        """The frames to ask for; None: the table's pages."""

    @property
    def epochs(self) -> int:
        """Epochs to run unless it converges before; at least 1."""

    @property
    def survey(self) -> Sink | None:
        """Where the pages go for once before the first epoch; None: nobody needs to look at them."""

    def end_survey(self) -> None:
        """End the look at the pages, the last of which the survey's sink has had."""

    @property
    def sink(self) -> Sink:
        """Where the pages go, in heap order; every epoch the same pages."""

    def failure(self, status: int) -> Exception:
        """Explain a non-zero status of the sink."""

    def end_epoch(self) -> EpochReport:
        """End the epoch whose last page the sink has had."""

    constant_loss: float | None
    """The rule's loss of the best prediction that is the same for every row; None where nobody can tell."""
    not_finite: str
    """Columns that hold NaN or infinite values, which it was to keep, and how many; empty where there are none."""
    in_order: bool
    """Whether rows that are alike were found to lie together, which was said."""

    def parameters(self, over: Sequence[Parameter] = ()) -> Sequence[Parameter]:
        """Copies of the models, states included, as the last epoch left them; those of `over` may hold them then."""

    def finish(self, parameters: Sequence[Parameter]) -> TrainResult:
        """The result, after the last epoch, with the parameters of one of them."""

    def close(self) -> None:
        """Free what the training holds; called once, whatever happened."""


class HeldOut(Protocol):
    """Rows that take no part in a training, to judge its models by."""

    @property
    def design(self) -> Json:
        """As a training's."""

    @property
    def stream(self) -> Stream:
        """The frames to ask for."""

    @property
    def sink(self) -> Sink:
        """Where they go, once."""

    def begin(self, most: int) -> None:
        """Make ready for frames, of which so many bytes are kept; of more none is, and there is no loss."""

    def failure(self, status: int) -> Exception:
        """Explain a non-zero status of the sink."""

    @property
    def kept(self) -> int:
        """Bytes that are kept; 0: there were no rows, or too many."""

    def loss(self, parameters: Sequence[Parameter]) -> float | None:
        """Mean of the rule's setLoss over the rows; None where none is complete."""

    def close(self) -> None:
        """Free what it holds; called once, whatever happened."""


class Trainer(Protocol):
    """Checks rules and opens trainings; lives as long as its process and may keep compiled designs."""

    def check(self, source: str, notify: Notify) -> Json:
        """Check a rule's text.

        Returns
        -------
        Json
            Description of the rule, stored in dana.rule (its models, inputs, outputs, metas …).

        Raises
        ------
        TrainingError
            The text is no rule; the message carries the rendered diagnostics.
        """

    def prepare(self, backend: str) -> None:
        """Load the code that a backend needs, before memory is bounded: half an import is worse than none.

        Raises
        ------
        TrainingError
            It is not installed.
        """

    def open(self, request: TrainRequest, notify: Notify) -> Training:
        """Compile a rule for a table and make ready for its pages.

        Raises
        ------
        TrainingError
            The request cannot be met.
        """

    def held_out(self, request: TrainRequest) -> HeldOut | None:
        """Compile a rule's loss for the rows that are held out; None where it has none."""

    def categories(self, request: TrainRequest) -> Categories:
        """What is to be known of columns before the training.

        Raises
        ------
        TrainingError
            As `open`.
        """

    def explain(self, request: ExplainRequest) -> Json:
        """Say what a training would run on, without training.

        Returns
        -------
        Json
            Numbers by name, and the same for people in ``lines``.

        Raises
        ------
        TrainingError
            The request cannot be met.
        """
