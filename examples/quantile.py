"""Quantile regression: the level below which a share q of the labels lies; the median by default."""

import dana
from dana.optimizers import nesterov, running_mean, steady_rate

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output()
lr = dana.meta(2)
q = dana.meta(0.5)

quantile = dana.algo(w, b, x, y)

p = dana.sigma(w * x, 1) + b
below = (y < p) - q
size = running_mean(quantile.merge(dana.abs(p - y), 64, "+") / 64)  # steps are in the label's unit
rate = steady_rate(lr, quantile.merge(dana.sigma(x * x, 1) + 1, 64, "+") / 64) * size

quantile.setModel(w, nesterov(w, quantile.merge(below * x, 64, "+") / 64, rate))
quantile.setModel(b, nesterov(b, quantile.merge(below, 64, "+") / 64, rate))
quantile.setLoss(below * (p - y))
quantile.setPrediction(p)
quantile.setEpochs(50)
