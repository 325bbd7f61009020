"""K-means: k-means++ starts, then Lloyd's algorithm; a row belongs to the nearest of k centres; predicts which."""

import dana
from dana.functions import one_hot, standardized

k = dana.dim(8)  # centres
n = dana.dim()
n_init = dana.meta(10)
x = dana.input([n])
C = dana.model([k, n], init=dana.centres(x, n_init))
kmeans = dana.algo(C, x)
dana.require(n_init >= 1)

away = standardized(x) - C
distance = dana.sigma(away * away, 2)
nearest = dana.argmin(distance)
least = dana.amin(distance)
own = one_hot(nearest, k)
rows = kmeans.merge(own, dana.all, "+")
step = kmeans.merge(dana.expand(own, 2) * away, dana.all, "+") * dana.expand(1 / dana.max(1, rows), 2)

kmeans.setModel(C, C + step)
kmeans.setLoss(least)
kmeans.setPrediction(nearest)
kmeans.setConvergence(dana.total(step * step) <= 1e-5 * kmeans.merge(least, dana.all, "mean"))
kmeans.setEpochs(100)
