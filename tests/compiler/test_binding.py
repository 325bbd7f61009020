"""Columns find their inputs, and what does not fit is refused by name."""

from __future__ import annotations

import pytest

from dana.compiler.binding.columns import BindingError, bind
from dana.storage.schema import Attribute, SchemaError, TableSchema
from dsl import compile_rule
from dsl.hdfg.graph import Graph
from tests.storage.schemas import attribute

LINEAR = """
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
rule = dana.algo(w, x, y)
e = dana.sigma(w * x, 1) - y
rule.setModel(w - 0.1 * e * x)
"""


def graph(text: str = LINEAR) -> Graph:
    return compile_rule(text, filename="rule.py").hdfg


def table(*attributes: Attribute) -> TableSchema:
    return TableSchema(relation="public.t", attributes=attributes)


REALS = tuple(attribute(f"x{k}", "real") for k in range(5))


def test_last_column_is_the_label_and_the_others_are_features() -> None:
    bound = bind(graph(), table(*REALS, attribute("target", "integer")))
    assert bound.labels == ("target",)
    assert bound.features == ("x0", "x1", "x2", "x3", "x4")
    assert bound.graph.concrete_shape(bound.graph.models[0]) == (5,)


def test_columns_named_like_the_rule_come_first() -> None:
    columns = (attribute("y", "real"), attribute("x", "real[]", array_length=384), attribute("id", "bigint"))
    bound = bind(graph(), table(*columns))
    assert (bound.features, bound.labels) == (("x",), ("y",))
    assert bound.graph.concrete_shape(bound.graph.models[0]) == (384,)


def test_a_vector_takes_an_array_alone_by_its_name() -> None:
    """A number called x is one of many columns; of a scalar input it is the column."""
    columns = (attribute("a", "real"), attribute("x", "real"), attribute("y", "real"))
    assert bind(graph(), table(*columns)).features == ("a", "x")
    scalar = graph(LINEAR.replace("n = dana.dim()\n", "").replace("[n]", "").replace("dana.sigma(w * x, 1)", "w * x"))
    assert bind(scalar, table(*columns)).features == ("x",)


def test_caller_chooses_columns_and_their_order() -> None:
    bound = bind(graph(), table(*REALS), ["x3", "x0"], "x1")
    assert [(use.attribute, use.input, use.element) for use in bound.uses] == [(3, "x", 0), (0, "x", 1), (1, "y", 0)]


def test_a_label_that_is_called_as_an_input_is_no_feature() -> None:
    bound = bind(graph(), table(attribute("x", "real"), attribute("y", "real"), attribute("z", "real")), label="x")
    assert (bound.features, bound.labels) == (("y", "z"), ("x",))


def test_dropped_columns_are_not_features() -> None:
    gone = attribute("........pg.dropped.2........", "real", dropped=True)
    bound = bind(graph(), table(REALS[0], gone, REALS[1], REALS[2]))
    assert bound.features == ("x0", "x1")


@pytest.mark.parametrize(
    ("columns", "features", "label", "words"),
    [
        (REALS, ["x0", "nope"], "x1", "column 'nope' of public.t does not exist; it has x0, x1"),
        (
            REALS,
            ["X1"],
            "x0",
            "not exist; it has x0, x1, x2, x3, x4\nHint: Did you mean 'x1'?",
        ),
        (REALS, ["x0", "x0"], "x1", "used twice"),
        (REALS, ["x0", "x1"], "x1", "used twice"),
        (
            (attribute("x0", "text"), *REALS[1:]),
            None,
            None,
            "type text, which cannot be trained on\nHint: As a label: choose a rule for classes",
        ),
        (
            (attribute("x", "real[]"), attribute("y", "real")),
            None,
            None,
            "has no array of one dimension",
        ),
        ((attribute("a", "real[]", array_length=3), *REALS), None, None, "columns of public.t are left over"),
        ((attribute("a", "real[]", array_length=3), *REALS[-2:]), None, None, "1 column of public.t is left over ("),
        ((attribute("y", "real"),), None, None, "no column of public.t is left for x"),
        ((attribute("y", "real[]", array_length=3), *REALS), None, "y", "y is a scalar, but column 'y'"),
        ((attribute("x0", "real", generated="v"), *REALS[1:]), None, None, "virtual generated column"),
    ],
)
def test_what_does_not_fit_is_refused(
    columns: tuple[Attribute, ...], features: list[str] | None, label: str | None, words: str
) -> None:
    with pytest.raises((BindingError, SchemaError)) as caught:
        bind(graph(), table(*columns), features, label)
    assert words in str(caught.value)


def test_a_text_that_is_to_choose_rows_is_no_number() -> None:
    text = """
import dana
U = dana.model([5])
i = dana.input()
x = dana.input()
y = dana.output()
chosen = dana.algo(U, i, x, y)
chosen.setModel(U[i], x * y)
"""
    site = attribute("site", "text")
    with pytest.raises(
        SchemaError, match=r"'site' of public\.t has type text, and the rule wants a number from 0 for each"
    ):
        bind(graph(text), table(site, *REALS[:2]))
    with pytest.raises(SchemaError, match=r"'site' of public\.t has type text, which cannot be trained on"):
        bind(graph(text), table(REALS[0], site, REALS[1]))


def test_fixed_extent_must_match_the_columns() -> None:
    fixed = graph(LINEAR.replace("[n]", "[7]").replace("n = dana.dim()\n", ""))
    with pytest.raises(BindingError, match=r"x has 7 elements, but public\.t gives 4 columns"):
        bind(fixed, table(*REALS))
    with pytest.raises(BindingError, match="7 elements as the rule says, not 3"):
        bind(fixed, table(attribute("x", "real[]", array_length=3), attribute("y", "real")))


def test_a_label_with_an_input_s_name_is_no_input() -> None:
    text = """\
import dana
m = dana.model()
i, j, y = dana.input(), dana.input(), dana.output()
rule = dana.algo(m, i, j, y)
rule.setModel(m, m - 0.1 * (m * i + j - y))
"""
    schema = table(attribute("i", "real"), attribute("j", "real"), attribute("k", "real"))
    bound = bind(compile_rule(text).hdfg, schema, label="j")
    assert [(use.input, schema.attributes[use.attribute].name) for use in bound.uses] == [
        ("i", "i"),
        ("j", "k"),
        ("y", "j"),
    ]


@pytest.mark.parametrize("length", [4, 6])
def test_a_list_of_numbers_of_another_length(length: int) -> None:
    text = """\
import dana
T = dana.table([8])
c = dana.input([5])
y = dana.output()
rule = dana.algo(T, c, y)
rule.addRows(T[c], [y, y, y, y, y])
"""
    columns = (attribute("c", "real[]", array_length=length), attribute("y", "real"))
    with pytest.raises(BindingError, match=f"c must have 5 elements as the rule says, not {length}, in t"):
        bind(graph(text), TableSchema(relation="t", attributes=columns), None, "y")


MATRIX = """\
import dana
n = dana.dim()
W = dana.model([2, n])
b = dana.model()
p = dana.input([2, n])
z = dana.input([2])
y = dana.output()
rule = dana.algo(W, b, p, z, y)
e = dana.sigma(dana.sigma(W * p, 1), 1) + dana.sigma(z, 1) - y
rule.setModel(W, W - 0.1 * e * p)
rule.setModel(b, b - e)
"""


@pytest.mark.parametrize("array", [True, False])
def test_a_matrix_takes_its_rows_one_after_the_other(array: bool) -> None:
    """And leaves to the input after it what that one needs: of 8 columns 2, though 8 are a multiple of 2, too."""
    if array:
        columns = [attribute("p", "real[]", array_length=6), attribute("z1", "real"), attribute("z2", "real")]
    else:
        columns = [attribute(f"c{k}", "real") for k in range(8)]
    columns.append(attribute("y", "real"))
    found = bind(compile_rule(MATRIX).hdfg, TableSchema(relation="t", attributes=tuple(columns)), None, "y")
    assert found.graph.concrete_shape(found.graph.inputs[0]) == (2, 3)
    dealt = [(use.attribute, use.input, use.element, use.count) for use in found.uses]
    if array:
        assert dealt == [(0, "p", 0, 6), (1, "z", 0, 1), (2, "z", 1, 1), (3, "y", 0, 1)]
    else:
        assert dealt == [(k, "p", k, 1) for k in range(6)] + [(6, "z", 0, 1), (7, "z", 1, 1), (8, "y", 0, 1)]


GRID = """\
import dana
t = dana.dim(5)
d = dana.dim(4)
W = dana.model([t, d])
x = dana.input([t, d])
y = dana.output()
rule = dana.algo(W, x, y)
e = dana.sigma(dana.sigma(W * x, 1), 1) - y
rule.setModel(W, W - 0.1 * e * x)
"""


def grid(width: int, text: str = GRID, extents: dict[str, int] | None = None, *, array: bool = True) -> list[int]:
    """Shape of x on a table that has so many numbers for it."""
    columns = [attribute(f"c{k}", "real") for k in range(width)]
    if array:
        columns = [attribute("x", "real[]", array_length=width)]
    schema = TableSchema(relation="t", attributes=(*columns, attribute("y", "real")))
    found = bind(graph(text), schema, None, "y", extents)
    shape = found.graph.concrete_shape(found.graph.inputs[0])
    assert found.extents == {name: extent for name, extent in zip("td", shape, strict=True) if name in found.extents}
    return list(shape)


@pytest.mark.parametrize("array", [True, False])
@pytest.mark.parametrize("loop", ["", "for k in range(t):\n    e = e + k\n"])
def test_defaults_are_what_columns_leave_open(loop: str, array: bool) -> None:
    text = GRID.replace("rule.setModel", f"{loop}rule.setModel")
    assert grid(20, text, array=array) == [5, 4]
    assert grid(30, text, {"t": 6}, array=array) == [6, 5]
    assert grid(30, text, {"d": 3}, array=array) == [10, 3]
    assert grid(40, text.replace("dim(4)", "dim()"), array=array) == [5, 8]
    with pytest.raises(BindingError, match=r"x (has|takes) 20 elements \(t = 5, d = 4\)"):
        grid(18, text, array=array)
    with pytest.raises(BindingError, match=r"a multiple of 5 elements \(t = 5\) as the rule says, but .* gives 18"):
        grid(18, text.replace("dim(4)", "dim()"), array=True)


def test_extents_that_nothing_says_are_asked_for() -> None:
    with pytest.raises(BindingError, match=r"(?s)the shape of x does not follow.*default: t = dana\.dim\(5\)"):
        grid(20, GRID.replace("dim(5)", "dim()").replace("dim(4)", "dim()"))


def test_a_matrix_of_another_size_is_refused() -> None:
    columns = [attribute("p", "real[]", array_length=7)] + [attribute(name, "real") for name in ("z1", "z2", "y")]
    with pytest.raises(BindingError) as caught:
        bind(compile_rule(MATRIX).hdfg, TableSchema(relation="t", attributes=tuple(columns)), None, "y")
    assert str(caught.value) == "p takes a multiple of 2 elements as the rule says, but the table gives 7"


TWO_KINDS = """
import dana
f, d = dana.dim(2), dana.dim()
u, w = dana.model([f]), dana.model([d])
c, x, y = dana.input([f]), dana.input([d]), dana.output()
rule = dana.algo(u, w, c, x, y)
e = dana.sigma(u * c, 1) + dana.sigma(w * x, 1) - y
rule.setModel(u, u - e * c)
rule.setModel(w, w - e * x)
"""


@pytest.mark.parametrize("f", [None, 1, 3])
def test_of_two_kinds_of_columns_the_default_says_where_the_second_begins(f: int | None) -> None:
    bound = bind(graph(TWO_KINDS), table(*REALS, attribute("y", "real")), extents={} if f is None else {"f": f})
    shapes = [bound.graph.concrete_shape(k) for k in bound.graph.models]
    assert shapes == [(f or 2,), (5 - (f or 2),)]


def test_an_array_says_so_itself() -> None:
    columns = (
        attribute("c", "real[]", array_length=3),
        attribute("x", "real[]", array_length=4),
        attribute("y", "real"),
    )
    bound = bind(graph(TWO_KINDS), table(*columns))
    assert [bound.graph.concrete_shape(k) for k in bound.graph.models] == [(3,), (4,)]
