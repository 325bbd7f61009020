"""Statements: names bound, functions and loops unrolled, declarations made.

In: AST statements. Out: a filled `Context`. Must not: evaluate expressions or judge the whole rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeGuard

from dsl.diagnostics import Note
from dsl.hdfg.dims import DimExpr, shape_text, symbol
from dsl.hdfg.graph import Op
from dsl.hdfg.shapes import without_axis
from dsl.semantics import algorithm
from dsl.semantics.arguments import Argument
from dsl.semantics.context import Context
from dsl.semantics.expressions import Expressions
from dsl.semantics.imports import Imports
from dsl.semantics.modules import MODULES
from dsl.semantics.objects import (
    POISON,
    Algorithm,
    Builtin,
    Constant,
    Declaration,
    Expected,
    Items,
    Nothing,
    Object,
    Poison,
    RuleFunction,
    Scope,
    Text,
    describe,
)
from dsl.semantics.program import Operation
from dsl.semantics.values import binary
from dsl.source import Span
from dsl.syntax import ast

LEAF_OPS = {
    "model": Op.MODEL,
    "table": Op.MODEL,
    "input": Op.INPUT,
    "output": Op.OUTPUT,
    "weight": Op.WEIGHT,
    "meta": Op.META,
}
UNTOLD = {"output": 2, "input": 1000}
"""Default number of classes and categories, until a table supplies it."""


class Statements:
    """Runs statements against a context."""

    def __init__(self, context: Context, own: Mapping[str, ast.Module]) -> None:
        self.context = context
        self._imports = Imports(context, self._run, own)
        self.expressions = Expressions(context, self._run_function, self._imports.module)
        self._functions: list[RuleFunction] = []

    def run_module(self, module: ast.Module) -> None:
        """Run a whole rule text."""
        scope = Scope(top_level=True)
        scope.names["range"] = Builtin("range")
        self._run(module.body, scope)
        self._check_uncalled()

    def _run_function(self, body: tuple[ast.Statement, ...], scope: Scope) -> Object:
        """Run a function's body; the value of its last statement if that is a return."""
        result: Object = Nothing()
        last = body[-1] if body else None
        if isinstance(last, ast.Return):
            self._run(body[:-1], scope)
            self.context.step(last.span)
            if last.value is not None:
                result = self.expressions.evaluate(last.value, scope)
        else:
            self._run(body, scope)
            # a broken line may have been the return
            if any(isinstance(statement, ast.Broken | ast.Return) for statement in body):
                result = POISON  # what it would return is unknown
        return result

    def _check_uncalled(self) -> None:
        """Run functions that nothing calls on poison, so that their errors are found too."""
        required = list(self.context.requirements)
        with self.context.aside():  # what is never called says nothing about the rule
            for function in self._functions:
                if function.node not in self.expressions.called:
                    scope = Scope(function.scope)
                    # poison stays silent, so that only errors that no argument can mend are found
                    scope.names.update({parameter.name: POISON for parameter in function.node.parameters})
                    self._run_function(function.node.body, scope)
        self.context.requirements = required

    def _run(self, body: tuple[ast.Statement, ...], scope: Scope) -> None:
        for statement in body:
            self.context.step(statement.span)
            self._statement(statement, scope)

    def _statement(self, statement: ast.Statement, scope: Scope) -> None:
        match statement:
            case ast.Assign(targets=targets, value=value):
                self._assign(targets, self.expressions.evaluate(value, scope), value.span, scope)
            case ast.Annotated(target=target, value=ast.Expression() as value):
                self._assign((target,), self.expressions.evaluate(value, scope), value.span, scope)
            case ast.Augmented():
                self._augmented(statement, scope)
            case ast.Evaluate(value=value):
                self._evaluate(value, scope)
            case ast.Function():
                self._function(statement, scope)
            case ast.For():
                self._loop(statement, scope)
            case ast.Import() | ast.FromImport():
                self._imports.bind(statement, scope)
            # uses of the names are not reported as well
            case ast.Broken(names=names):
                scope.names.update(dict.fromkeys(names, POISON))
            case ast.Return(span=span) if scope.top_level:
                self.context.report(
                    "E312",
                    "return stands outside a function",
                    span,
                    label="not inside a function",
                    help="a rule gives its results by setModel, setLoss and setPrediction",
                )
            case ast.Return(span=span):
                self.context.report(
                    "E312",
                    "return must be the last statement of a function",
                    span,
                    label="not the last statement of a function",
                    help="compute the value first, then return it at the end",
                )

    # names

    def _assign(self, targets: tuple[ast.Expression, ...], value: Object, span: Span, scope: Scope) -> None:
        listed = value.items if isinstance(value, Items) else (value,)
        declared = next((one for one in listed if isinstance(one, Declaration)), None)
        one_each = len(targets) == 1 and isinstance(targets[0], ast.Sequence) is isinstance(value, Items)
        if declared is not None and not one_each:
            self.context.report(
                "E304",
                f"a {declared.kind} needs a name of its own",
                span,
                label="several names",
                expected="one name left of =",
                help="write one statement for each name",
            )
            value = POISON
        for target in targets:
            self._bind_target(target, value, span, scope)

    def _bind_target(self, target: ast.Expression, value: Object, span: Span, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            if isinstance(value, Declaration):
                scope.names[target.id] = self._declare(target, value, scope)
            else:
                self._bind(target, value, scope)
            return
        assert isinstance(target, ast.Sequence)
        items: tuple[Object, ...] = (POISON,) * len(target.items)
        if isinstance(value, Items) and len(value.items) == len(target.items):
            items = value.items
        elif not isinstance(value, Poison):
            self.context.report(
                "E316",
                f"cannot be divided among {len(target.items)} names",
                span,
                expected=f"{len(target.items)} values",
                found=describe(value),
                notes=(Note(message=f"{len(target.items)} names", span=target.span),),
                help=_unpacking_help(value),
            )
        for name, item in zip(target.items, items, strict=True):
            self._bind_target(name, item, span, scope)

    def _bind(self, name: ast.Name, value: Object, scope: Scope) -> None:
        # of this scope alone: assigning in a function makes a local name, as in Python
        previous = scope.names.get(name.id)
        if isinstance(previous, Expected) and isinstance(value, Operation) and value.shape != previous.shape:
            self.context.report(
                "E408",
                f"{name.id} is declared with another shape",
                name.span,
                label=f"shape {shape_text(value.shape)}",
                expected=f"shape {shape_text(previous.shape)}",
                found=f"shape {shape_text(value.shape)}",
                notes=(Note(message="declared here", span=previous.span),),
            )
        if _loses_its_name(previous, name.id, value):
            self.context.warn(
                "W703",
                f"{describe(previous).split(',')[0]} loses its name",
                name.span,
                label=f"from here on {name.id} is another value",
                notes=(Note(message="declared here", span=previous.span),),
                help="give the new value a name of its own; a model changes by setModel only",
            )
        # inside a module's function names are not the rule's
        if isinstance(value, Operation) and self.context.module_call is None:
            self.context.program.name(value, name.id)
        # messages about batch sizes call a number by its name
        if isinstance(value, Constant):
            value = replace(value, name=name.id)
        scope.names[name.id] = value

    def _declare(self, name: ast.Name, declaration: Declaration, scope: Scope) -> Object:
        context = self.context
        kind, span = declaration.kind, name.span
        if kind == "inter":
            return Expected(declaration.shape, span)
        if kind == "state":
            return self._declare_state(name, declaration)
        # states and inters above may be declared in functions, which keep them for themselves
        if not scope.top_level or context.calls:
            home = "function" if scope.module is None else "module"
            return context.report(
                "E206",
                f"a {kind} is declared inside a {home}",
                declaration.span,
                label=f"inside a {home}",
                expected=f"a statement that belongs to no {home}",
                help="declare it outside and pass it as an argument",
            )
        if name.id in context.declared:
            return context.report(
                "E207",
                f"{name.id} is declared twice",
                span,
                label="declared again",
                expected="another name",
                notes=(Note(message="first declared here", span=context.declared[name.id]),),
                help="loops cannot declare; write one statement for each name"
                if context.declared[name.id] == span
                else "",
            )
        # before the kind is known to be right, so that a second declaration is reported as one
        context.declared[name.id] = span
        if kind == "dim":
            context.dims.append(name.id)
            if declaration.value is not None:
                context.extents[name.id] = int(declaration.value)
            if name.id in context.counted:
                return Constant(context.counted[name.id], symbolic=symbol(name.id))
            return Constant(symbol(name.id))
        if kind == "algo":
            return self._declare_algorithm(name, declaration)
        leaf = context.program.leaf(
            LEAF_OPS[kind],
            name.id,
            declaration.shape,
            span,
            value=declaration.value,
            init=declaration.init,
            table=kind == "table",
            classes=declaration.classes,
        )
        context.symbolic[name.id] = declaration.symbolic, declaration.symbolic_classes
        if isinstance(declaration.symbolic_classes, DimExpr):  # the default until a table is read
            # a dim with a default of its own keeps it
            context.extents.setdefault(str(declaration.symbolic_classes), UNTOLD[kind])
        if kind == "meta":
            context.metas.append(leaf)
        return leaf

    def _declare_state(self, name: ast.Name, declaration: Declaration) -> Operation:
        """Make a model; the state of a row that each tuple chooses is a row of such a model, chosen alike."""
        program = self.context.program
        like = declaration.owner
        assert like is not None
        owner = program.names.get(like.operands[0].id if like.op is Op.GATHER else like.id)
        table = like.row_per_tuple and like.operands[0].table
        if table and self.context.states_of_rows:
            # in the order of declaration, which is the same in each call of the optimizer
            state = self.context.states_of_rows.pop(0)
        else:
            state = program.leaf(
                Op.MODEL,
                self.context.state_name(owner or "state", name.id),
                declaration.shape,
                declaration.span,
                init=declaration.init,
                table=table,
            )
            self.context.states.append(state)
        if not like.row_per_tuple:
            return state
        return program.add(Op.GATHER, (state, like.operands[1]), without_axis(state.shape, 0), declaration.span)

    def _declare_algorithm(self, name: ast.Name, declaration: Declaration) -> Algorithm | Poison:
        context = self.context
        if context.algorithm is not None:
            return context.report(
                "E504",
                "the rule has two algos",
                declaration.span,
                label="second algo",
                expected="one algo",
                notes=(Note(message="first algo", span=context.algorithm.span),),
                help="put the second rule into a text of its own",
            )
        context.algorithm = algorithm.declare(context, name.id, declaration, declaration.span)
        return context.algorithm

    # statements

    def _augmented(self, statement: ast.Augmented, scope: Scope) -> None:
        left = Argument(self.expressions.evaluate(statement.target, scope), statement.target.span)
        right = Argument(self.expressions.evaluate(statement.value, scope), statement.value.span)
        value = binary(self.context, statement.operator, left, right, statement.span)
        self._assign((statement.target,), value, statement.span, scope)

    def _evaluate(self, expression: ast.Expression, scope: Scope) -> None:
        value = self.expressions.evaluate(expression, scope)
        # a string alone is a docstring
        if isinstance(value, Nothing | Poison | Text):
            return
        if isinstance(value, Declaration):
            # without targets: reported as a declaration without a name
            self._assign((), value, expression.span, scope)
            return
        self.context.warn(
            "W705",
            "the result is not used",
            expression.span,
            label=describe(value),
            help="assign it to a name, or remove the statement",
        )

    def _function(self, node: ast.Function, scope: Scope) -> None:
        defaults: dict[str, Object] = {}
        seen: set[str] = set()
        for parameter in node.parameters:
            if parameter.name in seen:
                self.context.report(
                    "E208",
                    f"two parameters are called {parameter.name!r}",
                    parameter.span,
                    label="again here",
                    expected="another name",
                )
            seen.add(parameter.name)
            if parameter.default is not None:
                defaults[parameter.name] = self.expressions.evaluate(parameter.default, scope)
            elif defaults:
                self.context.report(
                    "E209",
                    "a parameter without a default follows one with a default",
                    parameter.span,
                    label="no default",
                    expected=f"{parameter.name}=value",
                    help="put the parameters without defaults first",
                )
                defaults[parameter.name] = POISON
        if self._is_rule(node, scope):
            self._run_rule(node, defaults, scope)
            return
        function = RuleFunction(node, scope, defaults)
        # tests elaborate our own modules; a rule pays only for functions that it calls
        if scope.module not in MODULES:
            self._functions.append(function)
        scope.names[node.name] = function

    def _is_rule(self, node: ast.Function, scope: Scope) -> bool:
        """Whether the function stands under `@dana.rule`; other decorators are reported."""
        is_rule = False
        for decorator in node.decorators:
            # evaluating it would report an unknown name as well
            unknown = isinstance(decorator, ast.Name) and decorator.id != "rule" and scope.find(decorator.id) is None
            value = Nothing() if unknown else self.expressions.evaluate(decorator, scope)
            if value == Builtin("rule"):
                is_rule = True
            elif not isinstance(value, Poison):
                self.context.report(
                    "E210",
                    "this decorator is not part of the language",
                    decorator.span,
                    expected="dana.rule",
                    found="" if unknown else describe(value),
                    help="remove it",
                )
        return is_rule

    def _run_rule(self, node: ast.Function, defaults: dict[str, Object], scope: Scope) -> None:
        """Run the body of `@dana.rule def …` as the rule."""
        for parameter in node.parameters:
            if parameter.name not in defaults:
                self.context.report(
                    "E211",
                    "the function of a rule takes no arguments",
                    parameter.span,
                    label="no value for this",
                    expected=f"{parameter.name}=value, or no parameter",
                    help="what can change at train time is a dana.meta; what depends on the table a dana.dim",
                )
                defaults[parameter.name] = POISON
        inner = Scope(scope, top_level=True)
        inner.names.update(defaults)
        self._run_function(node.body, inner)
        # a rule is no function that the rest of the text can call
        scope.names[node.name] = POISON

    def _loop(self, loop: ast.For, scope: Scope) -> None:
        iterable = self.expressions.evaluate(loop.iterable, scope)
        target: ast.Expression = loop.names[0]
        if len(loop.names) > 1:
            span = loop.names[0].span.to(loop.names[-1].span)
            target = ast.Sequence(span=span, bracket="(", items=loop.names)
        # once with poison where the rounds are unknown, so that errors of the body are found
        rounds: tuple[Object, ...] = (POISON,)
        if isinstance(iterable, Items):
            rounds = iterable.items
        elif not isinstance(iterable, Poison):
            self.context.report(
                "E317",
                "a loop runs over a range or a list",
                loop.iterable.span,
                expected="range(k), or a list in brackets",
                found=describe(iterable),
                help="operations work on whole vectors and matrices; no loop over elements is needed"
                if isinstance(iterable, Operation)
                else "",
            )
        for item in rounds:
            self._bind_target(target, item, loop.iterable.span, scope)
            # in the scope around it: a loop has no names of its own, as in Python
            self._run(loop.body, scope)


def _loses_its_name(previous: object, name: str, value: Object) -> TypeGuard[Operation]:
    """Whether binding a name takes from a declared thing the one that it was declared with."""
    return (
        isinstance(previous, Operation)
        and previous.op in LEAF_OPS.values()
        and previous.name == name
        and value is not previous
        and not isinstance(value, Poison)
    )


def _unpacking_help(value: Object) -> str:
    if isinstance(value, Items):
        return f"write {len(value.items)} names left of ="
    return "rows of a model are selected one by one: U[i]" if isinstance(value, Operation) else ""
