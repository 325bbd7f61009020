"""Linear regression by mini-batch gradient descent on the squared error."""

import dana

n = dana.dim()
w = dana.model([n])
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.05)

linear = dana.algo(w, x, y)

p = dana.sigma(w * x, 1)
error = p - y
grad = linear.merge(error * x, 64, "+")

linear.setModel(w - lr * grad / 64)
linear.setLoss(error * error)
linear.setPrediction(p)
linear.setEpochs(10)
linear.setConvergence(dana.norm(grad, 1) < 0.01)
