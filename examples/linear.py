"""Linear regression: least squares, for features of any scale."""

import dana
from dana.optimizers import nesterov, steady_rate

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.5)

linear = dana.algo(w, b, x, y)

p = dana.sigma(w * x, 1) + b
error = p - y
rate = steady_rate(lr, linear.merge(dana.sigma(x * x, 1) + 1, 64, "+") / 64)

linear.setModel(w, nesterov(w, linear.merge(error * x, 64, "+") / 64, rate))
linear.setModel(b, nesterov(b, linear.merge(error, 64, "+") / 64, rate))
linear.setLoss(error * error)
linear.setPrediction(p)
linear.setEpochs(50)
