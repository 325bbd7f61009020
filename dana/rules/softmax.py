"""Softmax regression: k classes; predicts the probability of each."""

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

softmax = dana.algo(W, b, x, y, weight)

z = standardized(x)
p = dana.softmax(dana.sigma(W * z, 2) + b)
error = weight * (p - one_hot(y, k))
rate = steady_rate(lr, softmax.merge(dana.max(weight, 1e-30) * (dana.sigma(z * z, 1) + 1), 64, "+") / 128 + penalty)
gradient = l2(W, softmax.merge(dana.expand(error, 2) * z, 64, "+") / 64, penalty)

softmax.setModel(W, nesterov(W, gradient, rate))
softmax.setModel(b, nesterov(b, softmax.merge(error, 64, "+") / 64, rate))
softmax.setLoss(-(weight * dana.log(dana.max(dana.sigma(p * one_hot(y, k), 1), 1e-30))))
softmax.setPrediction(p)
softmax.setEpochs(100)
