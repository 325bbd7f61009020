"""Linear regression: least squares, for features of any scale."""

import dana
from dana.functions import standardized
from dana.optimizers import nesterov, steady_rate

n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
weight = dana.weight()
b = dana.model(init=dana.column_mean(y))
lr = dana.meta(0.5)

linear = dana.algo(w, b, x, y, weight)

z = standardized(x)
p = dana.sigma(w * z, 1) + b
error = weight * (p - y)
rate = steady_rate(lr, linear.merge(dana.max(weight, 1e-30) * (dana.sigma(z * z, 1) + 1), 64, "+") / 64)

linear.setModel(w, nesterov(w, linear.merge(error * z, 64, "+") / 64, rate))
linear.setModel(b, nesterov(b, linear.merge(error, 64, "+") / 64, rate))
linear.setLoss(error * (p - y))
linear.setPrediction(p)
linear.setEpochs(100)
