"""Commands for rule files: check, format, and show each stage of the compiler. No server is needed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from dana.cli.columns import add_table, asked
from dana.cli.options import path
from dana.errors import UsageError
from dana.session.terminal import say
from hwgen.folders import write_file

if TYPE_CHECKING:
    from dana.trainer.contract import Notice, TrainRequest
    from dsl import Rule
    from hwgen.spec.bundle import Bundle

FAILED = 2
"""Exit code of a check that found errors: that of any error of the user."""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this group's commands."""
    check = commands.add_parser("check", help="report all errors in rule files")
    check.add_argument("files", nargs="+", type=path, metavar="FILE")
    check.set_defaults(run=run_check)

    fmt = commands.add_parser("fmt", help="format rule files with ruff, without changing their meaning")
    fmt.add_argument("files", nargs="+", type=path, metavar="FILE")
    fmt.add_argument("--check", action="store_true", help="do not write; list the files that would change, and fail")
    fmt.set_defaults(run=run_fmt)

    compile_ = commands.add_parser("compile", help="show the output of a stage of the compiler for a rule file")
    compile_.add_argument("file", type=path, metavar="FILE")
    compile_.add_argument("--emit", metavar="STAGE", default="program", help="the stage (program); `list` lists them")
    add_table(compile_)
    compile_.add_argument(
        "--design",
        action="append",
        default=[],
        type=override,
        metavar="NAME=VALUE",
        help="parameter of the design: threads=4",
    )
    compile_.add_argument("-o", "--output", type=path, metavar="FILE", help="write there instead of to the terminal")
    compile_.set_defaults(run=run_compile)


def override(text: str) -> tuple[str, int | str]:
    """A field of a machine, as an argument."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"NAME=VALUE is expected, not {text!r}")
    try:
        return name.strip(), int(value)
    except ValueError:
        return name.strip(), value.strip()  # rejected later with the field's name


def run_check(options: argparse.Namespace) -> int:
    """Check every file; print reports on stderr and one line for each good file on stdout."""
    from dana.language.rulefile import read_rule
    from dsl import Rule

    code = 0
    # without an early exit: one run reports the errors of all files
    for file in options.files:
        # not `load`, which raises at the first rule with errors
        rule = Rule(read_rule(file), filename=str(file))
        if rule.report:
            say(rule.report, lines=True, file=sys.stderr)
        if rule.diagnostics:
            code = FAILED
        else:
            say(f"{file}: rule {rule.name}, no errors")
    return code


def run_fmt(options: argparse.Namespace) -> int:
    """Format every file; print those that change, and the reports of those that are no rules on stderr."""
    from dana.language.formatting import formatted
    from dana.language.rulefile import modules_beside, read_text
    from dsl import RuleError

    code = 0
    for file in options.files:
        text = read_text(file)
        try:
            made = formatted(text, filename=str(file), modules=modules_beside(text, file.parent))
        except RuleError as error:
            say(error, lines=True, file=sys.stderr)
            code = FAILED
            continue
        if made != text:
            say(f"{file}: {'would be ' if options.check else ''}formatted")
            if options.check:
                code = FAILED
            else:
                file.write_text(made, encoding="utf-8")
    return code


def run_compile(options: argparse.Namespace) -> int:
    """Compile as far as the stage asked for and write what it made."""
    from dana.language.rulefile import load

    stages = _stages()
    if options.emit == "list":
        say("".join(f"{name:12} {what}\n" for name, (what, _) in stages.items()), lines=True, end="")
        return 0
    if options.emit not in stages:
        raise UsageError(f"stage {options.emit!r} does not exist", hint=f"The stages are {', '.join(stages)}.")
    made = stages[options.emit][1](load(options.file), options)
    if options.output is not None:
        write_file(options.output, made)
    elif sys.stdout.isatty() and b"\0" in made:
        raise UsageError("a bundle is binary; write it to a file with --output FILE")
    else:
        sys.stdout.buffer.write(made)
        sys.stdout.flush()
    return 0


def _ast(rule: Rule, options: argparse.Namespace) -> bytes:
    from dsl.syntax.printer import tree_text

    return tree_text(rule.ast).encode()


def _hdfg(rule: Rule, options: argparse.Namespace) -> bytes:
    from dsl.hdfg.text import graph_text

    return graph_text(rule.hdfg).encode()


def _gradients(rule: Rule, options: argparse.Namespace) -> bytes:
    from dsl.semantics.gradient.text import gradients_text

    return gradients_text(rule.checked).encode()


def _svg(rule: Rule, options: argparse.Namespace) -> bytes:
    from dsl.hdfg.drawing.svg import svg

    return svg(rule.hdfg).encode()


def _pass(rule: Rule, options: argparse.Namespace) -> bytes:
    """What the pass made that `--emit` names."""
    from dana.compiler.passes import text_of
    from dana.compiler.place.rows import InputPlaces
    from dana.trainer.designs import pass_results

    made = pass_results(_request(rule, options), _said)[options.emit]
    if options.emit == "records" and isinstance(made, InputPlaces) and not made.records:
        return b"records: -\n"
    return text_of(made).encode()


def _cost(rule: Rule, options: argparse.Namespace) -> bytes:
    from dana.codesign.cost import count_cost
    from dana.codesign.cycles import measure_cycles
    from dana.codesign.sample import sample_pages
    from dana.compiler.passes import plan_of
    from dana.trainer.bottleneck import why
    from dana.trainer.designs import DesignStore, bound_graph
    from dana.trainer.explain import counted

    request, designs = _request(rule, options), DesignStore()
    design = designs.get(request, notify=_said)
    bundle, config = design.bundle, design.bundle.config
    sample = sample_pages(request.relation.schema, page_size=config.page_size)
    cost = count_cost(plan_of(bound_graph(request, design)), bundle)
    reason = why(request, design, sample, measure_cycles(bundle, sample), designs)["text"]
    machine = (
        f"{counted(config.threads, 'thread')} of {counted(config.clusters, 'cluster')}, "
        f"{counted(bundle.group, 'tuple')} of a thread in a round"
    )
    # positive if the last round of a batch is not full; a batch without end has none
    empty = cost.rounds * bundle.round_tuples - bundle.batch
    if empty > 0:
        machine += f"; a batch of {bundle.batch} takes as long as one of {bundle.batch + empty}"
    taken = config.page_cycles * sample.pages / sample.rows
    link = f"time on the page link  {taken:.2f} cycles of a tuple, {config.page_rate:.4g} bytes a cycle"
    return f"{machine}\n{cost.text()}{link}\nwhy: {reason}\n".encode()


def _bundle(rule: Rule, options: argparse.Namespace) -> bytes:
    return _compiled(rule, options).to_bytes()


def _stages() -> dict[str, tuple[str, Callable[[Rule, argparse.Namespace], bytes]]]:
    """What each stage is, and what shows it; of the compiler's, the list of its passes says it."""
    from dana.compiler.passes import PASSES

    return {
        "ast": ("the syntax tree", _ast),
        "gradients": ("what each dana.gradient and minimize is taken of, and what it takes", _gradients),
        "hdfg": ("the dataflow graph", _hdfg),
        "svg": ("the dataflow graph as a picture", _svg),
        **{one.name: (one.does, _pass) for one in PASSES if one.shown},
        "cost": ("instructions and cycles, next to a bound for any program", _cost),
        "bundle": ("all that a machine is loaded with, binary", _bundle),
    }


def _request(rule: Rule, options: argparse.Namespace) -> TrainRequest:
    return asked(rule, options, design=dict(options.design))


def _compiled(rule: Rule, options: argparse.Namespace) -> Bundle:
    from dana.codesign.package import with_metas
    from dana.trainer.designs import DesignStore, chosen_binding

    request = _request(rule, options)
    # a cached design has the rule's own values of metas
    return with_metas(DesignStore().get(request, notify=_said).bundle, chosen_binding(request)[1])


def _said(notice: Notice) -> None:
    say(f"{notice.message} …", lines=True, file=sys.stderr, flush=True)
