"""Ridge regression: least squares with penalty × the weights' squares added, solved by conjugate gradients."""

import dana
from dana.functions import standardized
from dana.optimizers import conjugate_gradients

n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
weight = dana.weight()
b = dana.model(init=dana.column_mean(y))
penalty = dana.meta(0.01)

ridge = dana.algo(w, b, x, y, weight)

dana.require(penalty >= 0)
p = dana.sigma(w * standardized(x), 1) + b
loss = weight * ((p - y) * (p - y))

ridge.setLoss(loss)
weights = ridge.merge(weight, dana.all, "mean")  # keeps the penalty's gradient out of the merge
gain = ridge.minimize(conjugate_gradients, loss=loss + weights * penalty * dana.total(w * w))
noise = 1e-14 * weight * (p * p)  # of rounding to binary32
ridge.setConvergence(dana.rows * gain <= ridge.merge(1e-4 * loss + dana.rows * noise, dana.all, "mean"))
ridge.setPrediction(p)
ridge.setEpochs(200)
