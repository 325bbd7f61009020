-- Models: predictions, versions, comments, evaluation, removal.
SET client_min_messages = warning;
\set SHOW_CONTEXT never
SELECT count(*) FILTER (WHERE dana_predict('logistic', age, weight) > 0.5) AS positive, count(*) FROM patients WHERE age IS NOT NULL;
SELECT dana_predict('logistic@1', 0.9, 0.1) > 0.5 AS old, dana_predict('logistic@1', ARRAY[0.05, 0.1]) > 0.5 AS young,
	dana_predict('logistic@1', NULL, 0.1) AS unknown;
SELECT model, epoch, loss IS NOT NULL AS loss FROM dana.curve WHERE model = 'logistic' AND epoch = 1 ORDER BY run LIMIT 1;

SELECT name, version, active FROM dana.model WHERE name = 'logistic' ORDER BY version;
SELECT dana_rollback_model('logistic');
SELECT name, version, active FROM dana.model WHERE name = 'logistic' ORDER BY version;
SELECT dana_comment_model('logistic', 'for the doctors', 1);
SELECT dana_rename_model('logistic', 'doctors');
SELECT name, version, comment FROM dana.model WHERE comment IS NOT NULL;

SELECT e ->> 'model' AS model, e ->> 'rows' AS rows, (e ->> 'accuracy')::float8 > 0.9 AS accurate, e -> 'confusion' ? 'tp' AS confusion
FROM dana_evaluate('doctors@1') e;
SELECT tuples BETWEEN 140 AND 180 AS most FROM dana_train('logistic', 'patients', 'held', '{age,weight}', 'ill', test_size => 0.2, seed => 7);
SELECT e ->> 'part' AS part, (e ->> 'rows')::int BETWEEN 20 AND 60 AS rest FROM dana_evaluate('held') e;

SELECT dana_drop_model('doctors', 2), dana_drop_model('held');
SELECT dana_drop_model('doctors');
SELECT dana_drop_rule('logistic');
SELECT name, rule FROM dana.model ORDER BY 1;
DROP TABLE patients, flowers;
DROP EXTENSION dana CASCADE;
SELECT nspname FROM pg_namespace WHERE nspname = 'dana';
