"""A machine that names a device fits it, whatever the default would be."""

from __future__ import annotations

from dataclasses import replace

import pytest

import dana
from benchmarks.paper.evidence import evidence
from benchmarks.paper.model import PAGE_SIZE
from benchmarks.paper.model import bound as paper
from dana import rules
from dana.codesign.default import default_bundle
from dana.codesign.device import bundle_for, holds
from dana.codesign.fitting import widest_link
from dana.compiler import Binding, bind
from dana.errors import UsageError
from dana.storage.declared import declared
from dana.storage.schema import TableSchema
from hwgen.devices import device_names, load_device
from hwgen.spec.bundle import Bundle


def bound(name: str, columns: str) -> tuple[Binding, TableSchema]:
    schema = declared(columns)
    return bind(dana.load(rules.FOLDER / f"{name}.py").hdfg, schema), schema


def made(name: str, columns: str, device: str, **design: int) -> Bundle:
    binding, schema = bound(name, columns)
    machine = {"page_size": 8192, **design}
    return bundle_for(binding, schema, load_device(device), max_tuples=100_000, page_size=8192, design=machine)


@pytest.mark.parametrize("device", device_names())
def test_the_device_s_clock_and_link(device: str) -> None:
    """64 units where they fit, and fewer where they do not; a link half as wide where it is as fast."""
    found, bundle = load_device(device), made("logistic", "x float4[54], y float4", device)
    assert holds(found, bundle.config)
    assert bundle.config.clock_hz == found.clock_hz
    widest = min(found.link_bytes, 8 * bundle.config.lanes)
    assert widest / 2 <= bundle.config.page_rate <= 1.005 * widest
    assert (bundle.config.units == 64) is (found.luts > 200_000)


def test_a_perceptron_of_digits_fits_where_the_default_does_not() -> None:
    device = load_device("xcvu9p")
    binding, schema = bound("mlp", "x float4[784], y float4")
    default = default_bundle(binding, schema, max_tuples=60_000)
    assert not holds(device, default.config)
    bundle = made("mlp", "x float4[784], y float4", "xcvu9p")
    assert holds(device, bundle.config)


@pytest.mark.parametrize("name", ["S/N Linear", "S/E LRMF"])
def test_the_paper_s_largest_tables_fit_its_device(name: str) -> None:
    """Whose link is wider than its memory's rate."""
    device, data = load_device("xcvu9p"), next(one for one in evidence().datasets if one.name == name)
    table = paper(data, PAGE_SIZE)
    bundle = bundle_for(
        table.binding, table.schema, device, max_tuples=int(data.rows.value), page_size=table.sample.page_size,
        design={"page_size": table.sample.page_size},
    )  # fmt: skip
    assert holds(device, bundle.config)
    assert bundle.config.is_hardware
    assert bundle.config.link_rate == 106_666 < 1000 * widest_link(device) == 128_000


def test_what_the_user_asks_for_is_not_changed() -> None:
    bundle = made("logistic", "x float4[54], y float4", "lfe5um5g-85", threads=1, clusters=1, clock_hz=50_000_000)
    assert (bundle.config.units, bundle.config.clock_hz) == (8, 50_000_000)
    with pytest.raises(UsageError, match="no machine for this rule fits lfe5um5g-85"):
        made("logistic", "x float4[54], y float4", "lfe5um5g-85", threads=8, clusters=2)


def test_a_device_that_is_full_holds_nothing() -> None:
    config = made("logistic", "x float4[54], y float4", "xcvu9p").config
    device = load_device("xcvu9p")
    for resource in ("luts", "flipflops", "dsps", "block_rams"):
        assert not holds(replace(device, **{resource: 1}), config)


@pytest.mark.parametrize("design", [{}, {"clusters": 1}])
def test_models_lie_beside_a_machine_where_the_device_has_no_memory_for_them(design: dict[str, int]) -> None:
    """As the search has them; where it has, several threads with records are faster, unless there are to be none."""
    schema = declared("i int4, j int4, y float4")
    rule = dana.load(rules.FOLDER / "lrmf.py").hdfg

    def made(device: str, m: int, n: int, **more: int) -> Bundle:
        binding = bind(rule.bind({"m": m, "n": n, "k": 10}), schema, label="y")
        asked = {**design, **more}
        return bundle_for(binding, schema, load_device(device), max_tuples=100_000, page_size=8192, design=asked)

    for device in ("lfe5um5g-85", "xczu7ev"):
        bundle = made(device, 100_000, 20_000)
        assert bundle.tables
        assert holds(load_device(device), bundle.config)
    small = made("xczu7ev", 1_000, 1_000)
    assert small.tables
    assert small.config.threads > 1
    assert not made("xczu7ev", 1_000, 1_000, record_depth=0).tables
