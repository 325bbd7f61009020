"""Random rules of the language that every backend covers, as text."""

from __future__ import annotations

import random


def random_rule(rng: random.Random, n: int) -> str:
    """A training rule over a vector of `n` features and a label; never the same text for two seeds."""
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
