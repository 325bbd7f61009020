"""Faults for the training in the worker: protocol, ring of pages, stopping, options, rates and rules."""

from __future__ import annotations

from bench.mutations.fault import faults

RUNTIME = (
    *faults(
        "dana/runtime",
        "tests/runtime/test_metas.py",
        ("metas.py", "not isinstance(value, bool) and", "", "true is 1"),
        ("metas.py", "except OverflowError:", "except ZeroDivisionError:", "whole numbers beyond binary64"),
        (
            "designs.py",
            "if isinstance(value, bool) or not isinstance(value, int | float) or not 1",
            "if not isinstance(value, int | float) or not 1",
            "true is an extent",
        ),
        ("designs.py", "or value % 1:", "or False:", "half an extent"),
        ("weights.py", "if isinstance(weight, bool) or not", "if not", "true is a weight"),
        ("weights.py", "not 0 <= weight <= MAX_WEIGHT", "not 0 <= weight", "infinite weights"),
    ),
    *faults(
        "dana",
        "tests/rules/test_optimizers.py",
        ("optimizers.py", "dana.min(batches + 1, 100)", "(batches + 1)", "the usual curvature is that of all batches"),
        ("optimizers.py", "5 * (curvature - usual))", "0 * (curvature - usual))", "steep batches take the usual step"),
        ("optimizers.py", "return new_total * (1 / new_weight)", "return new_total", "a mean that begins at zero"),
        (
            "optimizers.py",
            "dana.min(1, bound / dana.norm(gradient, 1))",
            "bound / dana.norm(gradient, 1)",
            "short gradients grow",
        ),
        ("optimizers.py", "((model > 0) - (model < 0))", "((model > 0) - (model <= 0))", "a penalty at 0"),
    ),
    *faults(
        "dana/runtime",
        "tests/runtime/test_protocol.py",
        ("protocol.py", "if message != Message.BELL:", "if True:", "bells are messages"),
        ("protocol.py", "if length > MAX_REQUEST:", "if False:", "payloads without a bound"),
        ("protocol.py", "len(data) - len(data) % 4", "4", "one descriptor of two"),
        ("protocol.py", '"Infinity" if value > 0 else "-Infinity"', '"Infinity"', "-inf is inf"),
        ("protocol.py", 'value.replace("\\0", "\\N{REPLACEMENT CHARACTER}")', "value", "NUL characters"),
        ("protocol.py", "except RecursionError:", "except ZeroDivisionError:", "JSON nested too deeply"),
        ("protocol.py", "initial=0)", "initial=1)", "parameters a number late"),
    ),
    *faults(
        "dana/runtime",
        "tests/runtime/test_ring.py",
        ("native/ring.c", "if (head - tail > self->slots)", "if (0)", "indices that lie"),
        ("native/ring.c", "if (n > self->slots - tail % self->slots)", "if (0)", "a batch beyond the ring's end"),
        ("native/ring.c", "tail + n > self->cache_pages", "0", "pages beyond the cache"),
        ("native/ring.c", "return UNEXPECTED;", "return HUNG_UP;", "another message is a hang-up"),
        ("native/ring.c", "if (poll(&peer, 1, 0) > 0)", "if (0)", "a replay for nobody"),
        (
            "native/ring.c",
            "self->fed = __atomic_load_n(&self->ring->tail, __ATOMIC_ACQUIRE);",
            "",
            "failed pages again",
        ),
        (
            "ring.py",
            "if fcntl.fcntl(memfd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:",
            "if False:",
            "memory without seals",
        ),
        (
            "ring.py",
            "fits = self.slots * self.page_size + HEADER_BYTES == size",
            "fits = True",
            "slots beyond the memory",
        ),
    ),
    *faults(
        "dana/runtime",
        "tests/runtime/test_stopping.py -k 'best_model or stands or patience or held_out or books or constant'",
        (
            "stopping.py",
            "loss <= self.best + margin * abs(self.best)",
            "loss <= self.best",
            "a loss near the best is not kept",
        ),
        (
            "stopping.py",
            "settled or self._waited >= self.patience",
            "self._waited >= self.patience",
            "a loss that stands still",
        ),
        ("stopping.py", "(report.test_loss, 0.0)", "(report.loss, 0.0)", "rows held out judge nothing"),
        (
            "stopping.py",
            "training.finish(parameters), reports[epoch - 1]",
            "training.finish(training.parameters()), reports[epoch - 1]",
            "the last model, not the best",
        ),
        ("stopping.py", "not 0 <= value < math.inf", "not 0 <= value", "infinite patience"),
    ),
    *faults(
        "dana/runtime",
        "tests/runtime/test_training.py -k 'classes or prediction_is or hyperparameter or row_stops or damaged'",
        ("classes.py", "classes == 2 != found", "False", "one class for a rule of two"),
        ("classes.py", "and given < found", "and False", "fewer classes than labels"),
        ("classes.py", "nodes[total].inputs == (power,)", "True", "a sum of other powers"),
    ),
    *faults(
        "dana/runtime",
        "tests/runtime/test_trainable.py -k 'not rows_of and not documents'",
        ("inputs.py", "if len({*rows.values()}) > 1:", "if False:", "arrays of unequal length"),
        ("inputs.py", "if values.ndim != rows + len(node.shape):", "if False:", "arrays of other shapes"),
        ("inputs.py", "wrong = np.argwhere(~np.isfinite(numbers))", "wrong: list[int] = []", "a NaN in an array"),
        ("inputs.py", "| (values < 0) |", "|", "classes below 0"),
        ("arrays.py", "warm_start_from=models,", "", "models to start from are left out"),
    ),
    *faults(
        "dana/runtime",
        "tests/runtime/test_explain.py -k 'why or measured'",
        (
            "why.py",
            "GAIN * taken <= cycles.per_tuple:\n            said = (",
            "False:\n            said = (",
            "no larger batch",
        ),
        ("why.py", "max(BATCH, LARGER * bundle.batch)", "BATCH + bundle.batch", "another batch than is said"),
        ("why.py", "{**request.design, **tried}", "{**request.design}", "the same machine is measured"),
    ),
    *faults(
        "dana/codesign",
        "tests/codesign/test_cycles.py -k few_pages",
        ("cycles.py", "long = min(long, max(1, (", "long = max(long, min(1, (", "more rounds than the stack counts"),
    ),
    *faults(
        "dana",
        "tests/cli/test_rules.py -k 'mean_something or files_are_formatted'",
        ("formatting.py", "if _meaning(ran.stdout + modules, filename) != before:", "if False:", "another meaning"),
        ("cli/rules.py", "if made != text:", "if True:", "files that are formatted change"),
    ),
)
