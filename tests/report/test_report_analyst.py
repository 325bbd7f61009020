"""The page's first part: what it says of a model is what `dana_evaluate` and `dana_predict` say, to its owner alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import sql

from dana import rules
from dana.cli.entry import main
from dana.client.connection import Connection
from dana.report.curves import loss_chart
from dana.report.history import Run, read_run
from dana.report.page import render
from dana.report.scores import MAX_POINTS, Ranking, Scores, read_scores
from dana.report.stored import StoredModel, read_model

HOSTILE = 'a "50%" {} <script>alert(1)</script>'
SEEN = """
CREATE TABLE seen AS SELECT i AS id, (i % 60)::real AS age, (1e5 * (1 + sin(i)))::real AS income,
    (i % 60 > 30 + 12 * sin(i * i))::int AS y, 3 * (i % 60) + 4 * sin(i * i) AS z, i % 3 AS c
FROM generate_series(1, 600) AS i;
UPDATE seen SET age = NULL WHERE id % 100 = 3;
UPDATE seen SET income = 'NaN' WHERE id = 50;
"""
COLUMNS = ["age", "income"]


@pytest.fixture
def db(pg_uri: str) -> Iterator[Connection]:
    with psycopg.connect(pg_uri) as session:
        session.execute(SEEN)
        client = Connection(session)
        for name in ("logistic", "linear_svm", "ridge", "softmax", "kmeans"):
            client.create_rule(f"seen_{name}", rules.text(name))
        with session.transaction(force_rollback=True):
            yield client
        session.rollback()


def trained(db: Connection, rule: str, label: str | None, **arguments: Any) -> Run:
    given = {"source": "seen", "features": COLUMNS, "epochs": 3, **arguments}
    with pytest.warns():  # rows are left out
        result = db.train(f"seen_{rule}", given.pop("source"), label=label, **given)
    return read_run(db.session, result.run)


def seen(db: Connection, run: Run, threshold: float | None = None) -> tuple[StoredModel, Scores, str]:
    """The model, its scores, and the page's text."""
    model = read_model(db.session, run)
    assert model is not None
    scores = read_scores(db.session, run, model, threshold)
    assert isinstance(scores, Scores), scores
    return model, scores, text_of(render(run, "", model, scores))


def text_of(page: str) -> str:
    """What stands on the page, without drawings but for their titles."""
    page = re.sub(r"<svg.*?(<title>.*?</title>).*?</svg>", r"\1", page, flags=re.S)
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page[page.index("<body>") :])))


def area(ranking: Ranking) -> float:
    """Under the curve."""
    x = np.array([0, *(point.negative for point in ranking.points)]) / ranking.negatives
    y = np.array([0, *(point.positive for point in ranking.points)]) / ranking.positives
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum())


def test_two_classes(db: Connection) -> None:
    run = trained(db, "logistic", "y", test_size=0.3)
    expected = db.evaluate("seen_logistic")
    _, scores, text = seen(db, run)
    assert scores.part == "test"
    assert f"On {expected['rows']} rows that the training left out" in text
    for name, title in (("auc", "AUC"), ("accuracy", "accuracy"), ("f1", "F1"), ("log_loss", "log loss")):
        assert f" {expected[name]:.4g} {title} " in text
    assert "RMSE" not in text
    counts = expected["confusion"]
    assert f"label predicted 0 predicted 1 0 {counts['tn']} {counts['fp']} 1 {counts['fn']} {counts['tp']} " in text
    assert "1 from a prediction of 0.5 on" in text
    assert "run " + str(run.id) + ": ROC curve" in text
    assert ": thresholds" in text

    ranking = scores.ranking
    assert ranking is not None
    assert len(ranking.points) <= 2 * MAX_POINTS
    assert (ranking.positives, ranking.negatives) == (counts["tp"] + counts["fn"], counts["fp"] + counts["tn"])
    assert (ranking.points[-1].positive, ranking.points[-1].negative) == (ranking.positives, ranking.negatives)
    assert area(ranking) == pytest.approx(expected["auc"], abs=1e-6)  # fewer rows than points


def test_two_classes_with_names(db: Connection) -> None:
    db.session.execute(
        "ALTER TABLE seen ADD left_us text; UPDATE seen SET left_us = CASE y WHEN 1 THEN 'yes' ELSE 'no' END"
    )
    run = trained(db, "logistic", "left_us", classes=["no", "yes"], test_size=0.3)
    counts = db.evaluate("seen_logistic")["confusion"]
    _, scores, text = seen(db, run)
    assert f"predicted no predicted yes no {counts['tn']} {counts['fp']} yes {counts['fn']} {counts['tp']} " in text
    assert "yes from a prediction of 0.5 on" in text
    assert scores.ranking is not None
    assert area(scores.ranking) == pytest.approx(scores.metrics["auc"], abs=1e-6)
    assert "classes no = 0, yes = 1" in text


def test_a_threshold_that_was_asked_for(db: Connection) -> None:
    run = trained(db, "logistic", "y")
    counts = db.evaluate("seen_logistic", threshold=0.75)["confusion"]
    _, scores, text = seen(db, run, 0.75)
    assert scores.part == "all"
    assert "rows that it was trained on, of which a model knows more than of others" in text
    assert "1 from a prediction of 0.75 on" in text
    assert f" 1 {counts['fn']} {counts['tp']} " in text


def test_a_curve_of_many_rows_and_many_ties_is_short_and_right(db: Connection) -> None:
    db.session.execute("INSERT INTO seen SELECT id + 600 * k, age, income, y, z, c FROM seen, generate_series(1, 9) k")
    db.session.execute("UPDATE seen SET y = (id % 500 = 31)::int")
    run = trained(db, "logistic", "y")
    _, scores, _ = seen(db, run)
    ranking = scores.ranking
    assert ranking is not None
    assert ranking.positives == 12
    assert len(ranking.points) <= 2 * MAX_POINTS
    assert len({point.positive for point in ranking.points}) > 5  # rare as they are, each is a step
    assert area(ranking) == pytest.approx(scores.metrics["auc"], abs=0.01)


def test_the_threshold_is_that_of_the_confusion(db: Connection) -> None:
    """Whatever the server takes for scores, which lie on both sides of 0."""
    run = trained(db, "linear_svm", "y", filter="income <> 'NaN'")
    counts = db.evaluate("seen_linear_svm")["confusion"]
    _, scores, text = seen(db, run)
    assert scores.threshold is not None
    predicted = db.predict("seen_linear_svm", "seen", filter="age IS NOT NULL AND income <> 'NaN'")["prediction"]
    assert int((predicted >= scores.threshold).sum()) == counts["tp"] + counts["fp"]
    assert f"1 from a prediction of {scores.threshold:g} on" in text
    assert int((predicted >= 0).sum()) != int((predicted >= 0.5).sum())


def test_numbers(db: Connection) -> None:
    db.session.execute("ALTER TABLE seen ADD PRIMARY KEY (id)")  # by which rows are left out
    run = trained(db, "ridge", "z", test_size=0.3)
    expected = db.evaluate("seen_ridge")
    _, scores, text = seen(db, run)
    for name, title in (("r2", "R²"), ("rmse", "RMSE"), ("mae", "mean absolute error")):
        assert f" {expected[name]:.4g} {title} " in text
    assert "ROC" not in text
    assert "Confusion" not in text
    assert ": predictions" in text
    assert ": residuals" in text
    assert len(scores.pairs) == expected["rows"]
    actual, predicted = np.array(scores.pairs).T
    assert np.sqrt(((actual - predicted) ** 2).mean()) == pytest.approx(expected["rmse"])
    db.session.execute("INSERT INTO seen SELECT id + 600 * k, age, income, y, z, c FROM seen, generate_series(1, 9) k")
    _, scores, text = seen(db, run)
    assert MAX_POINTS / 2 <= len(scores.pairs) <= 2 * MAX_POINTS
    assert f"{len(scores.pairs)} of {scores.metrics['rows']:,} rows are drawn" in text


@pytest.mark.parametrize("names", ["012", ("ash", "oak", "yew")], ids=str)
def test_three_classes(db: Connection, names: Sequence[str]) -> None:
    if names != "012":
        change = "ALTER TABLE seen ALTER c TYPE text USING (ARRAY['ash', 'oak', 'yew'])[c + 1]"
        db.session.execute(change)
    run = trained(db, "softmax", "c", test_size=0.3)
    expected = db.evaluate("seen_softmax")
    model, scores, text = seen(db, run)
    assert f" {expected['accuracy']:.4g} accuracy " in text
    assert f" {expected['f1']:.4g} mean F1 " in text
    assert not scores.pairs
    assert scores.ranking is None
    matrix = " ".join(f"{a} {' '.join(map(str, row))}" for a, row in zip(names, expected["confusion"], strict=True))
    assert f"label predicted {names[0]} predicted {names[1]} predicted {names[2]} {matrix} " in text
    assert "class rows precision recall F1 " in text
    for one in expected["classes"]:
        assert f" {one['class']} {one['rows']} " in text

    assert model.classes == tuple(names)
    learnt = db.session.execute(
        "SELECT label, term, coefficient FROM dana_coefficients('seen_softmax') WHERE term = '(intercept)'"
    ).fetchall()
    intercepts = " ".join(f"{value:.4g}" for *_, value in learnt)
    assert f"term {' '.join(names)} (intercept) {intercepts} " in text


def test_a_rule_without_a_label(db: Connection) -> None:
    run = trained(db, "kmeans", None, hyper={"k": 3})
    model = read_model(db.session, run)
    scores = read_scores(db.session, run, model)
    assert scores == "There are no metrics: the rule has no label."
    text = text_of(render(run, "", model, scores))
    assert scores in text
    assert "What the columns weigh" not in text
    assert "label none" in text
    assert "dims k = 3" in text


def test_coefficients_and_what_was_done_to_the_data(db: Connection) -> None:
    db.session.execute("SELECT setseed(0)")
    run = trained(db, "ridge", "z", test_size=0.25, seed=7, filter="id > 10", nulls="skip", epochs=20)
    model, _, text = seen(db, run)
    named = {
        term: value
        for _, term, value in db.session.execute("SELECT label, term, coefficient FROM dana_coefficients('seen_ridge')")
    }
    assert {term.name: term.coefficients for term in model.terms} == {name: (named[name],) for name in COLUMNS}
    assert [term.name for term in model.terms] == COLUMNS  # the heaviest first
    mean, deviation = db.session.execute(
        "SELECT avg(age), stddev_pop(age) FROM seen WHERE id > 10 AND age IS NOT NULL AND income <> 'NaN'"
        " AND NOT dana_holdout(ctid, 0.25, 7)"
    ).fetchall()[0]
    first = model.standardised[0]
    assert first.column == "age"
    assert (first.mean, first.divisor) == pytest.approx((mean, deviation), rel=1e-5)
    effect = model.terms[0].effect
    assert effect is not None
    assert effect == pytest.approx(named["age"] * deviation, rel=1e-5)
    assert f"age {named['age']:.4g} {effect:.4g} " in text
    assert f"rows {run.tuples:,} trained on, {run.skipped} left out: a column in use is NULL, NaN or infinite" in text
    assert run.skipped > 0
    assert "for tests 25 % of the rows were left out (seed 7)" in text
    assert "filter id > 10 " in text
    assert "features 2: age, income" in text
    assert "standardised 2 columns: (value − mean) / divisor" in text
    assert f"age {first.mean:.4g} {first.divisor:.4g}" in text

    plain = trained(db, "ridge", "z", standardize=False)
    model, _, text = seen(db, plain)
    assert model.standardised == ()
    assert "standardised no column" in text


def test_columns_that_were_no_numbers(db: Connection) -> None:
    db.session.execute(
        "ALTER TABLE seen ADD city text, ADD since date; UPDATE seen SET since = date '2020-01-01' + id % 900,"
        " city = CASE WHEN id % 3 = 0 THEN 'Kiel' WHEN id < 500 THEN 'Berlin' ELSE id::text END"
    )
    preprocess = {"age": {"impute": 41.5}, "since": {"encode": ["year", "dow"]}}
    columns = ["age", "city", "since"]
    run = trained(db, "logistic", "y", features=columns, preprocess=preprocess, test_size=0.3)
    model, scores, text = seen(db, run)
    assert "city one-hot, 2 categories and other: Berlin, Kiel since year, dow " in text
    assert "age NULL counts as 41.5 " in text
    assert "features 3: age, city, since " in text
    assert scores.metrics == {
        name: each for name, each in db.evaluate("seen_logistic").items() if name in scores.metrics
    }
    assert {term.name for term in model.terms} >= {"city=Kiel", "since.year"}
    assert {one.column for one in model.standardised} == {term.name for term in model.terms}
    text = text_of(render(run, "", replace(model, metadata=model.metadata | {"warm_start_from": "older@3"}), scores))
    assert "started from model older@3" in text


def test_both_losses_are_shown_where_there_are_both(db: Connection) -> None:
    assert "loss on rows for validation" not in seen(db, trained(db, "logistic", "y"))[2]
    run = trained(db, "logistic", "y", validation_size=0.3)
    assert "epoch loss loss on rows for validation rows " in (text := seen(db, run)[2].replace(" (kept)", ""))
    for one in run.curve:
        assert f" {one.epoch} {one.loss:.6g} {one.validation_loss:.6g} " in text
    assert run.curve[run.kept - 1].validation_loss == min(one.validation_loss or 0 for one in run.curve)
    assert f"kept: epoch {run.kept}" in (loss_chart(run) or "")
    many = tuple(replace(run.curve[0], epoch=k) for k in range(1, 5001))
    page = render(replace(run, curve=many, epochs=5000), "")
    assert len(page) < 250_000
    assert '<td class="n">5000</td>' in page


def test_rows_of_a_query(db: Connection) -> None:
    query = "SELECT age, income, y AS target, '100%'::text AS note FROM seen; "
    run = trained(db, "logistic", "target", source=None, query=query.rstrip("; "))
    _, scores, text = seen(db, run)
    assert scores.ranking is not None
    assert "'100%'::text AS note" in text


def test_a_model_that_is_another_s_or_gone(db: Connection) -> None:
    """A name and a version mean another model once the first is dropped."""
    first = trained(db, "logistic", "y")
    db.session.execute("SELECT dana_rename_model('seen_logistic', 'renamed')")
    assert read_model(db.session, first) is None
    second = trained(db, "logistic", "y", filter="id < 300")
    assert (first.model, first.model_version) == (second.model, second.model_version)
    assert read_model(db.session, first) is None
    assert seen(db, second)[0].metadata["filter"] == "id < 300"
    scores = read_scores(db.session, first, None)
    assert "it was removed or renamed" in str(scores)
    page = text_of(render(first, "", None, scores))
    assert "it was removed or renamed" in page
    assert "How it learnt" in page
    db.drop_model("seen_logistic")
    assert read_model(db.session, second) is None
    # trained later, and renamed
    db.session.execute("SELECT dana_rename_model('renamed', 'seen_logistic')")
    db.session.execute("UPDATE dana.model SET created = created + '1 minute' WHERE name = 'seen_logistic'")
    assert read_model(db.session, second) is None


def test_a_source_that_is_gone_leaves_the_rest(db: Connection) -> None:
    run = trained(db, "ridge", "z")
    db.session.execute("DROP TABLE seen")
    model = read_model(db.session, run)
    scores = read_scores(db.session, run, model)
    assert scores == 'It could not be evaluated: relation "public.seen" does not exist.'
    text = text_of(render(run, "", model, scores))
    assert scores in text
    assert "What the columns weigh" in text


SPY = """
CREATE TABLE spied (who name);
CREATE ROLE seen_spy;
CREATE ROLE seen_friend;
GRANT seen_spy TO seen_friend;
GRANT USAGE, CREATE ON SCHEMA public TO seen_spy;
GRANT INSERT ON spied TO seen_spy, seen_friend;
GRANT SELECT ON seen TO seen_spy, seen_friend;
GRANT EXECUTE ON FUNCTION {train} TO seen_spy;
SET LOCAL ROLE seen_spy;
CREATE FUNCTION spied_on(value real) RETURNS real LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.spied VALUES (current_user); RETURN value; END $$;
CREATE VIEW spying AS SELECT spied_on(age) AS age, income, y FROM seen;
"""


@pytest.mark.parametrize("options", [{"source": "spying"}, {"source": None, "query": "SELECT * FROM spying"}], ids=str)
@pytest.mark.parametrize("reader", ["RESET ROLE", "SET LOCAL ROLE seen_friend"])
def test_only_the_owner_s_page_is_made_of_rows(db: Connection, options: dict[str, Any], reader: str) -> None:
    """A superuser, and a member of the owner's role, are not the owner: the view would run as them."""
    session = db.session
    train = session.execute("SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'dana_train'").fetchall()[0][0]
    session.execute(SPY.format(train=train))
    run = trained(db, "logistic", "y", **options)
    assert seen(db, run)[1].ranking is not None  # its owner

    session.execute(f"RESET ROLE; DELETE FROM spied; {reader}")
    run = read_run(session, run.id)
    model = read_model(session, run)
    assert model is not None
    scores = read_scores(session, run, model)
    text = text_of(render(run, "", model, scores))
    session.execute("RESET ROLE")
    assert session.execute("SELECT who FROM spied").fetchall() == []
    assert "As seen_spy, run: dana report" in text
    assert "dana evaluate 'seen_spy.seen_logistic@1' --source TABLE" in text
    assert "ROC" not in text
    assert "What the columns weigh" in text  # that is in the model
    # and if it took the model for its own, the server would still refuse
    session.execute(reader)
    assert "belongs to another role" in str(read_scores(session, run, replace(model, own=True)))
    session.execute("RESET ROLE")
    assert session.execute("SELECT who FROM spied").fetchall() == []


def test_names_of_all_kinds_are_text(db: Connection) -> None:
    name = sql.Identifier(HOSTILE)
    odd = HOSTILE + "%s %(model)s"
    for change in (
        sql.SQL("ALTER TABLE seen RENAME TO {}").format(name),
        sql.SQL("ALTER TABLE {} RENAME age TO {}").format(name, name),
        sql.SQL("ALTER TABLE {} RENAME y TO {}").format(name, sql.Identifier(odd)),
    ):
        db.session.execute(change.as_string(db.session).encode())
    run = trained(
        db,
        "logistic",
        odd,
        source=name.as_string(db.session),
        features=[HOSTILE, "income"],
        model=HOSTILE,
        filter="'<script>' LIKE '%<script>'",
        test_size=0.3,
    )
    db.session.execute("SELECT dana_comment_model(%s, %s)", (HOSTILE, HOSTILE))
    model, scores, _ = seen(db, run)
    assert scores.ranking is not None
    hostile = model.metadata | {
        "classes": [HOSTILE, "b"],
        "preprocess": [{"column": HOSTILE, "encode": "one_hot", "categories": [HOSTILE], "other": False}],
    }
    page = render(run, "", replace(model, metadata=hostile, classes=(HOSTILE,)), scores)
    assert "<script>" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 12
    assert page.count("<title>") == 5


def test_the_command(db: Connection, pg_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, with_rows = tmp_path / "page.html", "How good it is"
    with psycopg.connect(pg_uri, autocommit=True) as session:
        client = Connection(session)
        session.execute(SEEN.replace("seen", "reported_seen"))
        try:
            client.create_rule("reported_command", rules.text("logistic"))
            with pytest.warns():
                run = client.train("reported_command", "reported_seen", features=COLUMNS, label="y", epochs=2).run
            for options, shown in (([], True), (["--threshold", "0.25"], True), (["--no-rows"], False)):
                assert main(["report", str(run), "-o", str(page), *options, "--dsn", pg_uri]) == 0
                assert capsys.readouterr().out.strip() == str(page)
                text = text_of(page.read_text(encoding="utf-8"))
                assert (with_rows in text) is shown
                assert ("from a prediction of 0.25 on" in text) is ("--threshold" in options)
                assert "What the columns weigh" in text
                assert "The machine The run machine sim" in re.sub(r"^.*(The machine) .*(The run)", r"\1 \2", text)
        finally:
            client.drop_model("reported_command")
            client.drop_rule("reported_command")
            session.execute("DROP TABLE reported_seen")
