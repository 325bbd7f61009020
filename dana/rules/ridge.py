"""Ridge regression: least squares with half of penalty × the weights' squares added."""

import dana
from dana.optimizers import l2, nesterov, steady_rate

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.5)
penalty = dana.meta(0.01)

ridge = dana.algo(w, b, x, y)

p = dana.sigma(w * x, 1) + b
error = p - y
rate = steady_rate(lr, ridge.merge(dana.sigma(x * x, 1) + 1, 64, "+") / 64 + penalty)
gradient = l2(w, ridge.merge(error * x, 64, "+") / 64, penalty)

ridge.setModel(w, nesterov(w, gradient, rate))
ridge.setModel(b, nesterov(b, ridge.merge(error, 64, "+") / 64, rate))
ridge.setLoss(error * error)
ridge.setPrediction(p)
ridge.setEpochs(50)
