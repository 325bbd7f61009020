"""Arguments as long as a caller likes: an error before any work on each element, or work that a cancel ends."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.conftest import Session

errors = psycopg.errors

LIST = "(SELECT array_agg(i::text) FROM generate_series(1, 10001) AS i)"
JSON = "(SELECT jsonb_agg(i) FROM generate_series(1, 10001) AS i)"
TEXT = "repeat('x', 64 << 20)"
GRID = "(SELECT jsonb_object_agg(i, '[1, 2]'::jsonb) FROM generate_series(1, 9999) AS i)"
POINTS = "(SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 10001))"
OBJECT = "(SELECT jsonb_object_agg(i, repeat('x', 1 << 20)) FROM generate_series(1, 64) AS i)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (f"dana_train('sums', 't', {name} => {LIST})", f'argument "{name}" has 10001 elements, more than 10000')
            for name in ("features", "classes")
        ),
        *(
            (f"dana_train('sums', 't', {name} => {TEXT})", f'argument "{name}" has 67108868 bytes, more than 67108864')
            for name in ("model", "label", "machine", "query", "filter", "nulls", "nonfinite", "weight")
        ),
        *(
            (f"dana_train('sums', 't', {name} => {OBJECT})", f'argument "{name}" has ')
            for name in ("hyper", "design", "preprocess", "class_weight")
        ),
        (f"dana_train_groups('sums', 't', {LIST}, '{{}}')", '"group_by" has 10001 elements'),
        (f"dana_train_groups('sums', 't', '{{y}}', jsonb_build_object('classes', {JSON}))", '"classes" has 10001'),
        (f"dana_explain('sums', 't', jsonb_build_object('features', {JSON}))", '"features" has 10001 elements'),
        (f"dana_explain('sums', 't', jsonb_build_object('query', {TEXT}))", '"query" has 67108868 bytes'),
        (f"dana_explain('sums', 't', jsonb_build_object('hyper', {OBJECT}))", '"hyper" has 6'),
        (f"dana_cross_validate('sums', 't', 2, jsonb_build_object('classes', {JSON}))", '"classes" has 10001'),
        ("dana_cross_validate('sums', 't', 2, metrics => array_fill('mae'::text, '{10001}'))", '"metrics" has 10001'),
        (f"dana_search('sums', 't', '[{{}}]', training => jsonb_build_object('classes', {JSON}))", 'has 10001'),
        (f"dana_search('sums', 't', {GRID})", "the grid has too many points, more than 10000"),
        (f"dana_search('sums', 't', jsonb_build_object('lr', {JSON}))", "the grid has 10001 points, more than 10000"),
        (f"dana_search('sums', 't', {POINTS})", "the grid has 10001 points, more than 10000"),
        (f"dana_start('dana_train', jsonb_build_object('rule', 'sums', 'features', {JSON}))", '"features" has 10001'),
        (f"dana_create_udf('r', {TEXT})", '"text" has 67108868 bytes'),
        (f"dana_group('m', VARIADIC {LIST})", '"keys" has 10001 elements'),
        (f"dana.dana_class(1::real, {LIST})", '"classes" has 10001 elements'),
        (f"dana_classification_metrics(1::float8, '{{1, 2, 3}}'::real[], {LIST}, NULL::float8)", '"classes" has 10001'),
        ("dana_classification_metrics(1::float8, array_fill(0::real, '{10001}'))", "of the same 1 to 10000 classes"),
    ],
)  # fmt: skip
def test_arguments_have_a_length(session: Session, call: str, message: str) -> None:
    session.execute("CREATE TABLE t AS SELECT i::real AS x, (i % 2)::real AS y FROM generate_series(1, 20) AS i")
    with pytest.raises((errors.ProgramLimitExceeded, errors.InvalidParameterValue)) as raised:
        session.execute(f"SELECT {call}" if "metrics(" in call else f"SELECT * FROM {call}")
    assert message in str(raised.value.diag.message_primary)


LONG = "repeat('x', 100000)"


@pytest.mark.parametrize(
    "call",
    [
        *(
            f"dana_train('sums', 't', {name} => {LONG})"
            for name in ("nulls", "nonfinite", "label", "weight", "machine", "warm_start_from")
        ),
        f"dana_train('sums', 't', test_size => 0.5, test_by => {LONG})",
        f"dana_train('sums', 't', classes => ARRAY[{LONG}, {LONG}])",
        f"dana_train('sums', 't', hyper => jsonb_build_object({LONG}, 1))",
        f"dana_train('sums', 't', preprocess => jsonb_build_object({LONG}, '{{}}'::jsonb))",
        "dana_train('sums', 't', design => '{\"threads\": 1e300}')",
        f"dana_train({LONG}, 't')",
        f"dana_evaluate({LONG})",
        f"dana_predict({LONG}, 1)",
        "dana_search('sums', 't', '{\"lr\": {\"low\": 0, \"high\": 1e999}}', test_size => 0.5, candidates => 2)",
    ],
)
def test_a_message_quotes_a_part_of_a_long_argument(session: Session, call: str) -> None:
    session.execute("CREATE TABLE t AS SELECT i::real AS x, (i % 2)::real AS y FROM generate_series(1, 20) AS i")
    with pytest.raises(psycopg.Error) as raised:
        session.execute(f"SELECT {call}".encode())
    message = raised.value.diag.message_primary
    assert raised.value.sqlstate is not None
    assert message is not None
    assert raised.value.sqlstate[:2] in {"22", "42"}
    assert len(message) <= (2003 if "'" in message and "xxx" in message else 250)


@pytest.mark.parametrize("value", ["1e400", "'1e400'", "'abc'"])
def test_an_error_of_a_prediction_names_the_feature(session: Session, value: str) -> None:
    session.execute("CREATE TABLE t AS SELECT i::real AS x, (i % 2)::real AS y FROM generate_series(1, 20) AS i")
    session.execute("SELECT dana_train('sums', 't', 'm')")
    with pytest.raises(errors.DataError) as raised:
        session.execute(f"SELECT dana_predict('m', {value})".encode())
    assert 'feature 1, column "x"' in str(raised.value.diag.context)
    assert len(str(raised.value.diag.message_primary)) < 100


@pytest.mark.parametrize("arguments", ["'{c,c}', 'y'", "'{c}', 'y', weight => 'y'", "'{x,x}', 'y'"])
def test_a_column_that_is_used_twice(session: Session, arguments: str) -> None:
    session.execute(
        "CREATE TABLE t AS SELECT i::real AS x, 'a' || i % 2 AS c, (i % 2)::real AS y FROM generate_series(1, 20) AS i"
    )
    with pytest.raises(errors.InvalidParameterValue, match=r"of test\.t is used twice; each column fills one place"):
        session.execute(f"SELECT dana_train('sums', 't', 'm', {arguments})".encode())


def test_the_texts_of_classes_have_a_length(session: Session) -> None:
    session.execute("CREATE TABLE t AS SELECT i::real AS x, (i % 2)::real AS y FROM generate_series(1, 20) AS i")
    with pytest.raises(errors.ProgramLimitExceeded, match='argument "classes" has texts of 50000001 bytes, more than'):
        session.execute("SELECT dana_train('sums', 't', classes => ARRAY[repeat('x', 50000000), '1'])")


def test_the_ends_of_a_range_are_numbers_of_type_real(session: Session) -> None:
    for low, high in (("-1e308", "1e308"), ("0", "1e999"), ("1e-999", "1")):
        grid = f'{{"lr": {{"low": {low}, "high": {high}}}}}'
        with pytest.raises(errors.InvalidParameterValue, match='"grid" must have values or a range for "lr", not'):
            session.execute("SELECT * FROM dana.dana_candidates(%s, 3, 1)", (grid,))


def test_as_many_classes_as_may_be(session: Session) -> None:
    session.execute("CREATE TABLE t AS SELECT i::real AS x, (i % 2)::real AS y FROM generate_series(1, 20) AS i")
    with pytest.raises(errors.InvalidParameterValue, match='must be labels that differ, not "77"'):
        session.execute(f"SELECT dana_train('sums', 't', classes => ({LIST})[:9999] || '77'::text)")
    trained = session.execute(f"SELECT tuples FROM dana_train('sums', 't', classes => ({LIST})[:9999] || '0'::text)")
    assert trained.fetchone() == (20,)


@pytest.mark.parametrize("metadata", ['{"features": {}}', '{"features": "a"}', '{"features": [1]}'])
@pytest.mark.parametrize("call", ["dana.dana_arguments(%s, 'm', 'pg_class')", "dana.dana_counted('m', %s, 'pg_class')"])
def test_a_caller_s_metadata_is_an_argument(session: Session, call: str, metadata: str) -> None:
    """Not a message of the worker, which a protocol error would blame."""
    with pytest.raises(errors.InvalidParameterValue, match='"metadata" must have an array "features" of texts'):
        session.execute(f"SELECT {call}", (metadata,))


def test_a_cancel_ends_a_comparison_of_many_names(session: Session) -> None:
    """Three thousand million comparisons, then another error, which hides a cancel that comes too late."""
    session.execute(f"CREATE TABLE wide ({', '.join(f'c{i} real' for i in range(1000))})")
    session.execute(
        "CREATE TABLE names AS SELECT jsonb_build_object('features', (SELECT jsonb_agg(CASE i WHEN 3000000 THEN 'none'"
        " ELSE 'c999' END ORDER BY i) FROM generate_series(1, 3000000) AS i)) AS metadata"
    )
    session.execute("SET statement_timeout = '2s'")
    with pytest.raises(errors.QueryCanceled):
        session.execute("SELECT dana.dana_arguments(metadata, 'm', 'wide') FROM names")
