"""Rules that several tests of the language share, by name; each stands for a feature."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
LIBRARY = [file for file in sorted((CHECKOUT / "dana/rules").glob("*.py")) if file.stem != "__init__"]
PAPER = CHECKOUT / "examples/paper"

HEAD = "import dana\nn = dana.dim()\nx = dana.input([n])\ny = dana.output()\n"

RULES = {
    "plain_sgd": HEAD
    + """w = dana.model([n])
sgd = dana.algo(w, x, y)
e = dana.sigma(w * x) - y
sgd.setModel(w - 0.05 * e * x)
sgd.setLoss(e * e)
sgd.setConvergence(dana.abs(e) < 1e-6)
sgd.setEpochs(3)
""",
    "two_models": HEAD
    + """w = dana.model([n], init=dana.uniform(-0.5, 0.5, seed=3))
b = dana.model(init=0.25)
two = dana.algo(w, b, x, y)
e = dana.sigma(w * x, 1) + b - y
two.setModel(w, w - 0.1 * two.merge(e * x, 5, "+") / 5)
two.setModel(b, b - 0.1 * two.merge(e, 5, "+") / 5)
two.setLoss(dana.abs(e))
""",
    "every_function": HEAD
    + """w = dana.model([n], init=0.5)
f = dana.algo(w, x, y)
s = dana.sigma(w * x, 1)
t = dana.sigmoid(s) + dana.gaussian(s) + dana.sqrt(dana.abs(s)) + dana.log(1 + s * s) + dana.exp(-dana.abs(s))
u = dana.where(s > y, dana.max(s, y), dana.min(-s, y)) / (1 + dana.norm(x, 1))
v = (s >= y) + (s <= y) * (s == y) + (s < y) + dana.pi(1 + x / 8, 1)
g = f.merge((t + u + v) * x, 4, "max") + f.merge(x, 4, "min") * f.merge(1 + x / 16, 4, "*")
f.setModel(w + g / 64)
f.setLoss(t)
""",
    "matrix": """import dana
n, k = 5, 3
W = dana.model([k, n], init=dana.normal(0, 0.1, seed=7))
c = dana.model([k])
x = dana.input([n])
z = dana.input([k, 1])
y = dana.output([k])
m = dana.algo(W, c, x, z, y)
e = dana.sigma(W * x, 2) + c - y
G = m.merge(z * x, dana.all, "+")
m.setModel(W, W * 0.9 - G * 0.01 - dana.sigma(W, 1) * 0.001)
m.setModel(c, c - 0.1 * m.merge(e, dana.all, "+"))
m.setLoss(dana.sigma(e * e, 1))
m.setEpochs(2)
""",
    "cube": """import dana
T = dana.model([2, 3, 4], init=0.1)
x = dana.input([3, 4])
y = dana.output([2])
cube = dana.algo(T, x, y)
p = dana.sigma(dana.sigma(T * x, 3), 2)
g = cube.merge(dana.sigma(T * x, 1) * dana.sigma(p - y, 1), 3, "+")
cube.setModel(T - 0.01 * g)
cube.setLoss(dana.sigma((p - y) * (p - y), 1))
""",
    "rows": """import dana
U = dana.model([6, 3], init=dana.uniform(0, 1, seed=1))
V = dana.model([5, 3], init=dana.uniform(0, 1, seed=2))
i = dana.input()
j = dana.input()
r = dana.output()
lrmf = dana.algo(U, V, i, j, r)
e = dana.sigma(U[i] * V[j], 1) - r
lrmf.setModel(U[i], U[i] - 0.05 * e * V[j])
lrmf.setModel(V[j], V[j] - 0.05 * e * U[i])
lrmf.setLoss(e * e)
lrmf.setPrediction(dana.sigma(U[i] * V[j], 1))
lrmf.setEpochs(2)
""",
    "rows_in_batches": """import dana
U = dana.model([6, 2], init=1)
b = dana.model()
i = dana.input()
r = dana.output()
mixed = dana.algo(U, b, i, r)
e = dana.sigma(U[i], 1) + b - r
mixed.setModel(U[i], U[i] - 0.1 * e)
mixed.setModel(b, b - 0.1 * mixed.merge(e, 4, "+") / 4)
mixed.setLoss(e * e)
""",
    "centres": """import dana
k = 3
C = dana.model([k, 2], init=dana.uniform(-1, 1))
x = dana.input([2])
means = dana.algo(C, x)
d = dana.sigma((C - x) * (C - x), 2)
best = dana.sigma((C[0] - x) * (C[0] - x), 1)
for j in range(1, k):
    best = dana.min(best, dana.sigma((C[j] - x) * (C[j] - x), 1))
for j in range(k):
    mine = dana.sigma((C[j] - x) * (C[j] - x), 1) == best
    count = means.merge(mine, 4, "+")
    means.setModel(C[j], C[j] + means.merge(mine * (x - C[j]), 4, "+") / dana.max(count, 1))
means.setLoss(best)
""",
    "functions": HEAD
    + """w = dana.model([n])
v = dana.model([n])
lr = dana.meta(0.1)
size = dana.meta(4)
momentum = dana.algo(w, v, x, y)

def error(weights, bias=0):
    "Difference of prediction and label."
    return dana.sigma(weights * x, 1) + bias - y

def step(value, gradient: dana.inter, rate=lr) -> dana.inter:
    change = 0.9 * v - \\
        rate * gradient
    return value + change, change

g = momentum.merge(error(w) * x, size, "+") / size
new_w, new_v = step(w, gradient=g)
momentum.setModel(w, new_w)
momentum.setModel(v, new_v)
momentum.setLoss(error(weights=w, bias=0.5) * 2)
momentum.setConvergence(dana.norm(g) < 1e-3)
""",
    "weight_decay_on_both_sides": HEAD
    + """w = dana.model([n], init=1)
decay = dana.algo(w, x, y)
penalty = 0.01 * w * w
g = decay.merge(penalty + x * y, 3, "+")
decay.setModel(w - 0.1 * (g + penalty))
decay.setLoss(dana.sigma(penalty, 1))
decay.setPrediction(dana.sigma(penalty * x, 1))
""",
    "softmax": """import dana
n = dana.dim()
k = 3
W = dana.model([k, n], init=dana.normal(0, 0.1))
x = dana.input([n])
y = dana.output()
softmax = dana.algo(W, x, y)
e = dana.exp(dana.sigma(W * x, 2))
p = e / dana.sigma(e, 1)
hot = dana.arange(k) == y
G = softmax.merge(dana.expand(p - hot, 2) * x, 4, "+")
softmax.setModel(W - 0.1 * G / 4)
softmax.setLoss(-dana.log(dana.sigma(hot * p, 1)))
""",
    "extents": """from dana import *
n = dim()
k = dim()
w = model([n * k + 1])
x = input([n * k + 1])
z = input([k, n])
mean = algo(w, x, z)
s = sigma(sigma(z, 1), 1) / (n * k)
mean.setModel(w - mean.merge(s * x, 3, "+") / n)
""",
}
"""Rule texts by name."""

for path in sorted(PAPER.glob("*.py")):
    RULES[path.stem] = path.read_text(encoding="utf-8")

DIMS = {"extents": {"n": 3, "k": 2}}
"""Extents of the dims of rules that have others than n."""
