"""Softmax regression: classes numbered from 0, k of them; predicts the most probable class."""

import dana
from dana.functions import argmax, one_hot
from dana.functions import softmax as shares
from dana.optimizers import l2, nesterov, steady_rate

n = dana.dim()
k = dana.dim(10)  # classes
W = dana.model([k, n])
b = dana.model([k])
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.5)
penalty = dana.meta(0.0001)

softmax = dana.algo(W, b, x, y)

score = dana.sigma(W * x, 2) + b
p = shares(score, k)
error = p - one_hot(y, k)
rate = steady_rate(lr, softmax.merge(dana.sigma(x * x, 1) + 1, 64, "+") / 128 + penalty)
gradient = l2(W, softmax.merge(dana.expand(error, 2) * x, 64, "+") / 64, penalty)

softmax.setModel(W, nesterov(W, gradient, rate))
softmax.setModel(b, nesterov(b, softmax.merge(error, 64, "+") / 64, rate))
softmax.setLoss(-dana.log(dana.max(dana.sigma(p * one_hot(y, k), 1), 1e-30)))
softmax.setPrediction(argmax(score, k))
softmax.setEpochs(50)
