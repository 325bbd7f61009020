"""How often a training reads its table: the passes that it makes, and those for which it keeps pages."""

from __future__ import annotations

import pytest

from dana import rules
from tests.sql.conftest import Session

STOCHASTIC = """
import dana
w = dana.model()
x = dana.input()
y = dana.output()
passes = dana.algo(w, x, y)
error = w * x - y
passes.setModel(w - 0.01 * passes.merge(error * x, 64, "+") / 64)
"""
LOSS = "passes.setLoss(error * error)\n"


@pytest.mark.parametrize(
    ("text", "options", "streams"),
    [
        # the survey runs beside the first epoch
        (STOCHASTIC, "epochs => 1, shuffle => false", 1),
        # and a pass for the loss of the model that the epoch ends with
        (STOCHASTIC + LOSS, "epochs => 1, shuffle => false", 2),
        # three passes keep the pages of the first
        (STOCHASTIC + LOSS, "epochs => 2, shuffle => false", 1),
        # in an order of their own rows are laid out once
        (STOCHASTIC + LOSS, "epochs => 1", 1),
        # models that start from the survey have it before the epoch
        (rules.text("linear").replace("linear", "passes"), "epochs => 1", 1),
    ],
    ids=["no loss", "loss", "kept", "laid out", "surveyed"],
)
def test_the_table_is_read_as_often_as_no_pass_keeps_it(
    session: Session, text: str, options: str, streams: int
) -> None:
    session.execute("SELECT dana_create_udf('passes', %s)", (text,))
    session.execute("CREATE TABLE t AS SELECT sin(i)::real AS x, cos(i)::real AS y FROM generate_series(1, 4000) i")
    (pages,) = session.execute("SELECT pg_relation_size('t') / 8192").fetchone() or (0,)
    session.execute("BEGIN")  # what a transaction has fetched is not reported to others before it ends
    fetched = "SELECT pg_stat_get_xact_blocks_fetched('t'::regclass)"
    (before,) = session.execute(fetched).fetchone() or (0,)
    session.execute(f"SELECT dana_train('passes', 't', 'm', '{{{{x}}}}', 'y', {options})")
    (after,) = session.execute(fetched).fetchone() or (0,)
    assert after - before == pages * streams > 0
