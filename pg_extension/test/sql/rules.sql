-- Rules: created from a text, rejected with every error in it, replaced, granted, dropped.
SET client_min_messages = warning;
CREATE EXTENSION dana;
SELECT extname FROM pg_extension WHERE extname = 'dana';

SELECT dana_create_udf('logistic', $rule$
import dana

n  = dana.dim()
w  = dana.model([n])
x  = dana.input([n])
y  = dana.output()
lr = dana.meta(1)

logistic = dana.algo(w, x, y)

p    = dana.sigmoid(dana.sigma(w * x, 1))
grad = logistic.merge((p - y) * x, 8, "+")

logistic.setModel(w - lr * grad / 8)
logistic.setLoss((p - y) * (p - y))
logistic.setPrediction(p)
logistic.setEpochs(20)
$rule$);

-- classes: one_hot, softmax, argmax
SELECT dana_create_udf('classes', $rule$
import dana
from dana.functions import one_hot

k = dana.dim(3)
n = dana.dim()
W = dana.model([k, n])
x = dana.input([n])
y = dana.output()
lr = dana.meta(0.5)

classes = dana.algo(W, x, y)

score = dana.sigma(W * x, 2)
error = dana.softmax(score) - one_hot(y, k)
classes.setModel(W - lr * classes.merge(dana.expand(error, 2) * x, 9, "+") / 9)
classes.setLoss(dana.sigma(error * error, 1))
classes.setPrediction(dana.argmax(score))
classes.setEpochs(60)
$rule$);

SELECT name, description -> 'inputs' AS inputs FROM dana.rule ORDER BY name;
SELECT proname, pronargs, prorettype::regtype FROM pg_proc
	WHERE pronamespace = 'dana'::regnamespace AND proname NOT LIKE 'dana\_%' ORDER BY 1;

-- all errors of a text come at once, each with its place
SELECT dana_create_udf('wrong', $rule$
import dana
w = dana.model([4])
x = dana.input([5])
y = dana.output()
wrong = dana.algo(w, x, y)
wrong.setModel(w - x * z)
wrong.setModle(w)
$rule$);

-- who may read and train a rule
CREATE ROLE regress_dana;
GRANT EXECUTE ON FUNCTION dana_train TO regress_dana;
SELECT dana_revoke_rule('classes');
SET ROLE regress_dana;
SELECT name FROM dana.rule;
SELECT dana_train('classes', query => 'SELECT 1 AS a, 2 AS y');
RESET ROLE;
SELECT dana_grant_rule('classes', 'regress_dana');
SELECT name, public, users FROM dana.rule ORDER BY name;
SELECT dana_revoke_rule('classes', 'regress_dana'), dana_grant_rule('classes');
REVOKE EXECUTE ON FUNCTION dana_train FROM regress_dana;
DROP ROLE regress_dana;
