"""Two-layer perceptron: h rectified units, k classes numbered from 0; predicts the most probable class."""

import dana
from dana.functions import argmax, one_hot, softmax
from dana.optimizers import adam, inverse_decay

n = dana.dim()
h = dana.dim(32)  # hidden units
k = dana.dim(10)  # classes
W = dana.model([h, n], init=dana.normal(0, 0.1))
b = dana.model([h])
V = dana.model([k, h], init=dana.normal(0, 0.1))
c = dana.model([k])
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.005)
mlp = dana.algo(W, b, V, c, x, y)
hidden = dana.max(dana.sigma(W * x, 2) + b, 0)
score = dana.sigma(V * hidden, 2) + c
p = softmax(score, k)
error = p - one_hot(y, k)
back = (hidden > 0) * dana.sigma(V * dana.expand(error, 2), 1)
rate = inverse_decay(lr)
mlp.setModel(W, adam(W, mlp.merge(dana.expand(back, 2) * x, 64, "+") / 64, rate))
mlp.setModel(b, adam(b, mlp.merge(back, 64, "+") / 64, rate))
mlp.setModel(V, adam(V, mlp.merge(dana.expand(error, 2) * hidden, 64, "+") / 64, rate))
mlp.setModel(c, adam(c, mlp.merge(error, 64, "+") / 64, rate))
mlp.setLoss(-dana.log(dana.max(dana.sigma(p * one_hot(y, k), 1), 1e-30)))
mlp.setPrediction(argmax(score, k))
mlp.setEpochs(50)
