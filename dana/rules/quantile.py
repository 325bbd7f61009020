"""Quantile regression: the level below which a share q of the labels lies; the median by default."""

import dana
from dana.functions import standardized
from dana.optimizers import conjugate_gradients

n = dana.dim()
x, y = dana.input([n]), dana.output()
weight = dana.weight()
w, b = dana.model([n]), dana.model(init=dana.column_mean(y))
size = dana.model(init=dana.column_deviation(y))  # of the errors; a few large ones hardly count
width = dana.model(init=1)  # of the kink, rounded off more and more narrowly, in sizes
q = dana.meta(0.5)

quantile = dana.algo(w, b, size, width, x, y, weight)

dana.require(q > 0)
dana.require(q < 1)
p = dana.sigma(w * standardized(x), 1) + b
error = p - y
quantile.setLoss(weight * ((error > 0) - q) * error)
slope = dana.stop_gradient(dana.sqrt(error * error + dana.max(width * size * width * size, 1e-30)))
loss = weight * (error * error / (4 * slope) + (0.5 - q) * error)
gain = quantile.minimize(conjugate_gradients, bounded=1, loss=loss)
weights = quantile.merge(weight, dana.all, "mean")
noise = quantile.merge(1e-7 * weight * dana.abs(p), dana.all, "mean") / weights  # of rounding to binary32
root = quantile.merge(weight * dana.sqrt(dana.sqrt(dana.abs(error))), dana.all, "mean") / weights
quantile.setModel(size, root * root * root * root)
quantile.setModel(width, dana.max(0.7 * width, 0.01))
quantile.setConvergence(dana.rows * gain <= dana.where(width > 0.01, 0, 0.001 * size + 0.1 * dana.rows * noise))
quantile.setPrediction(p)
quantile.setEpochs(300)
