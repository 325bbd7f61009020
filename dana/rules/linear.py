"""Linear regression: least squares, solved by conjugate gradients, for features of any scale."""

import dana
from dana.functions import standardized
from dana.optimizers import conjugate_gradients

n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
weight = dana.weight()
b = dana.model(init=dana.column_mean(y))

linear = dana.algo(w, b, x, y, weight)

p = dana.sigma(w * standardized(x), 1) + b
loss = weight * ((p - y) * (p - y))

linear.setLoss(loss)
gain = linear.minimize(conjugate_gradients)
noise = 1e-14 * weight * (p * p)  # of rounding to binary32
linear.setConvergence(dana.rows * gain <= linear.merge(1e-4 * loss + dana.rows * noise, dana.all, "mean"))
linear.setPrediction(p)
linear.setEpochs(200)
