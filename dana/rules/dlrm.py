"""DLRM: f columns of categories, as for fm, then numbers; of two classes the probability of the second."""

import dana
from dana.functions import category, standardized

f = dana.dim(2)  # columns of categories
n = dana.dim(1000)  # categories of the column that has most
d = dana.dim()  # columns of numbers
k = dana.dim(8)  # numbers of an embedding
h = dana.dim(16)  # hidden units
E, seen = dana.model([f * n, k], init=dana.normal(0, 0.1)), dana.model([f * n])  # seen: the rows that training chose
B, a = dana.model([k, d], init=dana.normal(0, 0.3)), dana.model([k])  # bottom: numbers to an embedding
P = dana.model([h, f + 1, f + 1], init=dana.normal(0, 0.3))  # top: of each pair of embeddings
T, e = dana.model([h, k], init=dana.normal(0, 0.3)), dana.model([h])
v, g = dana.model([h], init=dana.normal(0, 0.3)), dana.model()
c, x, y = dana.input([f], categories=n), dana.input([d]), dana.output(classes=2)
weight = dana.weight()
lr = dana.meta(0.01)
dlrm = dana.algo(E, seen, B, a, P, T, e, v, g, c, x, y, weight)

vectors = [dana.max(B @ standardized(x) + a, 0)]
for t in range(f):
    row, known = category(c[t], t, n, seen)
    vectors += [known * E[row]]
    dlrm.setModel(seen[row], dana.max(seen[row], known * weight))
pairs = 1 * vectors @ (1 * vectors).T * (dana.arange(f + 1) < dana.expand(dana.arange(f + 1), 2))
hidden = dana.max(dana.sigma(dana.sigma(P * pairs, 3), 2) + T @ vectors[0] + e, 0)
p = dana.sigmoid(v @ hidden + g)
dlrm.setLoss(-(weight * (y * dana.log(p) + (1 - y) * dana.log(1 - p))))
dlrm.minimize(dana.optimizers.sgd, rate=lr)
dlrm.setPrediction(p)
dlrm.setEpochs(10)
