"""Lasso: least squares with penalty × the weights' magnitudes added, which makes weights 0."""

import dana
from dana.functions import standardized
from dana.optimizers import proximal_gradients

n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
weight = dana.weight()
b = dana.model(init=dana.column_mean(y))
penalty = dana.meta(0.01)

lasso = dana.algo(w, b, x, y, weight)

p = dana.sigma(w * standardized(x), 1) + b
loss = weight * ((p - y) * (p - y))

lasso.setLoss(loss)
weights = lasso.merge(weight, dana.all, "mean")
gain = lasso.minimize(proximal_gradients, penalty=penalty * weights, loss=loss / 2)
noise = 1e-14 * weight * (p * p)  # of rounding to binary32
lasso.setConvergence(dana.rows * gain <= lasso.merge(1e-7 * loss + dana.rows * noise, dana.all, "mean"))
lasso.setPrediction(p)
lasso.setEpochs(1000)
