"""Logistic regression: two classes; predicts the probability of the second. Solved by conjugate gradients."""

import dana
from dana.functions import standardized
from dana.optimizers import conjugate_gradients

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output(classes=2)
weight = dana.weight()
penalty = dana.meta(0.000001)

logistic = dana.algo(w, b, x, y, weight)

dana.require(penalty >= 0)
p = dana.sigmoid(dana.sigma(w * standardized(x), 1) + b)
loss = -(weight * (y * dana.log(p) + (1 - y) * dana.log(1 - p)))

logistic.setLoss(loss)
weights = logistic.merge(weight, dana.all, "mean")  # keeps the penalty's gradient out of the merge
gain = logistic.minimize(conjugate_gradients, loss=loss + weights * penalty / 2 * dana.total(w * w))
logistic.setConvergence(dana.rows * gain < 1e-4)
logistic.setPrediction(p)
logistic.setEpochs(200)
