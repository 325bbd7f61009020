"""Principal components: the first k, by Sanger's rule; predicts a row's squared distance from their subspace."""

import dana
from dana.functions import standardized
from dana.optimizers import inverse_decay, largest

n = dana.dim()
k = dana.dim(2)  # components
W = dana.model([k, n], init=dana.normal(0, 0.1))
x = dana.input([n])
lr = dana.meta(1)
batch = dana.meta(64)

pca = dana.algo(W, x)

away = standardized(x)
z = dana.sigma(W * away, 2)
each = 1 / batch  # the share of a row
gradient = pca.merge(dana.expand(z, 2) * away, batch, "+") * each
products = pca.merge(dana.expand(z, 2) * z, batch, "+") * each
before = dana.expand(dana.arange(k), 1) <= dana.expand(dana.arange(k), 2)
taken = dana.sigma(dana.expand(products * before, 3) * dana.expand(W, 1), 2)
size = dana.sigma(away * away, 1)
rate = inverse_decay(lr) / largest(pca.merge(size, batch, "+") * each)

pca.setModel(W, W + rate * (gradient - taken))
residual = size - dana.sigma(z * z, 1)
rest = away - dana.sigma(W * dana.expand(z, 2), 1)  # also while the components are not orthonormal yet
pca.setLoss(dana.sigma(rest * rest, 1) - size)
pca.setPrediction(residual)
pca.setEpochs(100)
