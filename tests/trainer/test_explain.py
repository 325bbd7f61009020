"""What a training would run on, for every rule and for tables of any number of rows."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

import dana
from dana import rules
from dana.codesign.cost import count_cost
from dana.codesign.sample import sample_pages
from dana.compiler.passes import plan_of
from dana.server.places import CHECKOUT
from dana.simulator import Simulator
from dana.storage.builder import build_pages
from dana.storage.columns import column_schema
from dana.storage.declared import declared
from dana.trainer.contract import ExplainRequest, Json, Relation, TrainRequest
from dana.trainer.designs import DesignStore, bound_graph
from dana.trainer.explain import explain, lines
from dana.trainer.streams import declared_request
from dsl import compile_rule
from tests.dsl.rules import RULES

WHOLE = """\
import dana
n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
whole = dana.algo(w, x, y)
error = dana.sigma(w * x, 1) - y
whole.setModel(w - 0.001 * whole.merge(error * x, dana.all, "+"))
whole.setLoss(error * error)
"""
SPARSE = """\
import dana
w, v = dana.table([123]), dana.table([123])
c, x, y = dana.input([14]), dana.input([14]), dana.output()
sparse = dana.algo(w, v, c, x, y)
error = dana.sigma(w[c] * x + v[c] * x) - y
sparse.addRows(w[c], error * x, 16, "mean")
sparse.addRows(v[c], -error * x, 16, "mean")
"""
ALL = {**{f"dana.rules.{name}": rules.text(name) for name in rules.NAMES}, **RULES, "whole": WHOLE}
del ALL["extents"]  # no table says both extents of its matrix
DIM = 3
"""Of dims that the table would decide."""


def asked(source: str, rows: int) -> ExplainRequest:
    """For a table with the columns that a rule wants, arrays by its inputs' names."""
    graph = compile_rule(source).hdfg
    graph = graph.bind({**dict.fromkeys(graph.dims, DIM), **dict(graph.extents)})
    table = {}
    for k in graph.inputs:
        shape = graph.concrete_shape(k)
        if graph.nodes[k] is not graph.weight:
            table[str(graph.nodes[k].name)] = np.zeros((1, prod(shape)) if shape else 1)
    schema = column_schema(table)
    pages = -(-rows // sample_pages(schema, page_size=8192).rows)
    training = TrainRequest(
        rule="rule",
        text=source,
        relation=Relation(name="t", pages=pages, page_size=8192, attributes=schema.attributes),
        features=None,
        label=None,
        epochs=None,
        hyper={},
        machine="sim",
        design={},
    )
    return ExplainRequest(training=training, device=None, search=False, rows=rows, layout=None, last=None)


@pytest.mark.parametrize(
    ("name", "rows"), [*((name, 40) for name in ALL), *((name, k) for name in ("whole", "matrix") for k in (0, 1, 455))]
)
def test_every_rule_is_explained(name: str, rows: int) -> None:
    explained = explain(asked(ALL[name], rows), DesignStore())
    assert explained["cycles"]["tuple"] > 0
    assert (explained["epoch"]["cycles"] > 0) == (rows > 0)
    assert all(lines(explained))
    assert f"  why: {explained['why']['text']}" in lines(explained)


def test_a_machine_fits_the_device_that_it_is_made_for_and_says_which_that_is() -> None:
    """784 pixels and 32 hidden units: the default machine's memories are more than a VU9P has."""
    schema = declared("x float4[784], y float4")
    training = declared_request(dana.load(rules.FOLDER / "mlp.py"), schema, label="y")
    designs = DesignStore()
    question = ExplainRequest(training=training, device=None, search=False, rows=None, layout=None, last=None)
    free, fitting = (explain(replace(question, device=device), designs) for device in (None, "xcvu9p"))
    assert (free["made_for"], free["area"]["device"], free["area"]["fits"]) == (None, "xcvu9p", False)
    assert (fitting["made_for"], fitting["area"]["device"], fitting["area"]["fits"]) == ("xcvu9p", "xcvu9p", True)
    assert any(line.endswith("MHz, made for no device") for line in lines(free))
    assert any(line.endswith("; with dana.device = 'xcvu9p' a machine is made that fits") for line in lines(free))
    assert any(line.endswith("MHz, made for xcvu9p") for line in lines(fitting))


def why(source: str, **design: int) -> dict[str, Any]:
    request = asked(source, 455)
    request = replace(request, training=replace(request.training, design=design))
    explained = explain(request, DesignStore())
    return {**explained["why"], "takes": explained["cycles"]["tuple"]}


def test_a_batch_of_one_is_why_and_the_larger_is_measured() -> None:
    slow = why(RULES["plain_sgd"])
    merged = RULES["plain_sgd"].replace("w - 0.05 * e * x", 'sgd.merge(w - 0.05 * e * x, 64, "+") / 64')
    assert slow["text"] == (
        f"each row takes {slow['takes']:.2f} cycles, because the batch is 1 and each row waits for the models of the "
        f"one before, 44 cycles of a row in line 7 (e = dana.sigma(w * x) - y); merge(…, 64) takes "
        f"{slow['tuple']:.2f}, and is another training"
    )
    assert (slow["cause"], slow["line"], slow["change"]) == ("batch", 7, {"batch": 64})
    assert slow["takes"] > 5 * slow["tuple"]
    assert why(merged.replace("sgd.setConvergence(dana.abs(e) < 1e-6)\n", ""))["takes"] == slow["tuple"]


def test_a_small_batch_is_why() -> None:
    slow = why(RULES["two_models"])
    assert (slow["cause"], slow["change"]) == ("batch", {"batch": 64})
    assert why(RULES["two_models"].replace(', 5, "+")', ', 64, "+")'))["takes"] == slow["tuple"]


def test_the_rows_of_a_page_are_those_of_the_statistics_whatever_text_nobody_reads() -> None:
    """As many as statistics say, where texts are shorter than those that are taken to be there, too."""
    schema = declared("name text, a float4, note text, b float4, y float4")
    training = declared_request(dana.load(CHECKOUT / "examples/paper/logistic.py"), schema, label="y", pages=40)
    training = replace(training, features=("a", "b"))
    for rows in (3000, 2000, 6000):
        question = ExplainRequest(
            training=training, device=None, search=False, rows=rows, layout=[(rows // 40,) * 2] * 40, last=None
        )
        assert explain(question, DesignStore())["reads"]["tuples"] == rows / 40


def test_a_larger_machine_is_measured() -> None:
    slow = why(rules.text("linear"), striders=16)
    assert slow["cause"] == "striders"
    assert slow["change"] is not None
    assert why(rules.text("linear"), **slow["change"])["takes"] == slow["tuple"]
    busy = why(rules.text("linear"), threads=1, clusters=1)
    assert (busy["cause"], busy["change"]) == ("units", {"threads": 2})
    assert "of the operations in line " in busy["text"]
    assert why(rules.text("linear"), threads=2, clusters=1)["takes"] == busy["tuple"]


SIZED = """\
import dana
size = dana.meta(8)
w = dana.model([40])
x = dana.input([40])
y = dana.output()
sized = dana.algo(w, x, y)
error = dana.sigma(w * x, 1) - y
"""
MINIMIZED = "sized.setLoss(error * error)\nsized.minimize(dana.optimizers.sgd, batch="
MERGED = 'sized.setModel(w, w - 0.001 * sized.merge(error * x, size, "+") / size)\n'


@pytest.mark.parametrize(
    ("updates", "typed"),
    [
        (MERGED, "hyper => '{\"size\": 64}'"),
        (f"{MINIMIZED}8)\n", "minimize(…, batch=64)"),
        (f"{MINIMIZED}size)\n", "hyper => '{\"size\": 64}'"),
    ],
)
def test_a_larger_batch_is_said_as_it_is_typed(updates: str, typed: str) -> None:
    slow = why(SIZED + updates)
    assert slow["change"] == {"batch": 64}
    assert f"; {typed} takes {slow['tuple']:.2f}, and is another training" in slow["text"]


def test_what_takes_no_fewer_cycles_is_no_remedy() -> None:
    for source in (SIZED + MERGED, RULES["rows"], WHOLE):
        for threads in (2, 4, 8):
            told = why(source, threads=threads)
            numbers = [float(number) for number in re.findall(r"takes? (\d+\.\d+)", told["text"])]
            assert numbers[0] == round(told["takes"], 2)
            assert all(number < told["takes"] for number in numbers[1:])


def test_rows_that_are_written_one_after_the_other_are_why() -> None:
    slow = why(RULES["rows"], watch_depth=0)
    assert (slow["cause"], slow["change"]) == ("chain", None)
    assert "because each row waits for the models of the one before" in slow["text"]


def test_rows_that_run_side_by_side_are_told() -> None:
    explained = explain(asked(RULES["rows"], 10_000), DesignStore())
    assert explained["why"]["cause"] == "rows"
    takes = f"each row takes {explained['cycles']['tuple']:.2f} cycles"
    assert explained["why"]["text"].startswith(f"{takes} if 32 rows run side by side; rows that choose the same row")
    assert (explained["why"]["line"], explained["why"]["change"]) == (8, None)
    assert (explained["batch"], explained["side_by_side"]) == (1, 32)
    assert any("up to 32 tuples side by side: a batch ends where" in line for line in lines(explained))


def test_waits_that_no_estimate_counts_are_told() -> None:
    """Of a rule with sparse rows; of others there are none."""
    for source, waits in ((SPARSE, 2 * 14 * 10), (RULES["rows"], 0)):
        explained = explain(asked(source, 100), DesignStore())
        assert explained["cycles"]["repeats"] == waits
        said = [line for line in lines(explained) if line.startswith("  not counted: ")]
        assert [line.endswith(f"to the same row; up to {waits} cycles of a tuple") for line in said] == [True][:waits]


@pytest.mark.parametrize("design", [{"record_depth": 0}, {}, {"clusters": 2}, {"clusters": 1, "record_depth": 4}])
@pytest.mark.parametrize("statistics", [True, False])
def test_an_epoch_is_what_a_training_of_rows_at_random_takes(design: dict[str, int], statistics: bool) -> None:
    """Of models on the chip and beside it: the tuple's cycles are those of the rows' number, on both."""
    rows, schema = 3000, declared("i int4, j int4, y float4")
    draw = np.random.default_rng(1)
    numbers = draw.integers((50_000, 10_000), size=(rows, 2))
    stored = build_pages(schema, [(int(i), int(j), 1.0) for i, j in numbers])
    training = declared_request(dana.load(rules.FOLDER / "lrmf.py"), schema, label="y", pages=len(stored) // 8192)
    training = replace(training, hyper={"m": 50_000, "n": 10_000}, design=design)
    designs = DesignStore()
    full = sample_pages(schema, page_size=8192).rows
    counts = [min(full, rows - start) for start in range(0, rows, full)]
    assert len(counts) == len(stored) // 8192
    question = ExplainRequest(
        training=training,
        device=None,
        search=False,
        rows=rows if statistics else None,
        layout=[(count, count) for count in counts] if statistics else None,
        last=None,
    )
    explained = explain(question, designs)
    bundle = designs.get(training).bundle
    assert bool(bundle.tables) == bool(design.get("record_depth", 1))
    simulator = Simulator(bundle.config)
    simulator.load(bundle)
    counted = simulator.run_epoch(stored)
    # without statistics each page is taken for a full one, also the last, and those that PostgreSQL has in reserve
    assert any(line.endswith(": no ANALYZE has counted them") for line in lines(explained)) != statistics
    assert explained["epoch"]["cycles"] == pytest.approx(counted.cycles, rel=0.04 if statistics else 0.06)
    assert counted.tuples == rows
    cost = count_cost(plan_of(bound_graph(training, designs.get(training))), bundle)
    assert cost.per_tuple == pytest.approx(explained["cycles"]["tuple"], rel=0.01)
    assert sum(cost.kinds.values()) == pytest.approx(cost.per_tuple)


def test_columns_that_an_array_would_replace_are_why() -> None:
    rule = dana.load(CHECKOUT / "examples/paper/logistic.py")

    def found(schema: str, **design: int) -> Json:
        request = replace(declared_request(rule, declared(schema), label="y"), design=design)
        return explain(
            ExplainRequest(training=request, device=None, search=False, rows=None, layout=None, last=None),
            DesignStore(),
        )

    slow = found(f"{', '.join(f'x{k} bool' for k in range(12))}, y int", converters=1)
    array = found("x float4[12], y int")
    assert (slow["why"]["cause"], slow["why"]["change"]) == ("unpacker", {"columns": "real[]"})
    assert slow["why"]["tuple"] == array["cycles"]["tuple"] < slow["cycles"]["tuple"] / 1.25
    few = found(f"{', '.join(f'x{k} {kind}' for k, kind in enumerate(['int', 'real'] * 2))}, y int")
    assert few["why"]["cause"] == "unpacker"
    takes, size = few["cycles"]["tuple"], 8192 / few["reads"]["tuples"]
    assert few["why"]["text"] == (
        f"each row takes {takes:.2f} cycles, in which the machine reads its {size:.0f} bytes of a page; each number "
        f"takes one cycle, but adjacent ones of one type take one together: up to {few['machine']['lanes']} of type "
        "real, 1 of any other"
    )


def test_a_queue_that_the_user_made_too_short_is_why() -> None:
    rule = dana.load(CHECKOUT / "examples/paper/logistic.py")

    def told(design: dict[str, int]) -> Json:
        table = declared("a int, b int, c int, y int")
        request = declared_request(rule, table, label="y", design=design)
        return explain(
            ExplainRequest(training=request, device=None, search=False, rows=None, layout=None, last=None),
            DesignStore(),
        )

    short, default = told({"queue_depth": 128}), told({})
    assert (short["why"]["cause"], short["why"]["change"]) == ("striders", {"queue_depth": 256})
    assert default["cycles"]["tuple"] < short["why"]["tuple"] < short["cycles"]["tuple"] / 1.25
    assert told({"queue_depth": 1024})["why"] == default["why"]


def test_rows_laid_out_anew_have_the_mean_length() -> None:
    """Of live and dead rows: not that of the fullest page, when later rows have longer texts."""
    schema = declared("a float8, t text, b float8, y float8")
    layout = [(120, 120)] * 25 + [(5, 7)] * 140 + [(1, 1)]
    training = declared_request(dana.load(rules.FOLDER / "linear_svm.py"), schema, label="y", pages=len(layout))
    training = replace(training, features=("a", "b"))
    rows = sum(tuples for tuples, _ in layout)
    question = ExplainRequest(training=training, device=None, search=False, rows=rows, layout=layout, last=None)
    assert explain(question, DesignStore())["reads"]["tuples"] == round((25 * 120 + 140 * 7) / 165)
    assert explain(replace(question, training=replace(training, shuffle=False)), DesignStore())["reads"]["pages"] == 166
