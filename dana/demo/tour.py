"""The demonstration: a raw table, trained on the simulator and on the hardware generated for it.

In: a client's connection. Out: results of the trainings, messages of the server, and SQL statements to paste. All
figures are measured during the run. `dana.cli.demo` prints them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

from psycopg.rows import TupleRow

from dana.client.connection import Connection, TrainResult
from dana.client.options import TrainOptions
from dana.client.outcomes import Evaluation
from dana.demo.datasets import CUSTOMERS

RULE = "logistic"
TABLE = "customers"
COLUMNS = (
    "customer_id integer PRIMARY KEY, email text, city text, plan text, age integer, income numeric, visits integer, "
    "signed_up date, newsletter boolean, churned text"
)
LOOK = f"SELECT customer_id, city, plan, age, income, signed_up, churned FROM {TABLE} LIMIT 3"
TRAINING = f"SELECT * FROM dana_train('{RULE}', '{TABLE}', label => 'churned', test_size => 0.2)"
HARDWARE = (
    f"SELECT * FROM dana_train('{RULE}', '{TABLE}', 'hardware', label => 'churned', test_size => 0.2, machine => 'rtl')"
)
PASTE = (
    f"SELECT customer_id, city, plan, dana_predict('{RULE}', c) AS risk FROM {TABLE} AS c ORDER BY risk DESC "
    "NULLS LAST LIMIT 5;",
    f"SELECT term, coefficient FROM dana_coefficients('{RULE}');",
)
"""Statements for ``dana psql`` on the model and the table of the demonstration."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A training of the demonstration.

    Attributes
    ----------
    result
        The row of ``dana_train``.
    epoch_seconds
        Time of the epochs alone; the first statement on a new design also compiles it.
    said
        The server's NOTICEs.
    """

    result: TrainResult
    epoch_seconds: float
    said: list[str]


def prepare(db: Connection, progress: Progress) -> list[TupleRow]:
    """Register the rule, load the table unless it exists, and return its first rows."""
    progress(f"registering the rule {RULE}")
    db.create_rules(RULE)
    with db.session.transaction(), db.session.cursor() as cursor:
        if not cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (TABLE,)).fetchall()[0][0]:
            progress(f"loading the table {TABLE}")
            cursor.execute(f"CREATE TABLE {TABLE} ({COLUMNS})")
            with cursor.copy(f"COPY {TABLE} FROM STDIN (FORMAT csv, HEADER)") as copy:
                copy.write(CUSTOMERS.read_bytes())
    db.session.execute(f"VACUUM (ANALYZE) {TABLE}")  # dana_explain reads the counts of pages and rows
    return db.session.execute(LOOK).fetchall()


def train(db: Connection, machine: str = "sim") -> Trained:
    """Train as the statement `TRAINING` does, or `HARDWARE` on another machine."""
    options: TrainOptions = {"label": "churned", "test_size": 0.2}
    if machine != "sim":
        options |= {"model": "hardware", "machine": machine}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = db.train(RULE, TABLE, **options)
    query = "SELECT sum(seconds) FROM dana.epoch WHERE run = %s"
    ((seconds,),) = db.session.execute(query, (result.run,)).fetchall()
    return Trained(result=result, epoch_seconds=seconds, said=[str(one.message) for one in caught])


def evaluate(db: Connection) -> Evaluation:
    """The metrics of `TRAINING`'s model on the held-out rows."""
    return db.evaluate(RULE)


def identical(db: Connection) -> bool:
    """Whether the models of `TRAINING` and `HARDWARE` are the same, bit for bit."""
    one, other = db.parameters(RULE), db.parameters("hardware")
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)
