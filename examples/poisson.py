"""Poisson regression: counts, whose expected number is the exponential of a linear score."""

import dana
from dana.optimizers import l2, nesterov, steady_rate

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.5)
penalty = dana.meta(0.0001)

poisson = dana.algo(w, b, x, y)

score = dana.sigma(w * x, 1) + b
bounded = dana.min(score, 40)  # beyond any count, and exp of it is a number yet
p = dana.exp(bounded)
error = p - y
curvature = poisson.merge(dana.max(p, y) * (dana.sigma(x * x, 1) + 1), 64, "+") / 64
rate = steady_rate(lr, curvature + penalty)
gradient = l2(w, poisson.merge(error * x, 64, "+") / 64, penalty)

poisson.setModel(w, nesterov(w, gradient, rate))
poisson.setModel(b, nesterov(b, poisson.merge(error, 64, "+") / 64, rate))
poisson.setLoss(p - y * bounded)
poisson.setPrediction(dana.exp(score))
poisson.setEpochs(200)
