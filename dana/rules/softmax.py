"""Softmax regression: k classes; predicts the probability of each. Solved by conjugate gradients."""

import dana
from dana.functions import one_hot, standardized
from dana.optimizers import conjugate_gradients

n = dana.dim()
k = dana.dim(10)  # classes
W = dana.model([k, n])
b = dana.model([k])
x = dana.input([n])
y = dana.output(classes=k)
weight = dana.weight()
penalty = dana.meta(0.000001)

softmax = dana.algo(W, b, x, y, weight)

dana.require(penalty >= 0)
score = dana.sigma(W * standardized(x), 2) + b
loss = -(weight * dana.sigma(dana.log_softmax(score) * one_hot(y, k)))

softmax.setLoss(loss)
weights = softmax.merge(weight, dana.all, "mean")  # keeps the penalty's gradient out of the merge
gain = softmax.minimize(conjugate_gradients, loss=loss + weights * penalty / 2 * dana.total(W * W))
softmax.setConvergence(dana.rows * gain < 1e-4)
softmax.setPrediction(dana.softmax(score))
softmax.setEpochs(200)
