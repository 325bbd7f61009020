"""`dana.gradient` and `algo.minimize`: derivatives as a rule asks for them.

In: bound arguments. Out: values, or models updated. Must not: differentiate itself; `gradient` does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

from dsl.diagnostics import Note
from dsl.hdfg.dims import shape_text
from dsl.hdfg.graph import Op
from dsl.semantics import batches, updates
from dsl.semantics.arguments import Argument
from dsl.semantics.axes import summed
from dsl.semantics.coercion import to_value
from dsl.semantics.context import Context
from dsl.semantics.gradient import Algebra, Batching, NoDerivative, Polynomial, filled, followed, gradients
from dsl.semantics.objects import POISON, Algorithm, Items, Nothing, Object, Poison, RuleFunction, describe
from dsl.semantics.phases import in_phase
from dsl.semantics.program import Batch, Operation, Taken
from dsl.source import Span

Call = Callable[[RuleFunction, list[Argument], Span], Object]

BATCH = 64
"""Default batch size of `minimize`, in tuples."""

PARTS = "parts"
"""First parameter of an optimizer that updates all models at once."""


def gradient(context: Context, value: Argument, by: Argument, span: Span) -> Object:
    """The derivatives of a scalar by a value, or by each of a list; each has the shape of what it is taken by."""
    asked = to_value(context, value.value, value.span)
    operation = _training(context, asked)
    listed = by.value.placed(by.span) if isinstance(by.value, Items) else [(by.value, by.span)]
    wanted = [_training(context, to_value(context, one, place)) for one, place in listed]
    found = [one for one in wanted if one is not None]
    if asked is None or operation is None or len(found) < len(wanted) or not _is_scalar(context, operation, value.span):
        return POISON
    batching = _batching(context, span)
    algebra = batching.algebra
    derived = _derive(context, batching, operation, found, span)
    if derived is None:
        return POISON
    results = [filled(algebra, algebra.compute(one), target.shape) for one, target in zip(derived, found, strict=True)]
    context.program.gradients.append(Taken(value=operation, wanted=tuple(found), results=tuple(results), span=span))
    # each is 1 / N of what N tuples ask together, so that a merge by "+" multiplies it by N (`algorithm`)
    if not operation.of_batch:
        context.program.parts.update(one.id for one in results if one.of_batch)
    # elsewhere the gradient does not exist; `finish` reports predictions and losses that need it
    if asked.on_training:
        results = [context.program.while_training(one, span) for one in results]
    return Items(tuple(results)) if isinstance(by.value, Items) else results[0]


def minimize(
    context: Context,
    algorithm: Algorithm,
    bound: dict[str, Argument],
    call: Call,
    span: Span,
) -> Object:
    """Update each model that the loss depends on by an optimizer, with the mean gradient of a batch.

    Options are handed on to the optimizer. A row that each tuple chooses is updated tuple by tuple. An optimizer of all
    models (`_of_all`) gives a number, which is the result.
    """
    optimizer = bound["optimizer"]
    options = [argument for name, argument in bound.items() if name.startswith("**")]
    if isinstance(optimizer.value, Poison) or any(isinstance(one.value, Poison) for one in options):
        algorithm.complete = False
        return POISON
    if not isinstance(optimizer.value, RuleFunction):
        context.report(
            "E522",
            "minimize takes an optimizer",
            optimizer.span,
            expected="a function of a model and its gradient, such as dana.optimizers.adam",
            found=describe(optimizer.value),
            help="name the function without calling it; its other arguments go to minimize: rate=lr",
        )
        algorithm.complete = False
        return POISON
    of_loss = _loss(context, algorithm, bound.get("loss"), span)
    if of_loss is None:
        algorithm.complete = False
        return POISON
    loss, place = of_loss
    if optimizer.value.node.parameters[:1] and optimizer.value.node.parameters[0].name == PARTS:
        result = _of_all(context, algorithm, bound, of_loss, call, span)
        algorithm.complete = algorithm.complete and not isinstance(result, Poison)
        return result
    batching = _batching(context, span)
    algebra = batching.algebra
    # what such a step adds is in proportion to the gradient, so that a batch's steps can be added up row by row
    plain = optimizer.value.scope.module == "dana.optimizers" and optimizer.value.node.name == "sgd"
    wanted = _models(context, algorithm, bound.get("models"), loss, place)
    lists = _lists(algebra, loss, wanted or []) if plain else {}
    targets = list(dict.fromkeys(lists.get(target, target) for target in wanted or []))
    derived = None if wanted is None else _derive(context, batching, loss, targets, span, of_each=True)
    # after the derivatives, so that the errors of both are reported
    batch = _batch(context, algorithm, bound.get("batch"), wanted or [], span)
    if wanted is None or derived is None or batch is None:
        algorithm.complete = False
        return POISON
    alone = batch.size == 1 and batch.meta is None
    tables = [target for target in wanted if _of_table(target)]
    # where only rows of models are minimized nothing is merged, and the rule has no batch
    if not alone and (_several_rows(wanted) or tables or not all(target.row_per_tuple for target in wanted)):
        batches.keep_batch(context, algorithm, batch)
    if tables and not alone and not plain:
        context.report(
            "E524",
            "rows of tables are minimized in batches by sgd",
            batch.span,
            label="more than one tuple",
            expected="dana.optimizers.sgd, or batch=1",
            found=f"the function {optimizer.value.node.name}",
            notes=(Note(message=f"a row of the table {tables[0].operands[0].name}", span=tables[0].span),),
            help="what an optimizer keeps of a row steps for each tuple that chooses it: write batch=1; or minimize "
            "the tables by sgd and the other models in a call of their own, models=[…]",
        )
        algorithm.complete = False
        return POISON
    results: list[Operation] = []
    states: dict[Operation, list[Operation]] = {}
    for target, polynomial in zip(targets, derived, strict=True):
        if target in lists.values() or (_of_table(target) and plain):
            # a row that is chosen twice takes both steps
            value = algebra.compute(polynomial)
        elif target.row_per_tuple:
            value = algebra.compute(_of_row(algebra, target, targets, derived))
        elif alone and algorithm.batch is None:
            value = algebra.compute(polynomial)
        else:
            # a merge, for which the rule must have a batch (`keep_batch` above)
            value = _mean(context, algorithm, batching, polynomial, span)
        value = filled(algebra, value, target.shape)
        results.append(value)
        arguments = [Argument(target, span), Argument(value, span), *options]
        known = len(context.states)
        # a row of a table has one state, whichever number chooses it
        context.states_of_rows = list(states.get(target.operands[0], ())) if _of_table(target) else []
        updated = call(optimizer.value, arguments, span)
        context.states_of_rows = []
        if _of_table(target):
            states.setdefault(target.operands[0], [one for one in context.states[known:] if one.table])
        if isinstance(updated, Poison):
            algorithm.complete = False
            return POISON
        if target in lists.values() or (_of_table(target) and plain):
            # sgd returns model - rate * gradient, and the rows take the step alone: numbers of the tuple first
            assert isinstance(updated, Operation), "sgd gives a value"
            step = algebra.product(polynomial.scaled(-1), algebra.polynomial(updated.operands[1].operands[0]))
            if not alone:
                step = algebra.product(step, algebra.atom(batches.share(context, algorithm, span)))
            listed = Items(context.program.lists[target]) if target in lists.values() else target
            rows, new = Argument(listed, span), Argument(filled(algebra, algebra.compute(step), target.shape), span)
            updates.add_to_rows(context, algorithm, rows, new, span, batch=None if alone else batch)
            continue
        updates.set_model(context, algorithm, target, Argument(updated, span), span)
    context.program.gradients.append(Taken(value=loss, wanted=tuple(targets), results=tuple(results), span=span))
    return Nothing()


def _loss(context: Context, algorithm: Algorithm, given: Argument | None, span: Span) -> tuple[Operation, Span] | None:
    """Return the value to minimize, as it is while the rule trains, and its place; None after a report."""
    if given is not None:
        value = _training(context, to_value(context, given.value, given.span))
        return (value, given.span) if value is not None and _is_scalar(context, value, given.span) else None
    if "setLoss" in algorithm.settings:
        loss, place = algorithm.settings["setLoss"]
        return in_phase(context.program, loss, training=True), place
    if algorithm.complete:
        context.report(
            "E522",
            "minimize needs the loss",
            span,
            label="nothing to minimize yet",
            expected=f"{algorithm.name}.setLoss(loss) above",
            help="say the loss of a tuple first",
        )
    return None


def _of_all(
    context: Context,
    algorithm: Algorithm,
    bound: dict[str, Argument],
    of_loss: tuple[Operation, Span],
    call: Call,
    span: Span,
) -> Object:
    """Update all models at once by an optimizer that sees the curvature of the loss.

    It receives a list with a part for each model: the model, its mean gradient, its direction, which is a state, and
    the derivative of the mean gradient along the directions of all models. It returns the list of the models' new
    values, and a number, which is the result.
    """
    (loss, place), optimizer = of_loss, bound["optimizer"]
    options = [argument for name, argument in bound.items() if name.startswith("**")]
    wanted = _models(context, algorithm, bound.get("models"), loss, place)
    batch = batches.batch_of(context, bound["batch"]) if "batch" in bound else algorithm.batch
    batch = batch or Batch(size=None, span=span)
    assert isinstance(optimizer.value, RuleFunction)
    name = optimizer.value.node.name
    if wanted is None:
        return POISON
    if batch.size is not None:
        # its state is one direction for the loss of all rows, which batches would change under it
        return context.report(
            "E525",
            f"{name} takes the whole table as one batch",
            batch.span,
            label="another batch size",
            expected="batch=dana.all",
            found=f"batches of {batch.name or batch.size}",
            help="its steps are exact for the rows of one batch and too long for others; dana.optimizers.adam and "
            "dana.optimizers.nesterov take batches of any size",
        )
    wanted = [one.operands[0] if one.op is Op.GATHER and not one.row_per_tuple else one for one in wanted]
    wanted = list(dict.fromkeys(wanted))  # a fixed row belongs to its model
    row = next((target for target in wanted if target.row_per_tuple), None)
    if row is not None:
        return context.report(
            "E525",
            f"{name} updates whole models",
            row.span,
            label=f"a row of {row.operands[0].name} that each tuple chooses",
            expected="models that each tuple reads as a whole",
            help="minimize these rows by dana.optimizers.sgd",
        )
    batches.keep_batch(context, algorithm, batch)
    batching = _batching(context, span)
    algebra, program = batching.algebra, context.program
    derived = _derive(context, batching, loss, wanted, span, of_each=True)
    if derived is None:
        return POISON
    directions = [
        program.leaf(Op.MODEL, context.state_name(str(target.name), "direction"), target.shape, span)
        for target in wanted
    ]
    context.states += directions
    slopes = [
        # gradient * direction, summed: its derivative is the Hessian times the direction (Pearlmutter 1994)
        summed(program, algebra.add(Op.MUL, filled(algebra, algebra.compute(slope), direction.shape), direction), span)
        for slope, direction in zip(derived, directions, strict=True)
    ]
    along = reduce(partial(algebra.add, Op.ADD), slopes)
    try:
        curved = gradients(batching, along, wanted, of_each=True)
    except NoDerivative as error:
        return context.report(
            "E521",
            "the loss has no curvature",
            place,
            label=f"its gradient by {error.at.name} does not change with {error.at.name}"
            if error.at in wanted
            else "the derivative of its gradient is 0 or does not exist",
            expected=f"a loss with a gradient that changes smoothly, for {name}",
            help="of absolute values, comparisons and linear functions the second derivative is 0: minimize them by "
            "dana.optimizers.adam, in batches",
        )
    parts, results = [], []
    for target, direction, *polynomials in zip(wanted, directions, derived, curved, strict=True):
        means = [_mean(context, algorithm, batching, one, span) for one in polynomials]
        gradient, product = (filled(algebra, one, target.shape) for one in means)
        results.append(gradient)
        parts.append(Items((target, gradient, direction, product)))
    program.gradients.append(Taken(value=loss, wanted=tuple(wanted), results=tuple(results), span=span))
    found = call(optimizer.value, [Argument(Items(tuple(parts)), span), *options], span)
    if isinstance(found, Poison):
        return POISON
    values, result = found.items if isinstance(found, Items) and len(found.items) == 2 else (None, None)
    if isinstance(values, Poison):
        return POISON
    if not isinstance(values, Items) or len(values.items) != len(wanted) or result is None:
        return context.report(
            "E522",
            f"{name} does not return the models",
            optimizer.span,
            expected="a list with a new value for each part, and a number",
            found=describe(found),
        )
    for target, value in zip(wanted, values.items, strict=True):
        updates.set_model(context, algorithm, target, Argument(value, span), span)
    return result


def _batch(
    context: Context, algorithm: Algorithm, given: Argument | None, wanted: list[Operation], span: Span
) -> Batch | None:
    """The batch that the rule says, or has; else 64, and single tuples where they choose rows."""
    chosen = [target for target in wanted if target.row_per_tuple]
    row = next((target for target in chosen if not _of_table(target)), None)
    if given is not None:
        batch = batches.batch_of(context, given)
    else:
        batch = algorithm.batch or Batch(size=1 if chosen else BATCH, span=span)
    if batch is None or (batch.size == 1 and batch.meta is None):
        return batch
    if row is not None and not _several_rows(wanted):  # which are an error, by `finish`
        algorithm.rows_in_batches.append((row, batch.span))
    return batch


def _lists(algebra: Algebra, loss: Operation, wanted: list[Operation]) -> dict[Operation, Operation]:
    """By row of a table that a loss reads in a list such as `w[c]` and nowhere else: that list.

    Its derivative is one vector, and each row takes an element; taken row by row each would be a sum by masks.
    """
    program, first = algebra.program, algebra.first
    read = followed(program, loss)
    rows = {first(target): target for target in wanted if _of_table(target)}
    readers: dict[Operation, set[Operation]] = {row: set() for row in rows}
    for reader in read:
        for row in readers.keys() & map(first, reader.operands):
            readers[row].add(first(reader))
    found: dict[Operation, Operation] = {}
    for value in sorted(read & program.lists.keys(), key=lambda one: one.id):
        listed = [first(row) for row in program.lists[value]]
        # the list is made of its first item, and one more in each step (`coercion`)
        steps = [value]
        for _ in listed[2:]:
            steps.append(steps[-1].operands[2])
        made = set(map(first, steps))
        if len(set(listed)) == len(listed) and all(row in rows and readers[row] <= made for row in listed):
            found |= {rows[row]: value for row in listed}
    return found


def _of_table(target: Operation) -> bool:
    return target.op is Op.GATHER and target.operands[0].table


def _several_rows(wanted: list[Operation]) -> bool:
    """Whether each tuple chooses several rows of a model."""
    models = [target.operands[0] for target in wanted if target.row_per_tuple and not _of_table(target)]
    return len(set(models)) < len(models)


def _of_row(algebra: Algebra, row: Operation, wanted: list[Operation], derived: list[Polynomial]) -> Polynomial:
    """The derivative by a row that a tuple chooses, with that by each other row of the model which is the same one."""
    total = Polynomial()
    for other, polynomial in zip(wanted, derived, strict=True):
        if other is row:
            total += polynomial
        elif other.row_per_tuple and other.operands[0] is row.operands[0]:
            same = algebra.add(Op.EQ, row.operands[1], other.operands[1])
            total += algebra.product(algebra.atom(same), polynomial)
    return total


def _mean(context: Context, algorithm: Algorithm, batching: Batching, polynomial: Polynomial, span: Span) -> Operation:
    """The mean over a batch; what is the same for all of its tuples stays outside the merge."""
    each, rest = batching.split(polynomial)
    return batching.algebra.compute(
        batching.joined(each, lambda value: batches.mean(context, algorithm, value, span)) + rest
    )


def _batching(context: Context, span: Span) -> Batching:
    def counted() -> Operation:
        assert context.algorithm is not None, "what is merged belongs to an algo"
        return batches.share(context, context.algorithm, span)

    return Batching(Algebra(context.program, span), counted)


def _models(
    context: Context, algorithm: Algorithm, models: Argument | None, loss: Operation, place: Span
) -> list[Operation] | None:
    """The models, or rows of models, that the loss reads and that are updated."""
    read = sorted(followed(context.program, loss), key=lambda one: one.id)
    listed: list[tuple[Object, Span]]
    if models is None:
        # a model that setModel writes is not minimized, else it would be set twice
        done = {update.model for update in algorithm.updates}
        listed = [(model, model.span) for model in algorithm.models if model in read and model not in done]
        if not listed:
            context.report(
                "E522",
                "minimize finds no model",
                place,
                label="depends on no model that is not updated already",
                expected="a loss that depends on a model of the algo",
                help="",
            )
            return None
    else:
        listed = models.value.placed(models.span) if isinstance(models.value, Items) else [(models.value, models.span)]
    targets: list[Operation] = []
    for model, where in listed:
        if isinstance(model, Poison):
            return None
        if not isinstance(model, Operation) or model not in algorithm.models:
            context.report(
                "E522",
                "minimize updates models of the algo",
                where,
                expected=" or ".join(str(one.name) for one in algorithm.models),
                found=describe(model),
            )
            return None
        rows = [one for one in read if one.op is Op.GATHER and one.operands[0] is model]
        # a model that is also read whole needs the gradient of all rows
        whole = [one for one in read if model in one.operands and one.op is not Op.GATHER]
        if rows and not whole:
            # reversed: of rows that one number chooses, the first in the text stays
            different = {one.operands[1]: one for one in reversed(rows)}
            targets += sorted(different.values(), key=lambda one: one.id)
        else:
            targets.append(model)
    return targets


def _derive(
    context: Context,
    batching: Batching,
    value: Operation,
    wanted: list[Operation],
    span: Span,
    *,
    of_each: bool = False,
) -> list[Polynomial] | None:
    try:
        return gradients(batching, value, wanted, of_each=of_each)
    except NoDerivative as error:
        context.report(
            "E521",
            "there is no derivative",
            span,
            label=error.reason,
            expected="a value that changes smoothly with what the gradient is taken by",
            notes=(Note(message="this", span=error.at.span),),
            help=error.help,
        )
        return None


def _training(context: Context, operation: Operation | None) -> Operation | None:
    """A value as it is while the rule trains, which is when gradients are taken."""
    return None if operation is None else in_phase(context.program, operation, training=True)


def _is_scalar(context: Context, operation: Operation, place: Span) -> bool:
    if operation.shape == ():
        return True
    context.report(
        "E520",
        "a gradient is taken of a scalar",
        place,
        label=f"shape {shape_text(operation.shape)}",
        expected="a scalar, such as a loss",
        found=f"shape {shape_text(operation.shape)}",
        help="add its elements: dana.sigma(value, 1)",
    )
    return False
