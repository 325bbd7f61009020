"""Which columns are features and which is the label, where nobody names them; and what is said of that choice."""

from __future__ import annotations

import psycopg
import pytest

from dana import rules
from tests.sql.conftest import Session

Told = list[tuple[str | None, str | None]]
NAME_THEM = "Choose other columns with features => ARRAY[...]."
NAME_IT = "Choose another one with label."

PLACED = """
import dana
n = dana.dim()
w = dana.model([n])
b = dana.model()
place = dana.input()
x = dana.input([n])
y = dana.output()
placed = dana.algo(w, b, place, x, y)
e = dana.sigma(w * x, 1) + b * place - y
placed.setModel(w, w - 0.1 * e * x)
placed.setModel(b, b - 0.1 * e)
placed.setPrediction(dana.sigma(w * x, 1) + b * place)
placed.setEpochs(1)
"""


@pytest.fixture
def told(session: Session) -> Told:
    """What comes as NOTICE or WARNING, of rules with one input, and one with two."""
    heard: Told = []
    session.execute("SET client_min_messages = notice")
    for rule in ("linear", "kmeans"):
        session.execute("SELECT dana_create_udf(%s, %s)", (rule, rules.text(rule)))
    session.execute("SELECT dana_create_udf('placed', %s)", (PLACED,))
    session.add_notice_handler(lambda said: heard.append((said.message_primary, said.message_hint)))
    session.execute(
        "CREATE TABLE t AS SELECT sin(i)::real AS a, cos(i * 3)::real AS b, sin(i * 7)::real AS c,"
        " ARRAY[sin(i), cos(i)]::real[] AS v, (ARRAY['k', 'l'])[i % 2 + 1] AS word, date '2024-01-01' + i AS day,"
        " sin(i)::real * 3 + cos(i * 3)::real AS z FROM generate_series(1, 300) AS i"
    )
    return heard


def chosen(session: Session, rule: str, columns: str, **options: str) -> tuple[list[str], list[str]]:
    """Features and labels that the worker chooses, which are those that the extension does."""
    found = []
    for more in ({}, {"nulls": "'0'"}):  # with which there is something to encode, and the worker gets a list
        session.execute("DROP TABLE IF EXISTS u")
        session.execute(f"CREATE TABLE u AS SELECT {columns} FROM t")  # type: ignore[arg-type]
        given = "".join(f", {name} => {value}" for name, value in {**options, **more}.items())
        session.execute(f"SELECT dana_train('{rule}', 'u', epochs => 1, model => 'm'{given})")  # type: ignore[arg-type]
        found.append(
            session.execute(
                "SELECT metadata -> 'features', metadata -> 'labels' FROM dana.model WHERE name = 'm'"
                " ORDER BY version DESC LIMIT 1"
            ).fetchone()
        )
    assert found[0] == found[1] is not None
    return found[0]


@pytest.mark.parametrize(
    ("rule", "columns", "options", "features", "labels"),
    [
        ("linear", "a AS x, b, c, z AS y", {}, ["x", "b", "c"], ["y"]),
        ("linear", "b, a AS x, z", {"label": "'z'"}, ["b", "x"], ["z"]),
        ("linear", "a AS x, abs(b) AS b, z AS y", {"weight": "'b'"}, ["x"], ["y"]),
        ("linear", "v AS x, z AS y", {}, ["x"], ["y"]),
        ("linear", "z AS y, v AS x", {}, ["x"], ["y"]),
        ("linear", "v::numeric[] AS x, b, z AS y", {}, ["x"], ["y"]),
        ("linear", "v, z AS x", {}, ["v"], ["x"]),
        ("linear", "v AS x, z AS y", {"features": "'{y}'", "label": "'y'"}, None, None),
        ("kmeans", "a AS x, b, c", {"hyper": """'{"k": 2}'"""}, ["x", "b", "c"], []),
        ("kmeans", "a, b, v AS x", {"hyper": """'{"k": 2}'"""}, ["x"], []),
        ("placed", "a AS x, b AS place, c, z AS y", {}, ["place", "x"], ["y"]),
        ("placed", "b AS place, a, c, z AS y", {}, ["place", "a", "c"], ["y"]),
    ],
)
def test_both_sides_choose_alike(
    session: Session,
    told: Told,
    rule: str,
    columns: str,
    options: dict[str, str],
    features: list[str] | None,
    labels: list[str] | None,
) -> None:
    if features is None:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"used twice|feature and the label"):
            chosen(session, rule, columns, **options)
    else:
        assert chosen(session, rule, columns, **options) == (features, labels)


@pytest.mark.parametrize(("column", "encoded"), [("word", ["x=k", "x=l"]), ("day", ["x.year", "x.month", "x.dow"])])
def test_a_word_or_a_day_of_the_inputs_name_is_one_column_of_many(
    session: Session, told: Told, column: str, encoded: list[str]
) -> None:
    query = f"SELECT {column} AS x, b, z AS y FROM t"
    session.execute("SELECT dana_train('linear', query => %s, model => 'm')", (query,))
    (row,) = session.execute("SELECT metadata -> 'encoded' FROM dana.model WHERE name = 'm'").fetchall()
    assert row == ([*encoded, "b"],)


def test_whoever_trains(session: Session, told: Told) -> None:
    session.execute("CREATE TABLE u AS SELECT a AS x, b, c, z, (a + 5 * b + 3 * c)::real AS y FROM t")
    training = '{"label": "y", "features": null}'
    query = "SELECT metrics -> 'r2' FROM dana_cross_validate('linear', 'u', folds => 2, training => %s) LIMIT 1"
    (row,) = session.execute(query, (training,)).fetchall()
    assert row[0] > 0.99
    lines = session.execute("SELECT * FROM dana_explain('linear', 'u', %s)", (training,)).fetchall()
    assert "4 columns as features, label y" in lines[1][0]


def test_columns_that_an_array_leaves_unused(session: Session, told: Told) -> None:
    """Not what no rule takes, a key, the label or the weight."""
    session.execute(
        "CREATE TABLE u AS SELECT (row_number() OVER ())::int AS id, abs(a) AS a, v AS x, word, b AS w,"
        " interval '1 day' AS i, z AS y FROM t"
    )
    session.execute("ALTER TABLE u ADD PRIMARY KEY (id)")
    session.execute("SELECT dana_train('linear', 'u', weight => 'a')")
    session.execute("SELECT dana_train('linear', query => 'SELECT v AS x, a, z FROM t')")
    session.execute("SELECT dana_train('linear', 'u', features => '{x}')")
    session.execute("SELECT dana_train('placed', query => 'SELECT a AS x, b AS place, c, z AS y FROM t')")
    assert [one for one in told if "no feature" in (one[0] or "")] == [
        ("columns word, w: no features, array x of test.u has the name of the rule's input", NAME_THEM),
        ("column a: no feature, array x of the query has the name of the rule's input", NAME_THEM),
        ("column c: no feature, columns place, x of the query have the names of the rule's inputs", NAME_THEM),
    ]


def test_a_label_that_is_not_the_last_column(session: Session, told: Told) -> None:
    for columns, options in (
        ("z AS y, a, b", ""),
        ("a, z AS y, abs(b) AS b", ", weight => 'b'"),
        ("a, b, z AS y", ""),
        ("z AS y, a, b", ", label => 'y'"),
        ("z AS y, a, b", ", features => '{a,b}'"),
    ):
        session.execute(f"SELECT dana_train('linear', query => 'SELECT {columns} FROM t', model => 'm'{options})")  # type: ignore[arg-type]
    said = "column y of the query is the label, since the rule calls it so; the last column, b, is not"
    assert [one for one in told if "label" in (one[0] or "")] == [(said, NAME_IT)]


def test_an_array_among_others(session: Session, told: Told) -> None:
    """Either is meant, and the hint has both to copy; what is no feature anyhow stands beside no array."""
    session.execute("CREATE TABLE u AS SELECT (row_number() OVER ())::int AS id, a, word, v, z FROM t")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=r'"v" of test\.u is an array among other') as raised:
        session.execute("SELECT dana_train('linear', 'u')")
    hint = raised.value.diag.message_hint
    assert hint == "Name the array, features => ARRAY['v'], or the others, features => ARRAY['id', 'a', 'word']."
    for names in ("['v']", "['id', 'a', 'word']"):
        session.execute(f"SELECT dana_train('linear', 'u', features => ARRAY{names})")  # type: ignore[arg-type]
    with pytest.raises(psycopg.errors.InvalidParameterValue) as raised:
        session.execute("SELECT dana_train('linear', query => 'SELECT v, v AS w, z FROM t')")
    assert raised.value.diag.message_hint == "Name one of them, features => ARRAY['v']."
    session.execute("ALTER TABLE u DROP a, DROP word, ADD PRIMARY KEY (id)")
    session.execute("SELECT dana_train('linear', 'u')")
