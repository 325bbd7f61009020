import dana

n  = dana.dim()                    # ours: bound to the table's width at train time
w  = dana.model([n])
x  = dana.input([n])
y  = dana.output()
lr = dana.meta(0.1)

logistic = dana.algo(w, x, y)

p    = dana.sigmoid(dana.sigma(w * x, 1))
grad = logistic.merge((p - y) * x, 64, "+")

logistic.setModel(w - lr * grad / 64)
logistic.setLoss((p - y) * (p - y))
logistic.setPrediction(p)
logistic.setEpochs(10)
logistic.setConvergence(dana.norm(grad, 1) < 0.01)
