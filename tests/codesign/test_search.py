"""The search: what it finds is measured again, and nothing that it did not take is better."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import dana
from benchmarks import stochastic
from dana import rules
from dana.codesign.default import default_bundle
from dana.codesign.fitting import smaller_memory
from dana.codesign.sample import sample_pages
from dana.codesign.search import AS_FAST, Exploration, explore
from dana.compiler import bind
from dana.compiler.target import DoesNotFit
from dana.errors import UsageError
from dana.storage.declared import declared
from dana.storage.schema import TableSchema
from dsl import compile_rule
from hwgen.devices import Device, load_device
from hwgen.spec.config import ALL_FUNCTIONS, WIDEST_BUS, functions_mask
from tests.codesign.test_cycles import PAGES, RULE, array, columns, counted

DEVICE = replace(load_device("xczu7ev"), ultra_rams=0)


def explored(schema: TableSchema, device: Device = DEVICE, **design: int) -> Exploration:
    graph = compile_rule(RULE.format(batch=64), filename="rule.py").hdfg
    return explore(bind(graph, schema), schema, device, max_tuples=1 << 20, design=design)


@pytest.fixture(scope="module")
def found() -> Exploration:
    return explored(columns(54))


def test_the_best_fits_and_is_as_fast_as_it_says(found: Exploration) -> None:
    best = found.best
    assert best.fits
    page = sample_pages(columns(54), page_size=8192).data
    assert best.cycles.epoch(PAGES) == pytest.approx(counted(best.bundle, page, PAGES), rel=0.02)


def test_a_training_with_what_was_found_has_its_program() -> None:
    """Also where a slower division unit was taken, whose waits outweigh what scalars over lanes save."""
    graph = compile_rule(stochastic.text("logistic"), filename="rule.py").hdfg
    schema = array(54)
    binding = bind(graph, schema)
    found = explore(binding, schema, load_device("lfe5um5g-85"), max_tuples=1 << 20)
    again = default_bundle(binding, schema, max_tuples=1 << 20, design=found.overrides)
    assert found.best.bundle.config.divide_interval > 1
    assert again.config == found.best.bundle.config
    assert again.program == found.best.bundle.program


def test_nothing_that_fits_is_faster_or_as_fast_and_smaller(found: Exploration) -> None:
    for candidate in found.candidates:
        if candidate.fits:
            assert candidate.cycles.page * AS_FAST >= found.best.cycles.page
            if candidate.cycles.page <= found.best.cycles.page:
                assert candidate.use >= found.best.use


def test_the_bound_is_one_and_is_reached_where_the_link_is_slow(found: Exploration) -> None:
    assert all(candidate.cycles.page >= found.bound for candidate in found.candidates if candidate.fits)
    assert 0 <= found.gap < 0.02


def test_a_wish_is_kept() -> None:
    wished = explored(array(200), threads=2, striders=3)
    assert {candidate.bundle.config.threads for candidate in wished.candidates} == {2}
    assert wished.best.bundle.config.striders == 3


def test_a_link_is_as_wide_as_asked_for_or_an_error() -> None:
    assert {one.bundle.config.link_bytes for one in explored(array(200), link_bytes=128).candidates} == {128}
    assert explored(array(200), threads=1, clusters=4, link_bytes=256).best.bundle.config.link_bytes == 256
    for width in (128, 256, 512):
        with pytest.raises(DoesNotFit, match=f"a power of two from 8 to 64 .* clusters=1 .*, not {width}"):
            explored(array(200), threads=1, clusters=1, link_bytes=width)
    with pytest.raises(UsageError, match="link_bytes must be a power of two from 8 to 64"):
        explored(array(200), threads=1, clusters=1, link_bytes=33)
    with pytest.raises(DoesNotFit, match=r"a power of two from 8 to 256 .* 8192 bytes, not 512"):
        explored(array(200), threads=1, link_bytes=512)


def test_a_link_has_the_fewest_buses_that_are_as_fast(found: Exploration) -> None:
    """Behind a memory that is faster than any link."""
    fast = explored(columns(54), replace(DEVICE, page_bandwidth=10**12), threads=1, clusters=4).best
    assert fast.bundle.config.link_bytes == WIDEST_BUS > found.best.bundle.config.link_bytes
    device = load_device("xcvu9p")
    one, several = (
        explored(array(1900), replace(device, page_bandwidth=rate), threads=4, clusters=16).best
        for rate in (device.page_bandwidth, 10**12)
    )
    assert (one.bundle.config.buses, several.bundle.config.buses) == (1, 2)
    assert several.cycles.page < WIDEST_BUS / device.link_bytes * one.cycles.link


def test_a_link_that_is_no_power_of_two_is_used_to_the_last_byte() -> None:
    """The bound is the memory's rate, and the link may be wider than that and wait."""
    found = explored(array(200), replace(DEVICE, page_bandwidth=2_800_000_000), threads=1, clusters=4)
    config = found.best.bundle.config
    assert found.bound == pytest.approx(8192 * DEVICE.clock_hz / 2.8e9)
    assert config.link_bytes == 32 > 2.8e9 / DEVICE.clock_hz
    assert found.best.link_use > 0.99
    assert 0 <= found.gap < 0.02


def test_a_link_that_waits_is_no_wider_than_it_must_be() -> None:
    slow = explored(array(200), replace(DEVICE, page_bandwidth=2_800_000_000), threads=1, clusters=1).best
    assert slow.cycles.bottleneck == "engine"
    assert slow.link_use == pytest.approx(8192 * DEVICE.clock_hz / slow.cycles.page / 2.8e9)
    assert slow.bundle.config.link_bytes == 16


def test_a_lower_clock_is_not_faster() -> None:
    """Where the memory sets the pace, it is the same seconds at any clock."""
    device = replace(DEVICE, page_bandwidth=1_600_000_000)
    fast, slow = (
        explored(array(200), replace(device, clock_hz=clock), threads=1, clusters=4).best.cycles.seconds(10_000)
        for clock in (150_000_000, 125_000_000)
    )
    assert slow == pytest.approx(fast, rel=0.01)
    assert fast == pytest.approx(10_000 * 8192 / 1.6e9, rel=0.01)


def test_there_is_hardware_for_the_rules_functions_and_no_others(found: Exploration) -> None:
    used = functions_mask(instruction.op for instruction in found.best.bundle.program)
    assert {candidate.bundle.config.functions for candidate in found.candidates} == {used}
    assert used != ALL_FUNCTIONS
    for bundle in (candidate.bundle for candidate in found.candidates):
        assert bundle.config.crossed == any(instruction.crossed for instruction in bundle.program)
    wished = explored(array(200), threads=2, clusters=1, functions=ALL_FUNCTIONS, crossed=1)
    assert wished.best.bundle.config.functions == ALL_FUNCTIONS
    assert wished.best.bundle.config.crossed == 1


def test_there_are_as_many_converters_as_the_columns_are_worth() -> None:
    """Of float4 none is converted; of float8 half a row in a cycle is all that its bytes allow."""
    # without crossed exchanges, which the search would leave out first
    machine = {"threads": 1, "clusters": 2, "striders": 16, "link_bytes": 64, "crossed": 0}
    of_type = {kind: declared(f"x {kind}[200], y float4") for kind in ("float4", "float8")}
    narrow, wide = (explored(schema, **machine).best for schema in of_type.values())
    assert narrow.bundle.config.converters == 1 < wide.bundle.config.converters <= 8
    assert wide.cycles.per_tuple <= 1.3 * max(narrow.cycles.per_tuple, wide.cycles.link / wide.cycles.tuples)
    fewer = explored(of_type["float8"], **machine, converters=wide.bundle.config.converters // 2).best
    assert fewer.cycles.page > AS_FAST * wide.cycles.page
    between = replace(DEVICE, luts=int((fewer.area.luts + wide.area.luts) / 2 / DEVICE.usable))
    assert explored(of_type["float8"], between, **machine).best.bundle.config.converters < wide.bundle.config.converters


def test_a_rule_does_without_crossed_exchanges_where_they_do_not_fit() -> None:
    machine = {"threads": 4, "clusters": 1, "divide_interval": 27, "striders": 2}
    # with the same block RAMs, and so memories, as the one between
    usable = {name: int(getattr(DEVICE, name) * DEVICE.usable) for name in ("block_rams", "ultra_rams")}
    whole = replace(DEVICE, usable=1.0, **usable)
    crossed, plain = (explored(array(600), whole, **machine, **override).best for override in ({}, {"crossed": 0}))
    assert crossed.bundle.config.crossed
    between = replace(whole, luts=(crossed.area.luts + plain.area.luts) // 2)
    found = explored(array(600), between, **machine)
    assert found.best.fits
    assert found.overrides["crossed"] == found.best.bundle.config.crossed == 0
    with pytest.raises(UsageError, match="no machine for this rule fits"):
        explored(array(600), between, **machine, crossed=1)


def test_memories_shrink_until_they_fit() -> None:
    """At 1,900 features the memory for a batch of tuples is what a mid-size device lacks."""
    depths = {candidate.bundle.config.tuple_depth for candidate in explored(array(1900)).candidates if candidate.fits}
    assert min(depths) < max(depths)


def test_a_memory_is_as_deep_as_the_rule_wants() -> None:
    """In whole block RAMs, which need not be a power of two."""
    deep = explored(array(1900), threads=1, clusters=1).best
    depth = deep.bundle.config.scratch_depth
    assert depth % 512 == 0
    assert depth & (depth - 1)
    words = max(symbol.row + symbol.rows(deep.bundle.config.lanes) for symbol in deep.bundle.symbols)
    assert words <= depth
    exact = replace(DEVICE, block_rams=deep.area.block_rams, usable=1.0)
    assert explored(array(1900), exact, threads=1, clusters=1).best.fits


def test_memories_are_ultraram_where_block_ram_is_what_lacks() -> None:
    """Of a device that has some; no cycle changes, and a device without is never asked for one."""
    plain = explored(array(1900), threads=2, clusters=2).best
    needs = plain.area.block_rams
    assert plain.bundle.config.ultra == plain.area.ultra_rams == 0
    scarce = replace(DEVICE, block_rams=needs // 2, usable=1.0)
    with pytest.raises(UsageError, match="no machine for this rule fits"):
        explored(array(1900), scarce, threads=2, clusters=2, **dict.fromkeys(("scratch_depth", "tuple_depth"), 4096))
    mixed = explored(array(1900), replace(scarce, ultra_rams=1000), threads=2, clusters=2).best
    assert mixed.fits
    assert mixed.bundle.config.ultra
    assert mixed.area.block_rams <= needs // 2
    assert mixed.area.ultra_rams > 0
    assert mixed.cycles.page == pytest.approx(plain.cycles.page, rel=0.01)


def test_short_memories_are_luts_where_block_ram_is_what_lacks() -> None:
    """Of a family whose lanes have some; elsewhere a smaller memory would save nothing."""
    design = {"threads": 4, "clusters": 2}
    plain = explored(columns(54), replace(DEVICE, block_rams=1000), **design).best
    scarce = explored(columns(54), replace(DEVICE, block_rams=100, usable=1.0), **design).best
    assert (plain.bundle.config.tuple_depth, scarce.bundle.config.tuple_depth) == (1024, 64)
    assert scarce.area.block_rams <= 100 < plain.area.block_rams
    assert scarce.cycles.page == pytest.approx(plain.cycles.page, rel=0.01)
    lattice = load_device("lfe5um5g-85")
    assert smaller_memory(512, lattice) == 512 > smaller_memory(512, DEVICE)


def test_steps_of_a_batch_are_a_bound_that_larger_batches_lower(found: Exploration) -> None:
    assert found.bound >= found.steps == min(candidate.cycles.engine for candidate in found.candidates)
    graph = compile_rule(RULE.format(batch=256), filename="rule.py").hdfg
    schema = columns(54)
    larger = explore(bind(graph, schema), schema, DEVICE, max_tuples=1 << 20, design={"clusters": 4})
    assert larger.steps < found.steps


def test_a_device_that_is_too_small_says_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dana.codesign.search.device_names", lambda: ("xcvu9p", "lfcpnx-100"))
    small = Device(
        name="small", family="xcup", part="none", luts=6_000, flipflops=5_000, dsps=500, block_rams=300,
        usable=1.0, clock_hz=100_000_000, page_bandwidth=800_000_000,
    )  # fmt: skip
    with pytest.raises(
        UsageError,
        match=r"no machine for this rule fits small: what comes nearest, 8 units and 1 Strider, takes "
        r"[\d,]+ luts of 6,000 \([\d.]+ times as many\), [\d,]+ flipflops of 5,000 \([\d.]+ times as many\)\n",
    ) as caught:
        explored(columns(5), small)
    assert "lfcpnx-100 holds a machine for it, of up to 8 units." in str(caught.value)


def test_what_comes_nearest_lacks_no_more_than_it_must() -> None:
    """With one Strider and a short queue, whose LUTs are enough, though its block RAMs are not."""
    small = Device(
        name="small", family="ecp5", part="none", luts=24_288, flipflops=24_288, dsps=28, block_rams=40,
        usable=0.83, clock_hz=61_350_000, page_bandwidth=377_123_457,
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"8 units and 1 Strider, takes 24 dsps of 23 .*, \d+ block rams of 33"):
        explored(columns(10), small)
    with pytest.raises(UsageError, match=r"nearest, 8 units and 4 Striders, takes [\d,]+ luts of 20,159"):
        explored(columns(10), small, striders=4)


def test_what_does_not_fit_says_what_would() -> None:
    """Found by trying: the search without the overrides, memories of other sizes."""
    device = load_device("lfe5um5g-85")
    with pytest.raises(UsageError, match=r"Without threads=64, a machine of \d+ units fits lfe5um5g-85\."):
        explored(columns(54), device, threads=64)
    scarce = replace(device, block_rams=140)
    with pytest.raises(
        UsageError, match=r"block rams of 119 .*\n.*Its block RAMs would do for 2,048 words of .* 512 .*: fewer"
    ):
        explored(array(1900), scarce, threads=1, clusters=1)


RATINGS = "i int4, j int4, y float4"


def factorised(device: str, m: int, n: int, **design: int) -> Exploration:
    """The rule on ratings of so many rows and columns."""
    graph = dana.load(rules.FOLDER / "lrmf.py").hdfg.bind({"m": m, "n": n, "k": 10})
    schema = declared(RATINGS)
    return explore(bind(graph, schema, label="y"), schema, load_device(device), max_tuples=1 << 20, design=design)


def test_models_lie_beside_the_machine_where_none_that_fits_holds_them() -> None:
    """Too large for the chip's memory, not for a host's addresses; also where a part of the machine is as asked for.
    Where the chip holds them, both are tried, and the faster is found again by its overrides."""
    for design in ({"link_bytes": 16}, {"clusters": 1, "scratch_depth": 1024}):
        best = factorised("lfe5um5g-85", 10_000, 5_000, **design).best
        assert best.fits
        assert best.bundle.tables
        assert best.bundle.config.record_depth == 64
        assert (best.bundle.config.threads, best.bundle.config.clusters) == (2, 1)
    held = factorised("xczu7ev", 1_000, 1_000, clusters=2)
    assert {bool(candidate.bundle.tables) for candidate in held.candidates} == {False, True}
    assert held.best.bundle.config.threads > 1
    assert held.overrides["record_depth"] == 64
    alone = factorised("xczu7ev", 1_000, 1_000, clusters=2, record_depth=0)
    assert not any(candidate.bundle.tables for candidate in alone.candidates)
    assert alone.overrides["record_depth"] == 0


def test_models_that_no_chip_holds_are_searched_with_several_threads() -> None:
    found = factorised("xcvu9p", 600_000, 600_000, clusters=2)
    assert {candidate.bundle.config.threads for candidate in found.candidates} > {1, 4}
    assert found.best.bundle.config.threads > 1


def test_who_asks_for_records_gets_clusters_that_go_with_them() -> None:
    found = factorised("lfe5um5g-85", 1_000, 1_000, record_depth=32)
    assert {candidate.bundle.config.clusters for candidate in found.candidates} == {1, 2, 4}
    assert all(candidate.bundle.tables for candidate in found.candidates)


@pytest.mark.parametrize("design", [{"clusters": 8}, {"record_depth": 0}])
def test_what_keeps_models_from_lying_beside_the_machine_is_named(design: dict[str, int]) -> None:
    ((name, value),) = design.items()
    with pytest.raises(UsageError) as caught:
        factorised("lfe5um5g-85", 10_000, 5_000, **design)
    assert "must have clusters=1, 2 or 4, and for this rule a record_depth of at least 4" in caught.value.hint
    assert f"; not {name}={value}. Without {name}={value}, a machine of 16 units fits" in caught.value.hint
    assert "lfe5um5g-85, with models in external memory (record_depth=64)." in caught.value.hint


def test_a_machine_that_is_too_big_is_shown_as_fast_as_it_would_be() -> None:
    """And not as what it was shrunk to, in vain."""
    found = explored(columns(54), load_device("lfe5um5g-85"))
    large = [candidate for candidate in found.candidates if not candidate.fits]
    assert large
    assert all(candidate.cycles.bottleneck != "striders" for candidate in large)


def test_a_device_without_a_resource_is_said_to_have_none() -> None:
    """Not to be exceeded endless times."""
    with pytest.raises(UsageError, match=r"takes 16 ultra rams, .* lfe5um5g-85 has none\n"):
        explored(columns(54), load_device("lfe5um5g-85"), ultra=2, threads=1, clusters=1)


def test_the_smallest_machine_has_the_memory_that_it_must_whatever_else_lacks() -> None:
    """Also where its logic is too large, so that the search spares itself the rest: of 16 units on two devices."""
    large = factorised("lfe5um5g-85", 10_000, 5_000, record_depth=32, clusters=2).best
    graph = dana.load(rules.FOLDER / "lrmf.py").hdfg.bind({"m": 10_000, "n": 5_000, "k": 10})
    schema = declared(RATINGS)
    small = replace(load_device("lfe5um5g-85"), luts=40_000, block_rams=100)
    with pytest.raises(UsageError) as caught:
        explore(
            bind(graph, schema, label="y"),
            schema,
            small,
            max_tuples=1 << 20,
            design={"record_depth": 32, "clusters": 2, "striders": large.bundle.config.striders},
        )
    said = re.search(r"takes .*?(\d+) block rams of 85 ", str(caught.value))
    assert said is not None
    assert int(said[1]) <= large.area.block_rams


def test_a_clock_that_a_device_s_memory_is_too_slow_for_is_refused() -> None:
    slow = replace(DEVICE, page_bandwidth=200_000)
    assert explored(columns(5), slow, threads=1, clusters=1).best.bundle.config.link_rate == 1
    with pytest.raises(UsageError, match=r"clock_hz with xczu7ev must be at most 200,000,000, .*, not 250,000,000\n"):
        explored(columns(5), slow, clock_hz=250_000_000)
    told = explored(columns(5), slow, clock_hz=250_000_000, link_rate=0, threads=1, clusters=1).best
    assert told.bundle.config.page_cycles == 8192 // told.bundle.config.link_bytes


def test_a_queue_is_shorter_where_its_luts_are_what_lacks() -> None:
    """Of ratings, of which each page has hundreds of entries."""
    long = factorised("lfe5um5g-85", 1_000, 1_000, record_depth=32, clusters=2).best
    assert long.bundle.config.queue_depth == 1024
    graph = dana.load(rules.FOLDER / "lrmf.py").hdfg.bind({"m": 1_000, "n": 1_000, "k": 10})
    schema = declared(RATINGS)
    scarce = replace(load_device("lfe5um5g-85"), luts=long.area.luts - 8_000, usable=1.0)
    design = {"record_depth": 32, "clusters": 2}
    found = explore(bind(graph, schema, label="y"), schema, scarce, max_tuples=1 << 20, design=design).best
    assert found.bundle.config.queue_depth == 256
    assert found.bundle.config.striders == long.bundle.config.striders
    # a Strider less would cost more than that
    assert found.cycles.page < 1.4 * long.cycles.page
    with pytest.raises(UsageError, match=r"luts of"):
        explore(
            bind(graph, schema, label="y"), schema, scarce, max_tuples=1 << 20,
            design={**design, "queue_depth": 1024, "striders": 2},
        )  # fmt: skip
