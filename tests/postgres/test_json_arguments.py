"""JSON that no training can have: an error of its argument, after which the session and the worker go on."""

from __future__ import annotations

import json
from collections.abc import Callable

import psycopg
import pytest

from tests.postgres.cluster import Cluster
from tests.postgres.conftest import Session

errors = psycopg.errors
Rule = Callable[..., str]

DEEP = "[" * 33 + "]" * 33
VALUES = {
    "a large number": ("1e5000", r'argument "hyper" has a number outside the range of double precision'),
    "a large negative number": ("-1e309", r'argument "hyper" has a number outside the range of double precision'),
    "a large number within": ('[{"a": 1e400}]', r'argument "hyper" has a number outside the range of double precision'),
    "nesting": (DEEP, r'argument "hyper" must be JSON of at most 32 levels'),
    "much nesting": ("[" * 3000 + "]" * 3000, r'argument "hyper" must be JSON of at most 32 levels'),
}
CALLS = {
    "dana_train": "dana_train('{rule}', 't', hyper => '{{\"lr\": {value}}}')",
    "dana_explain": "dana_explain('{rule}', 't', '{{\"hyper\": {{\"lr\": {value}}}}}')",
    "dana_start": 'dana_start(\'dana_train\', \'{{"rule": "{rule}", "source": "t", "hyper": {{"lr": {value}}}}}\')',
    "dana_search": "dana_search('{rule}', 't', '{{\"lr\": [{value}]}}')",
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("value", VALUES)
def test_values_out_of_range(cluster: Cluster, session: Session, rule: Rule, value: str, call: str) -> None:
    text, says = VALUES[value]
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    session.execute("SELECT FROM dana_train(%s, 't')", (name,))
    before = cluster.sessions()
    with pytest.raises(errors.InvalidParameterValue, match=says):
        session.execute("SELECT * FROM " + CALLS[call].format(rule=name, value=text))
    assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (name,)).fetchone() == (1,)
    assert cluster.sessions() == before, "the worker's session goes on"


@pytest.mark.parametrize("text", [r'{"lr": "\ud800"}', r'{"lr": "\u0000"}', '{"lr": NaN}', '{"lr": 1'])
def test_what_jsonb_does_not_hold(session: Session, rule: Rule, text: str) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    with pytest.raises(errors.DataError):
        session.execute("SELECT dana_train(%s, 't', hyper => %s)", (rule(), text))


def test_the_last_of_duplicate_keys_counts(session: Session, rule: Rule) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    with pytest.raises(errors.InvalidParameterValue, match="double precision"):
        session.execute("SELECT dana_train(%s, 't', design => '{\"a\": 1, \"a\": 1e400}')", (name,))
    session.execute("SELECT dana_train(%s, 't', design => '{\"threads\": 1e400, \"threads\": 1}')", (name,))


def test_a_request_that_is_too_long(cluster: Cluster, session: Session, rule: Rule) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS id")
    name = rule()
    with pytest.raises(errors.ProgramLimitExceeded, match="more than 67108864"):
        session.execute("SELECT dana_train(%s, 't', design => %s)", (name, json.dumps({"a": "x" * (64 << 20)})))
    assert session.execute("SELECT tuples FROM dana_train(%s, 't')", (name,)).fetchone() == (1,)
