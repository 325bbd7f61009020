"""Bayesian personalised ranking over pairs (user, item) that occurred, numbered from 0; predicts a score to rank by."""

import dana

m = dana.dim(1000)  # users
n = dana.dim(1000)  # items
k = dana.dim(10)  # rank
U = dana.model([m, k], init=dana.normal(0, 0.1))
V = dana.model([n, k], init=dana.normal(0, 0.1))
b = dana.model([n])
i = dana.input(categories=m)
j = dana.input(categories=n)
weight = dana.weight()
lr = dana.meta(0.05)
penalty = dana.meta(0.02)

bpr = dana.algo(U, V, b, i, j, weight)

dana.require(penalty >= 0)
other = dana.floor(n * dana.random())  # an item that this user, most likely, did not choose
margin = b[j] - b[other] + U[i] @ (V[j] - V[other])
size = U[i] @ U[i] + V[j] @ V[j] + V[other] @ V[other] + b[j] * b[j] + b[other] * b[other]

bpr.setLoss(weight * (penalty / 2 * size - dana.log(dana.sigmoid(margin))))
bpr.minimize(dana.optimizers.sgd, rate=lr)
bpr.setPrediction(b[j] + U[i] @ V[j])
bpr.setEpochs(60)
