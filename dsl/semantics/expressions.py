"""Expressions to objects.

In: AST expressions and the scope they stand in. Out: objects; operations are recorded on the way.
Must not: run statements itself; bodies of rule functions are run by the callback it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dsl.binary32 import round32
from dsl.diagnostics import did_you_mean
from dsl.hdfg import dims
from dsl.hdfg.dims import DimExpr, shape_text
from dsl.hdfg.graph import Op
from dsl.hdfg.shapes import without_axis
from dsl.limits import MAX_CALL_DEPTH, MAX_EXTENT, MAX_STEPS
from dsl.semantics import algorithm, builtins, minimizing
from dsl.semantics.arguments import Argument, Signature, bind
from dsl.semantics.coercion import fits_binary32, report_whole, to_value, to_whole
from dsl.semantics.context import Call, Context
from dsl.semantics.elements import Part, elements, enough_axes, product, select, transpose
from dsl.semantics.imports import library_object
from dsl.semantics.library import DECLARATIONS, FAMILIAR_WORDS, FUNCTIONS, METHODS, NAMES, NAMESAKES, PYTHON_WORDS
from dsl.semantics.modules import MODULES, import_of, moved
from dsl.semantics.objects import (
    POISON,
    Algorithm,
    AllTuples,
    Builtin,
    Constant,
    Declaration,
    Given,
    Items,
    Method,
    Module,
    Namespace,
    Nothing,
    Object,
    Poison,
    RuleFunction,
    Scope,
    Text,
    describe,
)
from dsl.semantics.program import Operation
from dsl.semantics.requirements import require
from dsl.semantics.values import binary, negative
from dsl.source import Span
from dsl.syntax import ast

RANGE = Signature(name="range", required=("start",), optional=("stop", "step"))

RunBody = Callable[[tuple[ast.Statement, ...], Scope], Object]
Load = Callable[[str], Module]


class Expressions:
    """Evaluates expressions.

    Parameters
    ----------
    context
        State of the elaboration.
    run_body
        Runs the body of a rule function in a scope and returns what it returns.
    load
        Returns the module of a name in `MODULES`.
    """

    def __init__(self, context: Context, run_body: RunBody, load: Load) -> None:
        self.context = context
        self._run_body = run_body
        self._load = load
        self.called: set[ast.Function] = set()

    def evaluate(self, expression: ast.Expression, scope: Scope) -> Object:
        """Return what an expression stands for."""
        # first, so that an expression is paid for before what it holds
        self.context.step(expression.span)
        match expression:
            case ast.Name():
                return self._name(expression, scope)
            case ast.Number(value=value):
                return self._number(value, expression.span)
            case ast.String(value=text):
                return Text(text)
            case ast.Attribute():
                return self._attribute(expression, scope)
            case ast.Call():
                return self._call(expression, scope)
            case ast.Subscript():
                return self._subscript(expression, scope)
            case ast.Prefix(operator=operator, operand=operand):
                argument = Argument(self.evaluate(operand, scope), operand.span)
                # no operation: +x is x bit for bit
                return argument.value if operator == "+" else negative(self.context, argument, expression.span)
            case ast.Chain():
                return self._chain(expression, scope)
            case ast.Comparison(left=left, operator=operator, right=right):
                arguments = [Argument(self.evaluate(side, scope), side.span) for side in (left, right)]
                return binary(self.context, operator, arguments[0], arguments[1], expression.span)
            case ast.Sequence(items=items):
                spans = tuple(item.span for item in items)
                return Items(tuple(self.evaluate(item, scope) for item in items), spans)
        raise AssertionError(f"no expression {expression!r}")

    def _name(self, name: ast.Name, scope: Scope) -> Object:
        found = scope.find(name.id)
        if found is not None:
            return found
        help_text = did_you_mean(name.id, set(scope.known()))
        if name.id == "dana":
            help_text = "put import dana on the first line"
        elif import_of(name.id):
            help_text = f"put {import_of(name.id)} on a line above"
        elif name.id in FAMILIAR_WORDS and not help_text:
            help_text = f"write {FAMILIAR_WORDS[name.id]}"
        elif name.id in PYTHON_WORDS:
            help_text = PYTHON_WORDS[name.id]
        elif name.id in NAMES:
            help_text = f"write dana.{name.id}, or from dana import {name.id}"
        elif name.id in ("True", "False", "None"):
            help_text = "comparisons and conditions are the numbers 1 and 0"
        elif not help_text:
            close = did_you_mean(name.id, NAMES)
            help_text = close.replace("mean '", "mean 'dana.") or (
                f"give it a value above this line, as in {name.id} = dana.meta(0.1) or {name.id} = dana.dim()"
            )
        scope.names[name.id] = POISON  # one report for each name is enough
        return self.context.report(
            "E201", f"the name {name.id!r} is not defined", name.span, label="not defined here", help=help_text
        )

    def _number(self, value: int | float, span: Span) -> Constant:
        # kept exact for extents and rows; a value of the dataflow rounds it (`Program.constant`)
        if isinstance(value, int):
            return Constant(value)
        rounded = round32(value)
        if math.isinf(rounded) or (rounded == 0.0 and value != 0.0):
            self.context.warn(
                "W704",
                f"{value:g} is {rounded:g} in binary32",
                span,
                label="this literal",
                help="binary32 reaches from 1.18e-38 to 3.40e+38",
            )
        return Constant(rounded)

    def _attribute(self, attribute: ast.Attribute, scope: Scope) -> Object:
        owner = self.evaluate(attribute.value, scope)
        name = attribute.name
        match owner:
            case Poison():
                return POISON
            case Namespace() if name in NAMES:
                return library_object(name)
            # a module is elaborated when it is first named, since most rules use none
            case Namespace() if f"dana.{name}" in MODULES:
                return self._load(f"dana.{name}")
            case Module() if name in owner.offered:
                return owner.offered[name]
            case Algorithm() if name in METHODS:
                return Method(owner, name)
            case Operation() if name == "T":
                return transpose(self.context, Argument(owner, attribute.value.span), attribute.span)
            case Namespace():
                title, known, prefix = f"dana has no {name!r}", tuple(FUNCTIONS), "dana."
            case Module():
                title, known, prefix = f"{owner.name} has no {name!r}", tuple(owner.offered), ""
            case Algorithm():
                title, known, prefix = f"an algo has no method {name!r}", tuple(METHODS), f"{owner.name}."
            case _:
                title, known, prefix = f"there is no {name!r} on {describe(owner)}", (), ""
        help_text = did_you_mean(name, NAMES if isinstance(owner, Namespace) else known)
        if isinstance(owner, Namespace) and import_of(name):
            help_text = f"put {import_of(name)} on a line above, and write {name} alone"
        elif name in FAMILIAR_WORDS:
            help_text = f"write {FAMILIAR_WORDS[name]}"
        elif not help_text and known:
            help_text = f"there are {', '.join(prefix + word for word in known)}"
        elif isinstance(owner, Declaration) and owner.kind == "algo":
            help_text = "give the algo a name first"
        elif name in METHODS:
            help_text = f"it belongs to the algo: write <algo>.{name}(…)"
        start = attribute.span
        # the name alone: the span begins with the owner, which can be many lines long
        place = Span(start.end_line, max(1, start.end_column - len(name)), start.end_line, start.end_column)
        return self.context.report("E203", title, place, label="no such name", help=help_text)

    def _chain(self, chain: ast.Chain, scope: Scope) -> Object:
        left = Argument(self.evaluate(chain.first, scope), chain.first.span)
        # from the left, as Python does: sums of binary32 depend on the order
        for link in chain.links:
            right = Argument(self.evaluate(link.operand, scope), link.operand.span)
            if link.operator == "@":
                value = product(self.context, left, right, link.span)
            else:
                value = binary(self.context, link.operator, left, right, link.span)
            left = Argument(value, chain.span.to(link.operand.span))
        return left.value

    def _subscript(self, subscript: ast.Subscript, scope: Scope) -> Object:
        owner = self.evaluate(subscript.value, scope)
        index = subscript.index
        # `x[1, 2]` has two indices, `x[[1, 2]]` one, which is a list
        several = isinstance(index, ast.Sequence) and index.bracket == "(" and bool(index.items)
        written = index.items if isinstance(index, ast.Sequence) and several else (index,)
        parts = [self._part(part, scope) for part in written]
        if isinstance(owner, Poison) or any(isinstance(part.position, Poison) for part in parts):
            return POISON
        if isinstance(owner, Items):
            return self._item(owner, parts, index.span)
        if isinstance(owner, Operation) and owner.table:
            return self._of_table(owner, parts, subscript)
        value = to_value(self.context, owner, subscript.value.span)
        if value is None or not enough_axes(self.context, value, parts):
            return POISON
        if value.op is Op.MODEL and isinstance(parts[0].position, Operation | Items):
            return self._rows(value, parts, subscript.span)
        if value.op is Op.MODEL and parts[0].position is not None:
            row = self._fixed_row(value, parts[0])
            if row is None:
                return POISON
            # GATHER needs the number now; a row that depends on a dim is selected like an element
            if row.extent is None:
                rest = without_axis(value.shape, 0)
                value = self.context.program.add(Op.GATHER, (value, row), rest, subscript.span)
                parts = parts[1:]
        return select(self.context, value, parts, subscript.span)

    def _of_table(self, table: Operation, parts: Sequence[Part], subscript: ast.Subscript) -> Object:
        """A row of a table, or of a vector of numbers a list of rows."""
        if not enough_axes(self.context, table, parts):
            return POISON
        position = parts[0].position
        if position is None:
            report_whole(self.context, table, parts[0].span)
            return POISON
        if isinstance(position, Operation | Items):
            return self._rows(table, parts, subscript.span)
        number = self._fixed_row(table, parts[0])
        if number is None:
            return POISON
        if number.extent is not None:
            return self._no_row(parts[0])
        row = self.context.program.add(Op.GATHER, (table, number), without_axis(table.shape, 0), subscript.span)
        return select(self.context, row, parts[1:], subscript.span)

    def _part(self, index: ast.Expression, scope: Scope) -> Part:
        if not isinstance(index, ast.Slice):
            return Part(index.span, position=self.evaluate(index, scope))
        ends = [None if end is None else self.evaluate(end, scope) for end in (index.start, index.stop)]
        return Part(index.span, start=ends[0], stop=ends[1])

    def _item(self, items: Items, parts: Sequence[Part], span: Span) -> Object:
        """Return an item of a list."""
        last = len(items.items) - 1
        # a slice, or several indices, are reported as what they are not: a whole number
        thing = parts[0].position if len(parts) == 1 and parts[0].position is not None else Nothing()
        position = to_whole(self.context, thing, span, what="the position", at_least=-last - 1, at_most=last)
        return POISON if position is None else items.items[position]

    def _rows(self, model: Operation, parts: Sequence[Part], span: Span) -> Object:
        """The row of a model that a number of the tuple chooses; of a vector of numbers a list, a row for each."""
        index = parts[0].position
        listed = index.items if isinstance(index, Items) else (index,)
        if any(isinstance(one, Poison) for one in listed):
            return POISON
        found = [one for one in listed if isinstance(one, Operation) and one.per_tuple and not one.merged]
        of_vector = isinstance(index, Operation) and len(index.shape) == 1
        if len(found) < len(listed) or (not of_vector and any(one.shape for one in found)):
            return self._no_row(parts[0])
        numbers = elements(self.context, found[0], parts[0].span) if of_vector else found
        if numbers is None:
            return POISON
        rest, rows = without_axis(model.shape, 0), list[Object]()
        for number in numbers:
            row = self.context.program.add(Op.GATHER, (model, number), rest, span)
            rows.append(select(self.context, row, parts[1:], span))
        return Items(tuple(rows), rows=True) if of_vector or isinstance(index, Items) else rows[0]

    def _fixed_row(self, model: Operation, part: Part) -> Operation | None:
        """Return the number of a row that is known when the rule is compiled."""
        index, rows = part.position, model.shape[0]
        if isinstance(index, Constant) and isinstance(index.number, int):
            # how many rows a dim stands for is unknown; `Graph.bind` checks fixed rows
            first, last = (-rows, rows - 1) if isinstance(rows, int) else (-MAX_EXTENT, MAX_EXTENT)
            hint = "rows are counted from 0"
            number = to_whole(self.context, index, part.span, what="the row", at_least=first, at_most=last, hint=hint)
            if number is None:
                return None
            place = number if number >= 0 else dims.add(rows, number)
            if not fits_binary32(self.context, place, part.span):
                return None
            return self.context.program.constant(place, part.span)
        if isinstance(index, Constant) and isinstance(index.number, DimExpr):
            return self.context.program.constant(index.number, part.span)
        self._no_row(part)
        return None

    def _no_row(self, part: Part) -> Poison:
        index = part.position
        several = isinstance(index, Operation) and index.merged
        return self.context.report(
            "E314",
            "the row of a model is chosen by a number of the tuple",
            part.span,
            expected="an input, a value computed from the tuple's inputs, a vector of such numbers, "
            "or a whole number that is known when the rule is compiled",
            found="nothing" if index is None else describe(index),
            help="a value of the whole batch chooses no rows" if several else "rows are counted from 0",
        )

    # calls

    def _call(self, call: ast.Call, scope: Scope) -> Object:
        function = self.evaluate(call.function, scope)
        # before the arguments: what a condition records is no part of the rule
        if function == Builtin("require"):
            with self.context.aside():
                return self._required(call, scope)
        arguments = self._arguments(call, scope)
        match function:
            case Poison():
                return POISON
            case Builtin(name="range"):
                return self._range(arguments, call.span)
            case Builtin(name=name) if name in DECLARATIONS or name in FUNCTIONS:
                signature = DECLARATIONS.get(name) or FUNCTIONS[name]
                bound = bind(self.context, signature, arguments, call.span)
                if bound is None:
                    return POISON
                if name in NAMESAKES:
                    self._warn_of_axis(name, bound, call)
                return builtins.call(self.context, name, bound, call.span)
            case Method(algorithm=owner, name=name):
                bound = bind(self.context, METHODS[name], arguments, call.span)
                if bound is None:
                    owner.complete = False
                    return POISON
                if name == "minimize":
                    return minimizing.minimize(self.context, owner, bound, self._call_function, call.span)
                return algorithm.call(self.context, owner, name, bound, call.span)
            case RuleFunction():
                return self._call_function(function, arguments, call.span)
        return self.context.report(
            "E315",
            "this cannot be called",
            call.function.span,
            expected="a function",
            found=describe(function),
            help="put an operator such as * before the parenthesis to multiply"
            if isinstance(function, Operation | Constant)
            else "write it without parentheses"
            if isinstance(function, Given | AllTuples)
            else "",
        )

    def _arguments(self, call: ast.Call, scope: Scope) -> list[Argument]:
        arguments = [Argument(self.evaluate(argument, scope), argument.span) for argument in call.arguments]
        for keyword in call.keywords:
            value = self.evaluate(keyword.value, scope)
            arguments.append(Argument(value, keyword.value.span, keyword.name, keyword.span))
        return arguments

    def _required(self, call: ast.Call, scope: Scope) -> Object:
        bound = bind(self.context, FUNCTIONS["require"], self._arguments(call, scope), call.span)
        if bound is None:
            return POISON
        written = (*call.arguments, *(keyword.value for keyword in call.keywords))[0]
        require(self.context, bound["condition"], written, scope, call.span)
        return Nothing()

    def _warn_of_axis(self, name: str, bound: dict[str, Argument], call: ast.Call) -> None:
        """Warn of `dana.max(w, 1)`, which looks like the largest along axis 1."""
        value = bound["left"].value
        literal = call.arguments[1] if len(call.arguments) > 1 else None
        if not (isinstance(literal, ast.Number) and isinstance(literal.value, int) and isinstance(value, Operation)):
            return
        if 1 <= literal.value <= len(value.shape):
            self.context.warn(
                "W712",
                f"dana.{name} compares each element with {literal.value}",
                call.span,
                label=f"shape {shape_text(value.shape)}, as before",
                help=f"dana.a{name}(value, {literal.value}) looks along axis {literal.value}; "
                f"write dana.{name}({literal.value}, value) if the elements are meant",
            )

    def _default_for(self, length: Object) -> str:
        """Help for a loop over a dim without a default."""
        number = length.number if isinstance(length, Constant) else None
        if not isinstance(number, DimExpr):
            return ""
        name = next((one for one in number.names if one not in self.context.extents), number.names[0])
        return f"a loop counts a dim that has a default: {name} = dana.dim(4); or write a number"

    def _range(self, arguments: list[Argument], span: Span) -> Object:
        bound = bind(self.context, RANGE, arguments, span)
        if bound is None:
            return POISON
        # leaves by `Unroll`, before a dim is reported as no whole number
        for argument in bound.values():
            if isinstance(argument.value, Constant) and isinstance(argument.value.number, DimExpr):
                self.context.unroll(argument.value.number)
        words = {name: "length" if len(bound) == 1 else name for name in RANGE.parameters}
        numbers = [
            to_whole(
                self.context,
                bound[name].value,
                bound[name].span,
                what=f"the {words[name]} of range",
                of_dim=self._default_for(bound[name].value),
            )
            for name in RANGE.parameters
            if name in bound
        ]
        whole = [number for number in numbers if number is not None]
        if len(whole) < len(numbers):
            return POISON
        if len(whole) == 3 and whole[2] == 0:
            return self.context.report(
                "E302",
                "the step of range does not fit",
                bound["step"].span,
                expected="a whole number other than 0",
                found="the number 0",
            )
        steps = range(*whole)
        # before a tuple of so many constants is made
        if len(steps) > MAX_STEPS:
            return self.context.report(
                "E605",
                "the loop is too long to unroll",
                span,
                label=f"{len(steps):,} rounds",
                expected=f"at most {MAX_STEPS:,} rounds",
                help="work on whole vectors and matrices instead of looping over elements",
            )
        self.context.step(span, len(steps))
        return Items(tuple(Constant(number) for number in steps))

    def _call_function(self, function: RuleFunction, arguments: list[Argument], span: Span) -> Object:
        node = function.node
        # even if the arguments are wrong: the body need not be run on poison then
        self.called.add(node)
        names = tuple(parameter.name for parameter in node.parameters)
        signature = Signature(
            name=node.name,
            required=tuple(name for name in names if name not in function.defaults),
            optional=tuple(name for name in names if name in function.defaults),
        )
        bound = bind(self.context, signature, arguments, span)
        if bound is None:
            return POISON
        # before the depth, so that recursion is reported as such
        if any(call.module == function.scope.module and call.name == node.name for call in self.context.calls):
            return self.context.report(
                "E608",
                f"{node.name} calls itself",
                span,
                label="while it is being called",
                help="functions are unrolled when the rule is compiled; write a loop: for i in range(k):",
            )
        if len(self.context.calls) >= MAX_CALL_DEPTH:
            return self.context.report(
                "E606",
                f"calls of {node.name} nest too deeply",
                span,
                label="this call",
                expected=f"at most {MAX_CALL_DEPTH} calls inside one another",
                help="write the body of the innermost function in place of its call",
            )
        # below the scope that the function was defined in, not the caller's, as in Python
        scope = Scope(function.scope)
        scope.names.update(function.defaults)
        scope.names.update({name: argument.value for name, argument in bound.items()})
        module = function.scope.module
        # what goes wrong inside a module of ours is shown where the rule calls it
        body = moved(node.body, span) if module in MODULES else node.body
        if module == "dana.optimizers":
            self.context.optimizers[node.name] = None
        self.context.calls.append(Call(span=span, module=module, name=node.name))
        try:
            return self._run_body(body, scope)
        finally:
            self.context.calls.pop()
