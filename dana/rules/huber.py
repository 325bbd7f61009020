"""Huber regression: least squares in which an error beyond epsilon deviations counts linearly."""

import dana
from dana.functions import standardized
from dana.optimizers import clip, conjugate_gradients

n = dana.dim()
x, y = dana.input([n]), dana.output()
weight = dana.weight()
w, b = dana.model([n]), dana.model(init=dana.column_mean(y))
spread = dana.model(init=dana.column_deviation(y))  # deviation of the errors, found with the weights
epsilon = dana.meta(1.35)

huber = dana.algo(w, b, spread, x, y, weight)

dana.require(epsilon > 0)
p = dana.sigma(w * standardized(x), 1) + b
error = p - y
near = clip(error, epsilon * spread)
far = 2 * epsilon * (dana.abs(error) - dana.abs(near))
huber.setLoss(weight * (spread + near * near / dana.max(spread, 1e-30) + far) / 2)
share = dana.stop_gradient(dana.where(error == near, 1, near / error))
gain = huber.minimize(conjugate_gradients, bounded=1, loss=weight * share * error * error / 2)
weights = huber.merge(weight, dana.all, "mean")
noise = huber.merge(1e-14 * weight * (p * p), dana.all, "mean") / weights  # of rounding to binary32
variance = huber.merge(weight * near * near, dana.all, "mean") / weights
huber.setModel(spread, dana.sqrt(variance))
settled = dana.abs(variance - spread * spread) <= 1e-3 * variance + 100 * noise
huber.setConvergence(dana.rows * gain <= dana.where(settled, 1e-4 * variance + dana.rows * noise, 0))
huber.setPrediction(p)
huber.setEpochs(200)
