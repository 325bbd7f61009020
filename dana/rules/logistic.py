"""Logistic regression: two classes, labels 0 and 1; predicts the probability of 1."""

import dana
from dana.optimizers import l2, nesterov, steady_rate

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.5)
penalty = dana.meta(0.0001)

logistic = dana.algo(w, b, x, y)

p = dana.sigmoid(dana.sigma(w * x, 1) + b)
error = p - y
curvature = logistic.merge(dana.sigma(x * x, 1) + 1, 64, "+") / 256  # a sigmoid's slope is at most 1 / 4
rate = steady_rate(lr, curvature + penalty)
gradient = l2(w, logistic.merge(error * x, 64, "+") / 64, penalty)

logistic.setModel(w, nesterov(w, gradient, rate))
logistic.setModel(b, nesterov(b, logistic.merge(error, 64, "+") / 64, rate))
logistic.setLoss(-dana.log(dana.max(1 - dana.abs(error), 1e-30)))
logistic.setPrediction(p)
logistic.setEpochs(50)
