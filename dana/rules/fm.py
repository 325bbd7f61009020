"""Factorisation machine over columns of categories, each numbered from 0 (below 0: unknown); predicts a number."""

import dana
from dana.functions import category

f = dana.dim(2)  # columns
n = dana.dim(1000)  # categories of the column that has most
k = dana.dim(10)  # factors
w = dana.model([f * n])
V = dana.model([f * n, k], init=dana.normal(0, 0.1))
c, y = dana.input([f], categories=n), dana.output()
weight = dana.weight()
mean, deviation = dana.model(init=dana.column_mean(y)), dana.model(init=dana.column_deviation(y))
scale = dana.model(init=dana.column_scale(y))  # 1 / deviation; 1 of a constant label
lr, penalty = dana.meta(0.01), dana.meta(0.07)
fm = dana.algo(w, V, mean, deviation, scale, c, y, weight)

dana.require(penalty >= 0)
score, sums, squares, size = 0, 0, 0, 0
for t in range(f):
    row, known = category(c[t], t, n, w)
    score = score + known * w[row]
    sums = sums + known * V[row]
    squares = squares + known * V[row] * V[row]
    size = size + known * w[row] * w[row]
score = score + dana.sigma(sums * sums - squares) / 2
error = score - scale * (y - mean)  # in deviations, so that lr and penalty suit labels of any size

fm.setLoss(weight * (error * error + penalty * (size + dana.sigma(squares))) / 2)
fm.minimize(dana.optimizers.sgd, models=[w, V], rate=lr)
fm.setPrediction(mean + deviation * score)
fm.setEpochs(30)
