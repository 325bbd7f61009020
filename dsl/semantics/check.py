"""AST to checked program.

In: a `Module` and the findings of the parser. Out: `Checked` if there is no error at all, and all findings.
Must not: raise for bad rules.
"""

from __future__ import annotations

from collections.abc import Mapping

from dsl.diagnostics import Diagnostics
from dsl.limits import MAX_VALUES
from dsl.semantics.context import Context, GiveUp, Unroll
from dsl.semantics.finish import finish
from dsl.semantics.program import Checked, TooManyValues
from dsl.semantics.statements import Statements
from dsl.semantics.warnings import warn
from dsl.syntax import ast


def check(
    module: ast.Module,
    diagnostics: Diagnostics,
    own: Mapping[str, ast.Module] | None = None,
    chosen: Mapping[str, int] | None = None,
) -> Checked | None:
    """Elaborate a rule; findings are added to `diagnostics`, which may hold syntax errors already.

    `own` are the rule's own modules by name; `chosen` extents in the place of defaults, for dims that loops count.
    """
    counted: dict[str, int] = {}
    while True:  # once more for each loop that counts further dims, and those are few
        # a list for each attempt: what one found before its loop was unrolled is found again
        found = Diagnostics()
        found.extend((*diagnostics.errors, *diagnostics.warnings))
        context = Context(diagnostics=found, chosen=chosen or {}, counted=counted)
        try:
            checked = _elaborate(context, module, own or {})
        except GiveUp:
            checked = None
        except Unroll as loop:
            # ends: each attempt knows more dims than the one before
            counted = {**counted, **loop.extents}
            continue
        if checked is not None:
            warn(context, checked)
        diagnostics.extend((*found.errors, *found.warnings))
        return checked


def _elaborate(context: Context, module: ast.Module, own: Mapping[str, ast.Module]) -> Checked | None:
    try:
        Statements(context, own).run_module(module)
        return finish(context)
    except TooManyValues as error:
        context.report(
            "E607",
            "the rule has too many operations once its loops and calls are unrolled",
            error.span,
            label="the limit is reached here",
            expected=f"at most {MAX_VALUES:,} operations",
            help="work on whole vectors and matrices instead of looping over elements",
        )
        return None
