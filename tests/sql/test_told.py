"""Notices and errors about an ordinary table that is trained on or predicted from, and of what is wrong with a call."""

from __future__ import annotations

import re
import warnings
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from dana import rules
from dana.client.connection import connect
from dana.server.embedded import EmbeddedServer
from dana.session.notices import ServerNotice
from tests.sql.conftest import Session

errors = psycopg.errors
Notices = list[str]


@pytest.fixture
def notices(session: Session) -> Notices:
    """What comes as NOTICE or WARNING, of the table `t` of two features, a label and its class."""
    heard: Notices = []
    session.execute("SET client_min_messages = notice")
    session.add_notice_handler(lambda said: heard.append(f"{said.message_primary}\n{said.message_hint}"))
    for rule in ("linear", "ridge", "logistic", "softmax", "quantile"):
        session.execute("SELECT dana_create_udf(%s, %s)", (rule, rules.text(rule)))
    session.execute(
        "CREATE TABLE t AS SELECT sin(i)::real AS a, cos(i * 3)::real AS b, (sin(i) + cos(i * 3) > 0)::int AS y,"
        " sin(i)::real * 3 + cos(i * 3)::real AS z FROM generate_series(1, 300) AS i"
    )
    heard.clear()
    return heard


def refused(session: Session, statement: str, *values: Any) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as raised:
        session.execute(statement, values)  # type: ignore[arg-type]
    return raised.value


def described(error: psycopg.Error) -> tuple[str | None, str | None]:
    assert error.diag.internal_query is None
    return error.diag.message_primary, error.diag.message_hint


# models of one name


def test_a_default_name_that_now_stands_for_other_rows(session: Session, notices: Notices) -> None:
    session.execute("CREATE TABLE u AS SELECT * FROM t")
    train = "SELECT version FROM dana_train('linear', {}, features => '{{a,b}}', label => 'z')"
    session.execute(train.format("'t'"))
    session.execute(train.format("'t'"))
    assert notices == []
    session.execute(train.format("'u'"))
    session.execute(train.format("query => 'SELECT * FROM u'"))
    session.execute(train.format("query => 'SELECT * FROM t'"))
    assert [one.partition("\n")[0] for one in notices] == [
        'model "linear" was trained on test.t (version 2), and is now trained on test.u (version 3)',
        'model "linear" was trained on test.u (version 3), and is now trained on a query (version 4)',
        'model "linear" was trained on another query (version 4), and is now trained on a query (version 5)',
    ]
    assert notices[0].endswith('"linear@2" names the other one. To keep both in use, give the argument "model".')
    notices.clear()
    session.execute(train.format("'t', 'mine'"))
    session.execute(train.format("'u', 'mine'"))
    assert notices == []


# numbers


@pytest.mark.parametrize("kind", ["integer", "bigint", "float8", "numeric"])
def test_digits_that_binary32_does_not_hold(session: Session, notices: Notices, kind: str) -> None:
    session.execute(
        f"CREATE TABLE u AS SELECT (2000000000 + (a * 37000)::int % 100)::{kind} AS x, a, z FROM t"  # type: ignore[arg-type]
    )
    session.execute("SELECT dana_train('linear', 'u', 'm')")
    assert notices == []
    # its model reads x itself, not the distance from its mean
    session.execute("SELECT dana_train('sums', 'u', 'm')")
    (said,) = notices
    assert said.startswith("column x of test.u loses most of its digits: its numbers, near 2e+09, become real")
    assert "as in x - 20000000" in said
    notices.clear()
    session.execute("SELECT dana_train('sums', query => 'SELECT x - 2000000000 AS x, a, z FROM u', model => 'm')")
    session.execute("SELECT dana_train('sums', query => 'SELECT x / 1000 AS x, a, z FROM u', model => 'm')")
    assert len(notices) == (0 if kind in ("integer", "bigint") else 1), notices


def test_numbers_that_are_exact_lose_nothing(session: Session, notices: Notices) -> None:
    session.execute(
        "CREATE TABLE u AS SELECT 16000000 + (abs(a) * 3)::int AS x, 2e9::real + (b * 1000)::int * 128::real AS r, z"
        " FROM t"
    )
    session.execute("SELECT dana_train('linear', 'u', 'm')")
    assert [one for one in notices if "digits" in one] == []


def test_a_column_that_numbers_the_rows(session: Session, notices: Notices) -> None:
    session.execute("CREATE TABLE u AS SELECT row_number() OVER () AS number, (abs(a) * 50)::int AS n, b, z FROM t")
    session.execute("SELECT dana_train('linear', 'u', 'm')")
    session.execute("SELECT dana_train('linear', query => 'SELECT * FROM u ORDER BY hashint8(number)', model => 'm')")
    assert [one.partition(" of ")[0] for one in notices if "numbers the rows" in one] == ["column number"] * 2
    notices.clear()
    session.execute("SELECT dana_train('linear', query => 'SELECT n, b, z FROM u', model => 'm')")
    session.execute("SELECT dana_train('linear', query => 'SELECT n AS k, b, z FROM u ORDER BY n', model => 'm')")
    assert [one for one in notices if "numbers the rows" in one] == []


# labels


def test_more_labels_than_classes(session: Session, notices: Notices) -> None:
    session.execute(
        "CREATE TABLE u AS SELECT a, b, (ARRAY['red', 'green', 'blue'])[1 + (abs(a) * 2.9)::int % 3] AS y FROM t"
    )
    error = refused(session, "SELECT dana_train('logistic', 'u', label => 'y')")
    message, hint = described(error)
    assert message == 'column "y" of test.u has 3 different labels, more than the 2 classes of rule "logistic"'
    assert error.diag.message_detail is not None
    assert error.diag.message_detail.startswith('They are "blue", "green", "red". The first row with "')
    assert hint == "Choose a rule for more classes, such as softmax, or leave rows out with a filter."
    _, hint = described(refused(session, "SELECT dana_train('ridge', 'u', label => 'y')"))
    assert hint is not None
    assert hint.startswith("As a label: choose a rule for classes, such as logistic")


@pytest.mark.parametrize("rule", ["logistic", "ridge"])
def test_a_feature_of_a_type_that_is_none(session: Session, notices: Notices, rule: str) -> None:
    session.execute("CREATE TABLE u AS SELECT a, md5(a::text)::uuid AS u, a * interval '1 day' AS i, a > 0 AS y FROM t")
    for kind, words in {"u": "A feature is a number, a boolean, a date", "i": "Make a number of it in a query"}.items():
        error = refused(session, f"SELECT dana_train('{rule}', 'u', features => '{{a,{kind}}}', label => 'y')")
        assert words in (described(error)[1] or "")


def test_a_label_of_one_value(session: Session, notices: Notices) -> None:
    session.execute("SELECT dana_train('quantile', query => 'SELECT a, b, 3 AS y FROM t', model => 'm')")
    (said,) = notices
    assert said.startswith("column y of the query, the label, has a single value in all rows")
    message, _ = described(refused(session, "SELECT dana_train('logistic', query => 'SELECT a, b, 3 AS y FROM t')"))
    assert message == 'all labels in column "y" of the query are "3"'


# rows that are none


def test_which_column_leaves_no_row(session: Session, notices: Notices) -> None:
    session.execute("CREATE TABLE u AS SELECT a, NULL::int AS gone, CASE WHEN a > 0 THEN b END AS few, z FROM t")
    message, hint = described(refused(session, "SELECT dana_train('linear', 'u')"))
    assert message is not None
    assert message.startswith('test.u has no row to train on: of 300 rows "gone" is null (300), "few" is null (1')
    assert hint == 'Leave column "gone" out, by naming the others with features => ARRAY[...].'
    session.execute("UPDATE u SET gone = 1 WHERE few IS NULL")
    message, hint = described(refused(session, "SELECT dana_train('linear', 'u')"))
    assert message is not None
    assert '"gone" is null (1' in message
    assert '"few" is null (1' in message
    assert hint == "With nulls => 'mean' a NULL counts as the mean of its column."
    assert notices == []


def test_numbers_beyond_the_range_of_real(session: Session, notices: Notices) -> None:
    """They are no NaN, and the hint's query finds them."""
    session.execute(
        "CREATE TABLE u AS SELECT a, CASE WHEN a > 0.5 THEN 1e39::float8 ELSE b END AS c, ARRAY[a, b * 1e39] AS v, z"
        " FROM t"
    )
    (beyond,) = session.execute("SELECT count(*) FROM u WHERE c = 1e39").fetchall()
    session.execute("SELECT dana_train('linear', 'u', 'm', '{a,c}', 'z')")
    assert notices == [
        f'{beyond[0]} of 300 rows of test.u are left out: "c" is beyond the range of real ({beyond[0]})\nNone'
    ]
    for column, rows in (("c", beyond[0]), ("v", None)):
        train = f"SELECT dana_train('linear', 'u', features => '{{{column}}}', label => 'z', nonfinite => 'error')"
        error = refused(session, train)
        message, hint = error.diag.message_primary, error.diag.message_hint
        assert f'of test.u has a number beyond the range of real in column "{column}"' in (message or "")
        found = session.execute((hint or "").split(" finds such rows")[0]).fetchall()  # type: ignore[arg-type]
        assert len(found) == (rows or len(found)) > 0


def test_means_of_arrays(session: Session, notices: Notices) -> None:
    """Without a NULL nothing changes; a NOTICE of rows that are left out advises them."""
    session.execute("CREATE TABLE u AS SELECT ARRAY[a, b] AS v, z FROM t")
    expected = None
    for options in ("", ", nulls => 'mean'", ', preprocess => \'{"v": {"impute": "median"}}\''):
        session.execute(f"SELECT dana_train('linear', 'u', 'm', '{{v}}', 'z'{options})")  # type: ignore[arg-type]
        query = "SELECT weights FROM dana.model WHERE name = 'm' ORDER BY version DESC LIMIT 1"
        (row,) = session.execute(query).fetchall()
        assert row == (expected or row)
        expected = row
    notices.clear()
    for null in ("NULL", "ARRAY[1, NULL]"):
        session.execute(f"UPDATE u SET v = {null} WHERE z > 2.5")  # type: ignore[arg-type]
        notices.clear()
        session.execute("SELECT dana_train('linear', 'u', 'm', '{v}', 'z', nulls => 'mean')")
        assert "column v: NULL becomes the mean of the element\nNone" in notices
        session.execute("SELECT dana_train('linear', 'u', 'm', '{v}', 'z', nulls => 'indicator')")
        assert "column v: NULL becomes the mean of the element; an array has no indicator\nNone" in notices
        session.execute("""SELECT dana_train('linear', 'u', 'm', '{v}', 'z', preprocess => '{"v": {"impute": 0}}')""")
    notices.clear()
    session.execute("UPDATE u SET v = NULL WHERE z > 2.5")
    for source in ("'u'", "query => 'SELECT * FROM u'"):
        session.execute(f"SELECT dana_train('linear', {source}, model => 'm', features => '{{v}}')")  # type: ignore[arg-type]
    hint = "With nulls => 'mean' a NULL counts as the mean of its column."
    assert [one.split("\n")[1] for one in notices if "are left out" in one] == [hint] * 2


def test_nulls_that_nothing_fills(session: Session, notices: Notices) -> None:
    """Those of the label and the weight: no mean, no 0, and no other feature helps."""
    session.execute(
        "CREATE TABLE u AS SELECT a, CASE WHEN b > 0 THEN 1 END AS w, CASE WHEN a > 0 THEN z END AS y FROM t"
    )
    query = "SELECT dana_train('linear', query => 'SELECT {} FROM u', model => 'm'{})"
    for columns, options, hint in (
        ("a, y", ", nulls => 'error'", "Leave such rows out, with nulls => 'skip' or a filter."),
        ("a, w, a AS y", ", weight => 'w', nulls => 'error'", "Leave such rows out, with nulls => 'skip' or a filter."),
        ("y AS a, a AS y", ", nulls => 'error'", "Fill it in, or use nulls => 'skip' or nulls => '0'."),
        (
            "a, NULL::int AS w, y",
            ", weight => 'w'",
            'Column "w" is the weight of the rows: leave that out, or name another column.',
        ),
        ("a, NULL::int AS y", "", 'Column "y" is the label: name another one.'),
    ):
        assert refused(session, query.format(columns, options)).diag.message_hint == hint
    session.execute(query.format("a, w, y", ", weight => 'w'"))  # type: ignore[arg-type]
    assert len(notices) == 1
    assert notices[0].endswith("\nNone")


@pytest.mark.parametrize(("label", "exact"), [("9007199254740992 + (a > 0)::int", False), ("3", True)])
def test_a_label_whose_differences_binary64_does_not_hold(
    session: Session, notices: Notices, label: str, exact: bool
) -> None:
    session.execute(f"SELECT dana_train('linear', query => 'SELECT a, b, {label} AS y FROM t', model => 'm')")  # type: ignore[arg-type]
    (said,) = notices
    first, hint = said.split("\n")
    assert first == "column y of the query, the label, has a single value in all rows" + (
        "" if exact else ", as double precision"
    )
    assert hint.startswith("A model can learn nothing but that value.")
    assert ("compared as double precision" in hint) is not exact


@pytest.mark.parametrize("options", ["", ", nulls => 'mean'"])
def test_a_filter_that_leaves_no_row(session: Session, notices: Notices, options: str) -> None:
    session.execute("CREATE TABLE u AS SELECT 'x' || (a > 0) AS word, b, date '2020-01-01' AS day, z FROM t")
    message, hint = described(refused(session, f"SELECT dana_train('linear', 'u', filter => 'b > 5'{options})"))
    assert message == "test.u has no row to train on"
    assert hint is not None
    assert "filter" in hint
    assert notices == []


# columns of another table


def test_a_column_that_the_other_table_lacks(session: Session, notices: Notices) -> None:
    session.execute("SELECT dana_train('linear', 't', 'm', '{a,b}', 'z')")
    session.execute("CREATE TABLE u AS SELECT a, b AS bbb FROM t; CREATE VIEW v AS SELECT a, b FROM t")
    lacks = 'column "b" of model "m" is not in {}'
    for call, where in (
        ("dana_predict_table('m', 'u')", "test.u"),
        ("dana_evaluate('m', 'u')", "test.u"),
        ("dana_evaluate('m', query => 'TABLE u')", "the query"),
    ):
        assert described(refused(session, f"SELECT * FROM {call}")) == (lacks.format(where), "There are: a, bbb.")
    for call, where in (("dana_evaluate('m', 'v')", "test.v"), ("dana_evaluate('m', query => 'TABLE v')", "the query")):
        message = f'column "z" of model "m" is not in {where}'
        assert described(refused(session, f"SELECT * FROM {call}")) == (message, "There are: a, b.")
    assert session.execute("SELECT * FROM dana_predict_table('m', 'v', 'a')").rowcount == 300


# misspelt options


def test_the_option_that_was_meant(session: Session, notices: Notices) -> None:
    meant = {
        "dana_train_groups('linear', 't', '{y}', '{\"epoch\": 1}')": "epochs",
        "dana_cross_validate('linear', 't', 3, '{\"lable\": \"z\"}')": "label",
        "dana_search('linear', 't', '[{}]', training => '{\"featurs\": [\"a\"]}')": "features",
        "dana_start('dana_train', '{\"rul\": \"linear\"}')": "rule",
    }
    for call, option in meant.items():
        _, hint = described(refused(session, f"SELECT * FROM {call}"))
        assert hint == f'Perhaps you meant "{option}".', call
    _, hint = described(refused(session, "SELECT dana_train_groups('linear', 't', '{y}', '{\"nonsense\": 1}')"))
    assert hint is not None
    assert hint.startswith("There are: rule, source, model, features, label")
    session.execute("CREATE TABLE u AS SELECT a AS income, b, z FROM t")
    wish = "SELECT dana_train('linear', 'u', preprocess => '{\"incom\": {\"impute\": \"mean\"}}')"
    assert described(refused(session, wish)) == (
        'argument "preprocess" names "incom", which is no feature of test.u',
        'Perhaps you meant "income".',
    )


def test_a_metric_is_checked_before_anything_is_trained(session: Session, notices: Notices) -> None:
    session.execute("SET dana.notices = 'run'")
    for function, metrics in (
        ("cross_validate", "metrics => '{rsme}'"),
        ("search", "grid => '[{}]', metric => 'rsme'"),
    ):
        message, hint = described(refused(session, f"SELECT * FROM dana_{function}('linear', 't', {metrics})"))
        assert str(message).replace('"', "'") == "there is no metric 'rsme'"
        assert hint is not None
        assert "rmse" in hint
    assert notices == []


# many trainings


@pytest.mark.parametrize(
    "call",
    [
        "dana_cross_validate('linear', 'u', 3, '{\"label\": \"z\"}')",
        "dana_search('linear', 'u', '[{}, {}]', folds => 2, training => '{\"label\": \"z\"}')",
        "dana_train_groups('linear', 'u', '{k}', '{\"label\": \"z\"}')",
    ],
)
def test_each_thing_is_told_once(session: Session, notices: Notices, call: str) -> None:
    session.execute(
        "CREATE TABLE u AS SELECT CASE WHEN b < 0.9 THEN a END AS a, 'x' || (b > 0) AS word1, 'x' || (a > 0) AS word2,"
        " a > 0 AS k, z FROM t"
    )
    session.execute(f"SELECT * FROM {call}")  # type: ignore[arg-type]
    first = list(notices)
    encoded = [one.partition(":")[0] for one in first if ": one-hot" in one]
    assert encoded[:2] == ["column word1", "column word2"]
    assert len(encoded) == len(set(encoded))
    assert len([one for one in first if "are left out" in one]) == 1
    assert len(first) == len({re.sub(r"\b[0-9]+", "", one) for one in first})
    session.execute(f"SELECT * FROM {call}")  # type: ignore[arg-type]
    assert notices == first * 2


def test_what_a_job_tells(server: EmbeddedServer, session: Session, notices: Notices) -> None:
    session.execute("CREATE TABLE u AS SELECT a, 'x' || (b > 0) AS word, NULL::text AS gone, z FROM t")
    with connect(server.dsn) as database:
        database.session.execute("SET search_path = test, public")
        arguments = {"rule": "linear", "source": "test.u", "model": "m", "label": "z"}
        row = database.session.execute("SELECT dana_start('dana_train', %s)", (Jsonb(arguments),)).fetchone()
        assert row is not None
        database.session.commit()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            job = database.wait(row[0])
    assert job.state == "done"
    assert job.notices == [
        "NOTICE: column word: one-hot, 2 categories",
        "NOTICE: column gone: no feature, all its values are NULL",
    ]
    assert [(one.category, str(one.message)) for one in caught] == [
        (ServerNotice, notice.removeprefix("NOTICE: ")) for notice in job.notices
    ]


# literals


def test_literals_are_read_as_what_the_columns_are(session: Session, notices: Notices) -> None:
    session.execute(
        "CREATE TABLE u AS SELECT a, 'x' || (b > 0) AS word, date '2020-01-01' + (a * 100)::int AS day, z FROM t"
    )
    session.execute("SELECT dana_train('linear', 'u', 'm'); SELECT dana_train('linear', 't', 'n', '{a,b}', 'z')")

    def same(call: str) -> Any:
        return session.execute(f"SELECT dana_predict({call})").fetchone()  # type: ignore[arg-type]

    typed = same("'m', 0.5::real, 'xtrue'::text, date '2020-02-03'")
    assert typed != (None,)
    assert same("'m', '0.5', 'xtrue', '2020-02-03'") == typed
    assert same("'m', '0.5', 'xtrue', '2020-02-03 00:00'") == typed
    assert same("'n', '0.5', '1e-1'") == same("'n', 0.5, 0.1")
    message, _ = described(refused(session, "SELECT dana_predict('m', 0.5, 'xtrue', 'someday')"))
    assert message == 'invalid input syntax for type date: "someday"'
    message, _ = described(refused(session, "SELECT dana_predict('m', 'half', 'xtrue', '2020-02-03')"))
    assert message == 'invalid input syntax for type double precision: "half"'
    message, _ = described(refused(session, "SELECT dana_predict('m', 0.5, 7, '2020-02-03')"))
    assert message == 'feature 2 of dana_predict() has type integer, which is not a text or an enum (column "word")'


# what is wrong with a training, before its rows are read


MISSPELT = '{"label": "y", "hyper": {"penalti": 1}, "filter": "read(y)"}'


@pytest.mark.parametrize(
    "call",
    [
        "dana_train('logistic', 't', label => 'y', hyper => '{\"penalti\": 1}', filter => 'read(y)')",
        f"dana_train_groups('logistic', 't', '{{y}}', '{MISSPELT}')",
        f"dana_explain('logistic', 't', '{MISSPELT}')",
        f"dana.logistic('t', '{MISSPELT}')",
    ],
)
def test_a_hyperparameter_that_the_rule_does_not_have(session: Session, notices: Notices, call: str) -> None:
    session.execute(
        "CREATE FUNCTION read(integer) RETURNS boolean STABLE LANGUAGE plpgsql"
        " AS $$ BEGIN RAISE 'a row is read'; END $$"
    )
    error = refused(session, f"SELECT * FROM {call}")
    assert described(error) == (
        'rule "logistic" has no hyperparameter "penalti"',
        'Perhaps you meant "penalty".',
    )
    assert described(refused(session, f"SELECT * FROM {call.replace('penalti', 'penalty')}"))[0] == "a row is read"


def test_numbers_that_a_rule_refuses(session: Session, notices: Notices) -> None:
    error = refused(session, "SELECT * FROM dana_train('logistic', 't', label => 'y', hyper => '{\"penalty\": -1}')")
    assert isinstance(error, errors.InvalidParameterValue)
    assert described(error)[0] == "the rule needs penalty >= 0, but hyper makes it penalty = -1"
    assert "dana.require(penalty >= 0)" in (error.diag.message_detail or "")


def test_values_that_are_no_numbers(session: Session, notices: Notices) -> None:
    session.execute("UPDATE t SET b = 'NaN' WHERE a = (SELECT max(a) FROM t)")
    error = refused(
        session, "SELECT * FROM dana_train('ridge', 't', features => '{a,b}', label => 'z', nonfinite => 'error')"
    )
    message, hint = described(error)
    assert re.fullmatch('row [0-9]+ of .*t has a NaN or an infinity in column "b"', message or "")
    query = (hint or "").partition(" finds such rows")[0]
    assert session.execute(query).rowcount == 1  # type: ignore[arg-type]
    for source in ("source => 't'", "query => 'SELECT * FROM t'"):
        call = f"dana_train('ridge', {source}, features => '{{a,b}}', label => 'z', nonfinite => 'keep')"
        error = refused(session, f"SELECT * FROM {call}")
        assert "the training gave no finite result" in (described(error)[0] or "")
        assert "b (1)" in (error.diag.message_detail or "")


# what the rows may hide


@pytest.mark.parametrize(("each", "severity"), [(3, "WARNING"), (2, "NOTICE")])
@pytest.mark.parametrize("kind", ["real", "numeric"], ids=["pages", "frames"])
def test_most_rows_left_out_are_a_warning(
    session: Session, notices: Notices, each: int, severity: str, kind: str
) -> None:
    severities: list[str | None] = []
    session.add_notice_handler(lambda said: severities.append(said.severity))
    session.execute(
        f"CREATE TABLE u AS SELECT CASE WHEN i % {each} = 0 THEN sin(i) END::{kind} AS a, cos(i)::real AS z"
        " FROM generate_series(1, 300) AS i"
    )
    session.execute("SELECT dana_train('linear', 'u', label => 'z', epochs => 1)")
    (said,) = (one for one in notices if "are left out" in one)
    assert said.endswith("\nWith nulls => 'mean' a NULL counts as the mean of its column.")
    assert severities[notices.index(said)] == severity


def test_digits_of_a_label_that_binary32_loses(session: Session, notices: Notices) -> None:
    session.execute("CREATE TABLE u AS SELECT a, b, 1e8::float8 + 30 * a AS far, 1e3::float8 + 30 * a AS near FROM t")
    session.execute("SELECT dana_train('linear', 'u', features => '{a,b}', label => 'near')")
    assert not [one for one in notices if "digits" in one]
    session.execute("SELECT dana_train('linear', 'u', features => '{a,b}', label => 'far')")
    (said,) = (one for one in notices if "digits" in one)
    assert said == (
        "column far of test.u, the label, has more digits than real, the type of dana_predict()\n"
        "dana_predict_double() returns the predictions in double precision."
    )
    notices.clear()
    session.execute("SELECT dana_train('sums', 'u', features => '{a,b}', label => 'far')")
    (said,) = (one for one in notices if "digits" in one)
    assert said.startswith("column far of test.u loses most of its digits: its numbers, near 1e+08, become real")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("(i % 7)::text", True),
        ("(i % 7 / 4.0)::text", True),
        ("(i % 7 * 1e20::float8)::text", True),
        ("CASE WHEN i > 1 THEN (i % 7)::text ELSE ' .5 ' END", True),
        ("CASE WHEN i % 9 > 0 THEN (-(i % 7))::text END", True),
        ("CASE WHEN i > 7 THEN (i % 7)::text ELSE 'unknown' END", False),
        ("lpad((i % 7)::text, 5, '0')", False),
        ("(i % 2)::text", False),
        ("'v' || i % 7", False),
    ],
)
def test_numbers_stored_as_text(session: Session, notices: Notices, text: str, numbers: bool) -> None:
    session.execute(
        f"CREATE TABLE u AS SELECT {text} AS a, sin(i)::real AS b, i % 2 AS y FROM generate_series(1, 300) i"
    )
    session.execute("SELECT dana_train('logistic', 'u', label => 'y', epochs => 1)")
    said = [one for one in notices if "stored as text" in one]
    assert len(said) == numbers
    assert all("values are numbers, stored as text\n" in one and one.endswith(": a::numeric.") for one in said)


def test_values_renamed_after_the_training(session: Session, notices: Notices) -> None:
    """Of a feature and of a label: counted, and notices."""
    session.execute("CREATE TYPE colour AS ENUM ('red', 'green', 'blue')")
    session.execute(
        "CREATE TABLE u AS SELECT (ARRAY['red', 'green', 'blue']::colour[])[1 + i % 3] AS c, sin(i)::real AS a,"
        " (ARRAY['red', 'green', 'blue']::colour[])[1 + i % 2] AS y, i % 5 AS z FROM generate_series(1, 300) AS i"
    )
    session.execute("SELECT dana_train('linear', 'u', 'numbers', '{c,a}', 'z')")
    session.execute("SELECT dana_train('logistic', 'u', 'classes', '{c,a}', 'y')")
    evaluations = [f"SELECT dana_evaluate('{model}')" for model in ("numbers", "classes")]
    notices.clear()
    for evaluation in evaluations:
        assert not {"unseen_categories", "other_labels"} & session.execute(evaluation).fetchall()[0][0].keys()
    assert not [one for one in notices if "does not know" in one or "not a class" in one]
    session.execute("ALTER TYPE colour RENAME VALUE 'red' TO 'crimson'")
    notices.clear()
    numbers, classes = (session.execute(evaluation).fetchall()[0][0] for evaluation in evaluations)
    assert numbers["unseen_categories"] == 100
    assert (classes["other_labels"], classes["unseen_categories"]) == (150, 50)
    said = [one.partition("\n")[0] for one in notices if "does not know" in one or "not a class" in one]
    assert said == [
        '100 rows have a category that model "numbers" does not know, in column c',
        '50 rows have a category that model "classes" does not know, in column c',
        '150 rows have a label that is not a class of model "classes"',
    ]
    # a prediction reports the first such row, once for a statement and a model
    for call in (
        "sum(dana_predict('numbers', c, a)), sum(dana_predict('numbers', c, a))",
        "dana_predict_table('numbers', 'u')",
        "dana_predict_table('classes', 'u')",
        "dana_predict('numbers', 'green', 1), dana_predict('numbers', NULL, 1)",
    ):
        notices.clear()
        session.execute(f"SELECT {call} {'FROM u' if 'sum' in call else ''}")
        model = "classes" if "classes" in call else "numbers"
        assert [one.partition("\n")[0] for one in notices] == [
            f'a row has a category that model "{model}" does not know, in column c'
        ] * ("NULL" not in call)
    # only columns with such a row are named
    session.execute("SELECT dana_train('linear', 'u', 'both', '{c,y}', 'z')")
    notices.clear()
    query = (
        "SELECT 'green' AS y, CASE WHEN i > 3 THEN 'grey' ELSE 'blue' END AS c, 1 AS z FROM generate_series(1, 9) AS i"
    )
    session.execute("SELECT dana_evaluate('both', query => %s)", (query,))
    query = query.replace("'green' AS y", "'grey' AS y")
    session.execute("SELECT dana_evaluate('both', query => %s)", (query,))
    assert [one.partition(",")[2].partition("\n")[0] for one in notices] == [" in column c", " in column c, y"]
    query = "SELECT CASE WHEN i > 3 THEN 'green' END AS c, 1 AS a, 1 AS z FROM generate_series(1, 9) AS i"
    (found,) = session.execute("SELECT dana_evaluate('numbers', query => %s)", (query,)).fetchall()[0]
    assert "unseen_categories" not in found, "a NULL is none"
