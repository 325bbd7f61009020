"""Low-rank matrix factorisation with biases over triples (row, column, value), rows and columns numbered from 0."""

import dana

m, n = dana.dim(1000), dana.dim(1000)  # rows, columns
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
residual = deviation * error
step, decay = lr * weight * error, 1 - lr * weight * penalty

lrmf.setModel(U[i], decay * U[i] - step * V[j])
lrmf.setModel(V[j], decay * V[j] - step * U[i])
lrmf.setModel(a[i], decay * a[i] - step)
lrmf.setModel(b[j], decay * b[j] - step)
lrmf.setLoss(weight * residual * residual)
lrmf.setPrediction(mean + deviation * score)
lrmf.setEpochs(60)
