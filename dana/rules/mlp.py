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
mlp = dana.algo(W, b, V, c, x, y, weight)
z = standardized(x)
hidden = dana.max(dana.sigma(W * z, 2) + b, 0)
p = dana.softmax(dana.sigma(V * hidden, 2) + c)
error = weight * (p - one_hot(y, k))
back = (hidden > 0) * dana.sigma(V * dana.expand(error, 2), 1)
rate = inverse_decay(lr)
mlp.setModel(W, adam(W, mlp.merge(dana.expand(back, 2) * z, 64, "+") / 64, rate))
mlp.setModel(b, adam(b, mlp.merge(back, 64, "+") / 64, rate))
mlp.setModel(V, adam(V, mlp.merge(dana.expand(error, 2) * hidden, 64, "+") / 64, rate))
mlp.setModel(c, adam(c, mlp.merge(error, 64, "+") / 64, rate))
mlp.setLoss(-(weight * dana.log(dana.max(dana.sigma(p * one_hot(y, k), 1), 1e-30))))
mlp.setPrediction(p)
mlp.setEpochs(50)
