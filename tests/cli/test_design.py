"""`dana design`, as a hardware engineer types it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from dana import rules
from dana.cli import main
from dana.cli.columns import PAGES
from dana.codesign.default import default_bundle
from dana.codesign.search import explore
from dana.language.rulefile import load
from dana.server.places import PAPER
from dana.storage.declared import declared
from dana.storage.layout import SMALLEST_TUPLE
from dana.trainer.designs import chosen_binding
from dana.trainer.streams import declared_request
from hwgen.devices import device_names, load_device
from hwgen.spec.config import MachineConfig

RULE = str(PAPER / "logistic.py")


def test_the_best_machine_for_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--features", "54", "--device", "lfe5um5g-85", "--pages", "100", "--charts", str(tmp_path)]
    assert main(["design", RULE, *arguments]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("rule logistic on lfe5um5g-85, 32 tuples on a page, pages of 8192 bytes\n")
    assert len(re.findall(r"best *$", shown, re.M)) == 1
    tried = re.search(r"(\d+) machines were tried, (\d+) fit", " ".join(shown.split()))
    assert tried is not None
    assert 0 < int(tried[2]) < int(tried[1])  # 64 units have more multipliers than this device
    assert re.search(r"An epoch over 100 pages: [\d,]+ cycles", shown)
    override = re.search(r"design => '(.*)'\)", shown)
    assert override is not None
    MachineConfig(**json.loads(override[1]))  # is one
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert {"use.svg", "roofline.svg", "tuple.svg"} <= set(drawn)
    for name in ("use.svg", "tuple.svg"):
        assert "<title>rule logistic on lfe5um5g-85, " in (tmp_path / name).read_text()
    assert [name for name in drawn if ElementTree.parse(tmp_path / name).getroot().tag[-4:] != "}svg"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--features", "54", "--device", "vu9p"], rf"no device 'vu9p'; there are {', '.join(device_names())}, or the"),
        (["--schema", "x float4[9000000], y float4"], r"have 9,000,000 numbers, a machine holds at most 8,388,608"),
        ([], r"the machine depends on the table; give --features N or --schema"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["design", RULE, *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_rule_that_fits_no_machine_says_by_how_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device = tmp_path / "tiny.toml"
    device.write_text(
        'family = "ecp5"\npart = "LFE5U-12F-6BG256C"\nluts = 10_000\nflipflops = 10_000\ndsps = 20\nblock_rams = 60\n'
        "usable = 1.0\nclock_hz = 50_000_000\npage_bandwidth = 400_000_000\n"
    )
    assert main(["design", RULE, "--features", "54", "--device", str(device)]) == 2
    assert re.search(r"no machine for this rule fits tiny: .* luts of 10,000", capsys.readouterr().err)


LRMF, MLP = (str(rules.FOLDER / f"{name}.py") for name in ("lrmf", "mlp"))
RATINGS = ["--schema", "i int4, j int4, y float4", "--label", "y"]
LARGE = ["--hyper", "m=10000", "--hyper", "n=5000"]


def test_narrow_rows_are_no_deeper_than_the_memories_that_would_fit(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--features", "20", "--stored-as", "bfloat16", "--device", "lifcl-40", "-o", "nowhere"]
    design = [f"--design={field}" for field in ("scratch_depth=8192", "threads=1", "clusters=1")]
    assert main(["hdl", MLP, *arguments, *design]) == 2
    assert "no machine for this rule fits lifcl-40" in capsys.readouterr().err


def test_no_number_is_cut_however_narrow_what_shows_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["design", RULE, "--features", "54", "--device", "lfe5um5g-85"]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown.partition("In SQL")[0]
    heads = "units Striders cycles waits for link% busy% LUT% DSP% RAM%"
    assert any(" ".join(line.split()) == heads for line in shown.splitlines())
    # no line is broken in a pipe
    assert re.search(r"^An epoch over 10,000 pages: .* batch's steps\.$", shown, re.M)


def test_models_that_no_machine_of_the_device_holds_lie_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    """With dims that are given; a record of U is 10 numbers and a bias in 3 rows of 8."""
    assert main(["design", LRMF, *RATINGS, *LARGE, "--device", "lfe5um5g-85"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r" 2×1×8=16 .* records .* best *$", shown, re.M)
    assert "models of 1.9 MB in external memory" in shown
    override = re.search(r"design => '(.*)'\)", shown)
    assert override is not None
    assert json.loads(override[1])["record_depth"] == 64


@pytest.mark.parametrize(("rule", "columns"), [(LRMF, RATINGS[1]), (MLP, "x float4[20], y float4")])
def test_sql_for_narrow_numbers_gives_the_machine_that_was_found(
    rule: str, columns: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The statement's `stored_as` and design: no field of the machine is missing there.

    The second rule's rows of 16 bits are more than the least scratchpad that is tried holds.
    """
    device = ["--device", "lfe5um5g-85", "--stored-as", "bfloat16"]
    assert main(["design", rule, "--schema", columns, *device]) == 0
    said = re.search(r"stored_as => '(\w+)', design => '(.*)'\)", capsys.readouterr().out)
    assert said is not None
    assert said[1] == "bfloat16"
    request = declared_request(load(rule), declared(columns, "y"), label="y", pages=PAGES, stored_as=said[1])
    binding, _ = chosen_binding(request)
    schema, tuples = request.relation.schema, PAGES * 8192 // SMALLEST_TUPLE
    best = explore(binding, schema, load_device("lfe5um5g-85"), max_tuples=tuples).best.bundle.config
    again = default_bundle(binding, schema, max_tuples=tuples, design=json.loads(said[2])).config
    assert again == best


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ("m=1.5", r"'m' is an extent of the rule and must be a whole number from 1 to [\d,]+, not 1.5"),
        ("rat=5", r"the rule has no hyperparameter 'rat'; it has: k, lr, m, n, penalty"),
        ("penalty=-1", r"penalty >= 0.*, but hyper makes it"),
        ("lr=nan", r"hyperparameter 'lr' must be a finite number, not NaN"),
    ],
)
@pytest.mark.parametrize("command", [["design"], ["hdl", "-o", "nowhere"], ["compile", "--emit", "cost"]])
def test_dims_and_metas_are_refused_as_in_sql(
    command: list[str], hyper: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command[0], LRMF, *command[1:], *RATINGS, "--hyper", hyper]) == 2
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("clusters=two", "clusters of a machine is a whole number, not 'two'"),
        ("clock_hz=fast", "clock_hz of a machine is a whole number, not 'fast'"),
        ("clusters=-1", "clusters must be a power of two from 1 to 16, not -1"),
        ("link_bytes=-8", "link_bytes must be a power of two from 8 to"),
        ("cores=2", "a machine has no 'cores'; it has threads, clusters, "),
    ],
)
def test_what_is_no_machine_is_said(override: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--features", "3", "--device", "lfe5um5g-85", "--design", override, "-o", "nowhere"]
    assert main(["hdl", RULE, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_waits_that_no_figure_counts_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sparse.py"
    file.write_text(
        "import dana\nw = dana.table([99])\nc, x = dana.input([5]), dana.input([5])\nsparse = dana.algo(w, c, x)\n"
        'sparse.addRows(w[c], dana.sigma(w[c] * x) * x, 8, "mean")\n'
    )
    assert main(["design", str(file), "--schema", "c int4[5], x float4[5]", "--device", "lfe5um5g-85"]) == 0
    assert re.search(
        r"^Not counted: an addition to a row .* up to 50 cycles of a tuple\.$", capsys.readouterr().out, re.M
    )
