"""Options of a command that describe the input of a machine: a table, which need not exist, and dims of the rule."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from dana.cli.options import assignment
from dana.errors import UsageError
from dana.session.terminal import say
from hwgen.spec.config import PAGE_SIZES

if TYPE_CHECKING:
    from dana.storage.schema import TableSchema
    from dana.trainer.contract import Json, Notice, TrainRequest
    from dsl import Rule

PAGES = 10_000
"""Pages of a table that has not been counted: the machine is chosen for tables of many rounds."""


def add_table(command: argparse.ArgumentParser) -> None:
    """Add the options that describe a table and the rule's dims; `asked` reads them."""
    table = command.add_mutually_exclusive_group()
    table.add_argument("--features", type=_count, metavar="N", help="for N float4 columns and a float4 label")
    table.add_argument("--schema", metavar="COLUMNS", help="for a table of these: 'x float4[54], y float4'")
    command.add_argument("--label", metavar="COLUMN", help="label column in --schema")
    command.add_argument(
        "--hyper",
        action="append",
        default=[],
        type=assignment,
        metavar="NAME=VALUE",
        help="a dim, the batch or another meta of the rule, as hyper in SQL: m=100000; once for each",
    )
    command.add_argument("--stored-as", metavar="NAME", help="of features and models: binary32 (default) or bfloat16")
    command.add_argument("--page-size", type=int, default=8192, choices=PAGE_SIZES, help="BLCKSZ (8192)")


def _count(text: str) -> int:
    # isdecimal and not isdigit: int rejects superscripts
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number of features from 1 is expected, not {text!r}")
    return int(text)


def asked(rule: Rule, options: argparse.Namespace, design: Json | None = None) -> TrainRequest:
    """The request of a training of the rule on the table that the options of `add_table` describe.

    Raises
    ------
    RuleError, UsageError
        The description is invalid, or the rule does not fit it or has no such hyperparameter.
    """
    from dana.trainer.designs import check_hyper
    from dana.trainer.streams import declared_request

    request = declared_request(
        rule,
        _table(options),
        label=options.label,
        pages=PAGES,
        page_size=options.page_size,
        design=design,
        hyper=dict(options.hyper),
        stored_as=options.stored_as,
    )
    check_hyper(request, said)
    return request


def said(notice: Notice) -> None:
    """Show a notice of the compiler."""
    say(notice.message, lines=True, file=sys.stderr, flush=True)


def _table(options: argparse.Namespace) -> TableSchema:
    from dana.storage.declared import declared, within_a_table

    if options.schema is not None:
        return declared(options.schema, options.label)
    if options.features is None:
        raise UsageError("the machine depends on the table; give --features N or --schema 'x float4[54], …'")
    # before the text of a million columns is built and parsed
    within_a_table(options.features + 1, options.label)
    return declared(", ".join([*(f"x{index + 1} float4" for index in range(options.features)), "y float4"]))
