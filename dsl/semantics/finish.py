"""Judgement of the rule as a whole, once every statement is elaborated.

In: the filled `Context`. Out: `Checked`, or None with errors reported. Must not: judge single expressions.
"""

from __future__ import annotations

from dataclasses import replace

from dsl.diagnostics import Note
from dsl.hdfg.dims import DimExpr
from dsl.hdfg.graph import FROM_ROW, Op
from dsl.semantics.context import Context
from dsl.semantics.counting import count_rows
from dsl.semantics.objects import Algorithm
from dsl.semantics.phases import in_phase
from dsl.semantics.program import Checked, CheckedUpdate, Operation, reachable
from dsl.semantics.ranges import range_of, range_text
from dsl.source import Span

TEST_LOSS = "the loss of rows left out"
"""The setting that `setLoss` makes where the loss is another one while the rule trains."""


def finish(context: Context) -> Checked | None:
    """Return the rule if nothing is wrong with it."""
    algorithm = context.algorithm
    if algorithm is None:
        # after another error the algo may be what was broken
        if not context.diagnostics.errors:
            context.report(
                "E504",
                "the rule has no algo",
                None,
                expected="a statement such as logistic = dana.algo(w, x, y)",
                help="the name left of = is the rule's name",
            )
        return None
    # in this order: states belong to the rule, counting adds updates, and settling replaces values for all checks below
    algorithm.members += tuple(context.states)
    count_rows(context)
    test_loss = _settle(context, algorithm)
    _check_updates(context, algorithm)
    _check_rows_in_batches(context, algorithm)
    _check_tables(context, algorithm)
    _check_settings(context, algorithm)
    _check_merges(context, algorithm)
    _check_table(context, algorithm)
    if context.diagnostics.errors:
        return None
    checked = Checked(
        name=algorithm.name,
        operations=tuple(context.program.operations),
        names=dict(context.program.names),
        divisors=dict(context.program.divisors),
        needs=tuple(dict.fromkeys(context.program.needs)),
        dims=tuple(context.dims),
        extents=tuple(context.extents.items()),
        counted=tuple(context.counted.items()),
        symbolic=dict(context.symbolic),
        inputs=tuple(member for member in algorithm.members if member.op is not Op.MODEL),
        models=algorithm.models,
        metas=tuple(context.metas),
        updates=(*algorithm.updates, *context.state_updates),
        loss=_setting(algorithm, "setLoss"),
        prediction=_setting(algorithm, "setPrediction"),
        convergence=_setting(algorithm, "setConvergence"),
        test_loss=test_loss,
        epochs=algorithm.epochs[0] if algorithm.epochs else 1,
        batch=algorithm.batch,
        gradients=tuple(context.program.gradients),
        merges=frozenset(context.program.merges),
        requirements=tuple(context.requirements),
        optimizers=tuple(context.optimizers),
    )
    # last, as it takes the checked rule's roots
    return checked if _check_members(context, algorithm, checked) else None


def roots(checked: Checked) -> list[Operation]:
    """Return what the rule computes for its own sake."""
    found = [value for update in checked.updates for value in (update.value, update.index) if value is not None]
    results = (checked.loss, checked.test_loss, checked.prediction, checked.convergence)
    return found + [value for value in results if value is not None]


def _settle(context: Context, algorithm: Algorithm) -> Operation | None:
    """Put values in the place of those that depend on whether the rule trains; return the loss where it does not."""
    program = context.program
    for updates in (algorithm.updates, context.state_updates):
        updates[:] = [
            replace(
                one,
                value=in_phase(program, one.value, training=True),
                index=None if one.index is None else in_phase(program, one.index, training=True),
            )
            for one in updates
        ]
    loss = algorithm.settings.get("setLoss")
    # values are replaced under their keys; another key may be added behind the loop only
    for name, (value, span) in algorithm.settings.items():
        algorithm.settings[name] = in_phase(program, value, training=name != "setPrediction"), span
    if loss is None or not loss[0].on_training:
        return None
    algorithm.settings[TEST_LOSS] = in_phase(program, loss[0], training=False), loss[1]
    return algorithm.settings[TEST_LOSS][0]


def _setting(algorithm: Algorithm, name: str) -> Operation | None:
    found = algorithm.settings.get(name)
    return found[0] if found else None


def _check_updates(context: Context, algorithm: Algorithm) -> None:
    # after an argument with an error, the missing update is its consequence
    if not algorithm.updates and algorithm.complete and not context.diagnostics.errors:
        context.report(
            "E508",
            "the rule updates no model",
            algorithm.span,
            label="no setModel for this algo",
            expected=f"{algorithm.name}.setModel(value)",
            help=f"say how a model follows from the batch, or {algorithm.name}.minimize(dana.optimizers.adam)",
        )
    seen: list[CheckedUpdate] = []
    for update in (*algorithm.updates, *context.state_updates):
        # of a table the rows of a tuple take one value after the other
        clash = None if update.model.table else next((other for other in seen if _clash(other, update)), None)
        if clash is not None:
            context.report(
                "E507",
                f"{update.model.name} is set twice",
                update.span,
                label="again here",
                expected="one new value for each model or row",
                notes=(Note(message="first here", span=clash.span),),
                help="join the two values in one setModel",
            )
        seen.append(update)
        _check_update_value(context, algorithm, update)


def _check_rows_in_batches(context: Context, algorithm: Algorithm) -> None:
    """In a batch of several tuples no machine writes several rows of a model for each, and the last one counts."""
    batch = algorithm.batch
    if batch is None:  # nothing is merged: tuples come one by one, even if `minimize` was given a batch size
        return
    for row, span in algorithm.rows_in_batches if batch.size != 1 or batch.meta is not None else ():
        context.warn(
            "W713",
            f"rows of {row.operands[0].name} are chosen in batches",
            span,
            label="more than one tuple",
            notes=(Note(message="a row that each tuple chooses", span=row.span),),
            help="of the tuples of a batch that choose the same row only the last one counts; of a table, "
            f"{row.operands[0].name} = dana.table(…), all of them do, and batch=1 takes one by one",
        )
    if batch.size == 1:
        return
    chosen: dict[Operation, CheckedUpdate] = {}
    for update in (*algorithm.updates, *context.state_updates):
        # a fixed row is not chosen by tuples; rows of a table take the values of several
        if update.index is None or update.index.op is Op.CONST or update.model.table:
            continue
        first = chosen.setdefault(update.model, update)
        if first is not update:
            context.report(
                "E519",
                f"several rows of {update.model.name} are updated for each tuple of a batch",
                batch.span,
                label="the batch",
                expected="batches of one tuple, or one row of a model for each tuple",
                found="the whole table as a batch" if batch.size is None else f"batches of {batch.size}",
                notes=(Note(message="updated here", span=update.span),),
                help=f"a tuple sees the rows that the ones before wrote if {update.model.name} is a table: "
                f"{update.model.name} = dana.table(…)",
            )
            return


def _check_tables(context: Context, algorithm: Algorithm) -> None:
    """Where tuples see each other's rows a machine takes them one by one, and keeps nothing for the batch's end."""
    batch = algorithm.batch
    updates = (*algorithm.updates, *context.state_updates)
    first = next((update for update in updates if update.at_once), None)
    if batch is None or batch.size == 1 or first is None:
        return
    name = first.model.name
    used = reachable([update.value for update in updates] + [value for value, _ in algorithm.settings.values()])
    again = [one for one in used if one.per_tuple and one.merged]
    again += [value for key, (value, _) in algorithm.settings.items() if key == "setLoss" and value.of_batch]
    other = next((u for u in updates if u.index is not None and u.index.per_tuple and not u.at_once), None)
    if other is not None and other.adds:
        found, span = f"rows of {other.model.name} are added to behind the batch", other.span
        help_text = "write both without a batch, or add to both behind it: addRows(rows, value, 64, …)"
    elif other is not None:
        found, span = f"rows of the model {other.model.name} are chosen by the tuple", other.span
        help_text = f"let it be a table, too: {other.model.name} = dana.table(…)"
    elif again:
        found, span = "a value of the batch is used in its rows", min(again, key=lambda one: one.id).span
        help_text = f"add to {name} behind the batch: addRows(rows, value, 64, …)"
    else:
        return
    seen = "written here, so that the next tuple sees it"
    if first in context.state_updates:
        seen = f"{name} is kept of each row, and changes here, so that the next tuple sees it"
        help_text = "leave the batch out; or take a step that keeps nothing of a row, as dana.optimizers.sgd does"
    context.report(
        "E523",
        f"rows of {name} are written tuple by tuple, and the batch's tuples are needed at its end",
        span,
        label=found,
        expected="batches of one tuple, or nothing that a tuple keeps for the batch's end",
        notes=(Note(message=seen, span=first.span),),
        help=help_text,
    )


def _clash(first: CheckedUpdate, second: CheckedUpdate) -> bool:
    """Whether two updates write the same place for every table.

    Rows that different inputs choose may be the same for some tuple; they apply in the order of the text.
    """
    if first.model is not second.model:
        return False
    # any row is part of the whole model
    if first.index is None or second.index is None:
        return True
    if first.index.op is Op.CONST and second.index.op is Op.CONST:
        return first.index.value == second.index.value
    # one number chooses one row (`Program.elements`); a fixed row may be the one that a tuple chooses
    return first.index is second.index or Op.CONST in (first.index.op, second.index.op)


def _check_update_value(context: Context, algorithm: Algorithm, update: CheckedUpdate) -> None:
    value = update.value
    if update.index is not None and (update.index.per_tuple or update.model.table):
        if value.of_batch and not (update.adds and not update.at_once):
            context.report(
                "E509",
                "a row update takes a value per tuple",
                update.span,
                label=f"the row of {update.model.name} is chosen for each tuple",
                expected="a value per tuple",
                found="one value for the whole batch",
                help='what each tuple adds to its rows is added behind the batch by addRows(rows, value, 64, "mean")'
                if update.model.table
                else "update the row from the tuple's own values, together with the batch's if need be",
            )
    elif value.per_tuple and algorithm.batch is not None:
        _report_unmerged(context, update.span, f"the new value of {update.model.name}", algorithm)


def _check_settings(context: Context, algorithm: Algorithm) -> None:
    value, span = algorithm.settings.get("setPrediction", (None, algorithm.span))
    if value is not None and any(operation.op is Op.ROW for operation in reachable([value])):
        context.report(
            "E517",
            "a prediction cannot draw random numbers",
            span,
            label="depends on dana.random",
            expected="a value of models, inputs and metas",
            help="write dana.where(dana.training, random, other) for what is random while the rule trains alone",
        )
    # both are judged where the rule does not train, where a gradient is a TRAINING leaf
    for name in (TEST_LOSS, "setPrediction"):
        value, span = algorithm.settings.get(name, (None, algorithm.span))
        if value is not None and any(operation.op is Op.TRAINING for operation in reachable([value])):
            context.report(
                "E516",
                f"{name} needs a gradient that only a training has",
                span,
                label="a gradient of what depends on dana.training",
                expected="a value that is there where dana.training is 0",
                help="take the gradient of a value that is the same in trainings and predictions",
            )
    if "setPrediction" in algorithm.settings:
        value, span = algorithm.settings["setPrediction"]
        if value.merged:
            # the earliest in the text: a set has no order, and messages must not depend on it
            merge = min((one for one in reachable([value]) if one.op is Op.MERGE), key=lambda one: one.id)
            context.report(
                "E510",
                "a prediction cannot use a value of a batch",
                span,
                label="depends on a merge",
                expected="a value of models, inputs and metas",
                notes=(Note(message="merged here", span=merge.span),),
                help="a row that is predicted belongs to no batch; keep what batches gave in a dana.state, and write "
                "dana.where(dana.training, of_batch, kept)",
            )
        if value.on_output:
            outputs = sorted({str(v.name) for v in reachable([value]) if v.op in (Op.OUTPUT, Op.WEIGHT)})
            context.report(
                "E511",
                "a prediction cannot use the output or the weight",
                span,
                label=f"depends on {', '.join(outputs)}",
                expected="a value of models, inputs and metas",
                help="outputs and weights are unknown when predicting; pass the value before it is compared with them, "
                "or dana.where(dana.training, value, other)",
            )
        classes = algorithm.classes
        # where the number of classes is a dim, it may be 2 on some table
        if value.shape == () and (classes == 2 or isinstance(classes, DimExpr)):
            _check_score(context, value, span)
    if "setConvergence" in algorithm.settings and algorithm.batch is not None:
        value, span = algorithm.settings["setConvergence"]
        if value.per_tuple:
            _report_unmerged(context, span, "the convergence test", algorithm)


def _check_score(context: Context, value: Operation, span: Span) -> None:
    """One number for two classes is a probability where a sigmoid gives it, else a score: below 0 for the first."""
    low, high = range_of(value)
    if value.op is not Op.SIGMOID and low >= 0:
        context.report(
            "E518",
            "the prediction says the second class of every row",
            span,
            label="never below 0",
            expected="a probability of the second class, from dana.sigmoid, or a score, below 0 for the first class",
            found=range_text(low, high),
            help="pass the score as it is, without argmax, comparison or rounding, or dana.sigmoid(score); where there "
            "are more than two classes, a vector with a number for each: setPrediction(scores)",
        )


def _check_table(context: Context, algorithm: Algorithm) -> None:
    """Report a whole-table batch with merged values used in its rows: no machine can hold the rows for a second use."""
    if algorithm.batch is None or algorithm.batch.size is not None:
        return
    used = [update.value for update in (*algorithm.updates, *context.state_updates)]
    used += [value for value, _ in algorithm.settings.values()]
    # what merges gave is there at the table's end, when its rows are gone
    again = [one for one in reachable(used) if one.per_tuple and one.merged]
    again += [value for name, (value, _) in algorithm.settings.items() if name == "setLoss" and value.of_batch]
    later = next((update for update in (*algorithm.updates, *context.state_updates) if _needs_batch(update)), None)
    if later is not None:
        context.report(
            "E503",
            f"rows of {later.model.name} wait for the end of the table",
            later.span,
            label="a row for each of the table's",
            expected="batches of a number of rows",
            notes=(Note(message="the table is one batch", span=algorithm.batch.span),),
            help="a machine holds the rows of one batch: write a number such as 64",
        )
    elif again:
        context.report(
            "E503",
            "a value of the whole table is used in its rows",
            min(again, key=lambda one: one.id).span,
            label="needs all rows of the batch once more",
            expected="batches of a number of rows",
            notes=(Note(message="the table is one batch", span=algorithm.batch.span),),
            help="a machine holds the rows of one batch: write a number such as 64; what columns have for a mean and a "
            "deviation is known before: dana.functions.standardized(x)",
        )


def _needs_batch(update: CheckedUpdate) -> bool:
    """Whether each tuple has a row that is written at its batch's end."""
    by_tuple = update.index is not None and (update.index.per_tuple or update.model.table)
    return by_tuple and not update.at_once


def _check_merges(context: Context, algorithm: Algorithm) -> None:
    """Report a rule that has a batch size but uses no merged value: something was probably forgotten."""
    if algorithm.batch is None or context.diagnostics.errors:
        return
    used = [update.value for update in (*algorithm.updates, *context.state_updates)]
    used += [value for value, _ in algorithm.settings.values()]
    later = any(update.adds and not update.at_once for update in algorithm.updates)
    if not later and not any(operation.op is Op.MERGE for operation in reachable(used)):
        context.report(
            "E514",
            "nothing uses the merged value",
            algorithm.batch.span,
            label="merged here",
            expected="a setModel or setConvergence that depends on it",
            help=f"use it in {algorithm.name}.setModel, or remove the merge",
        )


def _report_unmerged(context: Context, span: Span, what: str, algorithm: Algorithm) -> None:
    assert algorithm.batch is not None
    context.report(
        "E512",
        f"{what} must be one value per batch",
        span,
        label="depends on a single tuple",
        expected="a value of merged values, models and metas",
        notes=(Note(message="the rule works in batches since this merge", span=algorithm.batch.span),),
        help=f'merge it: {algorithm.name}.merge(value, batch, "+")',
    )


def _check_members(context: Context, algorithm: Algorithm, checked: Checked) -> bool:
    fine = True
    read = reachable(roots(checked))
    # a column that only a start reads is filled from the table, too
    starts = {model.init.of for model in checked.models}
    for operation in sorted((o for o in checked.operations if o in read or o.name in starts), key=lambda o: o.id):
        if (operation.op in FROM_ROW or operation.op is Op.MODEL) and operation not in algorithm.members:
            context.report(
                "E513",
                f"{operation.name} is used but not listed in the algo",
                operation.span,
                label="declared here",
                expected=f"{operation.name} among the arguments of dana.algo",
                notes=(Note(message="the algo", span=algorithm.span),),
                help=f"add {operation.name} to the list",
            )
            fine = False
    return fine
