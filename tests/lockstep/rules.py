"""Random rules of the language that every executor covers, as text."""

from __future__ import annotations

import random

from dsl.semantics.composed import COMPOSED
from tests.oracles.functions import BOUNDED


def random_rule(rng: random.Random, n: int) -> str:
    """A training rule over a vector of `n` features and a label; never the same text for two seeds."""
    return (matrix_rule if rng.random() < 0.4 else vector_rule)(rng, n)


def vector_rule(rng: random.Random, n: int) -> str:
    """Models of vectors and scalars."""
    lines = ["import dana", ""]
    symbolic = rng.random() < 0.5
    if symbolic:
        lines.append("n = dana.dim()")
    extent = "n" if symbolic else str(n)
    bias = rng.random() < 0.4
    lines += [f"w = dana.model([{extent}])", f"x = dana.input([{extent}])", "y = dana.output()"]
    if bias:
        lines.append("b = dana.model()")
    lines += [f"lr = dana.meta({rng.choice([0.1, 0.05, 0.3])})", f"lam = dana.meta({rng.choice([0.0, 0.01, 0.1])})"]
    models = "w, b" if bias else "w"
    lines += ["", f"rule = dana.algo({models}, x, y)", ""]
    score = "dana.sigma(w * x, 1)" + (" + b" if bias else "")
    score = rng.choice([score, f"({score}) * 0.5", f"dana.sigma(x * w - 0.25 * x, 1){' + b' if bias else ''}"])
    lines.append(f"s = {score}")
    kind = rng.choice(["linear", "logistic", "hinge", "absolute", "huber", "mixed"])
    lines += {
        "linear": ["p = s", "e = p - y"],
        "logistic": ["p = dana.sigmoid(s)", "e = p - y"],
        "hinge": ["p = s", "e = dana.where(y * s < 1, -y, 0)"],
        "absolute": ["p = s", "e = (s > y) - (s < y)"],
        "huber": ["p = s", "e = dana.max(-1, dana.min(1, s - y))"],
        "mixed": ["p = dana.sigmoid(s) * 2 - 1", "e = dana.abs(p - y) * (p - y) + (p >= y) - (p <= y) * (p == p)"],
    }[kind]
    operation = rng.choice(["+", "+", "+", "+", "max", "min", "*"])
    batch: int | None = rng.choice([1, 2, 3, 7, 8, 16, 64, 100, 256, None])
    coefficient = "dana.all" if batch is None else str(batch)
    merged = rng.random() < 0.85
    grad = rng.choice(["e * x", "e * x + lam * w", "x * e"])
    if merged:
        value = grad if operation != "*" else f"1 + 0.001 * ({grad})"
        lines.append(f'g = rule.merge({value}, {coefficient}, "{operation}")')
        if bias:
            lines.append(f'gb = rule.merge(e, {coefficient}, "+")')
        divisor = str(batch) if batch is not None and rng.random() < 0.5 else rng.choice(["64", "10", "3"])
        step = rng.choice([f"lr * g / {divisor}", "lr * g * 0.01", f"lr * (g / {divisor} + lam * w)"])
    else:
        lines.append(f"g = {grad}")
        if bias:
            lines.append("gb = e")
        step = rng.choice(["lr * g", "0.1 * lr * g"])
    if bias:
        lines += [f"rule.setModel(w, w - {step})", "rule.setModel(b, b - lr * gb * 0.05)"]
    else:
        lines.append(f"rule.setModel(w - {step})")
    if rng.random() < 0.8:
        lines.append(f"rule.setLoss({rng.choice(['e * e', 'dana.abs(e)', '(p - y) * (p - y)'])})")
    if rng.random() < 0.5:
        lines.append("rule.setPrediction(p)")
    lines.append(f"rule.setEpochs({rng.choice([1, 2, 3])})")
    if rng.random() < 0.6:
        test = rng.choice(["dana.norm(g, 1) < 0.5", "dana.norm(w, 1) > 2", "dana.sigma(g * g, 1) < lam"])
        lines.append(f"rule.setConvergence({test})")
    return "\n".join(lines) + "\n"


def matrix_rule(rng: random.Random, n: int) -> str:
    """Layers, classes, prototypes: models of two and three axes, outer products, sums along any axis, fixed rows."""
    k, j = rng.choice([1, 2, 3, 5, 9]), rng.choice([1, 2, 4, 10])
    halves = n % 2 == 0 and rng.random() < 0.4
    n = n // 2 if halves else n
    start = "init=dana.uniform(-0.5, 0.5)"
    lines = ["import dana", "", f"W = dana.model([{k}, {n}], {start})", f"v = dana.model([{k}], {start})"]
    lines += [f"V = dana.model([{j}, {k}], {start})", f"C = dana.model([2, {k}, {n}], {start})", "b = dana.model()"]
    lines += [f"x = dana.input([{n}])", "y = dana.output()", "lr = dana.meta(0.05)"]
    if halves:
        lines[-3] = f"pair = dana.input([2, {n}])"
    kind = rng.choice(["softmax", "perceptron", "deep", "prototypes", "cube"])
    models = {"softmax": "W, v", "perceptron": "W, v, b", "deep": "W, V", "prototypes": "W", "cube": "C, v"}[kind]
    lines = [line for line in lines if "model" not in line or line.split(" ")[0] in models.split(", ")]
    lines.append(f"rule = dana.algo({models}, {'pair' if halves else 'x'}, y)")
    lines += ["x = dana.sigma(pair * pair, 1)"] if halves else []
    functions = [*BOUNDED, *COMPOSED]
    act = rng.choice([f"dana.{name}({{}})" for name in functions] + ["dana.max(0, {})", "dana.exp(dana.min({}, 2))"])
    axis = rng.choice([1, 2])
    grads: dict[str, str] = {}
    if kind == "softmax":
        lines += ["s = dana.exp(dana.min(dana.sigma(W * x, 2) + v, 3))", "p = s / dana.sigma(s, 1)"]
        lines += [f"e = p - (dana.arange({k}) == dana.abs(y))", "loss = dana.sigma(e * e, 1)"]
        grads = {"W": "dana.expand(e, 2) * x", "v": "e"}
    elif kind == "perceptron":
        lines += [f"h = {act.format('dana.sigma(W * x, 2)')}", "p = dana.sigma(v * h, 1) + b", "e = dana.min(1, p - y)"]
        grads = {"W": "dana.expand(e * v * h, 2) * x", "v": "e * h", "b": "e"}
        lines.append("loss = e * e")
    elif kind == "deep":
        lines += [f"h = {act.format('dana.sigma(W * x, 2)')}", "o = dana.sigmoid(dana.sigma(V * h, 2))", "e = o - y"]
        lines += ["d = dana.sigma(dana.expand(e, 2) * V, 1) * h", "loss = dana.sigma(e * e, 1)"]
        grads = {"V": "dana.expand(e, 2) * h", "W": "dana.expand(d, 2) * x"}
    elif kind == "prototypes":
        lines += ["far = dana.norm(W - x, 2)", "near = dana.exp(-far)", "share = near / (dana.sigma(near, 1) + 1e-3)"]
        lines += ["e = dana.sigma(share, 1) - y * 0.01", "loss = dana.sigma(far * share, 1)"]
        grads = {"W": "dana.expand(share, 2) * (W - x)"}
    else:
        lines += [f"m = dana.{rng.choice(['sigma', 'pi'])}(C * x, {rng.choice([1, 3])})"]
        lines += [f"e = dana.sigma(dana.sigmoid(m), {axis})", f"f = dana.sigma(C, {rng.choice([1, 2, 3])})"]
        lines.append(f"loss = dana.sigma(dana.sigma(dana.sigma(C * x, {rng.choice([1, 2, 3])}), {axis}), 1) * 0.01")
        lines.append("u = dana.sigmoid(v) - y")
        grads = {"C": "(dana.sigma(dana.sigma(f, 1), 1) - y) * C * x", "v": "dana.sigma(u * v, 1) * v"}
    merged = rng.random() < 0.85
    batch = rng.choice(["1", "3", "8", "16", "50", "dana.all"])
    operation = rng.choice(["+", "+", "+", "max", "min"])
    for name, grad in grads.items():
        lines.append(f'g{name} = rule.merge({grad}, {batch}, "{operation}")' if merged else f"g{name} = {grad}")
        row = rng.randrange(k)
        if name in "Wv" and rng.random() < 0.3:
            lines.append(f"rule.setModel({name}[{row}], {name}[{k - 1}] - lr * dana.sigma(g{name}, 1))")
            continue
        lines.append(f"rule.setModel({name}, {name} - lr * g{name} / {rng.choice(['8', '10'])})")
    if rng.random() < 0.7:
        lines.append("rule.setLoss(loss)")
    lines.append(f"rule.setEpochs({rng.choice([1, 2, 3])})")
    if rng.random() < 0.6:
        name = next(iter(grads))
        axes = 3 if name == "C" else 2
        total = f"g{name} * g{name}"
        for left in range(axes, 0, -1):
            total = f"dana.sigma({total}, {rng.randint(1, left)})"
        lines.append(f"rule.setConvergence({total} < {rng.choice(['0.01', '1'])})")
    return "\n".join(lines) + "\n"


def network_rule(rng: random.Random) -> str:
    """A layer whose update is work enough for threads to share: an optimizer, on rows of an odd number."""
    k, n = rng.choice([7, 9, 11]), rng.choice([17, 31, 54])
    optimizer = rng.choice(["adam", "rmsprop", "adagrad", "momentum", "nesterov"])
    batch = rng.choice(["7", "16", "50", "dana.all"])
    lines = ["import dana", f"from dana.optimizers import clip, l2, {optimizer}"]
    lines += [f"W = dana.model([{k}, {n}], init=dana.normal(0, 0.3))", f"v = dana.model([{k}], init=dana.normal(0, 1))"]
    lines += [f"x = dana.input([{n}])", "y = dana.output()", "rate = dana.meta(0.01)", "rule = dana.algo(W, v, x, y)"]
    lines += ["h = dana.sigmoid(dana.sigma(W * x, 2))", "e = dana.min(1, dana.sigma(v * h, 1) - y)"]
    lines.append(f'g = rule.merge(dana.expand(e * v * h, 2) * x, {batch}, "{rng.choice(["+", "+", "max"])}")')
    factor = f'dana.expand(1 / (1 + rule.merge(h, {batch}, "+")), 2)'
    gradient = rng.choice(["g / 16", "clip(g, 0.5)", "l2(W, g, 0.1)", f"g * {factor}"])
    lines += [f"rule.setModel(W, {optimizer}(W, {gradient}, rate))"]
    lines += [f'rule.setModel(v, v - rate * rule.merge(e * h, {batch}, "+"))', "rule.setLoss(e * e)"]
    lines.append(f"rule.setEpochs({rng.choice([1, 2, 3])})")
    if rng.random() < 0.5:
        lines.append("rule.setConvergence(dana.sigma(dana.norm(g, 2), 1) < 0.5)")
    return "\n".join(lines) + "\n"


def loss_rule(rng: random.Random) -> str:
    """A loss, and an optimizer that makes it small: derivatives by the compiler, means of short batches too."""
    k, n = rng.choice([1, 3, 9]), rng.choice([2, 17, 31])
    batch = rng.choice(["1", "7", "16", "50", "dana.all"])
    optimizer = rng.choice(["adam", "rmsprop", "adagrad", "momentum", "sgd"])
    act = rng.choice(["dana.tanh({})", "dana.max({}, 0)", "dana.abs({})", "dana.gaussian({})"])
    lines = ["import dana", f"W = dana.model([{k}, {n}], init=dana.normal(0, 0.3))"]
    lines += [f"v = dana.model([{k}], init=dana.normal(0, 1))", "b = dana.model()", f"x = dana.input([{n}])"]
    lines += ["y = dana.output()", "rate = dana.meta(0.01)", "rule = dana.algo(W, v, b, x, y)"]
    lines += [f"h = {act.format('dana.sigma(W * x, 2)')}", "s = dana.sigma(v * h, 1) + b", "p = dana.sigmoid(s)"]
    loss = rng.choice(
        ["-(y * dana.log(p) + (1 - y) * dana.log(1 - p))", "(s - y) * (s - y) / 2", "dana.max(0, 1 - y * s)"]
    )
    penalty = rng.choice(["", " + 0.01 * dana.norm(v, 1)", " + 0.1 * dana.amax(h, 1)"])
    lines += [f"rule.setLoss({loss}{penalty})", f"rule.minimize(dana.optimizers.{optimizer}, rate=rate, batch={batch})"]
    return "\n".join([*lines, "rule.setPrediction(p)", f"rule.setEpochs({rng.choice([1, 2, 3])})"]) + "\n"


def phases_rule(rng: random.Random, *, batches: list[int], chosen: int) -> str:
    """A layer whose units are normalised over the batch: values of a batch in its rows, merged once more, and again.

    Batches of up to `chosen` may choose rows of a model, too.
    """
    k, n = rng.choice([1, 2, 5, 9]), rng.choice([1, 3, 8, 17, 31])
    batch = rng.choice(batches)
    rows = rng.choice([0, 4]) if batch <= chosen else 0
    lines = ["import dana", "a, b = dana.model(), dana.model()"]
    lines += [f"W = dana.model([{k}, {n}], init=dana.normal(0, 0.5))"]
    lines += [f"v = dana.model([{k}], init=dana.normal(0, 1))", f"x = dana.input([{n}])", "y = dana.output()"]
    lines += [f"U = dana.model([{rows}, {k}])", "i = dana.input()"] if rows else []
    lines.append(f"rule = dana.algo({'U, i, ' if rows else ''}W, v, a, b, x, y)")
    lines += [f"h = dana.sigma(W * x, 2){' + U[i]' if rows else ''}", f"size = {batch}"]
    centre = rng.choice(['rule.merge(h, size, "mean")', 'rule.merge(h, size, "max")', 'rule.merge(h * y, size, "min")'])
    lines += [f"centred = h - {centre}", 'width = rule.merge(centred * centred, size, "mean")']
    scale = rng.choice(["dana.sqrt(width + 0.01)", "(1 + dana.amax(width, 1))", "(dana.max(width, b) + 1)"])
    lines.append(f"z = {rng.choice(['centred', 'h', 'dana.tanh(centred)'])} / {scale}")
    if rng.random() < 0.5:
        lines.append('z = z * rule.merge(dana.sigma(z, 1) * a + 1, size, "+") / size')
    lines += ["p = dana.sigma(v * z, 1)", f"e = {rng.choice(['p - y', 'dana.sigmoid(p) - y', 'dana.min(1, p - y)'])}"]
    if rng.random() < 0.3:  # a batch's value, made of models and merged values, in elementwise work of other shapes
        lines.append('e = e + 0.1 * dana.sigma(v * rule.merge(z, size, "+"), 1)')
    lines.append('rule.setModel(v, v - 0.1 * rule.merge(e * z, size, "mean"))')
    lines.append('rule.setModel(W, W - 0.1 * rule.merge(dana.expand(e * v, 2) * x, size, "mean"))')
    lines.append('rule.setModel(a, a + 0.1 * rule.merge(e, size, "mean"))')
    lines.append("rule.setModel(b, 0.9 * b + 0.1 * dana.sigma(width, 1))" if rng.random() < 0.7 else "")
    lines.append("rule.setModel(U[i], U[i] - 0.1 * e * z)" if rows else "")
    lines.append(rng.choice(["rule.setLoss(e * e)", "rule.setLoss(e * e + dana.sigma(width, 1))", ""]))
    lines.append(rng.choice(["rule.setLoss(dana.sigma(width, 1))", ""]) if not lines[-1] else "")
    lines.append(f"rule.setEpochs({rng.choice([1, 2, 3])})")
    if rng.random() < 0.5:
        lines.append("rule.setConvergence(dana.sigma(width, 1) < 0.3)")
    return "\n".join(lines) + "\n"


def rows_rule(rng: random.Random, n: int, *, rows: tuple[int, int], batches: list[int]) -> str:
    """Factors of a matrix: rows of models chosen by the columns i and j, read and updated; features x besides."""
    k = rng.choice([1, 2, 3, 8, 10, 17])
    start = "init=dana.uniform(-0.5, 0.5)"
    lines = [
        "import dana",
        "",
        f"U = dana.model([{rows[0]}, {k}], {start})",
        f"V = dana.model([{rows[1]}, {k}], {start})",
    ]
    lines += [f"a = dana.model([{rows[0]}])", f"c = dana.model([{rows[1]}])", f"w = dana.model([{n}])"]
    lines += [
        "i = dana.input()",
        "j = dana.input()",
        f"x = dana.input([{n}])",
        "y = dana.output()",
        "lr = dana.meta(0.05)",
    ]
    lines += ["rule = dana.algo(U, V, a, c, w, i, j, x, y)"]
    score = rng.choice(
        ["dana.sigma(U[i] * V[j], 1)", "dana.sigma((U[i] - V[j]) * (U[i] - V[j]), 1)", "dana.pi(U[i], 1)"]
    )
    lines.append(f"e = {rng.choice(['', 'dana.sigmoid'])}({score} + a[i] + c[j] + dana.sigma(w * x, 1) * 0.1) - y")
    batch = rng.choice(batches)
    updates = [
        "rule.setModel(U[i], U[i] - lr * e * V[j])",
        "rule.setModel(V[j], V[j] - lr * (e * U[i] + 0.1 * V[j]))",
        "rule.setModel(a[i], a[i] - lr * e)",
        "rule.setModel(c[j], e)",
    ]
    if batch == 1:
        updates += ["rule.setModel(U[j], 0.5 * U[i])"] if rows[0] >= rows[1] else []
        updates.append("rule.setModel(w, w - lr * e * x)")
    else:
        value = rng.choice(["e * x", "(e + dana.sigma(a * a, 1)) * x"])
        operation = rng.choice(["+", "max"])
        lines.append(f'g = rule.merge({value}, {batch}, "{operation}")')
        updates.append(f"rule.setModel(w, w - lr * g * {rng.choice(['0.1', 'dana.sigma(c, 1)'])})")
    lines += rng.sample(updates[:-1], rng.randint(0 if batch > 1 else 1, len(updates) - 1)) + updates[-1:]
    lines.append("rule.setLoss(e * e)")
    lines.append(f"rule.setEpochs({rng.choice([1, 2, 3])})")
    return "\n".join(lines) + "\n"


def axes_rule(rng: random.Random, n: int) -> str:
    """A mixture of experts: functions along each axis of values of two and three axes."""
    k = rng.choice([1, 2, 3, 5, 9])
    start = "init=dana.uniform(-2, 2)"
    lines = ["import dana", f"W = dana.model([{k}, {n}], {start})", f"T = dana.model([2, {k}, {n}], {start})"]
    lines += [f"x = dana.input([{n}])", "y = dana.output()", "rule = dana.algo(W, T, x, y)"]
    lines.append(f"share = dana.{rng.choice(['softmax', 'log_softmax'])}(W * x, {rng.choice([1, 2])})")
    for name, source, axes in (("f", "W * x", 2), ("g", "T * share", 3)):
        functions = rng.sample(["amax", "amin", "argmax", "argmin"], 2)
        parts = [f"dana.{function}({source}, {axis})" for function, axis in zip(functions, (1, axes), strict=True)]
        for _ in range(axes - 1):
            parts = [f"dana.sigma({part}, 1)" for part in parts]
        lines.append(f"{name} = {' + '.join(parts)}")
    lines.append(f"near = dana.softmax(T * x, {rng.choice([1, 2, 3])})")
    batch = rng.choice(["1", "3", "8", "dana.all"])
    lines.append(f'rule.setModel(W, W + 0.01 * rule.merge(share * (f - y), {batch}, "{rng.choice(["+", "max"])}"))')
    lines.append(f'rule.setModel(T, T - 0.1 * rule.merge(near * (g - y), {batch}, "+"))')
    lines += ["rule.setLoss(f * f)", f"rule.setEpochs({rng.choice([1, 2])})"]
    return "\n".join(lines) + "\n"


def row_states_rule(rng: random.Random, *, rows: int, batches: list[int]) -> str:
    """Embeddings with an optimiser for each row: states that the row's input chooses, vectors and numbers."""
    k = rng.choice([1, 3, 8, 10])
    optimizers = rng.sample(["adam", "rmsprop", "adagrad", "momentum", "nesterov"], 2)
    start = "init=dana.uniform(-0.5, 0.5)"
    lines = ["import dana", f"from dana.optimizers import {', '.join(optimizers)}"]
    lines += [f"U = dana.model([{rows}, {k}], {start})", f"V = dana.model([{rows}, {k}], {start})", "b = dana.model()"]
    lines += ["i = dana.input()", "j = dana.input()", "y = dana.output()", "rule = dana.algo(U, V, b, i, j, y)"]
    lines.append("e = dana.sigma(U[i] * V[j], 1) + b - y")
    lines.append(f"rule.setModel(U[i], {optimizers[0]}(U[i], e * V[j], 0.05))")
    lines.append(f"rule.setModel(V[j], {optimizers[1]}(V[j], e * U[i], 0.05))")
    batch = rng.choice(batches)
    gradient = "e" if batch == 1 else f'rule.merge(e, {batch}, "+")'
    lines += [f"rule.setModel(b, b - 0.01 * {gradient})", "rule.setLoss(e * e)", "rule.setEpochs(2)"]
    return "\n".join(lines) + "\n"


def side_by_side_rule(rng: random.Random, n: int, *, rows: tuple[int, int]) -> str:
    """Factors and biases of which each tuple updates rows, and nothing else: those that share none may be a batch."""
    k = rng.choice([1, 3, 8, 10, 17])
    start = "init=dana.uniform(-0.5, 0.5)"
    lines = ["import dana", f"U = dana.model([{rows[0]}, {k}], {start})", f"V = dana.model([{rows[1]}, {k}], {start})"]
    lines += [f"a = dana.model([{rows[0]}])", f"w = dana.model([{n}], {start})", "i = dana.input()", "j = dana.input()"]
    lines += [f"x = dana.input([{n}])", "y = dana.output()", "lr = dana.meta(0.05)"]
    weighted = rng.random() < 0.3
    lines += ["v = dana.weight()"] * weighted
    lines += [f"rule = dana.algo(U, V, a, w, i, j, x, y{', v' * weighted})"]
    score = rng.choice(["dana.sigma(U[i] * V[j], 1)", "dana.sigmoid(dana.sigma(U[i] * V[j], 1))"])
    lines.append(f"e = {score} + a[i] + 0.1 * dana.sigma(w * x, 1) - y{' * v' * weighted}")
    same = rows[0] >= rows[1]
    updates = [
        "rule.setModel(U[i], U[i] - lr * e * V[j])",
        "rule.setModel(V[j], V[j] - lr * (e * U[i] + 0.1 * V[j]))",
        "rule.setModel(a[i], a[i] - lr * e)",
        *(["rule.setModel(U[j], 0.5 * U[i])", "rule.setModel(a[j], e)"] if same else []),
    ]
    lines += rng.sample(updates, rng.randint(1, len(updates)))
    lines += ["rule.setLoss(e * e)"] * (rng.random() < 0.7)
    lines.append(f"rule.setEpochs({rng.choice([1, 2, 3])})")
    return "\n".join(lines) + "\n"


def chosen_rule(rng: random.Random, *, rows: int, f: int, batches: list[int]) -> str:
    """Rows of models chosen by each element of a vector, by some of them, and by numbers that the tuple computes."""
    k = rng.choice([1, 3, 8, 10])
    start = "init=dana.uniform(-0.5, 0.5)"
    lines = ["import dana", f"T = dana.model([{rows}, {k}], {start})", f"b = dana.model([{rows}], {start})"]
    lines += [f"C = dana.model([{rows}, 3], {start})", f"c = dana.input([{f}])", "z = dana.input([3])"]
    lines += ["y = dana.output()", "rule = dana.algo(T, b, C, c, z, y)", "s = 0", "p = 0"]
    lines += ["for row in T[c]:", "    s = s + row", "for one in b[c]:", "    p = p + one"]
    batch = rng.choice(batches) if f == 1 else 1
    near = "dana.argmin(dana.sigma((C - z) * (C - z), 2), 1)"
    number = rng.choice(
        ["c[0]", "c[0]", "c[0]", near, f"dana.floor(dana.min(dana.abs(z[1]), {rows - 1}))", f"{rows - 1} - c[{f - 1}]"]
    )
    lines += [f"n = {number}", f"e = p + dana.sigma(s * T[c[{f - 1}]], 1) + 0.1 * C[n, 1] - y"]
    if rng.random() < 0.5:
        lines += ["rule.setLoss(e * e)"]
        lines += [
            f"rule.minimize(dana.optimizers.{rng.choice(['sgd', 'adam'])}, batch={batch}, models=[T, b], rate=0.01)"
        ]
    else:
        lines += ["rule.setModel(T[c[0]], T[c[0]] - 0.01 * e * s)", "rule.setModel(b[n], e)", "rule.setLoss(e * e)"]
    lines += ["rule.setModel(C[n], C[n] + 0.1 * (z - C[n]))"] if rng.random() < 0.8 else []
    return "\n".join([*lines, f"rule.setEpochs({rng.choice([1, 2])})"]) + "\n"


def scalars_rule(rng: random.Random, n: int) -> str:
    """Several scalars of a tuple, each the sigmoid's, merged and not: over lanes where a thread has tuples for them."""
    lines = ["import dana", f"w, b = dana.model([{n}]), dana.model()", "m = dana.model()"]
    lines += [f"x, y = dana.input([{n}]), dana.output()", "rule = dana.algo(w, b, m, x, y)"]
    lines += [f"s = {rng.choice(['dana.sigma(w * x, 1)', 'dana.sigma(w * x * x, 1)', 'dana.amax(w - x, 1)'])} + b"]
    lines += ["p = dana.sigmoid(s)", f"e = {rng.choice(['p - y', 'dana.where(y * s < 1, -y, 0)', 'p * p - x[0]'])}"]
    # one batch a round, and several rounds a batch
    batch, operation = rng.choice(["32", "100", "dana.all", "dana.all"]), rng.choice(["+", "max", "min", "*"])
    lines += [f'rule.setModel(w, w - 0.01 * rule.merge(e * x, {batch}, "+"))']
    lines += [f'rule.setModel(b, b - 0.01 * rule.merge(e, {batch}, "+"))']
    value = rng.choice(["s * p", "e + 1", "(1 - p) * e"])
    lines += [f'rule.setModel(m, rule.merge(dana.min(2, {value}), {batch}, "{operation}"))']
    lines += [f"rule.setLoss({rng.choice(['e * e', '-(y * dana.log(p) + (1 - y) * dana.log(1 - p))', 'dana.abs(s)'])})"]
    return "\n".join([*lines, "rule.setPrediction(p)", f"rule.setEpochs({rng.choice([1, 2])})"]) + "\n"


def elements_rule(rng: random.Random, n: int) -> str:
    """Elements, slices, lists, concatenations, transposes and products of values that a batch and a tuple have."""
    k = rng.choice([2, 3, 5, 9])
    start = "init=dana.uniform(-0.5, 0.5)"
    lines = [
        "import dana",
        "n = dana.dim()",
        f"W = dana.model([{k}, n], {start})",
        f"M = dana.model([{k}, {k}], {start})",
    ]
    lines += [f"v = dana.model([{k}], {start})", "x = dana.input([n])", "y = dana.output()"]
    lines.append("rule = dana.algo(W, M, v, x, y)")
    first, last = rng.randrange(n), rng.randint(-n, -1)
    stop = rng.randint(1, n)
    lines.append(f"h = {rng.choice(['W @ x', 'x @ W.T', 'M @ (W @ x)', 'M.T @ v + W @ x'])}")
    vectors = [
        f"x[:{stop}]",
        f"x[{rng.randrange(stop)}:{stop}]",
        "h[1:]",
        "W[-1]",
        f"W[:, {first}]",
        f"[x[{last}], y, 2]",
    ]
    lines.append(f"c = dana.concat({', '.join(rng.sample(vectors, 2))}, {rng.choice(['y', '-1', 'h'])})")
    lines.append(f"e = dana.sigma(c) * 0.1 + x[{first}] * h[-1] - y")
    matrices = ["[v, h]", "W[0:2]", "(dana.expand(h, 2) * x)[0:2, :]", f"dana.expand([e, y], 2) * W[1, {last}]"]
    lines.append(f"p = {rng.choice(matrices)}")
    batch = rng.choice(["1", "3", "8", "dana.all"])
    merged = f'rule.merge({{}}, {batch}, "{rng.choice(["+", "+", "max"])}")'
    lines.append(f"g = {merged.format('dana.expand(h * e, 2) * x')}")
    turned = rng.choice(["M.T", "M @ M.T", "(g @ g.T) * 0.01", "M.T @ M"])
    lines.append(f"rule.setModel(M, 0.5 * M + 0.1 * {turned} + {merged.format('e')} * 0.01)")
    lines.append(f"rule.setModel(W, W - 0.01 * g * {rng.choice(['g[0, 0]', 'dana.sigma(g[:, 0])', '1'])})")
    lines.append(f"rule.setModel(v, v + 0.01 * dana.sigma({merged.format('p')}, {rng.choice([1, 2])})[0])")
    lines += ["rule.setLoss(e * e)", f"rule.setEpochs({rng.choice([1, 2])})"]
    return "\n".join(lines) + "\n"


def counting_rule(rng: random.Random, n: int) -> str:
    """Random numbers of tuples, and numbers of epochs and batches, wherever a rule may have them."""
    k = rng.choice([1, 3, 9])
    start = "init=dana.uniform(-0.5, 0.5)"
    lines = ["import dana", "n = dana.dim()", f"W = dana.model([{k}, n], {start})", "b = dana.model()"]
    lines += [
        "x = dana.input([n])",
        "y = dana.output()",
        "lr = dana.meta(0.1)",
        f"size = dana.meta({rng.choice([5, 8])})",
    ]
    lines.append("rule = dana.algo(W, b, x, y)")
    lines.append(f"u = dana.random({rng.choice(['x', 'W', '[n]', f'[{k}, n]'])}, seed={rng.randrange(9)})")
    lines.append("kept = dana.where(dana.training, dana.where(u < 0.3, 0, x / 0.7), x)")
    lines.append("s = dana.sigma(W * kept, 2)")
    lines.append("e = dana.sigma(dana.tanh(s)) + b - y")
    batch = rng.choice(["1", "3", "8", "50", "100", "size", "dana.all"])
    merged = f'rule.merge({{}}, {batch}, "{rng.choice(["+", "mean"])}")'
    rate = rng.choice(["lr", "lr / (1 + dana.epoch)", "lr / (1 + dana.epoch + 0.1 * dana.batch)", "lr * 8 / dana.rows"])
    lines.append(f"rule.setModel(W, W - 0.1 * {rate} * {merged.format('dana.expand(s * e, 2) * kept')})")
    drawn = [
        "dana.random()",
        "dana.random() * y",
        "(dana.random() < 0.5) * dana.epoch",
        "dana.batch",
        "dana.random(3)[1]",
    ]
    value = f"{rng.choice(drawn)} + {rng.choice(drawn)}"
    lines.append(f"rule.setModel(b, 0.5 * b + 0.1 * {merged.format(value)})")
    lines += [f"rule.setLoss({rng.choice(['e * e', 'e * e * dana.random()', 'e * e + dana.batch'])})"]
    lines += ["rule.setPrediction(dana.sigma(s))", f"rule.setEpochs({rng.choice([1, 2, 3])})"]
    if rng.random() < 0.4:
        lines.append("rule.setConvergence(dana.epoch + b > 1.2)")
    return "\n".join(lines) + "\n"


def counting_rows_rule(rng: random.Random, *, rows: int, batches: list[int]) -> str:
    """The same, of tuples that choose rows of a model: one thread does their work."""
    k = rng.choice([1, 3, 8, 10])
    lines = ["import dana", f"U = dana.model([{rows}, {k}], init=dana.uniform(-0.5, 0.5))", "b = dana.model()"]
    lines += ["i = dana.input()", "y = dana.output()", "rule = dana.algo(U, b, i, y)", f"u = dana.random({k})"]
    lines.append("e = dana.sigma(U[i] * (u < 0.5), 1) + b + 0.1 * dana.random() - y")
    lines.append(
        f"rule.setModel(U[i], U[i] - 0.1 * e * u + {rng.choice(['0', '0.01 * dana.batch', '0.1 * dana.epoch'])})"
    )
    batch = rng.choice(batches)
    gradient = "e" if batch == 1 else f'rule.merge(e * dana.random(seed=3), {batch}, "+")'
    lines += [f"rule.setModel(b, b - 0.01 * {gradient})", "rule.setLoss(e * e)", "rule.setEpochs(2)"]
    return "\n".join(lines) + "\n"
