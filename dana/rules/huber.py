"""Huber regression: least squares in which an error beyond epsilon deviations counts linearly."""

import dana
from dana.functions import standardized
from dana.optimizers import clip, nesterov, running_mean, steady_rate

n = dana.dim()
w = dana.model([n])
spread = dana.model()  # deviation of the errors, learnt with the weights
x = dana.input([n])
y = dana.output()
weight = dana.weight()
b = dana.model(init=dana.column_mean(y))
lr = dana.meta(1)
epsilon = dana.meta(1.35)

huber = dana.algo(w, b, spread, x, y, weight)

dana.require(epsilon > 0)
z = standardized(x)
p = dana.sigma(w * z, 1) + b
bound = dana.where(spread > 0, epsilon * spread, 1e30)  # no bound before the first batch
error = clip(p - y, bound)
rate = steady_rate(lr, huber.merge(dana.max(weight, 1e-30) * (dana.sigma(z * z, 1) + 1), 64, "+") / 64)

huber.setModel(w, nesterov(w, huber.merge(weight * error * z, 64, "+") / 64, rate))
huber.setModel(b, nesterov(b, huber.merge(weight * error, 64, "+") / 64, rate))
variance = huber.merge(weight * error * error, 64, "+") / huber.merge(dana.max(weight, 1e-30) + 0 * error, 64, "+")
huber.setModel(spread, dana.sqrt(running_mean(variance)))
huber.setLoss(weight * dana.abs(p - y))
huber.setPrediction(p)
huber.setEpochs(100)
