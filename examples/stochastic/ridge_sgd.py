"""Ridge regression by stochastic gradient descent: least squares with penalty × the weights' squares added."""

import dana
from dana.functions import standardized
from dana.optimizers import l2, nesterov, steady_rate

n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
weight = dana.weight()
b = dana.model(init=dana.column_mean(y))
lr = dana.meta(0.5)
penalty = dana.meta(0.01)
batch = dana.meta(64)

ridge_sgd = dana.algo(w, b, x, y, weight)

z = standardized(x)
p = dana.sigma(w * z, 1) + b
error = weight * (p - y)
curvature = dana.max(weight, 1e-30) * (dana.sigma(z * z, 1) + 1)
rate = steady_rate(lr, ridge_sgd.merge(curvature, batch, "+") / batch + penalty)
gradient = l2(w, ridge_sgd.merge(error * z, batch, "+") / batch, penalty)

ridge_sgd.setModel(w, nesterov(w, gradient, rate))
ridge_sgd.setModel(b, nesterov(b, ridge_sgd.merge(error, batch, "+") / batch, rate))
ridge_sgd.setLoss(error * (p - y))
ridge_sgd.setPrediction(p)
ridge_sgd.setEpochs(100)
