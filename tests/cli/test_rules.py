"""`dana check` and `dana compile` on rule files."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from contextlib import closing, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dana
from dana import rules
from dana.cli import main
from dana.cli.entry import OK, USAGE
from dana.codesign.sample import sample_pages
from dana.compiler.passes import PASSES
from dana.errors import InternalError, SetupError, UsageError
from dana.language.formatting import LINE_LENGTH, formatted
from dana.server.places import PAPER
from dana.simulator import Simulator
from dana.storage.declared import declared
from dana.trainer.contract import Relation, TrainRequest
from dana.trainer.designs import compile_design
from dana.trainer.streams import plan_stream
from dsl import Rule
from dsl.hdfg.text import graph_text
from hwgen.spec.bundle import Bundle
from hwgen.spec.strider import Fault
from tests.dsl.rules import RULES as PROGRAMS

LOGISTIC = str(PAPER / "logistic.py")
RULES = [*sorted(PAPER.glob("*.py")), *(rules.FOLDER / f"{name}.py" for name in rules.NAMES)]

CYCLES = re.compile(r"^cycles of a tuple +([0-9.]+)$", re.MULTILINE)

FIVE_ERRORS = """\
import dana

n = dana.dim()
w = dana.modle([n])
x = dana.input([n])
y = dana.output(

a = dana.algo(w, x)
p = dana.sigma(w * z, 1)
a.setModel(w - "one")
a.setEpochs(0)
"""


@pytest.mark.parametrize("rule", RULES, ids=lambda path: path.stem)
def test_every_example_is_without_errors(rule: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(rule)]) == OK
    said = capsys.readouterr()
    assert said.out == f"{rule}: rule {rule.stem}, no errors\n"
    assert said.err == ""


def test_all_errors_of_a_file_come_at_once_each_in_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broken.py"
    file.write_text(FIVE_ERRORS)
    assert main(["check", str(file)]) == USAGE
    said = capsys.readouterr()
    assert said.out == ""
    for line in (4, 6, 9, 10, 11):
        assert f"{file}:{line}:" in said.err
    assert "Traceback" not in said.err


def test_a_bad_file_does_not_keep_the_next_from_being_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import dana\nw = dana.modle([3])\n")
    assert main(["check", str(file), LOGISTIC]) == USAGE
    assert capsys.readouterr().out == f"{LOGISTIC}: rule logistic, no errors\n"


WARNED = """\
import dana
w = dana.model([2])
b = dana.model()
x = dana.input([2])
warned = dana.algo(w, b, x)
warned.setModel(w, x)
"""


@pytest.mark.parametrize("command", [["check"], ["compile", "--emit", "hdfg"]], ids=["check", "compile"])
def test_warnings_are_shown_and_end_nothing(
    command: list[str], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "warned.py"
    file.write_text(WARNED)
    assert main([*command, str(file)]) == OK
    said = capfdbinary.readouterr()
    assert said.err.decode().startswith(f"warning[W702]: the model b is never updated\n --> {file}:3:1\n")
    assert b"warned" in said.out


def test_load_gives_the_rule_and_python_s_warnings(tmp_path: Path) -> None:
    file = tmp_path / "warned.py"
    file.write_text(WARNED)
    with pytest.warns(UserWarning, match=r"warning\[W702\]: the model b is never updated"):
        rule = dana.load(file)
    assert (rule.name, rule.text, rule.hdfg.name) == ("warned", WARNED, "warned")
    assert repr(rule) == f"<Rule warned(w [2], b, x [2]) of {file}>"


def test_rule_text_is_never_executed(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    file = tmp_path / "rule.py"
    file.write_text(f"import pathlib\npathlib.Path({str(trap)!r}).write_text('ran')\n")
    assert main(["check", str(file)]) == USAGE
    assert not trap.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read .*: No such file"), (b"w = '\xff'\n", r"must be UTF-8 text; byte 5 is not")],
    ids=["missing", "not UTF-8"],
)
def test_a_file_that_cannot_be_read(
    tmp_path: Path, content: bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rule.py"
    if content is not None:
        file.write_bytes(content)
    assert main(["check", str(file)]) == USAGE
    assert re.search(message, capsys.readouterr().err)


def compiled(*arguments: str, rule: str = LOGISTIC) -> bytes:
    """What ``dana compile`` writes."""
    written = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(written)) as text:
        assert main(["compile", rule, *arguments]) == OK
    text.flush()
    return written.getvalue()


def test_the_syntax_tree_and_the_graph_need_no_table() -> None:
    assert compiled("--emit", "ast").startswith(b"Module\n")
    assert compiled("--emit", "hdfg").startswith(b"hdfg logistic\n")
    assert compiled("--emit", "svg").decode() == dana.load(LOGISTIC)._repr_svg_()


def test_every_stage_has_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", LOGISTIC, "--emit", "list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["ast", "gradients", "hdfg", "svg", *(one.name for one in PASSES if one.shown), "cost", "bundle"]
    texts = {}
    for name in names[:-1]:
        assert main(["compile", LOGISTIC, "--features", "9", "--emit", name]) == 0
        texts[name] = capsys.readouterr().out
    assert "packed: %" in texts["forms"]
    assert "sigmoid" in texts["schedules"]
    assert main(["compile", LOGISTIC, "--features", "9", "--emit", "schedule"]) == USAGE
    assert "stage 'schedule' does not exist\nHint: The stages are ast, gradients," in capsys.readouterr().err


@pytest.mark.parametrize("stage", ["program", "strider"])
def test_programs_are_text(stage: str) -> None:
    text = compiled("--emit", stage, "--features", "9").decode()
    assert len(text.splitlines()) > 5
    assert (
        text
        == compiled(
            "--emit", stage, "--schema", ", ".join([*(f"x{k + 1} float4" for k in range(9)), "y real"]), "--label", "y"
        ).decode()
    )


def test_a_bundle_is_what_the_machine_is_loaded_with(tmp_path: Path) -> None:
    file = tmp_path / "rule.bundle"
    assert compiled("--emit", "bundle", "--features", "9", "--design", "threads=4", "-o", str(file)) == b""
    bundle = Bundle.from_bytes(file.read_bytes())
    assert bundle.config.threads == 4
    assert compiled("--emit", "bundle", "--features", "9", "--design", "threads=4") == file.read_bytes()


def test_pages_are_those_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    override = ("--emit", "bundle", "--features", "9", "--design", "page_size=32768")
    bundle = Bundle.from_bytes(compiled(*override, "--page-size", "32768"))
    assert bundle.config.page_size == 32768
    assert main(["compile", LOGISTIC, *override]) == USAGE
    assert "page_size of a machine must be that of its table's pages, 8192, not 32768" in capsys.readouterr().err


@pytest.mark.parametrize(("batch", "told"), [(9, "; a batch of 9 takes as long as one of 16\n"), (16, "round\n")])
def test_the_cost_tells_of_tuples_that_no_batch_has(batch: int, told: str, tmp_path: Path) -> None:
    rule = tmp_path / "rule.py"
    rule.write_text(Path(LOGISTIC).read_text().replace("64", str(batch)))
    shown = compiled("--features", "10", "--emit", "cost", rule=str(rule)).decode()
    assert shown.partition("section")[0].endswith(told)
    assert "bytes a cycle\n" in shown


def test_records_are_shown_where_there_are_some() -> None:
    rule = str(rules.FOLDER / "lrmf.py")
    arguments = ("--schema", "i int4, j int4, y float4", "--label", "y", "--emit", "records")
    assert compiled(*arguments, "--design", "record_depth=0", rule=rule) == b"records: -\n"
    assert b"records: -" not in compiled(*arguments, rule=rule)


WIDE = ("--schema", "x float4[9000], y float4", "--design", "scratch_depth=2048")


def test_rows_that_no_page_holds_are_read_from_frames() -> None:
    """As a training reads them, to which the first row's array says that it is out of line."""
    bundle = Bundle.from_bytes(compiled("--emit", "bundle", *WIDE))
    columns = tuple(replace(a, out_of_line=a.name == "x") for a in declared(WIDE[1]).attributes)
    training = TrainRequest(
        rule=LOGISTIC,
        text=Path(LOGISTIC).read_text(),
        relation=Relation(name="the schema", pages=100, page_size=8192, attributes=columns),
        features=None,
        label=None,
        epochs=None,
        hyper={},
        machine="sim",
        design={"scratch_depth": 2048},
    )
    request, stream = plan_stream(training)
    assert stream is not None
    assert 0 < stream.part < 9000
    assert bundle.to_bytes() == compile_design(request).bundle.to_bytes()
    sample = sample_pages(request.relation.schema, page_size=stream.page_size)
    with closing(Simulator(bundle.config)) as simulator:
        simulator.load(bundle)
        counters = simulator.run_epoch(sample.data)
    assert (counters.fault, counters.tuples, sample.pages) == (Fault.NONE, 1, 5)
    cycles = sample.pages * bundle.config.page_beats
    assert f"time on the page link  {cycles:.2f} cycles of a tuple" in compiled("--emit", "cost", *WIDE).decode()


def test_what_an_estimate_does_not_count_is_said(tmp_path: Path) -> None:
    """Of sparse rows: no table's numbers are at hand."""
    file = tmp_path / "sparse.py"
    file.write_text(
        "import dana\nw = dana.table([99])\nc, x = dana.input([5]), dana.input([5])\nsparse = dana.algo(w, c, x)\n"
        'sparse.addRows(w[c], dana.sigma(w[c] * x) * x, 8, "mean")\n'
    )
    of = ("--schema", "c int4[5], x float4[5]", "--emit", "cost")
    said = (
        "not counted: an addition to a row of a table waits 10 cycles if one of the 10 additions before it was to the"
    )
    assert f"\n{said} same row; up to 50 cycles of a tuple\n" in compiled(*of, rule=str(file)).decode()
    assert "not counted" not in compiled("--features", "3", "--emit", "cost").decode()


def test_dims_batch_and_metas_are_as_the_command_says(tmp_path: Path) -> None:
    """In the Bundle, in what passes made, and in cycles of a tuple."""
    ratings = ("--schema", "i int4, j int4, y float4", "--label", "y")
    lrmf = str(rules.FOLDER / "lrmf.py")
    chosen = ("--hyper", "m=77", "--hyper", "lr=0.5")
    bundle = Bundle.from_bytes(compiled("--emit", "bundle", *ratings, *chosen, rule=lrmf))
    u, lr = bundle.symbol("model", "U"), bundle.symbol("meta", "lr")
    assert u is not None
    assert lr is not None
    assert u.shape == (77, 10)
    assert bundle.image[lr.row].view(np.float32)[0] == 0.5
    memory = ("--emit", "memory", *ratings, "--design", "record_depth=0")
    rows = [compiled(*memory, "--hyper", f"m={m}", rule=lrmf) for m in (77, 1000)]
    assert rows[0] != rows[1] == compiled(*memory, rule=lrmf)
    file = tmp_path / "sized.py"
    file.write_text(PROGRAMS["functions"])
    of = ("--schema", "x float4[8], y float4", "--emit", "cost", "--hyper")
    small, large = (compiled(*of, f"size={size}", rule=str(file)).decode() for size in (1, 64))
    assert float(CYCLES.findall(small)[0]) > 2 * float(CYCLES.findall(large)[0])
    cost = compiled("--emit", "cost", *ratings, "--design", "clusters=1", rule=lrmf).decode()
    assert cost.startswith("8 threads of 1 cluster, 4 tuples of a thread in a round\n")


def test_a_stage_that_depends_on_the_table_asks_for_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", LOGISTIC, "--emit", "strider"]) == USAGE
    assert "the machine depends on the table; give --features N or --schema" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["0", "-1", "many"])
def test_a_number_of_features_is_a_number(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compile", LOGISTIC, f"--features={wrong}"])
    assert "a number of features from 1 is expected" in capsys.readouterr().err


def test_a_schema_is_read_as_postgresql_would_describe_it() -> None:
    schema = declared("x float4[54], a double precision ,b int, y boolean")
    found = [(a.name, a.type_oid, a.length, a.align, a.array_length) for a in schema.attributes]
    assert found == [
        ("x", 1021, -1, "i", 54),
        ("a", 701, 8, "d", None),
        ("b", 23, 4, "i", None),
        ("y", 16, 1, "c", None),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a column such as"),
        ("x", "a column such as"),
        ("x float4,", "a column such as"),
        ("x float4[many]", "a column such as"),
        ("x numeric", r"column x must be one of bool, .*, not numeric"),
        ("x text[3]", r"column x must be one of bool\[N\], .*, not text\[N\]"),
        ("x float4, x int", "column x stands twice"),
        (", ".join(f"x{k} float4" for k in range(1601)), "a table of PostgreSQL has at most 1600 columns, not 1601"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        declared(text)


@pytest.mark.parametrize("columns", [["--features", "1600"], ["--schema", "f int4, " * 1600 + "y int4"]])
@pytest.mark.parametrize("label", ["y", "price"])
def test_features_that_no_table_has_are_put_into_one_column(
    columns: list[str], label: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In words that can be typed as they are."""
    assert main(["compile", str(rules.FOLDER / "linear.py"), *columns, "--label", label]) == USAGE
    assert f"--schema 'x float4[1600], {label} float4' --label {label}." in capsys.readouterr().err


def test_a_label_of_classes_may_be_text(capsys: pytest.CaptureFixture[str]) -> None:
    classes = str(rules.FOLDER / "logistic.py")
    assert main(["compile", classes, "--schema", "a int, b float4, y text", "--label", "y", "--emit", "cost"]) == 0
    assert "instructions" in capsys.readouterr().out
    for rule, schema in ((classes, "a text, b int, y int"), (str(rules.FOLDER / "linear.py"), "a int, y text")):
        assert main(["compile", rule, "--schema", schema, "--label", "y"]) == USAGE
        assert "has type text, which cannot be trained on" in capsys.readouterr().err


HAND_MADE = """\
import dana
# what it learns
n=dana.dim( )
w  = dana.model([n],
    init = 0.5)   # from the middle
x  = dana.input( [n] )
y  = dana.output()
line = dana.algo(w,x,y)
error = dana.sigma(w*x,1)-y
line.setModel(w-0.1*line.merge(error*x,16,'+')/16)
"""


@pytest.mark.parametrize("line_length", [30, LINE_LENGTH])
@pytest.mark.parametrize("text", [*(file.read_text() for file in RULES), *PROGRAMS.values(), HAND_MADE])
def test_formatting_keeps_meaning_and_comments_and_is_done_once(text: str, line_length: int) -> None:
    made = formatted(text, filename="rule.py", line_length=line_length)
    assert graph_text(Rule(made).hdfg, spans=False) == graph_text(Rule(text).hdfg, spans=False)
    # ruff puts two blanks before a comment, and one behind its sign
    assert [" ".join(one.split()) for one in comments(made)] == [" ".join(one.split()) for one in comments(text)]
    assert formatted(made, filename="rule.py", line_length=line_length) == made


def comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def test_files_are_formatted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd, bad, good = tmp_path / "odd.py", tmp_path / "bad.py", tmp_path / "good.py"
    odd.write_text(HAND_MADE)
    bad.write_text(FIVE_ERRORS)
    good.write_text(rules.text("ridge"))
    assert main(["fmt", "--check", str(odd), str(good)]) == USAGE
    assert capsys.readouterr().out == f"{odd}: would be formatted\n"
    assert odd.read_text() == HAND_MADE
    assert main(["fmt", str(bad), str(odd), str(good)]) == USAGE
    said = capsys.readouterr()
    assert said.out == f"{odd}: formatted\n"
    assert "error[" in said.err
    assert bad.read_text() == FIVE_ERRORS
    assert good.read_text() == rules.text("ridge")
    assert "w = dana.model([n], init=0.5)  # from the middle\n" in odd.read_text()
    assert main(["fmt", "--check", str(odd), str(good)]) == OK
    assert capsys.readouterr().out == ""


def test_a_text_that_would_mean_something_else_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def changed(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        ran = run(*arguments, **options)
        ran.stdout = ran.stdout.replace("0.1", "0.2")
        return ran

    monkeypatch.setattr(subprocess, "run", changed)
    with pytest.raises(InternalError, match="would mean something else"):
        formatted(HAND_MADE, filename="rule.py")


def test_formatting_says_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dana.language.formatting.find_spec", lambda name: None)
    with pytest.raises(SetupError, match="pip install 'ruff>="):
        formatted(HAND_MADE, filename="rule.py")
