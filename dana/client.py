"""Client: rules, trainings and models of a PostgreSQL server that has the extension.

In: a connection string, rule text, table and column names. Out: results as Python values. Everything goes through the
SQL surface that psql has; nothing here compiles or trains.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
import psycopg
from numpy.typing import NDArray

from dana.errors import UsageError
from dana.experiments import (
    Call,
    Fold,
    GroupTraining,
    Job,
    SearchPoint,
    call,
    given,
    jobs,
    lines,
    start,
    value,
)
from dana.options import TrainOptions, TrialOptions
from dana.terminal import printable

if TYPE_CHECKING:
    from dsl import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """The row that ``dana_train`` returns.

    Attributes
    ----------
    model, version
        Name of the model, and which training of that name.
    run
        Its number in ``dana.run``, whose epochs are in ``dana.epoch``.
    epochs
        Passes over the table.
    converged
        Whether the rule's convergence test ended the training.
    loss
        Mean of the rule's loss over the last epoch; None for a rule without one.
    tuples, skipped
        Rows trained on and rows left out for a NULL, in one epoch.
    pages
        Pages read, over all epochs.
    cycles
        Cycles of the accelerator, over all epochs; None for the backend ``interp``.
    modelled_seconds
        Those cycles at the design's clock; None likewise.
    wall_seconds
        Time that the statement took in the server.
    """

    model: str
    version: int
    run: int
    epochs: int
    converged: bool
    loss: float | None
    tuples: int
    skipped: int
    pages: int
    cycles: int | None
    modelled_seconds: float | None
    wall_seconds: float


class Connection:
    """A session on a server with the extension; a context manager.

    Parameters
    ----------
    session
        Connection of psycopg, which the object owns. Statements commit by themselves if it is in autocommit mode;
        otherwise they belong to its transaction, and so does a trained model.
    """

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self.session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the session."""
        self.session.close()

    def create_rule(self, name: str, rule: str | Rule) -> None:
        """Register a rule, or its text, under ``name``; a rule of that name is replaced.

        What the compiler warns of becomes a `UserWarning` of Python.

        Raises
        ------
        psycopg.Error
            The text is no rule: the message is what the compiler says of it.
        """
        text = rule if isinstance(rule, str) else rule.source.text
        found: list[str] = []
        with self._notices(found.append):
            value(self.session, "dana_create_udf", {"name": name, "source": text})
        for message in found:
            warnings.warn(message, stacklevel=2)

    def create_rules(self, *names: str) -> list[str]:
        """Register rules of `dana.rules` under their names, all of them by default; return the names.

        A rule of yours that has such a name is replaced. Either all are registered or none.

        Raises
        ------
        UsageError
            There is no rule of such a name.
        psycopg.Error
            You may not register rules, or somebody else's rule has such a name.
        """
        from dana import rules

        chosen = list(names or rules.NAMES)
        texts = {name: rules.text(name) for name in chosen}
        with self.session.transaction():
            for name, text in texts.items():
                self.create_rule(name, text)
        return chosen

    def drop_rule(self, name: str) -> None:
        """Forget the rule ``name``."""
        value(self.session, "dana_drop_rule", {"name": name})

    def train(
        self, rule: str, source: str | None = None, *, progress: bool = False, **options: Unpack[TrainOptions]
    ) -> TrainResult:
        """Train a registered rule over a table or a query.

        Parameters
        ----------
        rule
            Its name.
        source
            Table, as SQL would name it (``cancer``, ``public.cancer``, ``"Odd Name"``).
        progress
            Show a spinner and each epoch on stderr, if it is a terminal.
        options
            What `dana.options.TrainOptions` has: the other arguments of ``dana_train``.

        Raises
        ------
        psycopg.Error
            Whatever the statement ended with. Ctrl-C cancels it and leaves the session usable.
        """
        with self._shown(f"training {rule} on {source or 'a query'}", progress):
            rows = call(self.session, "dana_train", {"rule": rule, "source": source, **options}, TrainResult)
        if not rows:
            raise UsageError(f"dana_train returned no row for {rule} on {source or 'a query'}")
        return rows[0]

    def train_groups(
        self, rule: str, source: str | None = None, *, group_by: Sequence[str], **options: Unpack[TrainOptions]
    ) -> list[GroupTraining]:
        """Train a model for each group of rows (``dana_train_groups``); the options are those of `train`.

        Parameters
        ----------
        group_by
            Columns that group.

        Raises
        ------
        psycopg.Error
            Whatever the statement ended with; a group whose data cannot be trained on only has an error in its row.
        """
        arguments: dict[str, Any] = {"rule": rule, "source": source, "group_by": group_by, "training": given(options)}
        return call(self.session, "dana_train_groups", arguments, GroupTraining)

    def cross_validate(
        self,
        rule: str,
        source: str | None = None,
        *,
        folds: int | None = None,
        key: str | None = None,
        seed: int | None = None,
        threshold: float | None = None,
        metrics: Sequence[str] | None = None,
        **options: Unpack[TrialOptions],
    ) -> list[Fold]:
        """Train on all but a fold of the rows, evaluate on it, for each fold; keep nothing (``dana_cross_validate``).

        Parameters
        ----------
        folds
            How many; 5.
        key
            Column that tells rows apart, by which the folds are chosen; needed for a query.
        seed
            Which rows are in a fold.
        threshold
            Least prediction that counts as positive.
        metrics
            Which; by default all.
        """
        arguments: dict[str, Any] = {
            "folds": folds,
            "key": key,
            "seed": seed,
            "threshold": threshold,
            "metrics": metrics,
        }
        arguments |= {"rule": rule, "source": source, "training": given(options)}
        return call(self.session, "dana_cross_validate", arguments, Fold)

    def search(
        self,
        rule: str,
        source: str | None = None,
        *,
        grid: Mapping[str, Sequence[float]] | Sequence[Mapping[str, float]],
        metric: str | None = None,
        folds: int | None = None,
        test_size: float | None = None,
        keep: str | None = None,
        key: str | None = None,
        seed: int | None = None,
        threshold: float | None = None,
        **options: Unpack[TrialOptions],
    ) -> list[SearchPoint]:
        """Try hyperparameters and rank them, the best first (``dana_search``).

        Parameters
        ----------
        grid
            Values for each meta, of which all combinations are tried; or the combinations.
        metric
            What ranks them; ``rmse``.
        folds, test_size
            Score by cross-validation, or on a part that is left out.
        keep
            Name of a model to train with the best of them.
        """
        arguments: dict[str, Any] = {"grid": grid, "metric": metric, "folds": folds, "test_size": test_size}
        arguments |= {"keep": keep, "key": key, "seed": seed, "threshold": threshold}
        arguments |= {"rule": rule, "source": source, "training": given(options)}
        return call(self.session, "dana_search", arguments, SearchPoint)

    def start(self, function: Call, rule: str, source: str | None = None, **arguments: Any) -> int:
        """Start a call in the background, with the arguments of the SQL function; the job's number.

        It begins when the session's transaction commits, and goes on when the session ends.
        """
        return start(self.session, function, {"rule": rule, "source": source, **arguments})

    def wait(self, job: int, timeout: float | None = None) -> Job:
        """Wait until a job ended, or for so many seconds; the job as it is then."""
        value(self.session, "dana_wait", {"job": job, "timeout": timeout})
        return jobs(self.session, job)[0]

    def cancel(self, job: int) -> bool:
        """Cancel a job; False where it is over."""
        return bool(value(self.session, "dana_cancel", {"job": job}))

    def jobs(self, limit: int | None = None) -> list[Job]:
        """The jobs of your roles, the newest first, at most so many."""
        return jobs(self.session, limit=limit)

    def explain(
        self,
        rule: str,
        source: str | None = None,
        *,
        device: str | None = None,
        search: bool = False,
        **options: Unpack[TrainOptions],
    ) -> str:
        """What a training would run on, and how fast (``dana_explain``); ``print`` it. Nothing is trained.

        Parameters
        ----------
        device
            Name of an FPGA.
        search
            Explain the best machine for it, not the one that the training would take.
        """
        arguments = {"rule": rule, "source": source, "training": given(options), "device": device, "search": search}
        return "\n".join(row[0] for row in lines(self.session, "dana_explain", arguments))

    def evaluate(self, model: str, source: str | None = None, *, query: str | None = None) -> dict[str, Any]:
        """How good a model is: errors, and for two classes accuracy, AUC and more, by name (``dana_evaluate``).

        On the part that its training left out, if it did; else on what it was trained on, or on what you name.
        """
        asked = {"model": model, "source": source, "query": query}
        return dict(value(self.session, "dana_evaluate", asked))

    def parameters(self, model: str, version: int | None = None) -> dict[str, NDArray[np.float32]]:
        """What a model learnt: each parameter's values in its shape, in the rule's order; the last version by default.

        Raises
        ------
        UsageError
            There is no such model, or it is not yours to read.
        """
        try:
            rows = lines(self.session, "dana_parameters", {"model": model, "version": version})
        except (
            psycopg.errors.UndefinedObject,
            psycopg.errors.InvalidName,
            psycopg.errors.InsufficientPrivilege,
        ) as error:
            raise UsageError(str(error.diag.message_primary), hint=error.diag.message_hint or "") from None
        return {name: np.asarray(values, dtype=np.float32).reshape(shape) for name, shape, values in rows}

    @contextmanager
    def _shown(self, what: str, progress: bool) -> Iterator[None]:
        if not progress:
            yield
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True)
        if not console.is_terminal:
            yield
            return
        with (
            console.status(Text(f"{what} …")) as status,  # Text: nothing that a user named is markup
            self._notices(lambda text: status.update(Text(f"{what}: {printable(text)}"))),
            self._telling_epochs(),
        ):
            yield

    @contextmanager
    def _telling_epochs(self) -> Iterator[None]:
        """The server tells of each epoch that ends.

        The setting is a transaction's, not the session's: behind a pooler the next transaction of this session may be
        another server process's, and the next of that process another client's.
        """
        setting = "SELECT set_config('dana.notices', %s, true)"
        # without autocommit it begins the transaction, in which there is a savepoint then
        before = self.session.execute("SELECT coalesce(nullif(current_setting('dana.notices', true), ''), 'none')")
        former = before.fetchall()[0]
        with self.session.transaction():
            self.session.execute(setting, ("epoch",))
            yield
            self.session.execute(setting, former)  # a savepoint that is released leaves it as it is

    @contextmanager
    def _notices(self, show: Callable[[str], None]) -> Iterator[None]:
        def handle(diagnostic: psycopg.errors.Diagnostic) -> None:
            show(diagnostic.message_primary or "")

        self.session.add_notice_handler(handle)
        try:
            yield
        finally:
            self.session.remove_notice_handler(handle)


def connect(dsn: str | None = None) -> Connection:
    """Connect to a server that has the extension.

    Parameters
    ----------
    dsn
        Connection string of libpq; None is the embedded server, which is started where it does not run.

    Examples
    --------
    >>> with dana.connect() as db:                              # doctest: +SKIP
    ...     db.train("logistic", "cancer", label="y").loss
    """
    if dsn is None:
        from dana.server.embedded import EmbeddedServer

        dsn = EmbeddedServer.start().dsn
    # the database may have another encoding, or none: what is JSON, and names, are UTF-8 here
    return Connection(psycopg.connect(dsn, autocommit=True, client_encoding="utf8"))
