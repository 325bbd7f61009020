"""Poisson regression: counts with an expected value that is the exponential of a linear score."""

import dana
from dana.functions import standardized
from dana.optimizers import conjugate_gradients

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output()
weight = dana.weight()
penalty = dana.meta(0.000001)

poisson = dana.algo(w, b, x, y, weight)

dana.require(y >= 0)
dana.require(penalty >= 0)
score = dana.sigma(w * standardized(x), 1) + b
bounded = dana.min(score, 40)  # exp is a number yet, beyond any count, and goes on as a straight line
p = dana.exp(bounded) * (1 + score - bounded)
loss = weight * (p - y + y * (dana.log(dana.max(y, 1e-30)) - score))  # half the deviance

poisson.setLoss(loss)
weights = poisson.merge(weight, dana.all, "mean")  # keeps the penalty's gradient out of the merge
gain = poisson.minimize(conjugate_gradients, loss=loss + weights * penalty / 2 * dana.total(w * w))
poisson.setConvergence(dana.rows * gain < 1e-4)
poisson.setPrediction(dana.exp(score))
poisson.setEpochs(1000)
