"""Elastic net: least squares with a mixture of lasso's and ridge's penalties."""

import dana
from dana.optimizers import l2, nesterov, soft_threshold, steady_rate

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.5)
penalty = dana.meta(0.01)
l1_ratio = dana.meta(0.5)

elastic_net = dana.algo(w, b, x, y)

p = dana.sigma(w * x, 1) + b
error = p - y
rate = steady_rate(lr, elastic_net.merge(dana.sigma(x * x, 1) + 1, 64, "+") / 64 + penalty)
gradient = l2(w, elastic_net.merge(error * x, 64, "+") / 64, penalty * (1 - l1_ratio))

# momentum makes a gradient count 1 / (1 - keep) times, so the threshold has to
amount = rate * penalty * l1_ratio / (1 - 0.9)
elastic_net.setModel(w, soft_threshold(nesterov(w, gradient, rate, keep=0.9), amount))
elastic_net.setModel(b, nesterov(b, elastic_net.merge(error, 64, "+") / 64, rate))
elastic_net.setLoss(error * error)
elastic_net.setPrediction(p)
elastic_net.setEpochs(50)
