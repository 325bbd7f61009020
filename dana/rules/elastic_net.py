"""Elastic net: least squares with a mixture of lasso's and ridge's penalties."""

import dana
from dana.functions import standardized
from dana.optimizers import l2, nesterov, soft_threshold, steady_rate

n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
weight = dana.weight()
b = dana.model(init=dana.column_mean(y))
lr = dana.meta(0.5)
penalty = dana.meta(0.01)
l1_ratio = dana.meta(0.5)

elastic_net = dana.algo(w, b, x, y, weight)

dana.require(l1_ratio >= 0)
dana.require(l1_ratio <= 1)
z = standardized(x)
p = dana.sigma(w * z, 1) + b
error = weight * (p - y)
rate = steady_rate(lr, elastic_net.merge(dana.max(weight, 1e-30) * (dana.sigma(z * z, 1) + 1), 64, "+") / 64 + penalty)
gradient = l2(w, elastic_net.merge(error * z, 64, "+") / 64, penalty * (1 - l1_ratio))
# momentum makes a gradient count 1 / (1 - keep) times, so the threshold has to
amount = rate * penalty * l1_ratio / (1 - 0.9)
elastic_net.setModel(w, soft_threshold(nesterov(w, gradient, rate, keep=0.9), amount))
elastic_net.setModel(b, nesterov(b, elastic_net.merge(error, 64, "+") / 64, rate))
elastic_net.setLoss(error * (p - y))
elastic_net.setPrediction(p)
elastic_net.setEpochs(100)
