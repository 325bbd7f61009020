-- Trainings: rows that are read, stored results.
SET client_min_messages = warning;
\set SHOW_CONTEXT never
CREATE TABLE patients (id int, age real, weight real, smokes boolean, ill int);
INSERT INTO patients
	SELECT i, (i * 37 % 50) / 50.0, (i * 11 % 30) / 30.0, i % 3 = 0,
		((i * 37 % 50) / 50.0 > (i * 11 % 30) / 30.0)::int FROM generate_series(1, 200) i;
INSERT INTO patients VALUES (201, NULL, 1, false, 1);

SELECT model, version, epochs, converged, tuples, skipped, loss < 0.2 AS learned
FROM dana_train('logistic', 'patients', features => '{age,weight}', label => 'ill');
-- the paper's form
SELECT model, version, tuples FROM dana.logistic('patients', '{"features": ["age", "weight"], "label": "ill", "epochs": 2}');
SELECT name, version, rule, metadata -> 'features' AS features, cardinality(weights) FROM dana.model ORDER BY 1, 2;
SELECT parameter, shape FROM dana_parameters('logistic');
SELECT model, model_version, source, machine, epochs, tuples, skipped FROM dana.run ORDER BY id;
SELECT count(*), bool_and(loss > 0) FROM dana.epoch;

-- the interpreter, the simulator: one model
SELECT tuples FROM dana_train('logistic', 'patients', 'oracle', '{age,weight}', 'ill', machine => 'interp');
SELECT a.weights = b.weights AS same FROM dana.model a, dana.model b WHERE (a.name, a.version, b.name) = ('logistic', 1, 'oracle');

-- parts of a table, queries, types, classes
SELECT tuples, skipped FROM dana_train('logistic', 'patients', 'm', '{age,weight}', 'ill', filter => 'id % 2 = 0');
SELECT tuples FROM dana_train('logistic', model => 'm', query => 'SELECT age, smokes, ill FROM patients WHERE id < 50');
SELECT tuples, skipped FROM dana_train('logistic', 'patients', 'm', '{age}', 'ill', nulls => '0');
CREATE TABLE flowers AS
	SELECT (i % 3 = 0)::int::numeric AS a, ARRAY[i % 3 = 1, i % 3 = 2]::int[]::real[] AS b, (ARRAY['iris', 'lily', 'rose'])[1 + i % 3] AS kind
	FROM generate_series(0, 89) i;
SELECT tuples FROM dana_train('classes', query => 'SELECT a, b[1] AS c, b[2] AS d, kind FROM flowers', model => 'flowers',
	label => 'kind', classes => '{iris,lily,rose}');
SELECT kind, dana_predict('flowers', a, b) AS class, count(*) FROM flowers GROUP BY 1, 2 ORDER BY 1;

-- a training is part of its transaction
BEGIN;
SELECT version FROM dana_train('logistic', 'patients', 'gone', '{age}', 'ill');
ROLLBACK;
SELECT count(*) FROM dana.model WHERE name = 'gone';
