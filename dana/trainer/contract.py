"""The interface between the worker and the trainer: requests, reports, and the protocols `Trainer` and `Training`.

It depends neither on sockets, rings and the processes of PostgreSQL nor on compilers and simulators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dana.errors import UsageError
from dana.predictor.centres import NO_CENTRES, Centres
from dana.storage.permuted import RowOrder
from dana.storage.schema import Attribute, TableSchema
from dsl.hdfg.init import InitKind

Json = Mapping[str, Any]
"""A JSON object: string keys, JSON values."""


class SqlState(StrEnum):
    """SQLSTATE codes used by a trainer (errcodes.txt of PostgreSQL)."""

    INVALID_PARAMETER = "22023"
    SYNTAX_ERROR = "42601"
    UNDEFINED_COLUMN = "42703"
    DATATYPE_MISMATCH = "42804"
    FEATURE_NOT_SUPPORTED = "0A000"
    DATA_EXCEPTION = "22000"
    NULL_VALUE = "22004"
    DATA_CORRUPTED = "XX001"
    ROWS_CHANGED = "40001"
    DISK_FULL = "53100"
    OUT_OF_MEMORY = "53200"
    TOO_MANY_CONNECTIONS = "53300"
    CONFIGURATION_LIMIT_EXCEEDED = "53400"
    LIMIT_EXCEEDED = "54000"
    SYSTEM_ERROR = "58000"
    IO_ERROR = "58030"
    INTERNAL = "XX000"
    PROTOCOL = "08P01"


class TrainingError(UsageError):
    """A request that cannot be satisfied; it is reported as an SQL error.

    Parameters
    ----------
    message
        What was expected and what was found, in the style of PostgreSQL: lower case, no full stop.
    sqlstate
        Five characters, a member of `SqlState`.
    detail, hint
        Complete sentences, or empty.
    """

    def __init__(
        self, message: str, *, sqlstate: str = SqlState.INVALID_PARAMETER, detail: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.sqlstate = str(sqlstate)
        self.detail = detail


# the session trains once more with frames when it catches this (dana/worker/session.py): raise it only for what the
# backend can read and a Strider cannot
class OutOfLine(TrainingError):
    """A page cannot be trained on as it is, for instance because a value is compressed; frames can."""

    def amended(self, request: TrainRequest) -> TrainRequest:
        """Return the request to train on frames; in them the backend handles invalid values and NULLs."""
        return replace(request, relation=replace(request.relation, rows=True), nulls="skip")


class Level(StrEnum):
    """Severity of a notice, in PostgreSQL's terms."""

    DEBUG = "debug"
    INFO = "info"
    NOTICE = "notice"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
# sent by these names; pg_extension/src/worker/channel.c raises the message at the level
class Notice:
    """A message to the user that does not end the request."""

    level: Level
    message: str
    hint: str = ""

    @property
    def text(self) -> str:
        """The message, with the hint on a line of its own as clients display it."""
        return self.message + (f"\nHint: {self.hint}" if self.hint else "")


Notify = Callable[[Notice], None]


def once(notify: Notify) -> Notify:
    """Return a function that passes each notice on once, for a training that begins again."""
    sent: set[Notice] = set()

    def notify_once(notice: Notice) -> None:
        if notice not in sent:
            sent.add(notice)
            notify(notice)

    return notify_once


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """The source of the rows of a training.

    Attributes
    ----------
    name
        Qualified and quoted, for messages.
    pages
        Number of pages that the sink receives in every epoch. None: unknown until the stream ends.
    page_size
        Size of a page in bytes (BLCKSZ, or the size of a frame).
    attributes
        All columns in attnum order.
    rows
        The source has rows but no pages, so frames are streamed.
    part
        Number of values in a part if each row is split over several frames; 0: a row is a tuple.
    """

    name: str
    pages: int | None
    page_size: int
    attributes: tuple[Attribute, ...]
    rows: bool = False
    part: int = 0

    @property
    def schema(self) -> TableSchema:
        """The schema for readers of the pages."""
        return TableSchema(relation=self.name, attributes=self.attributes, part=self.part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a training on several servers (`dana.trainer.parts`).

    Attributes
    ----------
    mode
        'batch' or 'epoch'.
    number
        From 1; 0: it leads, and has no rows.
    count
        Number of parts with rows.
    """

    mode: str
    number: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """The arguments of ``dana_train``.

    Attributes
    ----------
    rule, text
        Name and text of the rule.
    relation
        The source of the rows.
    features, label, weight
        Column names; None: chosen by the trainer, or no weights.
    class_weight
        Weights by the text of a class, or 'balanced'; None: each class has the weight 1.
    epochs
        Number of epochs; None: that of the rule.
    patience, tolerance
        When a training without improvement ends (`dana.trainer.stopping`); None: the defaults. Patience 0: never.
    hyper
        Values for metas and dims of the rule.
    machine
        Name of the machine: 'sim', 'rtl' or 'interp'.
    design
        Overrides of the configuration of the machine (threads, clusters …).
    nulls
        Treatment of rows with a NULL in a used column: 'skip' or 'error'.
    nonfinite
        Treatment of rows with a NaN or an infinity: 'skip', 'keep' or 'error'; None: 'skip'.
    standardize
        False: models that are initialised with column statistics get neutral values, so columns are not scaled.
    stored_as
        What features and models are stored as: one of `dana.compiler.binding.precision.NUMBERS`; None: 'binary32'.
    classes
        Texts of the classes of the label, in the order of their numbers from 0; None: the label is a number.
    calibrate
        'platt': the prediction becomes a probability, fitted to the held-out rows (`dana.trainer.calibration`).
    shuffle
        Whether rows come in a pseudo-random order; None: where the rule is a stochastic one.
    seed
        Chooses that order, and centres to start from; None: 1.
    warm_start_from
        Initial values of models by name; None: as declared in the rule.
    warm_start_features
        Columns of the model to start from, in order; empty: unknown.
    warm_start_whole
        The initial values are a complete trained model; otherwise missing models are initialised by the rule.
    centres
        What is subtracted from the columns before their values become binary32.
    held_out
        Rows were held out and can be requested.
    validates
        They choose the epoch; otherwise they only measure the kept model, as in a trial.
    largest
        Largest number of each column of categories, None for an empty column; empty: not determined.
    metadata
        Members that the caller adds to the metadata of the model.
    device
        Name of the FPGA that the machine must fit and that determines its clock and link; None: no FPGA.
    max_epochs
        Maximum number of epochs; None: no limit.
    max_memory
        Memory limit of the process, bytes; 0: the limit of the worker.
    temp_file_limit
        Maximum size of the files with rows in another order, bytes; None: no limit.
    part
        Which part of a training on several servers it is; None: it is the whole.
    resume
        Whether to go on from a checkpoint: one of `dana.trainer.checkpoints.RESUME`; None: there are none.
    caller
        Role and database, for the log.
    """

    # fields with the names of dana_train()'s arguments must keep them: dana/worker/protocol.py passes the extension's
    # "options" on by name
    rule: str
    text: str
    relation: Relation
    features: tuple[str, ...] | None
    label: str | None
    epochs: int | None
    hyper: Json
    machine: str
    design: Json
    patience: int | None = None
    tolerance: float | None = None
    nulls: str = "skip"
    nonfinite: str | None = None
    standardize: bool | None = None
    stored_as: str | None = None
    classes: tuple[str, ...] | None = None
    weight: str | None = None
    calibrate: str | None = None
    shuffle: bool | None = None
    seed: int | None = None
    class_weight: Json | str | bool | float | None = None
    warm_start_from: Mapping[str, NDArray[np.float32]] | None = None
    warm_start_features: tuple[str, ...] = ()
    warm_start_whole: bool = True
    centres: Centres = NO_CENTRES
    held_out: bool = False
    validates: bool = False
    largest: Mapping[str, float | None] = field(default_factory=dict)
    metadata: Json = field(default_factory=dict)
    device: str | None = None
    max_epochs: int | None = None
    max_memory: int = 0
    temp_file_limit: int | None = None
    part: Part | None = None
    resume: str | None = None
    caller: str = ""


# sent by these names (dana/worker/session.py) and read by pg_extension/src/features/categories.c
@dataclass(frozen=True, slots=True, kw_only=True)
class Categories:
    """Columns of row numbers and categories.

    Attributes
    ----------
    columns
        Columns with a largest number that must be known before the training.
    choosing
        Columns with numbers that choose rows of models.
    unknown
        Columns in which a negative number means an unknown category and chooses no row.
    """

    columns: Sequence[str]
    choosing: Sequence[str]
    unknown: Sequence[str]


PageCounts = Sequence[tuple[int, int]]
"""Tuples and line pointers of each page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """A row of dana.run, with the members of its design that an explanation compares; `config` is None without one."""

    id: int
    started: str
    machine: str
    epochs: int
    tuples: int
    skipped: int
    pages: int
    cycles: int | None
    wall_seconds: float
    modelled_seconds: float | None
    rule: str
    features: tuple[str, ...]
    labels: tuple[str, ...]
    hyper: Mapping[str, float]
    config: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSizes:
    """The shards of a table.

    Attributes
    ----------
    count, hosts
        Their number, and that of the machines that they are on.
    rows, pages
        Of all together.
    """

    count: int
    hosts: int
    rows: float
    pages: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRequest:
    """The arguments of ``dana_explain``.

    Attributes
    ----------
    training
        The training that is explained.
    device
        Name of the FPGA that the machine is designed for; None: that of the training.
    search
        Explain the best machine for the device instead of the one that the training would use.
    rows
        Number of rows that the training would read; None: unknown.
    layout
        Counts of the pages of a heap in order, or of a sample; None: the source has no pages.
    last
        Last run of the rule on the source; None: there is none.
    shards
        Sizes of the shards that the source is a sample from; None if the source has all rows.
    """

    training: TrainRequest
    device: str | None
    search: bool
    rows: int | None
    layout: PageCounts | None
    last: LastRun | None
    shards: ShardSizes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Frames that are requested from a backend.

    Attributes
    ----------
    numbers
        Attribute numbers of the columns in a frame, in order; the label last.
    lengths
        Elements of each array column; 0 for a number.
    page_size
        Bytes of a frame.
    part
        Number of values in a part of a row, flattened over its columns; 0: a row is a tuple.
    centres
        What to subtract from the values of a row before they become binary32; empty: nothing.
    """

    numbers: tuple[int, ...]
    lengths: tuple[int, ...]
    page_size: int
    part: int = 0
    centres: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """A native function that takes pages.

    Attributes
    ----------
    function
        Address of ``int function(void *context, const uint8_t *pages, size_t n_pages)``. It returns 0, or a status
        that ends the training. It is called without the GIL, on the thread of the caller.
    context
        Address passed as its first argument.
    again
        Address of the function for an epoch that repeats the pages of the previous one in order; 0: `function`.
    """

    function: int
    context: int
    again: int = 0


# sent by these names in every EPOCH message; pg_extension/src/limits/progress.c reads them
@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """One pass over the table.

    Attributes
    ----------
    loss
        Mean of the setLoss of the rule over the tuples of the epoch, while the models change; None without setLoss.
    converged
        Whether the setConvergence of the rule held, which ends the training.
    tuples, skipped
        Number of rows trained on, and of rows skipped.
    cycles
        Machine cycles of the epoch; None for the interpreter.
    counters
        Further counts by name (stalls, busy …).
    validation_loss
        Mean loss of the model after the epoch over the held-out rows; None without such rows.
    """

    loss: float | None
    converged: bool
    tuples: int
    skipped: int
    cycles: int | None
    counters: Mapping[str, int] = field(default_factory=dict)
    validation_loss: float | None = None


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
    """The result of a training.

    Attributes
    ----------
    parameters
        The models in the order of the rule.
    predictor
        Program for ``dana_predict`` (`dana.predictor.program`); None without setPrediction.
    modelled_seconds
        Time on the modelled machine; None for the interpreter.
    metadata
        Features, label, metas and other facts that a reader of the model needs.
    """

    parameters: Sequence[Parameter]
    predictor: bytes | None
    modelled_seconds: float | None
    metadata: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """What the best prediction is worth that is the same for every row.

    Attributes
    ----------
    loss
        Mean loss of a row.
    chance
        What a column of random numbers saves of the loss of all rows, on average; for a loss that is not understood as
        well, its mean.
    """

    loss: float
    chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """A model that is initialised with a statistic of the columns of an input, or with centres of its rows.

    Attributes
    ----------
    model
        Its name.
    kind, of, runs
        As in `dsl.hdfg.init.Init`.
    """

    model: str
    kind: InitKind
    of: str
    runs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TupleLayout:
    """Where a tuple of a training has its numbers, as an observer gets them.

    Attributes
    ----------
    lanes
        Elements of a row of tuple memory.
    elements
        Of a tuple.
    features
        Element of each feature, shape [features].
    inputs
        Elements of each input, in its shape.
    label, weight
        Elements; -1: there is no weight, no label or several of them.
    """

    lanes: int
    elements: int
    features: NDArray[np.int64]
    inputs: Mapping[str, NDArray[np.int64]]
    label: int
    weight: int


class Observer(Protocol):
    """What looks at the tuples of a pass."""

    @property
    def data(self) -> Any:
        """Functions and context for the simulator."""

    def add(self, tuples: NDArray[np.float32]) -> None:
        """Look at all tuples of the pass, shape [rows, elements]."""


class Training(Protocol):
    """A training of a rule that is compiled for a table."""

    @property
    def design(self) -> Json:
        """Summary of the machine, for dana.run.

        The backend uses one member: ``classes`` has the column of the ``label`` and the ``count`` of classes; a label
        that is not one of 0 … ``count`` − 1 is an error.
        """

    @property
    def stream(self) -> Stream | None:
        """The frames to request; None: the pages of the table."""

    @property
    def epochs(self) -> int:
        """Maximum number of epochs; at least 1."""

    @property
    def order(self) -> RowOrder | None:
        """The order in which all passes take the rows; None: heap order."""

    @property
    def survey(self) -> Sink | None:
        """Sink of a pass over the pages before the first epoch; None: no such pass is needed."""

    def end_survey(self) -> None:
        """End the pass of the survey after the last page."""

    @property
    def sink(self) -> Sink:
        """Sink of an epoch, which takes the pages in order; every epoch has the same pages."""

    def failure(self, status: int) -> Exception:
        """Return the error for a non-zero status of the sink."""

    def end_epoch(self) -> EpochReport:
        """End the epoch after the last page."""

    def constant(self, parameters: Sequence[Parameter]) -> Constant | None:
        """Return the best prediction that is the same for every row, with these models; None: unknown."""

    not_finite: str
    """Columns with NaN or infinite values that are kept, and their number, as text for a message; or empty."""

    @property
    def whole_table(self) -> bool:
        """Whether the table is one batch: the loss of an epoch is that of the models before it."""

    @property
    def tests_convergence(self) -> bool:
        """Whether the rule has a convergence test."""

    def adopt(self, parameters: Sequence[Parameter]) -> None:
        """Continue from other values of the models."""

    @property
    def layout(self) -> TupleLayout:
        """Where a tuple has its numbers."""

    @property
    def clustered(self) -> Sequence[Statistic]:
        """The models to initialise with centres of clusters of the rows, before the first epoch."""

    def look(self, observer: Observer) -> Sink:
        """Return the sink of a pass over the pages that an observer looks at, and that trains nothing."""

    def end_look(self) -> None:
        """End that pass after the last page."""

    @property
    def rounded(self) -> NDArray[np.bool_]:
        """Whether binary32 rounds the numbers of each feature and, last, of the label; shape [features + 1]."""

    def centre(self, close: NDArray[np.bool_]) -> None:
        """Raise `OutOfLine` if these, in that order, are not yet less their mean, and the rule permits it."""

    def judge(self, parameters: Sequence[Parameter]) -> Sink | None:
        """Return the sink of a pass that measures the loss of models; None: the rule has no loss.

        The memory of the training is freed before: afterwards only `end_judging`, `failure` and `close` are called.
        """

    def end_judging(self) -> float | None:
        """End that pass after the last page; return the mean loss of the models over the rows."""

    def parameters(self, over: Sequence[Parameter] = ()) -> Sequence[Parameter]:
        """Return copies of the models and states after the last epoch; the arrays of `over` may be reused for them."""

    def finish(self, parameters: Sequence[Parameter]) -> TrainResult:
        """Return the result after the last epoch, with the parameters of the epoch that is kept."""

    def close(self) -> None:
        """Free all resources; called once, also after an error."""


class Validation(Protocol):
    """What measures the models of a training on rows that are excluded from it."""

    def loss(self, parameters: Sequence[Parameter]) -> float | None:
        """Return the mean of the setLoss of the rule over the rows; None without a complete row."""


class HeldOut(Validation, Protocol):
    """Such rows, in this process."""

    @property
    def design(self) -> Json:
        """See `Training.design`."""

    @property
    def stream(self) -> Stream:
        """The frames to request."""

    @property
    def sink(self) -> Sink:
        """Sink of the single pass over the frames."""

    def begin(self, most: int) -> None:
        """Prepare for the frames; if they exceed `most` bytes, none is kept and `loss` is None."""

    def failure(self, status: int) -> Exception:
        """Return the error for a non-zero status of the sink."""

    @property
    def kept(self) -> int:
        """Bytes of frames that are kept; 0: there were no rows, or too many."""

    def losses(self, parameters: Sequence[Parameter]) -> tuple[float, int]:
        """Return the sum of the losses, and the number of complete rows."""

    @property
    def request(self) -> TrainRequest:
        """The request, with the columns of the frames."""

    def rows(self) -> tuple[Mapping[str, NDArray[np.float32]], NDArray[np.float64], NDArray[np.float64]]:
        """Return inputs by name, labels and weights of the rows, or of a sample of many; empty if none is kept."""

    def close(self) -> None:
        """Free all resources; called exactly once, also after an error."""


class Link(Protocol):
    """What carries messages between the parts of a training."""

    def lead(self, command: bytes) -> list[bytes]:
        """Send a command to all followers; return their answers, in the order of the parts."""

    def follow(self, answer: bytes) -> bytes:
        """Send the answer to the last command, b"" at first; return the next one."""

    def join(self, merges: bytes) -> bytes:
        """Send what this part merged to the other followers; return that of all, one after the other."""


class Trainer(Protocol):
    """Checks rules and opens trainings; it exists for the lifetime of the process and may cache compiled designs."""

    def check(self, text: str, notify: Notify) -> Json:
        """Check the text of a rule.

        Returns
        -------
        Json
            Description of the rule, stored in dana.rule (its models, inputs, outputs, metas …).

        Raises
        ------
        TrainingError
            The text is not a valid rule; the message contains the rendered diagnostics.
        """

    def prepare(self, machine: str) -> None:
        """Import the code of a machine. Call it before memory is limited: a failed import leaves modules half loaded.

        Raises
        ------
        TrainingError
            A package is not installed.
        """

    def open(self, request: TrainRequest, notify: Notify, link: Link | None = None) -> Training:
        """Compile a rule for a table and prepare for its pages.

        Parameters
        ----------
        link
            To the other parts of a training on several servers.

        Raises
        ------
        TrainingError
            The request cannot be met.
        """

    def held_out(self, request: TrainRequest) -> HeldOut | None:
        """Compile the loss of a rule for the held-out rows; None if the rule has no loss."""

    def categories(self, request: TrainRequest) -> Categories:
        """Return the columns that must be examined before the training.

        Raises
        ------
        TrainingError
            As `open`.
        """

    def explain(self, request: ExplainRequest) -> Json:
        """Describe the machine that a training would run on, without training.

        Returns
        -------
        Json
            Numbers by name, and a readable form in ``lines``.

        Raises
        ------
        TrainingError
            The request cannot be met.
        """
