"""Low-rank matrix factorisation with biases over triples (row, column, value), rows and columns numbered from 0."""

import dana

m = dana.dim(1000)  # rows
n = dana.dim(1000)  # columns
k = dana.dim(10)  # rank
U = dana.model([m, k], init=dana.normal(0, 0.1))
V = dana.model([n, k], init=dana.normal(0, 0.1))
a, b = dana.model([m]), dana.model([n])
i, j = dana.input(categories=m), dana.input(categories=n)
y = dana.output()
weight = dana.weight()
mean = dana.model(init=dana.column_mean(y))
deviation = dana.model(init=dana.column_deviation(y))
scale = dana.model(init=dana.column_scale(y))  # 1 / deviation; 1 of a constant label
lr, penalty = dana.meta(0.02), dana.meta(0.05)

lrmf = dana.algo(U, V, a, b, mean, deviation, scale, i, j, y, weight)

dana.require(penalty >= 0)
score = a[i] + b[j] + dana.sigma(U[i] * V[j], 1)
error = score - scale * (y - mean)  # in deviations, so that lr and penalty suit ratings of any size
p = mean + deviation * score

lrmf.setModel(U[i], U[i] - lr * weight * (error * V[j] + penalty * U[i]))
lrmf.setModel(V[j], V[j] - lr * weight * (error * U[i] + penalty * V[j]))
lrmf.setModel(a[i], a[i] - lr * weight * (error + penalty * a[i]))
lrmf.setModel(b[j], b[j] - lr * weight * (error + penalty * b[j]))
lrmf.setLoss(weight * (p - y) * (p - y))
lrmf.setPrediction(p)
lrmf.setEpochs(60)
