"""Huber regression: least squares in which an error beyond epsilon deviations counts linearly."""

import dana
from dana.optimizers import clip, nesterov, running_mean, steady_rate

n = dana.dim()
w = dana.model([n])
b = dana.model()
spread = dana.model()  # deviation of the errors, learnt with the weights
x = dana.input([n])
y = dana.output()
lr = dana.meta(1)
epsilon = dana.meta(1.35)

huber = dana.algo(w, b, spread, x, y)

p = dana.sigma(w * x, 1) + b
bound = dana.where(spread > 0, epsilon * spread, 1e30)  # no bound before the first batch
error = clip(p - y, bound)
rate = steady_rate(lr, huber.merge(dana.sigma(x * x, 1) + 1, 64, "+") / 64)

huber.setModel(w, nesterov(w, huber.merge(error * x, 64, "+") / 64, rate))
huber.setModel(b, nesterov(b, huber.merge(error, 64, "+") / 64, rate))
variance = huber.merge(error * error, 64, "+") / huber.merge(1 + 0 * error, 64, "+")  # by the rows of the batch
huber.setModel(spread, dana.sqrt(running_mean(variance)))
huber.setLoss(dana.abs(p - y))
huber.setPrediction(p)
huber.setEpochs(50)
