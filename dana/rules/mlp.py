"""Two-layer perceptron: h rectified units, k classes; predicts the probability of each."""

import dana
from dana.functions import one_hot, standardized
from dana.optimizers import adam, inverse_decay

n = dana.dim()
h = dana.dim(32)  # hidden units
k = dana.dim(10)  # classes
W = dana.model([h, n], init=dana.normal(0, 0.1))
b = dana.model([h])
V = dana.model([k, h], init=dana.normal(0, 0.1))
c = dana.model([k])
x = dana.input([n])
y = dana.output(classes=k)
weight = dana.weight()
lr = dana.meta(0.005)
batch = dana.meta(64)
mlp = dana.algo(W, b, V, c, x, y, weight)
z = standardized(x)
hidden = dana.max(dana.sigma(W * z, 2) + b, 0)
score = dana.sigma(V * hidden, 2) + c
mlp.setLoss(-(weight * dana.sigma(dana.log_softmax(score) * one_hot(y, k))))
mlp.minimize(adam, batch=batch, rate=inverse_decay(lr))
mlp.setPrediction(dana.softmax(score))
mlp.setEpochs(50)
