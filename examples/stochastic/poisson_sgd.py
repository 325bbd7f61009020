"""Poisson regression by stochastic gradient descent: counts, with an expected value that is exp of a linear score."""

import dana
from dana.functions import standardized
from dana.optimizers import l2, nesterov, steady_rate

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output()
weight = dana.weight()
lr = dana.meta(0.5)
penalty = dana.meta(0.0001)
batch = dana.meta(64)

poisson_sgd = dana.algo(w, b, x, y, weight)

dana.require(y >= 0)
z = standardized(x)
score = dana.sigma(w * z, 1) + b
bounded = dana.min(score, 40)  # beyond any count, and exp of it is a number yet
p = dana.exp(bounded)
error = weight * (p - y)
curvature = poisson_sgd.merge(dana.max(weight, 1e-30) * dana.max(p, y) * (dana.sigma(z * z, 1) + 1), batch, "+") / batch
rate = steady_rate(lr, curvature + penalty)
gradient = l2(w, poisson_sgd.merge(error * z, batch, "+") / batch, penalty)

poisson_sgd.setModel(w, nesterov(w, gradient, rate))
poisson_sgd.setModel(b, nesterov(b, poisson_sgd.merge(error, batch, "+") / batch, rate))
poisson_sgd.setLoss(weight * (p - y + y * (dana.log(dana.max(y, 1e-30)) - bounded)))  # half the deviance
poisson_sgd.setPrediction(dana.exp(score))
poisson_sgd.setEpochs(200)
