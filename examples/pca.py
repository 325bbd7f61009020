"""Principal components: the first k, by Sanger's rule; predicts a row's squared distance from their subspace."""

import dana
from dana.optimizers import inverse_decay, largest, running_mean

n = dana.dim()
k = dana.dim(2)  # components
W = dana.model([k, n], init=dana.normal(0, 0.1))
centre = dana.model([n])
x = dana.input([n])
lr = dana.meta(1)

pca = dana.algo(W, centre, x)

away = x - centre
z = dana.sigma(W * away, 2)
gradient = pca.merge(dana.expand(z, 2) * away, 64, "+") / 64
products = pca.merge(dana.expand(z, 2) * z, 64, "+") / 64
before = dana.expand(dana.arange(k), 1) <= dana.expand(dana.arange(k), 2)
taken = dana.sigma(dana.expand(products * before, 3) * dana.expand(W, 1), 2)
size = dana.sigma(away * away, 1)
rate = inverse_decay(lr) / largest(pca.merge(size, 64, "+") / 64)
rows = pca.merge(1, 64, "+")  # of the batch

pca.setModel(W, W + rate * (gradient - taken))
pca.setModel(centre, running_mean(pca.merge(x, 64, "+") * (1 / rows), keep=0.99))
residual = size - dana.sigma(z * z, 1)
pca.setLoss(residual)
pca.setPrediction(residual)
pca.setEpochs(100)
