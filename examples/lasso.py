"""Lasso: least squares with penalty × the weights' magnitudes added, which makes weights 0."""

import dana
from dana.optimizers import nesterov, soft_threshold, steady_rate

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.5)
penalty = dana.meta(0.01)

lasso = dana.algo(w, b, x, y)

p = dana.sigma(w * x, 1) + b
error = p - y
rate = steady_rate(lr, lasso.merge(dana.sigma(x * x, 1) + 1, 64, "+") / 64)
moved = nesterov(w, lasso.merge(error * x, 64, "+") / 64, rate, keep=0.9)

# momentum makes a gradient count 1 / (1 - keep) times, so the threshold has to
lasso.setModel(w, soft_threshold(moved, rate * penalty / (1 - 0.9)))
lasso.setModel(b, nesterov(b, lasso.merge(error, 64, "+") / 64, rate))
lasso.setLoss(error * error)
lasso.setPrediction(p)
lasso.setEpochs(50)
