"""Logistic regression by stochastic gradient descent: two classes; predicts the probability of the second."""

import dana
from dana.functions import standardized
from dana.optimizers import l2, nesterov, steady_rate

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output(classes=2)
weight = dana.weight()
lr = dana.meta(0.5)
penalty = dana.meta(0.0001)
batch = dana.meta(64)

logistic_sgd = dana.algo(w, b, x, y, weight)

z = standardized(x)
p = dana.sigmoid(dana.sigma(w * z, 1) + b)
error = weight * (p - y)
curvature = dana.max(weight, 1e-30) * (dana.sigma(z * z, 1) + 1) / 4  # slope <= 1 / 4
rate = steady_rate(lr, logistic_sgd.merge(curvature, batch, "+") / batch + penalty)
gradient = l2(w, logistic_sgd.merge(error * z, batch, "+") / batch, penalty)

logistic_sgd.setModel(w, nesterov(w, gradient, rate))
logistic_sgd.setModel(b, nesterov(b, logistic_sgd.merge(error, batch, "+") / batch, rate))
logistic_sgd.setLoss(-(weight * dana.log(dana.max(1 - dana.abs(p - y), 1e-30))))
logistic_sgd.setPrediction(p)
logistic_sgd.setEpochs(100)
