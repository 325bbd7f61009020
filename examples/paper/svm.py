"""Linear support vector machine: hinge loss with an L2 penalty; labels are 0 and 1."""

import dana

n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.1)
penalty = dana.meta(0.001)

svm = dana.algo(w, x, y)

side = 2 * y - 1  # -1 or 1
score = dana.sigma(w * x, 1)
inside = side * score < 1  # on the wrong side of the margin
grad = svm.merge(-(inside * side) * x, 64, "+")

svm.setModel(w - lr * (grad / 64 + penalty * w))
svm.setLoss(dana.max(1 - side * score, 0))
svm.setPrediction(score)
svm.setEpochs(10)
