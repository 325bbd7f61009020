"""K-means by mini-batches: a row belongs to all of k centres at first, in the end to the nearest; predicts which."""

import dana
from dana.functions import one_hot, standardized
from dana.optimizers import inverse_decay, running_mean

k = dana.dim(8)  # centres
n = dana.dim()
C = dana.model([k, n], init=dana.normal(0, 0.1))
rows = dana.model([k])  # of each centre, old ones fading
spread = dana.model()
x = dana.input([n])
heat = dana.meta(0.2)
batch = dana.meta(64)
kmeans_sgd = dana.algo(C, rows, spread, x)

away = standardized(x) - C
distance = dana.sigma(away * away, 2)
nearest = dana.argmin(distance)
least = dana.sigma(distance * one_hot(nearest, k), 1)
warm = dana.max(inverse_decay(heat, 0.03) * spread, 1e-30)
part = dana.exp((least - distance) * (1 / warm))
part = part * (1 / dana.sigma(part, 1))
total = (1 - inverse_decay(0.2, 0.02)) * rows + kmeans_sgd.merge(part, batch, "+")

step = kmeans_sgd.merge(dana.expand(part, 2) * away, batch, "+")
kmeans_sgd.setModel(C, C + step * dana.expand(1 / dana.max(total, 1e-30), 2))
kmeans_sgd.setModel(rows, total)
kmeans_sgd.setModel(spread, running_mean(kmeans_sgd.merge(least, batch, "+") / batch))
kmeans_sgd.setLoss(least)
kmeans_sgd.setPrediction(nearest)
kmeans_sgd.setEpochs(100)
