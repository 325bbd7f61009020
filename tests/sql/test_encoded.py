"""Encoded columns in groups, folds and searches, and with the rights of other roles."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.sql.conftest import SUMS, Session, new_role
from tests.sql.test_encoding import trained, value

errors = psycopg.errors


def test_who_trains_in_other_ways(people: Session) -> None:
    """Groups have one look at all rows; trials look at their own, and say nothing; a job and an explanation."""
    options = Jsonb({"nulls": "mean", "label": "y"})
    groups = people.execute(
        "SELECT model, tuples, error FROM dana_train_groups('sums', 'people', '{level}', %s) ORDER BY 1", (options,)
    ).fetchall()
    assert groups == [(f"sums[{level}]", 40, None) for level in ("bronze", "gold", "silver")]
    lists = people.execute(
        "SELECT DISTINCT metadata -> 'preprocess' FROM dana.model WHERE name LIKE 'sums[%'"
    ).fetchall()
    assert len(lists) == 1
    assert "id" not in [one["column"] for one in lists[0][0]]
    assert value(people, "SELECT dana_evaluate('sums[gold]') -> 'rows'") == 40
    heard: list[str] = []
    people.execute("SET client_min_messages = notice")
    people.add_notice_handler(lambda notice: heard.append(str(notice.message_primary)))
    folds = people.execute("SELECT tested FROM dana_cross_validate('sums', 'people', 3, %s)", (options,)).fetchall()
    assert sum(tested or 0 for (tested,) in folds) == 120
    assert (
        value(people, "SELECT count(score) FROM dana_search('sums', 'people', '[{}]', 'r2', training => %s)", options)
        == 1
    )
    told = [one for one in heard if one.startswith("column id")]
    assert told == ["column id: no feature, it is the primary key"] * 2, "once for each statement"
    people.execute("SET client_min_messages = warning")
    lines = people.execute("SELECT dana_explain('sums', 'people', %s)", (options,)).fetchall()
    assert any("25 columns as features" in line for (line,) in lines)
    job = Jsonb({"rule": "sums", "source": "people", "model": "j", "preprocess": {"age": {"impute": "median"}}})
    people.execute("SELECT dana_start('dana_train', %s)", (job,))
    assert value(people, "SELECT dana_wait(max(id)) FROM dana.job") == "done"
    assert value(people, "SELECT metadata #> '{preprocess,8,impute}' FROM dana.model WHERE name = 'j'") == [6]


def test_a_warm_start_has_the_list_of_its_model(people: Session) -> None:
    """Whatever is in the table by then; with another list the numbers would mean something else."""
    first, _ = trained(people, nulls="mean")
    people.execute("UPDATE people SET town = 'Ulm' WHERE town = 'Bonn'; UPDATE people SET age = age + 7")
    second, told = trained(people, warm_start_from="m")
    assert second["preprocess"] == first["preprocess"]
    assert told == []
    with pytest.raises(errors.InvalidParameterValue, match='must not be given where model "m"'):
        trained(people, warm_start_from="m", preprocess={"age": {}})
    with pytest.raises(errors.UndefinedColumn, match='has feature "town"'):
        trained(people, warm_start_from="m", features=["age"])
    trained(people, features=["town", "age"])  # a number behind a column that is several
    trained(people, features=["town", "age"], warm_start_from="m")
    with pytest.raises(errors.UndefinedColumn, match='has feature "town", which the training does not have in that p'):
        trained(people, warm_start_from="m", features=["age", "town"])
    people.execute("CREATE TABLE numbers AS SELECT age, member, y FROM people")
    trained(people, "numbers")
    again, _ = trained(people, warm_start_from="m")
    assert again["features"] == ["age", "member"]


HOSTILE = """
CREATE SCHEMA mine;
CREATE FUNCTION mine.shout(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
CREATE FUNCTION mine.shout(tier) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
CREATE FUNCTION mine.shout(place) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
CREATE CAST (tier AS text) WITH FUNCTION mine.shout(tier) AS IMPLICIT;
CREATE FUNCTION mine.same(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
CREATE FUNCTION mine.less(float8, float8) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
CREATE FUNCTION mine.minus(float8, float8) RETURNS float8 LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
CREATE FUNCTION mine.abs(float8) RETURNS float8 LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
CREATE FUNCTION mine.octet_length(text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
CREATE FUNCTION mine.dana_text(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$;
CREATE OPERATOR mine.= (LEFTARG = text, RIGHTARG = text, FUNCTION = mine.same);
CREATE OPERATOR mine.<= (LEFTARG = float8, RIGHTARG = float8, FUNCTION = mine.less);
CREATE OPERATOR mine.> (LEFTARG = float8, RIGHTARG = float8, FUNCTION = mine.less);
CREATE OPERATOR mine.- (LEFTARG = float8, RIGHTARG = float8, FUNCTION = mine.minus);
CREATE OPERATOR mine.* (LEFTARG = float8, RIGHTARG = float8, FUNCTION = mine.minus);
CREATE OPERATOR mine./ (LEFTARG = float8, RIGHTARG = float8, FUNCTION = mine.minus);
"""


def test_no_cast_and_no_operator_of_a_user_is_called(people: Session) -> None:
    people.execute(HOSTILE)
    try:
        people.execute("SET search_path = mine, test, pg_catalog, public")
        people.execute("SELECT dana_train('sums', 'people', nulls => 'median', model => 'm')")
        people.execute("SELECT sum(dana_predict('m', p)) FROM people p")
    finally:
        people.execute("SET search_path = test, public")
        people.execute("DROP SCHEMA mine CASCADE")


def test_the_look_reads_with_the_rights_of_the_caller(people: Session) -> None:
    with new_role(people, "looker"):
        people.execute("GRANT SELECT (town, y) ON people TO looker")
        people.execute("GRANT EXECUTE ON FUNCTION dana_train TO looker; SET ROLE looker")
        call = "SELECT dana_train('sums', query => 'SELECT town, {} y FROM people', model => 'm')"
        people.execute(call.format(""))
        with pytest.raises(errors.InsufficientPrivilege):
            people.execute(call.format("level,"))
        with pytest.raises(errors.InsufficientPrivilege):
            people.execute("SELECT dana_train('sums', 'people', model => 'm')")


def test_means_of_many_columns(session: Session) -> None:
    """More than a statement of PostgreSQL has results."""
    columns = ", ".join(f"CASE WHEN i <> {k % 9} THEN i + {k} END AS c{k}" for k in range(1200))
    session.execute(f"CREATE TABLE t AS SELECT {columns}, i::real AS y FROM generate_series(1, 9) i")  # type: ignore[arg-type]
    metadata, _ = trained(session, "t", nulls="mean", machine="interp")
    for k in (0, 499, 500, 1199):
        expected = np.mean([i + k for i in range(1, 10) if i != k % 9])
        assert metadata["preprocess"][k] == {"column": f"c{k}", "impute": [pytest.approx(expected)]}


def test_a_row_without_a_label_or_a_weight_counts_in_no_mean(session: Session) -> None:
    """Of numbers and texts; from a table, with a filter, and from a query."""
    text = SUMS.replace("y = dana.output()", "y, weight = dana.output(), dana.weight()").replace(
        "w, x, y)", "w, x, y, weight)"
    )
    session.execute("SELECT dana_create_udf('weighed', %s)", (text.replace("x * (y", "weight * x * (y"),))
    session.execute(
        "CREATE TABLE t AS SELECT CASE WHEN i % 7 = 0 THEN NULL WHEN i % 5 > 1 THEN 3 + i % 5 ELSE 100 END::real AS a, "
        "CASE WHEN i % 5 > 1 THEN 'kept' || i % 2 ELSE 'lost' END AS town, "
        "CASE WHEN i % 5 <> 0 THEN 2 END AS w, CASE WHEN i % 5 <> 1 THEN i % 3 END::real AS y "
        "FROM generate_series(1, 1000) i"
    )
    rows = "FROM t WHERE y IS NOT NULL AND w IS NOT NULL"
    expected = {
        "mean": value(session, f"SELECT avg(a) {rows}"),
        "median": value(session, f"SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) {rows}"),
    }
    last = "SELECT metadata -> 'preprocess' FROM dana.model ORDER BY version DESC LIMIT 1"
    for nulls, fill in expected.items():
        options = f"label => 'y', weight => 'w', nulls => '{nulls}', model => 'm'"
        for source in ("'t'", "'t', filter => 'a < 1000 OR a IS NULL -- all'", "query => 'SELECT * FROM t -- all'"):
            session.execute(f"SELECT dana_train('weighed', {source}, {options})")  # type: ignore[arg-type]
            number, town = value(session, last)
            assert number == {"column": "a", "impute": [pytest.approx(fill)]}
            assert town["categories"] == ["kept0", "kept1"]
    session.execute("UPDATE t SET y = NULL")
    with pytest.raises(errors.DataException, match="no row to train on\nDETAIL:  Rows with a NULL label or weight"):
        session.execute("SELECT dana_train('sums', 't', label => 'y', nulls => 'mean')")
    session.execute("SELECT dana_drop_rule('weighed')")
