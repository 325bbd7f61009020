"""Linear support vector machine: two classes, labels 0 and 1; predicts a score, above 0 for 1."""

import dana
from dana.optimizers import l2, nesterov, steady_rate

n = dana.dim()
w = dana.model([n])
b = dana.model()
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.5)
penalty = dana.meta(0.0001)

linear_svm = dana.algo(w, b, x, y)

score = dana.sigma(w * x, 1) + b
side = 2 * y - 1
short = dana.max(1 - side * score, 0)  # of the margin; its square is the loss
error = -side * short
rate = steady_rate(lr, linear_svm.merge(dana.sigma(x * x, 1) + 1, 64, "+") / 64 + penalty)
gradient = l2(w, linear_svm.merge(error * x, 64, "+") / 64, penalty)

linear_svm.setModel(w, nesterov(w, gradient, rate))
linear_svm.setModel(b, nesterov(b, linear_svm.merge(error, 64, "+") / 64, rate))
linear_svm.setLoss(short * short)
linear_svm.setPrediction(score)
linear_svm.setEpochs(50)
