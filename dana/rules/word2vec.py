"""Skip-gram with negative samples over pairs (word, neighbour), the most frequent word 0; predicts how near."""

import dana

n = dana.dim(1000)  # words
k = dana.dim(50)  # numbers of an embedding
negatives = dana.dim(5)
U = dana.model([n, k], init=dana.uniform(-0.01, 0.01))  # embeddings
V = dana.model([n, k])  # of neighbours
i = dana.input(categories=n)
j = dana.input(categories=n)
weight = dana.weight()
lr = dana.meta(0.025)
skew = dana.meta(4)  # by Zipf's law samples then are as frequency to the power of 3/4; 1: all alike

word2vec = dana.algo(U, V, i, j, weight)

dana.require(skew > 0)
near = U[i] @ V[j]
loss = -dana.log(dana.sigmoid(near))
for t in range(negatives):
    place = dana.exp(skew * dana.log(dana.max(dana.random(seed=t), 1e-9)))
    sample = dana.min(dana.floor(n * place), n - 1)
    loss = loss - dana.log(1 - dana.sigmoid(U[i] @ V[sample]))

word2vec.setLoss(weight * loss)
word2vec.minimize(dana.optimizers.sgd, rate=lr)
word2vec.setPrediction(near)
word2vec.setEpochs(10)
