"""Softmax regression by stochastic gradient descent: k classes; predicts the probability of each."""

import dana
from dana.functions import one_hot, standardized
from dana.optimizers import l2, nesterov, steady_rate

n = dana.dim()
k = dana.dim(10)  # classes
W = dana.model([k, n])
b = dana.model([k])
x = dana.input([n])
y = dana.output(classes=k)
weight = dana.weight()
lr = dana.meta(0.5)
penalty = dana.meta(0.0001)
batch = dana.meta(64)

softmax_sgd = dana.algo(W, b, x, y, weight)

z = standardized(x)
p = dana.softmax(dana.sigma(W * z, 2) + b)
error = weight * (p - one_hot(y, k))
curvature = dana.max(weight, 1e-30) * (dana.sigma(z * z, 1) + 1)
rate = steady_rate(lr, softmax_sgd.merge(curvature, batch, "+") / (2 * batch) + penalty)
gradient = l2(W, softmax_sgd.merge(dana.expand(error, 2) * z, batch, "+") / batch, penalty)

softmax_sgd.setModel(W, nesterov(W, gradient, rate))
softmax_sgd.setModel(b, nesterov(b, softmax_sgd.merge(error, batch, "+") / batch, rate))
softmax_sgd.setLoss(-(weight * dana.log(dana.max(dana.sigma(p * one_hot(y, k), 1), 1e-30))))
softmax_sgd.setPrediction(p)
softmax_sgd.setEpochs(100)
