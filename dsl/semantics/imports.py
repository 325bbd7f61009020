"""Imports: what `import` and `from … import` bind.

In: import statements and the scope they stand in. Out: names bound; modules of functions run, once for a
rule. Must not: know any module but `dana`, those of `dsl.semantics.modules` and the rule's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from dsl.diagnostics import did_you_mean
from dsl.semantics.context import Context
from dsl.semantics.counting import GIVEN
from dsl.semantics.library import ELSEWHERE, FAMILIAR_WORDS, NAMES, PYTHON_WORDS
from dsl.semantics.modules import MODULES, import_of, statements
from dsl.semantics.objects import POISON, AllTuples, Builtin, Given, Module, Namespace, Object, Scope
from dsl.source import Span
from dsl.syntax import ast

OWN = "put your own module in a file next to the rule's, or in its text below a line # %% module name"

Run = Callable[[tuple[ast.Statement, ...], Scope], None]


def library_object(name: str) -> Object:
    """Return what `dana.<name>` stands for."""
    if name in GIVEN:
        return Given(name)
    return AllTuples() if name == "all" else Builtin(name)


class Imports:
    """Binds what import statements name.

    Parameters
    ----------
    context
        State of the elaboration.
    run
        Runs statements in a scope.
    own
        The rule's own modules; the rule itself is "".
    """

    def __init__(self, context: Context, run: Run, own: Mapping[str, ast.Module]) -> None:
        self.context = context
        self._run = run
        # a module of the rule's own cannot stand in for the language
        self._own = {name: module.body for name, module in own.items() if name not in ("", "dana")}
        self._known = (*MODULES, *self._own)
        self._running: list[str] = []
        self._modules: dict[str, Module] = {}

    def module(self, name: str) -> Module:
        """Return a module of `MODULES`, or of the rule's own; its functions are elaborated where they are called."""
        if name not in self._modules:
            scope = Scope(module=name)
            # Python's own, hence known without an import
            scope.names["range"] = Builtin("range")
            # those that are being run, outermost first, as the message about a cycle lists them
            self._running.append(name)
            self._run(self._own[name] if name in self._own else statements(name), scope)
            self._running.pop()
            self._modules[name] = Module(name, scope)
        return self._modules[name]

    def bind(self, statement: ast.Import | ast.FromImport, scope: Scope) -> None:
        """Bind the names of a statement."""
        if isinstance(statement, ast.Import):
            for alias in statement.aliases:
                self._import(alias, scope)
        elif statement.module != "__future__":
            self._from_import(statement, scope)

    def _import(self, alias: ast.Alias, scope: Scope) -> None:
        # `import a.b` binds a, as in Python
        first = alias.bound.split(".")[0]
        if alias.name == "dana" or (alias.name in MODULES and alias.bound == alias.name):
            scope.names[first] = Namespace()
        elif alias.name in self._known and not self._cyclic(alias.name, alias.span):
            scope.names[first] = self.module(alias.name)
        else:
            scope.names[first] = POISON
            # a cycle is reported already
            if alias.name not in self._running:
                self._report_module(alias.name, alias.span)

    def _from_import(self, statement: ast.FromImport, scope: Scope) -> None:
        if statement.module == "dana":
            offered: dict[str, Object] = {name: library_object(name) for name in NAMES}
        elif statement.module in self._known and not self._cyclic(statement.module, statement.span):
            offered = dict(self.module(statement.module).offered)
        else:
            if statement.module not in self._running:
                self._report_module(statement.module, statement.span)
            # poison, so that uses of the names are not reported as well
            scope.names.update({alias.bound: POISON for alias in statement.aliases or ()})
            return
        if statement.aliases is None:
            scope.names.update(offered)
            return
        for alias in statement.aliases:
            # before names: dana has no function with the name of one of its modules
            module = f"{statement.module}.{alias.name}"
            if module in MODULES:
                scope.names[alias.bound] = self.module(module)
            elif alias.name in offered:
                scope.names[alias.bound] = offered[alias.name]
            else:
                scope.names[alias.bound] = self.context.report(
                    "E203",
                    f"{statement.module} has no {alias.name!r}",
                    alias.span,
                    label="no such name",
                    help=_familiar(alias.name) or did_you_mean(alias.name, offered),
                )

    def _cyclic(self, name: str, span: Span) -> bool:
        """Whether a module is being run already, which is reported."""
        if name in self._running:
            self.context.report(
                "E202",
                f"{name} imports itself: {' imports '.join((*self._running, name))}",
                span,
                label="while it is being imported",
                help="put what both modules need into a third one",
            )
        return name in self._running

    def _report_module(self, name: str, span: Span) -> None:
        is_python = name.split(".")[0] in {*PYTHON_WORDS, *sys.stdlib_module_names}
        self.context.report(
            "E202",
            f"{name} cannot be imported into a rule",
            span,
            label="not available in rules",
            expected=" or ".join(("dana", *self._known)),
            help=did_you_mean(name, self._known) or (ELSEWHERE if is_python else OWN),
        )


def _familiar(name: str) -> str:
    if name in NAMES:
        return f"write from dana import {name}"
    if import_of(name):
        return f"write {import_of(name)}"
    return f"write {FAMILIAR_WORDS[name]}" if name in FAMILIAR_WORDS else ""
