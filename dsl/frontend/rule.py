"""One rule, stage by stage.

In: rule text. Out: `Rule`, with one attribute per stage, computed on first access and cached.
Must not: do a stage's work itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from dsl.diagnostics import Diagnostic, Diagnostics, RuleError
from dsl.hdfg.dims import shape_text
from dsl.hdfg.graph import Graph
from dsl.lower import lower
from dsl.render import render
from dsl.sections import repeated, sections
from dsl.semantics.check import check
from dsl.semantics.program import Checked
from dsl.semantics.requirements import unmet
from dsl.source import Source
from dsl.syntax import ast
from dsl.syntax.parser import parse, too_large


class Rule:
    """A rule text and the results of the front end.

    Parameters
    ----------
    text
        The rule, as Python text; never executed.
    filename
        How to call it in messages.
    first_line
        Number of the text's first line in that file.

    Notes
    -----
    `ast`, `diagnostics` and `warnings` exist for every text; `checked`, `hdfg`, `listing` and `name` raise `RuleError`
    for a text with errors. A notebook shows a rule as a picture of its graph.
    """

    def __init__(self, text: str, *, filename: str = "<rule>", first_line: int = 1) -> None:
        self.source = Source(text=text, filename=filename, first_line=first_line)
        self._traced: dict[tuple[tuple[str, int], ...], Graph] = {}

    def __repr__(self) -> str:
        if self.diagnostics:
            return f"<Rule of {self.source.filename}, which has errors>"
        graph = self.hdfg
        members = [graph.nodes[i] for i in (*graph.models, *graph.inputs)]
        shown = [f"{node.name} {shape_text(node.shape)}" if node.shape else str(node.name) for node in members]
        return f"<Rule {self.name}({', '.join(shown)}) of {self.source.filename}>"

    def _repr_svg_(self) -> str | None:
        """Draw the dataflow graph, for notebooks; None for a text with errors."""
        from dsl.hdfg.drawing.svg import svg  # a session that draws nothing does not load it

        return None if self.diagnostics else svg(self.hdfg)

    @property
    def text(self) -> str:
        """The rule as it was given."""
        return self.source.text

    @property
    def listing(self) -> str:
        """The dataflow graph as text: one line for each operation, by how often it is computed.

        Raises
        ------
        RuleError
            If the text has errors.
        """
        from dsl.hdfg.drawing.listing import listing

        return listing(self.hdfg)

    @cached_property
    def _parsed(self) -> tuple[dict[str, ast.Module], tuple[Diagnostic, ...]]:
        # before the lexer, which the bound protects from text that takes minutes
        if large := too_large(self.source):
            return {"": ast.Module(body=())}, (large,)
        parts = sections(self.text)
        read = {name: parse(replace(self.source, text=text)) for name, text in parts.items()}
        # `Diagnostics` sorts them: lines of all parts count in the whole text
        found = (*(one for _, errors in read.values() for one in errors), *repeated(self.text))
        return {name: module for name, (module, _) in read.items()}, found

    @cached_property
    def _elaborated(self) -> tuple[Checked | None, Diagnostics]:
        modules, found = self._parsed
        module = modules[""]
        diagnostics = Diagnostics()
        diagnostics.extend(found)
        # if nothing could be parsed, semantic errors would only repeat the syntax errors
        checked = check(module, diagnostics, modules) if module.body or not found else None
        return checked, diagnostics

    @property
    def ast(self) -> ast.Module:
        """The syntax tree; lines with errors are `Broken` statements."""
        return self._parsed[0][""]

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All errors, in the order of the text; empty for a rule that can be used."""
        return self._elaborated[1].errors

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Warnings, in the order of the text; empty if there are none."""
        return self._elaborated[1].warnings

    @property
    def report(self) -> str:
        """Errors and warnings as readable text; empty if there are none."""
        return render((*self.diagnostics, *self.warnings), self.source)

    @cached_property
    def checked(self) -> Checked:
        """The typed program, functions and loops unrolled.

        Raises
        ------
        RuleError
            If the text has errors.
        """
        checked = self._elaborated[0]
        if checked is None:
            raise RuleError(self.diagnostics, render(self.diagnostics, self.source))
        return checked

    @cached_property
    def hdfg(self) -> Graph:
        """The dataflow graph, dims not yet bound.

        Raises
        ------
        RuleError
            If the text has errors.
        """
        return lower(self.checked, self._trace)

    def _trace(self, extents: Mapping[str, int]) -> Graph:
        """The graph with these extents for dims that loops count."""
        key = tuple(sorted(extents.items()))
        if key not in self._traced:
            modules, _ = self._parsed
            # a list of its own: extents can make a loop's rounds wrong in a text that is right for other tables
            diagnostics = Diagnostics()
            checked = check(modules[""], diagnostics, modules, extents)
            if checked is None:
                raise RuleError(diagnostics.errors, render(diagnostics.errors, self.source))
            self._traced[key] = lower(checked, self._trace)
        return self._traced[key]

    def unmet(self, named: Mapping[str, float]) -> tuple[Diagnostic, ...]:
        """Errors for conditions (`dana.require`) that these metas and labels violate; other metas have their defaults.

        Violations by the defaults alone are among the errors of the text.
        """
        return tuple(unmet(self.checked.requirements, named))

    @property
    def name(self) -> str:
        """The rule's name: that of its algo variable (`RuleError` if the text has errors)."""
        return self.checked.name


def compile_rule(text: str, *, filename: str = "<rule>") -> Rule:
    """Take a rule text through every stage of the front end.

    Parameters
    ----------
    text
        The rule, as Python text; parsed, never executed.
    filename
        How to call it in messages.

    Returns
    -------
    Rule
        With `hdfg` computed; look at `warnings`.

    Raises
    ------
    RuleError
        With every error of the text.
    """
    rule = Rule(text, filename=filename)
    _ = rule.hdfg
    return rule
