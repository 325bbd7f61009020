"""Elastic net: least squares with a mixture of lasso's and ridge's penalties."""

import dana
from dana.functions import standardized
from dana.optimizers import proximal_gradients

n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
weight = dana.weight()
b = dana.model(init=dana.column_mean(y))
penalty = dana.meta(0.01)
l1_ratio = dana.meta(0.5)

elastic_net = dana.algo(w, b, x, y, weight)

dana.require(penalty >= 0)
dana.require(l1_ratio >= 0)
dana.require(l1_ratio <= 1)
p = dana.sigma(w * standardized(x), 1) + b
loss = weight * ((p - y) * (p - y))

elastic_net.setLoss(loss)
weights = elastic_net.merge(weight, dana.all, "mean")  # keeps the penalty's gradient out of the merge
square = weights * penalty * (1 - l1_ratio) * dana.total(w * w)
gain = elastic_net.minimize(proximal_gradients, penalty=penalty * weights * l1_ratio, loss=(loss + square) / 2)
noise = 1e-14 * weight * (p * p)  # of rounding to binary32
elastic_net.setConvergence(dana.rows * gain <= elastic_net.merge(1e-7 * loss + dana.rows * noise, dana.all, "mean"))
elastic_net.setPrediction(p)
elastic_net.setEpochs(1000)
