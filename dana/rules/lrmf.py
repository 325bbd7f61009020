"""Low-rank matrix factorisation over triples (row, column, value), rows and columns numbered from 0."""

import dana

m = dana.dim(1000)  # rows
n = dana.dim(1000)  # columns
k = dana.dim(10)  # rank
U = dana.model([m, k], init=dana.normal(0, 0.1))
V = dana.model([n, k], init=dana.normal(0, 0.1))
mean = dana.model()
i = dana.input()
j = dana.input()
y = dana.output()
weight = dana.weight()
lr = dana.meta(0.02)
penalty = dana.meta(0.02)

lrmf = dana.algo(U, V, mean, i, j, y, weight)

p = mean + dana.sigma(U[i] * V[j], 1)
error = p - y

lrmf.setModel(U[i], U[i] - lr * weight * (error * V[j] + penalty * U[i]))
lrmf.setModel(V[j], V[j] - lr * weight * (error * U[i] + penalty * V[j]))
lrmf.setModel(mean, mean - 0.01 * weight * error)
lrmf.setLoss(weight * error * error)
lrmf.setPrediction(p)
lrmf.setEpochs(60)
