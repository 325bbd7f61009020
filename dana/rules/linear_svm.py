"""Linear support vector machine: two classes; predicts a score, above 0 for the second."""

import dana
from dana.functions import standardized
from dana.optimizers import l2, nesterov, steady_rate

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output(classes=2)
weight = dana.weight()
lr = dana.meta(0.5)
penalty = dana.meta(0.0001)
batch = dana.meta(64)

linear_svm = dana.algo(w, b, x, y, weight)
z = standardized(x)
score = dana.sigma(w * z, 1) + b
side = 2 * y - 1
short = dana.max(1 - side * score, 0)  # of the margin; its square is the loss
error = -side * short * weight
each = 1 / batch  # the share of a row
curvature = dana.max(weight, 1e-30) * (dana.sigma(z * z, 1) + 1)
rate = steady_rate(lr, linear_svm.merge(curvature, batch, "+") * each + penalty)
gradient = l2(w, linear_svm.merge(error * z, batch, "+") * each, penalty)

linear_svm.setModel(w, nesterov(w, gradient, rate))
linear_svm.setModel(b, nesterov(b, linear_svm.merge(error, batch, "+") * each, rate))
linear_svm.setLoss(weight * short * short)
linear_svm.setPrediction(score)
linear_svm.setEpochs(100)
