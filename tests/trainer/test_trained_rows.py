"""Numbers that choose rows of a model which it does not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dana import rules
from dana.storage.builder import build_pages
from dana.trainer.arrays import train as train_arrays
from dana.trainer.contract import Notice, Parameter, TrainingError
from dana.trainer.messages.notices import check_finite
from dana.trainer.messages.page_errors import ARRAYS, QUERY, row_error
from hwgen.spec.bundle import Category, RowChoice
from tests.trainer.test_training import REALS, relation, request, train

FACTORS = """
import dana
U = dana.model([5, 3])
V = dana.model([4, 3])
i = dana.input()
j = dana.input()
r = dana.output()
factors = dana.algo(U, V, i, j, r)
e = dana.sigma(U[i] * V[j], 1) - r
factors.setModel(U[i], U[i] - 0.1 * e * V[j])
factors.setModel(V[j], V[j] - 0.1 * e * U[i])
factors.setEpochs(2)
"""
OF_TABLES = FACTORS.replace("model", "table")
SEEN = OF_TABLES.replace("U, V,", "U, V, m,").replace("i = ", "m = dana.model()\ni = ", 1)
SEEN += 'factors.setModel(m, m + factors.merge(e, 8, "mean"))\n'
ADDED = OF_TABLES.replace("setModel(U[i], U[i] ", "addRows(U[i], ").replace("setModel(V[j], V[j] ", "addRows(V[j], ")
ADDED = ADDED.replace("* V[j])", '* V[j], 8, "mean")').replace("* U[i])", '* U[i], 8, "mean")')
RATINGS = [("i", "integer"), ("item", "real"), ("r", "real")]


@pytest.mark.parametrize("source", [FACTORS, OF_TABLES, SEEN, ADDED], ids=["models", "tables", "seen", "added"])
@pytest.mark.parametrize("machine", ["sim", "interp"])
@pytest.mark.parametrize(
    ("bad", "words"),
    [([5, 0.0, 1.0], "U.* from 0 to 4"), ([-1, 0.0, 1.0], "U.* from 0 to 4"), ([1, 1.5, 1.0], "V.* from 0 to 3")],
)
def test_a_value_without_a_row_stops_the_training(source: str, machine: str, bad: list[Any], words: str) -> None:
    table = relation(RATINGS)
    content = [[k % 5, float(k % 4), 1.0] for k in range(40)]
    asked = request(table, machine=machine, text=source, rule="factors", label="r", features=["i", "item"])
    train(asked, build_pages(table.schema, content))
    with pytest.raises(TrainingError, match=words) as caught:
        train(asked, build_pages(table.schema, [*content, bad, *content]))
    assert caught.value.sqlstate == "22000"
    if machine == "sim":
        assert "page" not in str(caught.value)
        assert f"{'item' if bad[1] % 1 else 'i'} NOT BETWEEN 0 AND" in caught.value.hint


@pytest.mark.parametrize(
    ("number", "bad", "message", "hint"),
    [
        (
            "c[1]",
            [1.0, 7.0],
            r'column "C 1"\[2\] of public.t chooses rows of U, .* from 0 to 4',
            r'"C 1"[2] NOT BETWEEN 0 AND 4',
        ),
        ("2 * c[0] - c[1]", [1.0, 3.0], r'column "C 1" of public.t chooses rows of U', "Give U more rows, or see how"),
    ],
)
def test_an_element_or_a_computed_number_without_a_row_is_named(
    number: str, bad: list[float], message: str, hint: str
) -> None:
    source = f"""
import dana
U = dana.model([5])
c = dana.input([2])
r = dana.output()
factors = dana.algo(U, c, r)
factors.setModel(U[{number}], r)
"""
    table = relation([("C 1", "real[]"), ("r", "real")], array_length=2)
    asked = request(table, text=source, rule="factors", label="r", features=["C 1"])
    good = [[np.array([k % 3, k % 2]), 1.0] for k in range(40)]
    good = [row for row in good if 0 <= 2 * row[0][0] - row[0][1] < 5]
    train(asked, build_pages(table.schema, good))
    with pytest.raises(TrainingError, match=message) as caught:
        train(asked, build_pages(table.schema, [*good, [np.array(bad), 1.0], *good]))
    assert hint in caught.value.hint


def test_what_is_said_of_arrays_and_of_a_query() -> None:
    choice = RowChoice(inputs=("c",), element=1, model="U", rows=5, columns=(("c", 2),))
    table = relation(RATINGS)
    arrays = row_error(replace(table, name=ARRAYS), choice)
    assert arrays.message == (
        "array c[:, 1] chooses rows of U, which are numbered from 0 to 4, but a value is not one of these"
    )
    assert arrays.hint == (
        "Find it: numpy.flatnonzero(~numpy.isin(c[:, 1], range(5))). If it is larger, give U more rows; "
        "a negative number or a fraction has no row."
    )
    query = row_error(replace(table, name=QUERY), choice)
    assert query.message.startswith("column c[2] of the query chooses rows of U")
    assert query.hint.startswith("Find it: SELECT * FROM (…) AS r WHERE c[2] NOT BETWEEN 0 AND 4 OR")
    text = FACTORS.replace("[5, 3]", "[2, 3]")
    good = np.zeros(20)
    with pytest.raises(TrainingError, match=r"^array i chooses rows of U, which are numbered from 0 to 1, .* of these"):
        train_arrays(text, {"i": good + 2, "j": good, "r": good})


def test_what_gives_a_model_more_rows_is_named() -> None:
    text = FACTORS.replace("U = ", "m = dana.dim(5)\nU = ").replace("[5, 3]", "[m, 3]")
    good = np.zeros(20)
    with pytest.raises(TrainingError, match="numbered from 0 to 4") as caught:
        train_arrays(text, {"i": good + 7, "j": good, "r": good})
    assert "If it is larger, give U more rows, hyper={'m': …}: at least i.max() + 1; " in caught.value.hint
    table = relation(RATINGS)
    content = [[7, 0.0, 1.0] for _ in range(40)]
    asked = request(table, text=text, rule="factors", label="r", features=["i", "item"])
    with pytest.raises(TrainingError) as caught:
        train(asked, build_pages(table.schema, content))
    assert (
        """, give U more rows, hyper => '{"m": …}': at least SELECT max(i) + 1 FROM public.t; """ in caught.value.hint
    )
    train(replace(asked, hyper={"m": 8}), build_pages(table.schema, content))


@pytest.mark.parametrize("number", [-1.0, 1.5])
def test_more_rows_help_no_number_that_is_not_too_large(number: float) -> None:
    """Nobody said how many there are: the largest number did."""
    i, j = np.arange(40.0) % 5, np.arange(40.0) % 4
    j[20] = number
    with pytest.raises(TrainingError, match="array j chooses rows of V, which are numbered from 0 to 3") as caught:
        train_arrays(rules.text("lrmf"), {"i": i, "j": j, "y": i})
    assert "None is larger, so that it is a negative number or a fraction" in caught.value.hint
    assert "more rows" not in caught.value.hint


@pytest.mark.parametrize("name", ["fm", "dlrm", "autoint"])
def test_of_computed_rows_the_category_is_named(name: str) -> None:
    columns = {"user": np.arange(40.0) % 5, "item": np.arange(40.0) % 4, "x": np.arange(40.0), "y": np.arange(40.0) % 2}
    if name != "dlrm":
        del columns["x"]
    columns["item"][20] = 7
    message = r"array item holds categories, which are numbered from 0 to 4 \(below 0: unknown\), but a value is not"
    with pytest.raises(TrainingError, match=message) as caught:
        train_arrays(rules.text(name), columns, hyper={"n": 5})
    assert caught.value.hint == (
        "Find it: numpy.flatnonzero((item > 4) | (item % 1 != 0)). If it is larger, give the rule more categories, "
        "hyper={'n': …}: at least item.max() + 1; a fraction has no row."
    )
    columns["item"][20] = 1.5
    with pytest.raises(TrainingError, match=message) as caught:
        train_arrays(rules.text(name), columns)
    assert caught.value.hint.startswith(
        "Find it: numpy.flatnonzero((item > 4) | (item % 1 != 0)). None is larger, so that"
    )


def test_a_rule_that_knows_no_unknown_category_says_so() -> None:
    text = """
import dana
n = dana.dim(5)
U = dana.model([2 * n])
c = dana.input([2], categories=n)
r = dana.output()
factors = dana.algo(U, c, r)
factors.setModel(U[c[1] + n], r)
factors.setModel(U[c[0]], r)
"""
    columns = {"c1": np.zeros(20), "c2": np.zeros(20) - 6, "r": np.zeros(20)}
    with pytest.raises(
        TrainingError, match=r"array c2 holds categories, which are numbered from 0 to 4, but"
    ) as caught:
        train_arrays(text, columns, hyper={"n": 5})
    assert "~numpy.isin(c2, range(5))" in caught.value.hint
    table = replace(relation(RATINGS), name="public.t")
    category = Category(input="c", element=1, count=5, unknown=True)
    choice = RowChoice(inputs=("c",), element=None, model="U", rows=10, category=category, columns=(("item", None),))
    assert row_error(table, choice).hint.startswith(
        "Find it: SELECT * FROM public.t WHERE item > 4 OR item <> trunc(item::numeric). If it is larger, give the rule"
    )


@pytest.mark.parametrize("machine", ["sim", "interp"])
@pytest.mark.parametrize("label", ["y", "c"])
@pytest.mark.parametrize(
    ("names", "features", "hyper", "said"),
    [
        ("user item hour", None, {}, "user, item hold categories (input c); hour holds numbers (input x)"),
        (
            "hour item user",
            ("hour", "item", "user"),
            {},
            "hour, item hold categories (input c); user holds numbers (input x)",
        ),
        ("user item hour", ("user", "item", "hour"), {"f": 1}, None),
    ],
)
def test_which_columns_are_categories(
    machine: str, label: str, names: str, features: tuple[str, ...] | None, hyper: dict[str, int], said: str | None
) -> None:
    table = relation([*((name, "real") for name in names.split()), (label, "real")])
    pages = build_pages(table.schema, [(k % 9, k % 4, k % 7, k % 2) for k in range(40)], page_size=8192)
    asked = request(
        table, rule="dlrm", text=rules.text("dlrm"), machine=machine, epochs=1, features=features, label=label
    )
    told: list[Notice] = []
    train(replace(asked, hyper={"n": 9, **hyper}), pages, told.append)
    found = [one.message for one in told if "categories" in one.message]
    assert found == ([] if said is None else [f"columns of public.t: {said}"])


@pytest.mark.parametrize(
    ("rule", "features", "found", "absent"),
    [
        ("lrmf", ("x0", "x1"), """as in hyper => '{"lr": 1e+36}'.""", "label"),
        ("bpr", ("x0", "x1"), """as in hyper => '{"lr": 1e+36}'.""", "label"),
        ("dlrm", ("x0", "x1", "x2"), "standardise the rule's inputs", "size 1"),
    ],
)
def test_categories_are_not_standardised(rule: str, features: tuple[str, ...], found: str, absent: str) -> None:
    hint = _hint_of_divergence(rules.text(rule), rule, features)
    assert found in hint
    assert absent not in hint


def test_a_label_that_the_rule_takes_as_it_is_may_be_scaled() -> None:
    text = rules.text("fm").replace("init=dana.column_scale(y)", "init=1")
    assert "or scale the label so that its values are of size 1" in _hint_of_divergence(text, "fm", ("x0", "x1"))


def _hint_of_divergence(text: str, rule: str, features: tuple[str, ...]) -> str:
    asked = request(relation(REALS), text=text, rule=rule, features=features, hyper={"lr": 1e37})
    with pytest.raises(TrainingError, match="the training diverged") as raised:
        check_finite([Parameter(name="U", values=np.array([np.nan], np.float32))], asked, "")
    return str(raised.value.hint)


@pytest.mark.parametrize("name", ["fm", "dlrm", "autoint", "lrmf"])
def test_a_model_to_start_from_has_room_for_its_categories(name: str) -> None:
    """Of one number for each column and category there are as many as before; what has a row for each grows."""
    columns = {"user": np.arange(40.0) % 9, "item": np.arange(40.0) % 4, "x": np.arange(40.0), "y": np.arange(40.0) % 2}
    if name != "dlrm":
        del columns["x"]
    first = train_arrays(rules.text(name), columns, epochs=1)
    fewer = train_arrays(rules.text(name), {**columns, "user": columns["item"]}, epochs=1, models=first.models)
    assert {k: v.shape for k, v in fewer.models.items()} == {k: v.shape for k, v in first.models.items()}
    more = {**columns, "user": columns["user"] + 3}
    if name == "lrmf":
        assert len(train_arrays(rules.text(name), more, epochs=1, models=first.models).models["U"]) == 12
        return
    message = "array user holds category 11, but the model to start from has categories 0 to 8"
    with pytest.raises(TrainingError, match=message) as caught:
        train_arrays(rules.text(name), more, epochs=1, models=first.models)
    assert """hyper => '{"n": 22}'""" in caught.value.hint
    roomy = train_arrays(rules.text(name), columns, epochs=1, hyper={"n": 22})
    assert train_arrays(rules.text(name), more, epochs=1, models=roomy.models).extents["n"] == 22
