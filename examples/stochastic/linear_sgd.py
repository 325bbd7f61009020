"""Linear regression by stochastic gradient descent: least squares, for features of any scale."""

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
batch = dana.meta(64)

linear_sgd = dana.algo(w, b, x, y, weight)

z = standardized(x)
p = dana.sigma(w * z, 1) + b
error = weight * (p - y)
curvature = dana.max(weight, 1e-30) * (dana.sigma(z * z, 1) + 1)
rate = steady_rate(lr, linear_sgd.merge(curvature, batch, "+") / batch)

linear_sgd.setModel(w, nesterov(w, linear_sgd.merge(error * z, batch, "+") / batch, rate))
linear_sgd.setModel(b, nesterov(b, linear_sgd.merge(error, batch, "+") / batch, rate))
linear_sgd.setLoss(error * (p - y))
linear_sgd.setPrediction(p)
linear_sgd.setEpochs(100)
