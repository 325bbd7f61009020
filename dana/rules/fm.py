"""Factorisation machine over columns of categories, each numbered from 0 (below 0: unknown); predicts a number."""

import dana
from dana.functions import category

f = dana.dim(2)  # columns
n = dana.dim(1000)  # categories of the column that has most
k = dana.dim(10)  # factors
w = dana.model([f * n])
V = dana.model([f * n, k], init=dana.normal(0, 0.1))
c = dana.input([f], categories=n)
y = dana.output()
weight = dana.weight()
b = dana.model(init=dana.column_mean(y))
lr = dana.meta(0.01)
penalty = dana.meta(0.1)
fm = dana.algo(w, V, b, c, y, weight)

dana.require(penalty >= 0)
p, sums, squares, size = b, 0, 0, 0
for t in range(f):
    row, known = category(c[t], t, n, w)
    p = p + known * w[row]
    sums = sums + known * V[row]
    squares = squares + known * V[row] * V[row]
    size = size + known * w[row] * w[row]
p = p + dana.sigma(sums * sums - squares) / 2

fm.setLoss(weight * ((p - y) * (p - y) + penalty * (size + dana.sigma(squares))) / 2)
fm.minimize(dana.optimizers.sgd, models=[w, V], rate=lr)
fm.setPrediction(p)
fm.setEpochs(30)
