"""Three layers, two of them with batch norm and dropout; no derivative is written."""

import dana
from dana.functions import batch_norm, dropout, standardized

n, h, k = dana.dim(), dana.dim(16), dana.dim()
start = dana.normal(0, 0.3)
U, V, W = dana.model([h, n], init=start), dana.model([h, h], init=start), dana.model([k, h], init=start)
scale, shift, b = dana.model([2, h], init=1), dana.model([2, h]), dana.model([k])
x, y = dana.input([n]), dana.output(classes=k)
network = dana.algo(U, V, W, scale, shift, b, x, y)


def layer(number, values):
    normed = batch_norm(network, values, 64, scale[number], shift[number])
    return dropout(dana.max(normed, 0), 0.1)


hidden = layer(1, V @ layer(0, U @ standardized(x)))
scores = W @ hidden + b
network.setLoss(-dana.sigma(dana.log_softmax(scores) * (dana.arange(k) == y)))
network.minimize(dana.optimizers.adam, rate=0.01, batch=64)
network.setPrediction(dana.softmax(scores))
network.setEpochs(10)
