"""Low-rank matrix factorisation over dense rows, as in the paper: a row's number, then its values, 0 if missing."""

import dana

m = dana.dim(1000)  # rows
n = dana.dim()  # columns
k = dana.dim(10)  # rank
U = dana.model([m, k], init=dana.normal(0, 0.1))
V = dana.model([k, n], init=dana.normal(0, 0.1))
i = dana.input(categories=m)
x = dana.input([n])
lr = dana.meta(0.005)
penalty = dana.meta(0.02)

lrmf_dense = dana.algo(U, V, i, x)

known = (x > 0) + (x < 0)
count = dana.sigma(known, 1)
error = known * (dana.sigma(dana.expand(U[i], 2) * V, 1) - x)

lrmf_dense.setModel(U[i], U[i] - lr * (dana.sigma(V * error, 2) + penalty * count * U[i]))
lrmf_dense.setModel(V, V - lr * (dana.expand(U[i], 2) * error + penalty * known * V))
lrmf_dense.setLoss(dana.sigma(error * error, 1) / dana.max(count, 1))
lrmf_dense.setPrediction(dana.sigma(error * error, 1) / dana.max(count, 1))
lrmf_dense.setEpochs(200)
