import dana
from dana.functions import standardized

n  = dana.dim()                    # bound to the number of feature columns at train time
w  = dana.model([n])               # what is learnt
b  = dana.model()
x  = dana.input([n])               # a row's features
y  = dana.output(classes=2)        # its label: two values of any kind, here as 0 and 1
lr = dana.meta(0.1)                # a constant that can be changed at train time

churn = dana.algo(w, b, x, y)

z     = standardized(x)            # columns in units of their own deviation
p     = dana.sigmoid(dana.sigma(w * z, 1) + b)
error = p - y                      # up to here for each row; from merge on once per batch of 64

churn.setModel(w, w - lr * churn.merge(error * z, 64, "+") / 64)
churn.setModel(b, b - lr * churn.merge(error, 64, "+") / 64)
churn.setLoss(error * error)
churn.setPrediction(p)
churn.setEpochs(20)
