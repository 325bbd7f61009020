"""Lasso: least squares with penalty × the weights' magnitudes added, which makes weights 0."""

import dana
from dana.functions import standardized
from dana.optimizers import nesterov, soft_threshold, steady_rate

n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
weight = dana.weight()
b = dana.model(init=dana.column_mean(y))
lr = dana.meta(0.5)
penalty = dana.meta(0.01)

lasso = dana.algo(w, b, x, y, weight)

z = standardized(x)
p = dana.sigma(w * z, 1) + b
error = weight * (p - y)
rate = steady_rate(lr, lasso.merge(dana.max(weight, 1e-30) * (dana.sigma(z * z, 1) + 1), 64, "+") / 64)
moved = nesterov(w, lasso.merge(error * z, 64, "+") / 64, rate, keep=0.9)

# momentum makes a gradient count 1 / (1 - keep) times, so the threshold has to
lasso.setModel(w, soft_threshold(moved, rate * penalty / (1 - 0.9)))
lasso.setModel(b, nesterov(b, lasso.merge(error, 64, "+") / 64, rate))
lasso.setLoss(error * (p - y))
lasso.setPrediction(p)
lasso.setEpochs(100)
