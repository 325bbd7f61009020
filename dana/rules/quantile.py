"""Quantile regression: the level below which a share q of the labels lies; the median by default."""

import dana
from dana.functions import standardized
from dana.optimizers import nesterov, running_mean, steady_rate

n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
weight = dana.weight()
b = dana.model(init=dana.column_mean(y))
lr = dana.meta(2)
q = dana.meta(0.5)

quantile = dana.algo(w, b, x, y, weight)

dana.require(q > 0)
dana.require(q < 1)
z = standardized(x)
p = dana.sigma(w * z, 1) + b
below = (y < p) - q
size = running_mean(quantile.merge(dana.abs(p - y), 64, "+") / 64)  # steps are in the label's unit
rate = steady_rate(lr, quantile.merge(dana.max(weight, 1e-30) * (dana.sigma(z * z, 1) + 1), 64, "+") / 64) * size

quantile.setModel(w, nesterov(w, quantile.merge(weight * below * z, 64, "+") / 64, rate))
quantile.setModel(b, nesterov(b, quantile.merge(weight * below, 64, "+") / 64, rate))
quantile.setLoss(weight * below * (p - y))
quantile.setPrediction(p)
quantile.setEpochs(100)
