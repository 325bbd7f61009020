-- Many trainings: groups, folds, a search; and a training in the background.
SET client_min_messages = notice;
\set SHOW_CONTEXT never
SELECT setseed(0.5) IS NULL AS seeded;
CREATE TABLE visits AS
	SELECT i AS id, CASE WHEN i % 100 > 0 THEN chr(97 + i % 3) END AS city, a::real, b::real, (a > b)::int AS came
	FROM (SELECT i, random() AS a, random() AS b FROM generate_series(1, 600) AS i) AS s;

SELECT key, model, version, tuples, error FROM dana_train_groups('logistic', 'visits', '{city}',
	'{"features": ["a", "b"], "label": "came"}') ORDER BY model;
SELECT city, count(*), count(dana_predict(dana_group('logistic', city), a, b)) AS predicted FROM visits GROUP BY city ORDER BY city;
SELECT (dana_evaluate(dana_group('logistic', 'a')) ->> 'rows')::int AS rows_of_a;

SELECT fold, trained + tested AS rows, metrics ? 'auc' AS auc FROM dana_cross_validate('logistic', 'visits', folds => 3,
	training => '{"features": ["a", "b"], "label": "came"}', metrics => '{auc}');
SELECT count(DISTINCT dana_fold(id::text, 4)) AS folds, min(dana_fold(ctid, 4)) AS first FROM visits;

SELECT rank, hyper, score > 0.9 AS good, error FROM dana_search('logistic', 'visits', '{"lr": [1, "much"]}', 'auc', test_size => 0.3,
	training => '{"features": ["a", "b"], "label": "came"}', keep => 'best');
SELECT version, metadata ->> 'test_size' AS test_size FROM dana.model WHERE name = 'best';

SELECT dana_start('dana_train', '{"rule": "logistic", "source": "visits", "model": "background", "features": ["a", "b"], "label": "came"}') AS job \gset
SELECT dana_wait(:job, 60);
SELECT function, state, result -> 0 ->> 'model' AS model, (result -> 0 ->> 'tuples')::int AS tuples, pid IS NULL AS gone
FROM dana.job WHERE id = :job;
SELECT dana_start('dana_search', '{"rule": "logistic", "source": "visits", "grid": {"lr": []}}') AS job \gset
SELECT dana_wait(:job, 60);
SELECT state, sqlstate, message FROM dana.job WHERE id = :job;

SELECT name, count(*) FROM dana.model WHERE name ~ '\[|^best|^background' GROUP BY 1 ORDER BY 1;
SELECT count(dana_drop_model(name)) AS dropped FROM dana.model WHERE name ~ '\[|^best|^background';
DROP TABLE visits;
