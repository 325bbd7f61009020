"""Attention between columns of categories, as for fm (AutoInt); of two classes the probability of the second."""

import dana
from dana.functions import category, masked_softmax

f = dana.dim(2)  # columns
n = dana.dim(1000)  # categories of the column that has most
k = dana.dim(8)  # numbers of an embedding, of a query, of a key and of a value
w, E = dana.model([f * n]), dana.model([f * n, k], init=dana.normal(0, 0.1))
Q, K = dana.model([k, k], init=dana.normal(0, 0.4)), dana.model([k, k], init=dana.normal(0, 0.4))
V, o = dana.model([k, k], init=dana.normal(0, 0.4)), dana.model([f, k], init=dana.normal(0, 0.3))
b = dana.model()
c, y = dana.input([f], categories=n), dana.output(classes=2)
weight = dana.weight()
lr = dana.meta(0.01)
autoint = dana.algo(w, E, Q, K, V, o, b, c, y, weight)

vectors, score, known = [], b, []
for t in range(f):
    row, there = category(c[t], t, n, w)
    vectors += [there * E[row]]
    known += [there]
    score = score + there * w[row]
X = 1 * vectors
others = dana.abs(dana.arange(f) - dana.expand(dana.arange(f), 2)) > 0
share = masked_softmax((X @ Q.T) @ (X @ K.T).T / dana.sqrt(k), others * dana.where(dana.training, c >= 0, known))
p = dana.sigmoid(score + dana.sigma(dana.sigma(o * dana.max(share @ (X @ V.T), 0), 2)))

autoint.setLoss(-(weight * (y * dana.log(p) + (1 - y) * dana.log(1 - p))))
autoint.minimize(dana.optimizers.sgd, rate=lr)
autoint.setPrediction(p)
autoint.setEpochs(10)
