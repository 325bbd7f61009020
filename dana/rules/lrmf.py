"""Low-rank matrix factorisation with biases over triples (row, column, value), rows and columns numbered from 0."""

import dana

m = dana.dim(1000)  # rows
n = dana.dim(1000)  # columns
k = dana.dim(10)  # rank
U = dana.model([m, k], init=dana.normal(0, 0.1))
V = dana.model([n, k], init=dana.normal(0, 0.1))
a = dana.model([m])
b = dana.model([n])
i = dana.input(categories=m)
j = dana.input(categories=n)
y = dana.output()
weight = dana.weight()
mean = dana.model(init=dana.column_mean(y))
lr = dana.meta(0.02)
penalty = dana.meta(0.05)

lrmf = dana.algo(U, V, a, b, mean, i, j, y, weight)

dana.require(penalty >= 0)
p = mean + a[i] + b[j] + dana.sigma(U[i] * V[j], 1)
error = p - y

lrmf.setModel(U[i], U[i] - lr * weight * (error * V[j] + penalty * U[i]))
lrmf.setModel(V[j], V[j] - lr * weight * (error * U[i] + penalty * V[j]))
lrmf.setModel(a[i], a[i] - lr * weight * (error + penalty * a[i]))
lrmf.setModel(b[j], b[j] - lr * weight * (error + penalty * b[j]))
lrmf.setLoss(weight * error * error)
lrmf.setPrediction(p)
lrmf.setEpochs(60)
