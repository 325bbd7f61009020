"""Fixtures that every test folder may use: golden text here; the PostgreSQL servers come from `tests.servers`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dana.server.installation import DEFAULT_MAJOR
from dana.simulator import Simulator
from dana.trainer import arrays, heldout, machine_code
from dana.trainer.contract import Sink
from hwgen.spec.counters import EpochCounters
from tests import processes
from tests.golden import Golden
from tests.guarded import consumed
from tests.processes import pytest_runtestloop
from tests.servers import connection, own_root, pg_uri, server, server_root, servers, share_installations

__all__ = ["connection", "golden", "own_root", "pg_uri", "pytest_runtestloop", "server", "server_root", "servers"]


COMPILING = (
    "lockstep/test_rtl.py",
    "hwgen/board",
    "hwgen/export",
    "hwgen",
    "lockstep",
    "simulator",
    "trainer/test_builds.py",
)
"""Files, or folders of such, that compile hardware or need most processor time, the longest first."""

SERVING = (
    "repo/test_commands.py",
    "server",
    "postgres",
    "sql",
    "cluster",
    "client",
    "cli",
    "report",
    "ui",
    "integrations",
    "interchange",
    "benchmarks",
    "rules",
)
"""Those that start servers and wait for them, the longest first."""

SEPARATE = ("lockstep/test_rtl.py", "server/test_embedded.py")
"""Files with tests that are scheduled one by one: each compiles hardware, or starts servers, of its own."""


EXHAUSTIVE = (
    "benchmarks",  # the measurements, not what is measured
    "cli/test_design.py::test_models_that_no_machine",
    "cli/test_server.py::test_the_other_major_version",
    "client/test_notebook.py::test_what_a_notebook_claims",
    "client/test_plan.py::test_so_has_one_of_a_search",
    "client/test_python_page.py",
    "cluster/test_bad_moments.py::test_a_message_of_a_gigabyte",
    "cluster/test_bad_moments.py::test_any_moment_ends_in_the_same_rows_or_a_named_error[17",
    "cluster/test_postgres_fdw.py",
    "cluster/test_ray.py::test_a_kill",
    "cluster/test_ray.py::test_a_training_on_ray",
    "cluster/test_ray.py::test_another_token",
    "cluster/test_sync.py::test_a_shard_that_fails_in_a_training_is_named[cancelled",
    "cluster/test_sync.py::test_a_shard_that_fails_in_a_training_is_named[stopped",
    "cluster/test_sync.py::test_batches_over_three_servers_have_the_bits_of_one[linear",
    "cluster/test_sync.py::test_batches_over_three_servers_have_the_bits_of_one[softmax",
    "cluster/test_sync.py::test_kills_at_any_moment",
    "cluster/test_sync.py::test_the_shell",
    "codesign/test_device.py",
    "codesign/test_search.py::test_a_queue_is_shorter",
    "codesign/test_search.py::test_a_rule_does_without_crossed",
    "codesign/test_search.py::test_memories_are_ultraram",
    "codesign/test_search.py::test_memories_shrink",
    "codesign/test_search.py::test_models_lie_beside",
    "codesign/test_search.py::test_models_that_no_chip_holds",
    "codesign/test_search.py::test_the_smallest_machine_has",
    "codesign/test_search.py::test_what_keeps_models_from_lying_beside",
    "codesign/test_search.py::test_who_asks_for_records",
    "compiler/test_strider_program.py::test_more_descriptors_than_there_are[4100",
    "dsl/test_editors.py",
    "hwgen/arith/test_verilate.py::test_two_processes_build",
    "hwgen/board/test_board",
    "hwgen/board/test_driver.py::test_it_says_what",
    "hwgen/export/test_cocotb.py",
    "hwgen/export/test_drivers.py::test_the_c_driver_reports",
    "hwgen/export/test_drivers.py::test_the_c_driver_trains",
    "hwgen/export/test_drivers.py::test_the_class_for_pynq",
    "hwgen/export/test_exported_buses.py::test_the_c",
    "hwgen/export/test_exported_buses.py::test_the_project",
    "hwgen/export/test_exported_records.py",
    "hwgen/export/test_floorplan.py",
    "hwgen/export/test_litex.py",
    "hwgen/export/test_netlist.py",
    "hwgen/export/test_package.py::test_a_driver_trains",
    "hwgen/export/test_package.py::test_a_training_that_does_not_end",
    "hwgen/export/test_package.py::test_it_is_the_same",
    "hwgen/export/test_package.py::test_names_of_modules",
    "hwgen/export/test_package.py::test_pages_are_as_large",
    "hwgen/export/test_package.py::test_the_testbench_passes_in_icarus",
    "hwgen/export/test_package.py::test_two_packages",
    "hwgen/export/test_package.py::test_values_are_where",
    "hwgen/export/test_package.py::test_verilators_linter",
    "hwgen/export/test_package.py::test_what_lies_beyond",
    "hwgen/export/test_package.py::test_yosys_finds",
    "hwgen/export/test_package.py::test_yosys_makes",
    "hwgen/export/test_package_faults.py",
    "hwgen/export/test_verilog.py::test_a_divided",
    "hwgen/export/test_waves.py::test_a_traced",
    "hwgen/formal",
    "hwgen/generation/test_verilog.py::test_machines_without_records",
    "hwgen/generation/test_verilog.py::test_verilator_finds_nothing_to_say[smallest",
    "hwgen/generation/test_verilog.py::test_verilator_finds_nothing_to_say[two by two",
    "hwgen/harness/test_rtl_index.py",
    "hwgen/harness/test_rtl_large.py",
    "hwgen/harness/test_rtl_records.py",
    "integrations/test_dbt.py",
    "integrations/test_mlflow.py",
    "postgres/test_large_models_in_sql.py",
    "postgres/test_mishaps.py::test_idle_sessions",
    "postgres/test_request_queue.py::test_requests_that_train_nothing",
    "postgres/test_row_order.py::test_the_model_does_not_depend_on_the_memory_limit",
    "postgres/test_sanitized_extension.py",
    "postgres/test_surroundings.py::test_killed_postmaster",
    "postgres/test_train.py::test_every_epoch_has_the_same_pages[pg18-kept",
    "postgres/test_train.py::test_streaming_rows_again",
    "postgres/test_visibility.py::test_equal_to_sql_beside",
    "repo/test_commands.py::test_the_commands_run[docs/",
    "rules/test_rules_in_rtl.py",
    "server/test_embedded.py::test_a_killed_server_ends",
    "server/test_embedded.py::test_new_code_restarts",
    "server/test_embedded.py::test_stopping_does_not_wait",
    "server/test_embedded.py::test_two_processes_that_start",
    "server/test_regress.py::test_suite_on_every_other_major",
    "server/test_soak.py",
    "server/test_worker_python.py::test_an_open_base",
    "server/test_worker_python.py::test_another_environment",
    "server/test_worker_python.py::test_one_closed_file_is_noticed[420",
    "simulator/test_sanitized.py",
    "simulator/test_simulated_engine.py::test_every_operation_in_every_loop[sse2",
    "sql/test_backends.py",
    "sql/test_metrics.py::test_a_million_rows",
    "sql/test_stopping_in_sql.py::test_rows_left_out_choose_the_model_of_hardware",
    "trainer/test_builds.py::test_a_build_that_is_cut_short_leaves_nothing",
    "trainer/test_damaged_pages.py",
    "trainer/test_large_models.py",
    "trainer/test_parts.py::test_absent_rows_count_nothing[batch-sizes1",
    "trainer/test_parts.py::test_absent_rows_count_nothing[dana.all-sizes0",
    "trainer/test_parts.py::test_batches_have_the_bits_of_one_training[linear",
    "trainer/test_parts.py::test_batches_have_the_bits_of_one_training[mlp",
    "trainer/test_stopping.py::test_a_rule_s_own_test_decides_on_a_plateau[interp",
    "trainer/test_stopping.py::test_models_beside",
    "ui/test_browser.py",
)
"""Beginnings of the names of tests, below this folder, that ``make test`` leaves to ``make test-all``."""

SAMPLED = (
    "cli/test_rules.py::test_formatting_keeps_meaning",
    "client/test_client_names.py::test_every_place_takes",
    "client/test_estimator.py::test_scikit_learn_s_checks",
    "client/test_notices.py::test_a_call_warns",
    "client/test_predicted_labels.py::test_labels_are",
    "cluster/test_gather.py::test_shards_that_differ",
    "cluster/test_gather.py::test_what_has_no_pages",
    "codesign/test_cycles.py::test_within_two_percent",
    "codesign/test_default.py::test_no_division",
    "compiler/test_random_programs.py::test_models_losses",
    "compiler/test_repeat.py::test_rows_that_repeat",
    "compiler/test_shards.py::test_optimizers_keep_their_shards",
    "dsl/test_text_limits.py::test_long_rules",
    "dsl/test_text_limits.py::test_pathological_text",
    "hwgen/engine/test_engine.py::test_random_programs",
    "hwgen/numerics/test_native.py::test_one_operand",
    "interchange/test_columns.py::test_the_table_s_columns",
    "lockstep/test_compiled_code.py::test_code_from_any",
    "lockstep/test_compiled_code.py::test_code_gives_the_engine",
    "lockstep/test_compiled_code.py::test_code_without_blocks",
    "lockstep/test_compiled_code.py::test_folds_along",
    "lockstep/test_compiled_code.py::test_subnormals",
    "lockstep/test_simulator_lockstep.py::test_random_numbers",
    "lockstep/test_tables.py::test_optimizers_of_rows",
    "lockstep/test_tables.py::test_ways_to_write",
    "lockstep/test_turns.py::test_blocks_of_tuples",
    "lockstep/test_turns.py::test_rows_of_any_length",
    "postgres/test_faults.py::test_faults",
    "postgres/test_lies.py::test_lies",
    "postgres/test_predictor.py::test_bits_of_known",
    "postgres/test_visibility.py::test_states",
    "report/test_report.py::test_the_machine_is_the_one",
    "rules/test_kinks.py::test_quantiles",
    "rules/test_library.py::test_hardware_takes",
    "rules/test_recipes.py::test_recipe",
    "rules/test_rule_weights.py::test_a_weight_is_a_number",
    "rules/test_rule_weights.py::test_batches_of_weight_0",
    "rules/test_rule_weights.py::test_class_weights",
    "rules/test_rule_weights.py::test_weights_of_1",
    "rules/test_rule_weights.py::test_without_weights",
    "rules/test_sql.py::test_a_category_that_no_row_had",
    "rules/test_sql.py::test_optimisers_train",
    "rules/test_sql.py::test_trains_and_predicts",
    "server/test_embedded.py::test_a_damaged_state_file",
    "simulator/test_ready.py::test_ready_tuples",
    "simulator/test_simulated_records.py::test_records_and_cycles",
    "sql/test_assumed.py::test_types",
    "sql/test_assumed.py::test_what_is_told",
    "sql/test_calibration.py::test_the_numbers_of_scikit_learn",
    "sql/test_categories.py::test_the_table_says",
    "sql/test_centres.py::test_types",
    "sql/test_classes.py::test_labels_that_double",
    "sql/test_dana_explain.py::test_an_epoch_takes",
    "sql/test_evaluate.py::test_a_rule_is_judged",
    "sql/test_feature_columns.py::test_both_sides",
    "sql/test_labels.py::test_any_two_values",
    "sql/test_lengths.py::test_arguments_have",
    "sql/test_owners.py::test_a_hidden_model",
    "sql/test_owners.py::test_no_role_waits",
    "sql/test_owners.py::test_references",
    "sql/test_row_weights.py::test_a_column_of_weights",
    "sql/test_splits.py::test_each_class",
    "sql/test_splits.py::test_training_and_test",
    "sql/test_told.py::test_numbers_stored",
    "trainer/test_builds.py::test_caches_have",
    "trainer/test_clusters.py::test_within_one_percent",
    "trainer/test_explain.py::test_an_epoch_is_what",
    "trainer/test_explain.py::test_every_rule_is_explained",
    "trainer/test_machine_code.py::test_code_of_the_library",
    "trainer/test_order.py::test_a_class_at_the_end",
    "trainer/test_order.py::test_classes_are_counted",
    "trainer/test_pages_again.py::test_reused_is_as_counted",
    "trainer/test_stopping.py::test_noise",
    "trainer/test_stopping.py::test_the_validation_loss_is",
    "trainer/test_summary.py::test_as_statsmodels",
    "trainer/test_survey.py::test_statistics",
    "trainer/test_survey.py::test_what_is_found",
    "trainer/test_trainable.py::test_labels_of_any_kind",
    "trainer/test_trained_rows.py::test_a_model_to_start_from",
    "trainer/test_trained_rows.py::test_a_value_without",
    "trainer/test_trained_rows.py::test_of_computed_rows",
    "trainer/test_trained_rows.py::test_which_columns",
    "trainer/test_training.py::test_rows_in_the_order",
    "trainer/test_training.py::test_statistics_of_the_columns",
)
"""Those with dear cases that are alike: ``make test`` runs one of four, each time another one of the four."""


def place(path: str) -> int:
    """Position of a file in the order of a run: compilations first, what needs a server last, the longest outside."""
    compiling = next((k for k, start in enumerate(COMPILING) if path.startswith(start)), len(COMPILING))
    serving = next((k for k, start in enumerate(SERVING) if path.startswith(start)), len(SERVING))
    return compiling - serving


def sampled(case: int) -> bool:
    """Whether it is the one of its four: 0, 5, 10, 15, 16 and so on, since neighbours often differ in one parameter."""
    return case % 4 == case // 4 % 4


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the exhaustive tests and cases; sort the files for `tests.processes`."""
    here = Path(__file__).parent
    paths = {item: item.path.relative_to(here).as_posix() for item in items}
    cases: Counter[str] = Counter()
    for item, path in paths.items():
        name = f"{path}::{item.name}"
        test = name.partition("[")[0]
        if name.startswith(EXHAUSTIVE) or (test.startswith(SAMPLED) and not sampled(cases[test])):
            item.add_marker("exhaustive")
        cases[test] += 1
        if path.startswith(SEPARATE):
            item.stash[processes.UNIT] = name
    # a process needs a processor for compilations and mostly waits in tests of servers: both kinds run at any time
    if config.getoption("processes") > 1:
        items.sort(key=lambda item: place(paths[item]))


def pytest_configure(config: pytest.Config) -> None:
    share_installations(config)


def pytest_addoption(parser: pytest.Parser) -> None:
    processes.pytest_addoption(parser)
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files with what the tests print")
    parser.addoption(
        "--postgresql",
        default=[DEFAULT_MAJOR],
        type=lambda text: [int(major) for major in text.split(",")],
        metavar="MAJORS",
        help="major versions that the tests of a server run on, such as 16,18 (18); tests/postgres runs on 14, 15 and "
        "17, too, which come with make -C pg_extension check-headers",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what takes `server` on each version that was asked for."""
    marks = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "server" in metafunc.fixturenames and "server" not in marks:
        majors = metafunc.config.getoption("--postgresql")
        metafunc.parametrize("server", majors, indirect=True, scope="session", ids=[f"pg{major}" for major in majors])


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Comparison with ``<test folder>/golden/<module>/<test name>.txt``."""
    path = request.node.path
    return Golden(
        folder=path.parent / "golden" / path.stem.removeprefix("test_"),
        name=request.node.name.removeprefix("test_"),
        update=request.config.getoption("--update-golden"),
    )


@pytest.fixture(autouse=True, scope="session")
def guarded_pages() -> Iterator[None]:
    """What trains on arrays in this process reads no byte beyond the pages that it is given."""

    def fed(sink: Sink, pages: NDArray[np.uint8]) -> int:
        return consumed(sink.again or sink.function, sink.context, pages, pages.shape[1])

    with pytest.MonkeyPatch.context() as patch:
        for module in (arrays, heldout):
            patch.setattr(module, "feed_pages", fed)
        yield


@pytest.fixture
def wrong_code() -> Iterator[None]:
    """For tests of what happens where code is wrong: nothing else may train with such code unseen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulator, "end_epoch", _end_epoch)
        yield


_end_epoch = Simulator.end_epoch


def _end_right(self: Simulator) -> EpochCounters:
    counters = _end_epoch(self)
    assert not self.differs, "the code differs from the program, which trained in its place"
    return counters


class _NoCode(logging.Handler):
    """A mistake in making code ends no training, but a test: in its thread, where pytest sees it."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("compiling rule %r failed"):
            raise AssertionError(record.getMessage()) from (record.exc_info or (None, None))[1]


@pytest.fixture(autouse=True, scope="session")
def right_code() -> Iterator[None]:
    """Wherever a test trains with code in this process, it is the program's."""
    handler = _NoCode(logging.ERROR)
    machine_code.log.addHandler(handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Simulator, "end_epoch", _end_right)
        yield
    machine_code.log.removeHandler(handler)
