\echo Use "ALTER EXTENSION dana UPDATE TO '0.3.0'" to load this file. \quit


-- Which model a text names, and which columns it was trained on

CREATE FUNCTION dana_find_model(reference text, OUT name text, OUT version integer)
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_find_model(text) IS 'The version that "name" or "name@version" stands for; an error where there is none that you may use';

CREATE OR REPLACE FUNCTION dana_parameters(model text, version integer DEFAULT NULL)
	RETURNS TABLE (parameter text, shape integer[], "values" real[])
	LANGUAGE sql STABLE PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT p.value ->> 'name',
		ARRAY(SELECT d.value::integer FROM jsonb_array_elements_text(p.value -> 'shape') WITH ORDINALITY AS d (value, n) ORDER BY d.n),
		m.weights[(p.value ->> 'offset')::integer + 1 : (p.value ->> 'offset')::integer + (p.value ->> 'size')::integer]
	FROM @extschema@.dana_find_model($1 || COALESCE('@' || $2, '')) AS f,
		-- OFFSET: looked for in any case, and so an error, before a plan may find that there are no models
		LATERAL (SELECT * FROM dana.model AS a WHERE a.name = f.name AND a.version = f.version OFFSET 0) AS m,
		jsonb_array_elements(m.parameters) WITH ORDINALITY AS p (value, n)
	ORDER BY p.n
	$$;
COMMENT ON FUNCTION dana_parameters(text, integer) IS 'The parameters of a model, by name and version or as "name@version": name, shape, and values row by row';

CREATE FUNCTION dana_arguments(features jsonb) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
	-- a function has 100 arguments at most; a row is slower to make than arguments
	SELECT CASE WHEN jsonb_array_length(features) BETWEEN 1 AND 98 THEN (
		SELECT string_agg(format('r.%I', f.name), ', ' ORDER BY f.n) FROM jsonb_array_elements_text(features) WITH ORDINALITY AS f (name, n)
	) ELSE 'r.*' END
	$$;
COMMENT ON FUNCTION dana_arguments(jsonb) IS 'The arguments of dana_predict() after the model, for rows that are called r: the columns of a model''s metadata';

CREATE FUNCTION dana_number(value "any") RETURNS double precision
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_number("any") IS 'The number that a training makes of a value, before it is rounded to real: of a boolean, a date, a time ...';

-- For calls of our own: others may make functions in the schema of the extension, if they may create there, that fit the
-- types of an argument better than "any" does. Nobody can in this one.

CREATE FUNCTION dana.dana_predict(model text, VARIADIC features "any") RETURNS real
	LANGUAGE c STABLE STRICT PARALLEL SAFE COST 10 AS 'MODULE_PATHNAME', 'dana_predict';
COMMENT ON FUNCTION dana.dana_predict(text, "any") IS 'dana_predict(), as the extension''s own functions call it';

CREATE FUNCTION dana.dana_number(value "any") RETURNS double precision
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_number';
COMMENT ON FUNCTION dana.dana_number("any") IS 'dana_number(), as the extension''s own functions call it';

-- Predictions for whole tables

COMMENT ON FUNCTION dana_predict(text, "any") IS
	'Prediction of a model ("name", or "name@version") for one row; features in the order of training, as columns or arrays, or a whole row, whose columns are found by name';

-- Runs with the rights of the caller. Materialised, as a function in FROM is anyway. Not for parallel workers: nobody
-- knows what a filter calls; the query inside may use workers of its own.
CREATE FUNCTION dana_predict_table(
	model text,
	source regclass,
	key text DEFAULT NULL,
	filter text DEFAULT NULL,
	OUT id text,
	OUT prediction real
) RETURNS SETOF record
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 100000 COST 1000000
	AS $$
DECLARE
	found record;
	names jsonb;
BEGIN
	IF model IS NULL OR source IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = pg_catalog.format('argument "%s" must not be NULL',
			CASE WHEN model IS NULL THEN 'model' ELSE 'source' END);
	END IF;
	SELECT f.name, f.version INTO found FROM @extschema@.dana_find_model($1) AS f;
	SELECT m.metadata -> 'features'::text INTO names FROM dana.model AS m WHERE m.name = found.name AND m.version = found.version;
	IF key IS NULL THEN
		SELECT a.attname INTO key FROM pg_catalog.pg_index AS i
		JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid OPERATOR(pg_catalog.=) source::pg_catalog.oid AND i.indisprimary AND i.indnkeyatts = 1;
	END IF;
	IF key IS NULL AND EXISTS (
		SELECT FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) source::pg_catalog.oid AND c.relkind = 'v') THEN
		RAISE invalid_parameter_value USING MESSAGE = 'argument "key" must name a column of the view that tells its rows apart';
	END IF;
	RETURN QUERY EXECUTE pg_catalog.format(E'SELECT r.%I::pg_catalog.text, dana.dana_predict(%L::pg_catalog.text, %s) FROM %s AS r WHERE (%s\n)',
		COALESCE(key, 'ctid'), model, @extschema@.dana_arguments(names), source, COALESCE(filter, 'true'));
END
$$;
COMMENT ON FUNCTION dana_predict_table(text, regclass, text, text) IS
	'Predictions for the rows of a table or view: the key column (by default the primary key, else ctid) as text, and the prediction';

-- What a training would run on

CREATE FUNCTION dana_explain(
	udf text,
	source regclass DEFAULT NULL,
	features text[] DEFAULT NULL,
	label text DEFAULT NULL,
	epochs integer DEFAULT NULL,
	hyper jsonb DEFAULT '{}',
	design jsonb DEFAULT '{}',
	query text DEFAULT NULL,
	filter text DEFAULT NULL,
	classes text[] DEFAULT NULL,
	device text DEFAULT 'xcvu9p',
	search boolean DEFAULT false,
	format text DEFAULT 'text'
) RETURNS SETOF text
	LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 20 COST 1000000 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_explain IS
	'The machine that dana_train() would train with, or the best one for an FPGA: program, cycles, bottleneck, area, and the estimate beside the last run; trains nothing';

-- who may train may also ask; who may predict may do so by both names
DO $$
DECLARE
	given record;
	allowed record;
BEGIN
	FOR given IN SELECT v.source, v.target FROM (VALUES
		('@extschema@.dana_train'::pg_catalog.regproc::pg_catalog.oid, '@extschema@.dana_explain'),
		('@extschema@.dana_predict(text, "any")'::pg_catalog.regprocedure::pg_catalog.oid, 'dana.dana_predict')) AS v (source, target)
	LOOP
		EXECUTE pg_catalog.format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', given.target);
		FOR allowed IN SELECT a.grantee, a.is_grantable
			FROM pg_catalog.pg_proc AS p, pg_catalog.aclexplode(COALESCE(p.proacl, pg_catalog.acldefault('f', p.proowner))) AS a
			WHERE p.oid = given.source AND a.grantee <> p.proowner
		LOOP
			EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %s%s', given.target,
				CASE WHEN allowed.grantee = 0 THEN 'PUBLIC' ELSE allowed.grantee::pg_catalog.regrole::text END,
				CASE WHEN allowed.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
		END LOOP;
	END LOOP;
END
$$;

-- Limits

COMMENT ON COLUMN dana.progress.phase IS 'waiting (for others to end: dana.max_runs), compiling, streaming (pages to the machine), training (on kept pages), storing';

-- One model for each group of rows

CREATE FUNCTION dana_group(model text, VARIADIC keys text[]) RETURNS text
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_group(text, text[]) IS 'Name of the model that dana_train_groups() makes of a group: dana_predict(dana_group(''m'', region), ...)';

CREATE TYPE dana.group_training AS (
	key jsonb,
	model text,
	version integer,
	run bigint,
	epochs integer,
	converged boolean,
	loss double precision,
	tuples bigint,
	skipped bigint,
	wall_seconds double precision,
	sqlstate text,
	error text
);
COMMENT ON TYPE dana.group_training IS 'A group''s training; where its data could not be trained on, sqlstate and error say why';

CREATE FUNCTION dana_train_groups(
	udf text,
	source regclass DEFAULT NULL,
	model text DEFAULT NULL,
	features text[] DEFAULT NULL,
	label text DEFAULT NULL,
	epochs integer DEFAULT NULL,
	hyper jsonb DEFAULT '{}',
	backend text DEFAULT 'sim',
	design jsonb DEFAULT '{}',
	query text DEFAULT NULL,
	filter text DEFAULT NULL,
	nulls text DEFAULT 'skip',
	nonfinite text DEFAULT 'keep',
	classes text[] DEFAULT NULL,
	test double precision DEFAULT NULL,
	seed integer DEFAULT 1,
	warm text DEFAULT NULL,
	group_by text[] DEFAULT NULL
) RETURNS SETOF dana.group_training
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_train_groups IS 'Train a rule on each group of a table''s or a query''s rows, and store a model for each';
REVOKE EXECUTE ON FUNCTION dana_train_groups FROM PUBLIC;

-- Calls with arguments from a JSON object

CREATE FUNCTION dana_statement(function text, arguments jsonb) RETURNS text
	LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	declared record;
	given text;
	passed text;
	unknown text;
BEGIN
	IF function NOT IN ('dana_train', 'dana_train_groups', 'dana_evaluate', 'dana_cross_validate', 'dana_search') THEN
		RAISE undefined_function USING MESSAGE = format('%s() cannot be called with a JSON object', function);
	END IF;
	IF jsonb_typeof(arguments) <> 'object' THEN
		RAISE invalid_parameter_value USING MESSAGE = format('the arguments of %s() must be a JSON object', function);
	END IF;
	SELECT p.proargnames AS names, p.proargtypes::oid[] AS types INTO STRICT declared FROM pg_proc AS p
	WHERE p.proname = function AND p.pronamespace = '@extschema@'::regnamespace;
	SELECT string_agg(quote_literal(k), ', ' ORDER BY k) INTO unknown FROM jsonb_object_keys(arguments) AS k
	WHERE k <> ALL (declared.names);
	IF unknown IS NOT NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = format('%s() has no argument %s', function, unknown),
			HINT = format('It has: %s.', array_to_string(declared.names, ', '));
	END IF;
	SELECT string_agg(format('%I %s', a.name, format_type(a.type, NULL)), ', ' ORDER BY a.n),
		string_agg(format('%I => a.%1$I', a.name), ', ' ORDER BY a.n) INTO given, passed
	FROM unnest(declared.names, declared.types) WITH ORDINALITY AS a (name, type, n)
	WHERE arguments -> a.name <> 'null';
	RETURN format('SELECT COALESCE(pg_catalog.jsonb_agg(pg_catalog.to_jsonb(r)), ''[]'') FROM %sLATERAL @extschema@.%I(%s) AS r',
		'pg_catalog.jsonb_to_record($1) AS a (' || given || '), ', function, passed);
END
$$;
COMMENT ON FUNCTION dana_statement(text, jsonb) IS 'The statement that calls one of dana''s functions with the members of a JSON object as arguments';

-- Cross-validation and search

CREATE FUNCTION dana_fold(place tid, folds integer, seed integer DEFAULT 1) RETURNS integer
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_fold_place';
COMMENT ON FUNCTION dana_fold(tid, integer, integer) IS 'In which of so many parts, from 1, a row is, given its ctid';

CREATE FUNCTION dana_fold(key text, folds integer, seed integer DEFAULT 1) RETURNS integer
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_fold_text';
COMMENT ON FUNCTION dana_fold(text, integer, integer) IS 'In which of so many parts, from 1, a row is, given a key''s text';

CREATE FUNCTION dana_trial(training jsonb, evaluation jsonb, tolerant boolean DEFAULT false) RETURNS jsonb
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_trial(jsonb, jsonb, boolean) IS 'Train with these arguments of dana_train(), evaluate with these of dana_evaluate(), keep nothing; tolerant: the error of a training that fails is the result';

CREATE FUNCTION dana_apart(training jsonb, condition text) RETURNS jsonb
	LANGUAGE sql IMMUTABLE PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT CASE WHEN training ->> 'query' IS NOT NULL
		THEN training || jsonb_build_object('query', format(E'SELECT * FROM (%s\n) AS r WHERE %s', training ->> 'query', condition))
		ELSE training || jsonb_build_object('filter', condition || COALESCE(E' AND (' || (training ->> 'filter') || E'\n)', ''))
	END
	$$;
COMMENT ON FUNCTION dana_apart(jsonb, text) IS 'Arguments of dana_train() or dana_evaluate(), for those of the rows for which a condition holds';

CREATE TYPE dana.validation AS (
	fold text,
	trained bigint,
	tested bigint,
	epochs double precision,
	loss double precision,
	metrics jsonb
);
COMMENT ON TYPE dana.validation IS 'A fold of dana_cross_validate(); after the last one the mean over the folds, and the deviation';

-- Runs with the rights of the caller, like dana_evaluate(). All trials are one statement, so they see the same rows.
CREATE FUNCTION dana_cross_validate(
	udf text,
	source regclass DEFAULT NULL,
	folds integer DEFAULT 5,
	features text[] DEFAULT NULL,
	label text DEFAULT NULL,
	epochs integer DEFAULT NULL,
	hyper jsonb DEFAULT '{}',
	backend text DEFAULT 'sim',
	design jsonb DEFAULT '{}',
	query text DEFAULT NULL,
	filter text DEFAULT NULL,
	nulls text DEFAULT 'skip',
	nonfinite text DEFAULT 'keep',
	classes text[] DEFAULT NULL,
	seed integer DEFAULT 1,
	warm text DEFAULT NULL,
	key text DEFAULT NULL,
	threshold double precision DEFAULT NULL,
	metrics text[] DEFAULT NULL
) RETURNS SETOF dana.validation
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
	AS $$
DECLARE
	training jsonb := pg_catalog.jsonb_build_object('udf', udf, 'source', source::text, 'model', 'trial ' || pg_catalog.pg_backend_pid()::text,
		'features', features, 'label', label, 'epochs', epochs, 'hyper', hyper, 'backend', backend, 'design', design, 'query', query,
		'filter', filter, 'nulls', nulls, 'nonfinite', nonfinite, 'classes', classes, 'warm', warm);
	evaluation jsonb := pg_catalog.jsonb_build_object('source', source::text, 'query', query, 'filter', filter,
		'part', 'all', 'threshold', threshold);
	fold_of text;
	results dana.validation[];
	failed jsonb;
	unknown text;
BEGIN
	IF seed IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'argument "seed" must not be NULL';
	ELSIF folds IS NULL OR folds NOT BETWEEN 2 AND 1000 THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('argument "folds" must be from 2 to 1000, not %s', COALESCE(folds::text, 'NULL'));
	END IF;
	IF key IS NULL AND (query IS NOT NULL OR EXISTS (
		SELECT FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) source::pg_catalog.oid AND c.relkind = 'v')) THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('argument "key" must name a column of the %s that tells its rows apart',
				CASE WHEN query IS NULL THEN 'view' ELSE 'query' END),
			HINT = 'The folds are chosen by it. Name the features too, unless the key is one.';
	END IF;
	fold_of := pg_catalog.format('@extschema@.dana_fold(%s, %s, %s)',
		COALESCE(pg_catalog.quote_ident(key) || '::pg_catalog.text', 'ctid'), folds, seed);
	WITH trials AS MATERIALIZED (
		SELECT f.n, @extschema@.dana_trial(@extschema@.dana_apart(training, fold_of || ' <> ' || f.n::text),
			@extschema@.dana_apart(evaluation, fold_of || ' = ' || f.n::text), true) AS t
		FROM pg_catalog.generate_series(1, folds) AS f (n)
	)
	SELECT pg_catalog.array_agg(ROW(t.n::text, t.t #>> '{training,tuples}'::text[], t.t #>> '{scores,rows}'::text[], t.t #>> '{training,epochs}'::text[],
			t.t #>> '{training,loss}'::text[], (t.t -> 'scores'::text) - ARRAY['model', 'version', 'part', 'rows'])::dana.validation ORDER BY t.n),
		(pg_catalog.array_agg(t.t || pg_catalog.jsonb_build_object('fold', t.n) ORDER BY t.n) FILTER (WHERE t.t ? 'error'::text))[1]
	INTO results, failed FROM trials AS t;
	IF failed IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = failed ->> 'sqlstate'::text,
			MESSAGE = pg_catalog.format('fold %s of %s: %s', failed ->> 'fold'::text, folds, failed ->> 'error'::text),
			HINT = COALESCE(failed ->> 'hint'::text, 'Each fold needs rows to train on and rows to test on: fewer folds have more.');
	END IF;
	SELECT pg_catalog.string_agg(pg_catalog.quote_literal(m), ', ') INTO unknown FROM pg_catalog.unnest(metrics) AS m
	WHERE NOT (results[1]).metrics ? m;
	IF unknown IS NOT NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('there is no metric %s', unknown),
			HINT = pg_catalog.format('There are: %s.', (SELECT pg_catalog.string_agg(m, ', ') FROM pg_catalog.jsonb_object_keys((results[1]).metrics) AS m));
	END IF;
	RETURN QUERY
		SELECT r.fold, r.trained, r.tested, r.epochs, r.loss, CASE WHEN $19 IS NULL THEN r.metrics ELSE
			(SELECT pg_catalog.jsonb_object_agg(m.key, m.value) FROM pg_catalog.jsonb_each(r.metrics) AS m WHERE m.key = ANY ($19)) END
		FROM pg_catalog.unnest(results) AS r;
	RETURN QUERY
		WITH numbers AS (
			SELECT m.key AS name, pg_catalog.avg(v.number) AS mean, pg_catalog.stddev_samp(v.number) AS deviation
			FROM pg_catalog.unnest(results) AS r, pg_catalog.jsonb_each(r.metrics) AS m,
				LATERAL (SELECT CASE WHEN pg_catalog.jsonb_typeof(m.value) <> 'object' THEN (m.value #>> '{}'::text[])::float8 END AS number) AS v
			WHERE pg_catalog.jsonb_typeof(m.value) <> 'object' AND ($19 IS NULL OR m.key = ANY ($19)) GROUP BY m.key
		), whole AS (
			SELECT pg_catalog.avg(r.epochs) AS epochs, pg_catalog.stddev_samp(r.epochs) AS epochs_deviation,
				pg_catalog.avg(r.loss) AS loss, pg_catalog.stddev_samp(r.loss) AS loss_deviation FROM pg_catalog.unnest(results) AS r
		)
		SELECT 'mean', NULL::bigint, NULL::bigint, w.epochs, w.loss, (SELECT pg_catalog.jsonb_object_agg(n.name, n.mean) FROM numbers AS n)
		FROM whole AS w
		UNION ALL
		SELECT 'deviation', NULL, NULL, w.epochs_deviation, w.loss_deviation,
			(SELECT pg_catalog.jsonb_object_agg(n.name, n.deviation) FROM numbers AS n)
		FROM whole AS w;
END
$$;
COMMENT ON FUNCTION dana_cross_validate IS 'Train a rule on all but a fold of the rows and evaluate on that fold, for each of them; a row for each, their mean and deviation';
REVOKE EXECUTE ON FUNCTION dana_cross_validate FROM PUBLIC;

CREATE TYPE dana.search_point AS (
	rank bigint,
	hyper jsonb,
	score double precision,
	deviation double precision,
	metrics jsonb,
	error text
);
COMMENT ON TYPE dana.search_point IS 'A point of a grid: its score is the metric''s mean over the folds; rank 1 is the best, and has none where a training failed';

CREATE FUNCTION dana_grid(grid jsonb) RETURNS SETOF jsonb
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	points numeric;
BEGIN
	IF jsonb_typeof(grid) = 'array' THEN
		SELECT CASE WHEN bool_and(jsonb_typeof(g.value) = 'object') THEN count(*) END INTO points FROM jsonb_array_elements(grid) AS g;
	ELSIF jsonb_typeof(grid) = 'object' THEN
		SELECT CASE WHEN bool_and(jsonb_typeof(g.value) = 'array' AND g.value <> '[]') THEN
			exp(sum(CASE jsonb_typeof(g.value) WHEN 'array' THEN ln(NULLIF(jsonb_array_length(g.value), 0)::numeric) END)) END
		INTO points FROM jsonb_each(grid) AS g;
	END IF;
	IF points IS NULL OR points = 0 THEN
		RAISE invalid_parameter_value USING MESSAGE = 'argument "grid" must name values to try for each hyperparameter',
			HINT = 'As an object of arrays, {"lr": [0.01, 0.1], "k": [2, 3]}, or as an array of objects, one for each point.';
	END IF;
	IF points > 10000.5 THEN
		RAISE program_limit_exceeded USING MESSAGE = format('the grid has %s points, more than 10000', round(points));
	END IF;
	IF jsonb_typeof(grid) = 'array' THEN
		RETURN QUERY SELECT g.value FROM jsonb_array_elements(grid) WITH ORDINALITY AS g (value, n) ORDER BY g.n;
	ELSE
		RETURN QUERY WITH RECURSIVE names AS (
			SELECT g.key, g.value, row_number() OVER (ORDER BY g.key) AS n FROM jsonb_each(grid) AS g
		), product (n, point, place) AS (
			SELECT 0::bigint, '{}'::jsonb, '{}'::bigint[]
			UNION ALL
			SELECT p.n + 1, p.point || jsonb_build_object(k.key, v.value), p.place || v.n
			FROM product AS p JOIN names AS k ON k.n = p.n + 1, jsonb_array_elements(k.value) WITH ORDINALITY AS v (value, n)
		) SELECT p.point FROM product AS p WHERE p.n = (SELECT count(*) FROM names) ORDER BY p.place;
	END IF;
END
$$;
COMMENT ON FUNCTION dana_grid(jsonb) IS 'The points of a grid: all combinations of an object''s arrays, or the objects of an array';

CREATE FUNCTION dana_search(
	udf text,
	source regclass DEFAULT NULL,
	grid jsonb DEFAULT NULL,
	metric text DEFAULT 'rmse',
	folds integer DEFAULT NULL,
	test double precision DEFAULT NULL,
	keep text DEFAULT NULL,
	features text[] DEFAULT NULL,
	label text DEFAULT NULL,
	epochs integer DEFAULT NULL,
	hyper jsonb DEFAULT '{}',
	backend text DEFAULT 'sim',
	design jsonb DEFAULT '{}',
	query text DEFAULT NULL,
	filter text DEFAULT NULL,
	nulls text DEFAULT 'skip',
	nonfinite text DEFAULT 'keep',
	classes text[] DEFAULT NULL,
	seed integer DEFAULT 1,
	warm text DEFAULT NULL,
	key text DEFAULT NULL,
	threshold double precision DEFAULT NULL
) RETURNS SETOF dana.search_point
	LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
	AS $$
DECLARE
	training jsonb := pg_catalog.jsonb_build_object('udf', udf, 'source', source::text, 'model', 'trial ' || pg_catalog.pg_backend_pid()::text,
		'features', features, 'label', label, 'epochs', epochs, 'backend', backend, 'design', design, 'query', query, 'filter', filter,
		'nulls', nulls, 'nonfinite', nonfinite, 'classes', classes, 'warm', warm);
	evaluation jsonb := pg_catalog.jsonb_build_object('source', source::text, 'query', query, 'filter', filter, 'part', 'all', 'threshold', threshold);
	place text := COALESCE(pg_catalog.quote_ident(key) || '::pg_catalog.text', 'ctid');
	greater boolean := metric IN ('r2', 'accuracy', 'precision', 'recall', 'f1', 'auc');
	chosen text;
	unknown text;
	known jsonb;
	outcomes jsonb[];
	points dana.search_point[];
	kept jsonb;
BEGIN
	IF metric IS NULL OR NOT (greater OR metric IN ('rmse', 'mae', 'log_loss')) THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('there is no metric "%s"', metric),
			HINT = 'There are rmse, mae, r2, and for two classes log_loss, accuracy, precision, recall, f1, auc.';
	ELSIF seed IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = 'argument "seed" must not be NULL';
	ELSIF folds IS NOT NULL AND test IS NOT NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = 'give either argument "folds" or argument "test", not both';
	ELSIF test IS NOT NULL AND NOT (test > 0::float8 AND test < 1::float8) THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('argument "test" must be a part of the rows between 0 and 1, not "%s"', test);
	ELSIF test IS NULL AND COALESCE(folds, 5) NOT BETWEEN 2 AND 1000 THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('argument "folds" must be from 2 to 1000, not %s', folds);
	ELSIF key IS NULL AND (query IS NOT NULL OR EXISTS (
		SELECT FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) source::pg_catalog.oid AND c.relkind = 'v')) THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('argument "key" must name a column of the %s that tells its rows apart',
				CASE WHEN query IS NULL THEN 'view' ELSE 'query' END),
			HINT = 'The parts are chosen by it. Name the features too, unless the key is one.';
	ELSIF COALESCE(pg_catalog.jsonb_typeof(hyper), 'null') <> 'object' THEN
		RAISE invalid_parameter_value USING MESSAGE = 'argument "hyper" must be a JSON object', HINT = 'For instance ''{"lr": 0.01}''.';
	END IF;
	SELECT COALESCE(u.description -> 'metas'::text, '{}') || COALESCE(u.description -> 'dims'::text, '{}') INTO known FROM dana.udf AS u WHERE u.name = udf;
	SELECT pg_catalog.string_agg(DISTINCT pg_catalog.quote_literal(k), ', ') INTO unknown
	FROM @extschema@.dana_grid(COALESCE(grid, '{}')) AS p (point), pg_catalog.jsonb_object_keys(p.point) AS k WHERE NOT known ? k;
	IF unknown IS NOT NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('the rule has no hyperparameter %s', unknown),
			HINT = pg_catalog.format('It has: %s.', COALESCE((SELECT pg_catalog.string_agg(k, ', ') FROM pg_catalog.jsonb_object_keys(known) AS k), 'none'));
	END IF;
	chosen := CASE WHEN test IS NOT NULL THEN pg_catalog.format('@extschema@.dana_holdout(%s, %s::pg_catalog.float8, %s)', place, test, seed)
		ELSE pg_catalog.format('@extschema@.dana_fold(%s, %s, %s) = ', place, COALESCE(folds, 5), seed) END;
	-- one statement, so that all trials see the same rows; a short one, because an error shows it
	SELECT pg_catalog.array_agg(pg_catalog.jsonb_build_object('n', p.n, 'fold', f.n, 'tried', $11 || p.point) || @extschema@.dana_trial(
		@extschema@.dana_apart(training || pg_catalog.jsonb_build_object('hyper', $11 || p.point), 'NOT (' || chosen || f.number || ')'),
		@extschema@.dana_apart(evaluation, '(' || chosen || f.number || ')'), true) ORDER BY p.n, f.n)
	INTO outcomes FROM @extschema@.dana_grid(grid) WITH ORDINALITY AS p (point, n),
		LATERAL (SELECT k AS n, CASE WHEN test IS NULL THEN k::text ELSE '' END AS number
				FROM pg_catalog.generate_series(1, CASE WHEN test IS NULL THEN COALESCE(folds, 5) ELSE 1 END) AS k) AS f;
	WITH trials AS (
		SELECT (t ->> 'n'::text)::integer AS n, (t ->> 'fold'::text)::integer AS fold, t -> 'tried'::text AS tried, t FROM pg_catalog.unnest(outcomes) AS t
	), means AS (
		SELECT t.n, m.key AS name, pg_catalog.avg((m.value #>> '{}'::text[])::float8) AS mean, pg_catalog.stddev_samp((m.value #>> '{}'::text[])::float8) AS deviation
		FROM trials AS t, pg_catalog.jsonb_each((t.t -> 'scores'::text) - ARRAY['model', 'version', 'part', 'rows', 'confusion']) AS m
		GROUP BY t.n, m.key
	), scored AS (
		SELECT t.n, t.tried, (pg_catalog.array_agg(t.t ->> 'error'::text ORDER BY t.fold) FILTER (WHERE t.t ? 'error'::text))[1] AS error,
			(SELECT pg_catalog.jsonb_object_agg(m.name, m.mean) FROM means AS m WHERE m.n = t.n) AS metrics,
			(SELECT m.mean FROM means AS m WHERE m.n = t.n AND m.name = metric) AS score,
			(SELECT m.deviation FROM means AS m WHERE m.n = t.n AND m.name = metric) AS deviation
		FROM trials AS t GROUP BY t.n, t.tried
	), judged AS (
		SELECT s.n, s.tried, s.deviation, s.metrics, s.score, COALESCE(s.error,
			CASE WHEN s.score IS NULL THEN pg_catalog.format('there is no %s on these rows', metric)
				WHEN s.score = 'NaN' THEN pg_catalog.format('%s is not a number: the training diverged', metric) END) AS error
		FROM scored AS s
	), ranked AS (
		SELECT j.*, CASE WHEN j.error IS NULL THEN pg_catalog.rank() OVER (ORDER BY j.error IS NOT NULL,
			CASE WHEN greater THEN -j.score ELSE j.score END) END AS rank FROM judged AS j
	)
	SELECT pg_catalog.array_agg(ROW(r.rank, r.tried, CASE WHEN r.error IS NULL THEN r.score END, CASE WHEN r.error IS NULL THEN r.deviation END,
		CASE WHEN r.error IS NULL THEN r.metrics END, r.error)::dana.search_point ORDER BY r.rank NULLS LAST, r.n)
	INTO points FROM ranked AS r;
	IF (points[1]).rank IS NULL THEN
		RAISE data_exception USING MESSAGE = pg_catalog.format('no point of the grid has a score: %s', (points[1]).error);
	END IF;
	IF keep IS NOT NULL THEN
		kept := training || pg_catalog.jsonb_build_object('model', keep, 'hyper', (points[1]).hyper);
		IF query IS NULL THEN
			kept := kept || pg_catalog.jsonb_build_object('test', test, 'seed', seed);
		END IF;
		EXECUTE @extschema@.dana_statement('dana_train', kept) USING kept;
	END IF;
	RETURN QUERY SELECT * FROM pg_catalog.unnest(points);
END
$$;
COMMENT ON FUNCTION dana_search IS 'Try hyperparameters: train and evaluate for each point of a grid, and rank them; keep: train a model of that name with the best';
REVOKE EXECUTE ON FUNCTION dana_search FROM PUBLIC;

-- Models for other software

CREATE FUNCTION dana_export_model(model text) RETURNS jsonb
	LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	found record;
	result jsonb;
BEGIN
	SELECT f.name, f.version INTO found FROM @extschema@.dana_find_model($1) AS f;
	SELECT jsonb_build_object('format', 'dana model 1', 'name', m.name, 'version', m.version, 'rule', m.udf, 'created', m.created,
		'comment', m.comment, 'metadata', m.metadata,
		'parameters', (SELECT jsonb_agg(jsonb_build_object('name', p.value ->> 'name', 'shape', p.value -> 'shape',
			'values', to_jsonb(m.weights[(p.value ->> 'offset')::integer + 1 : (p.value ->> 'offset')::integer + (p.value ->> 'size')::integer]))
			ORDER BY p.n) FROM jsonb_array_elements(m.parameters) WITH ORDINALITY AS p (value, n)),
		'predictor', translate(encode(m.predictor, 'base64'), E'\n', ''))
	INTO result FROM dana.model AS m WHERE m.name = found.name AND m.version = found.version;
	RETURN result;
END
$$;
COMMENT ON FUNCTION dana_export_model(text) IS
	'A model as JSON: parameters with their values, features, label, predictor in base64; dana export-model makes ONNX and PMML of it';

-- What the columns of results are

COMMENT ON SEQUENCE dana.run_id_seq IS 'Numbers of runs';
COMMENT ON COLUMN dana.training.model IS 'Name of the model';
COMMENT ON COLUMN dana.training.version IS 'Its version: how often a model of that name was trained';
COMMENT ON COLUMN dana.training.run IS 'Number of the run in dana.run and dana.epoch';
COMMENT ON COLUMN dana.training.epochs IS 'Passes over the rows';
COMMENT ON COLUMN dana.training.converged IS 'Whether the rule''s convergence test ended it';
COMMENT ON COLUMN dana.training.loss IS 'Mean loss of the last epoch; NULL where the rule has no setLoss()';
COMMENT ON COLUMN dana.training.tuples IS 'Rows trained on in an epoch';
COMMENT ON COLUMN dana.training.skipped IS 'Rows left out in an epoch';
COMMENT ON COLUMN dana.training.pages IS 'Pages read, over all epochs';
COMMENT ON COLUMN dana.training.cycles IS 'Cycles of the machine, over all epochs; NULL for backend interp';
COMMENT ON COLUMN dana.training.modelled_seconds IS 'Those cycles at the machine''s clock; NULL likewise';
COMMENT ON COLUMN dana.training.wall_seconds IS 'Seconds from the call to the result';
COMMENT ON COLUMN dana.group_training.key IS 'Values of the columns that the group has in common';
COMMENT ON COLUMN dana.group_training.model IS 'Name of the group''s model: dana_group(model, keys)';
COMMENT ON COLUMN dana.group_training.version IS 'Its version';
COMMENT ON COLUMN dana.group_training.run IS 'Number of the run';
COMMENT ON COLUMN dana.group_training.epochs IS 'Passes over the group''s rows';
COMMENT ON COLUMN dana.group_training.converged IS 'Whether the rule''s convergence test ended it';
COMMENT ON COLUMN dana.group_training.loss IS 'Mean loss of the last epoch';
COMMENT ON COLUMN dana.group_training.tuples IS 'Rows trained on in an epoch';
COMMENT ON COLUMN dana.group_training.skipped IS 'Rows left out in an epoch';
COMMENT ON COLUMN dana.group_training.wall_seconds IS 'Seconds that the group took';
COMMENT ON COLUMN dana.group_training.sqlstate IS 'Kind of the error where the group could not be trained on, else NULL';
COMMENT ON COLUMN dana.group_training.error IS 'Its text';
COMMENT ON COLUMN dana.validation.fold IS 'Number of the fold; mean and deviation of all in the last two rows';
COMMENT ON COLUMN dana.validation.trained IS 'Rows trained on';
COMMENT ON COLUMN dana.validation.tested IS 'Rows tested on';
COMMENT ON COLUMN dana.validation.epochs IS 'Passes over the rows';
COMMENT ON COLUMN dana.validation.loss IS 'Mean loss of the last epoch';
COMMENT ON COLUMN dana.validation.metrics IS 'What dana_evaluate() says of the fold that was left out';
COMMENT ON COLUMN dana.search_point.rank IS 'Place by score; 1 is the best, NULL where a training failed';
COMMENT ON COLUMN dana.search_point.hyper IS 'The point: hyperparameters for dana_train()';
COMMENT ON COLUMN dana.search_point.score IS 'The metric''s mean over the folds';
COMMENT ON COLUMN dana.search_point.deviation IS 'Its standard deviation over the folds';
COMMENT ON COLUMN dana.search_point.metrics IS 'Means of all metrics';
COMMENT ON COLUMN dana.search_point.error IS 'Text of the error where a training failed';

-- Calls in the background

CREATE TABLE dana.job_log (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	function text NOT NULL,
	arguments jsonb NOT NULL,
	settings jsonb NOT NULL,
	owner regrole NOT NULL,
	state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')),
	pid integer,
	created timestamptz NOT NULL DEFAULT now(),
	started timestamptz,
	ended timestamptz,
	result jsonb,
	sqlstate text,
	message text,
	detail text,
	hint text
);
COMMENT ON TABLE dana.job_log IS 'Calls in the background, as their processes write them down; dana.job shows them';
COMMENT ON SEQUENCE dana.job_log_id_seq IS 'Numbers of jobs';
COMMENT ON COLUMN dana.job_log.id IS 'Number of the job';
COMMENT ON COLUMN dana.job_log.function IS 'Function that it calls';
COMMENT ON COLUMN dana.job_log.arguments IS 'With these arguments';
COMMENT ON COLUMN dana.job_log.settings IS 'Under these settings, which the session that started it had made';
COMMENT ON COLUMN dana.job_log.owner IS 'As this role';
COMMENT ON COLUMN dana.job_log.state IS 'queued, running, done, failed, cancelled';
COMMENT ON COLUMN dana.job_log.pid IS 'Its process';
COMMENT ON COLUMN dana.job_log.created IS 'Start of the transaction that started it';
COMMENT ON COLUMN dana.job_log.started IS 'When the call began';
COMMENT ON COLUMN dana.job_log.ended IS 'When it ended';
COMMENT ON COLUMN dana.job_log.result IS 'The rows that the call returned';
COMMENT ON COLUMN dana.job_log.sqlstate IS 'Kind of the error that it ended with';
COMMENT ON COLUMN dana.job_log.message IS 'The error';
COMMENT ON COLUMN dana.job_log.detail IS 'Its detail';
COMMENT ON COLUMN dana.job_log.hint IS 'Its hint';

CREATE FUNCTION dana_job_lost(job bigint) RETURNS boolean
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_job_lost(bigint) IS 'Whether nobody works on a job of yours that is not over';

-- A job that nobody works on although it is not over: its process or the server was ended. Its worker's lock tells. What
-- ended since the statement's snapshot is shown as it was then.
CREATE VIEW dana.job WITH (security_barrier) AS
	SELECT j.id, j.function, j.arguments, j.owner,
		CASE WHEN j.state IN ('queued', 'running') AND l.pid IS NULL AND @extschema@.dana_job_lost(j.id) THEN 'lost' ELSE j.state END AS state,
		l.pid, j.created, j.started, j.ended, j.result, j.sqlstate, j.message, j.detail, j.hint
	FROM dana.job_log AS j LEFT JOIN pg_catalog.pg_locks AS l ON j.state IN ('queued', 'running') AND l.locktype = 'object'
		AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
		AND l.classid = 'dana.job_log'::pg_catalog.regclass AND l.objid = (j.id & 4294967295)::pg_catalog.oid
		AND l.mode = 'ExclusiveLock' AND l.granted
	WHERE pg_catalog.pg_has_role(j.owner, 'USAGE');
COMMENT ON VIEW dana.job IS 'Calls in the background, of your roles';
COMMENT ON COLUMN dana.job.id IS 'Number that dana_start() returned';
COMMENT ON COLUMN dana.job.function IS 'Function that it calls';
COMMENT ON COLUMN dana.job.arguments IS 'With these arguments';
COMMENT ON COLUMN dana.job.owner IS 'As this role';
COMMENT ON COLUMN dana.job.state IS 'queued, running, done, failed, cancelled; lost: its process ended without a word';
COMMENT ON COLUMN dana.job.pid IS 'Its process, while there is one';
COMMENT ON COLUMN dana.job.created IS 'Start of the transaction that started it';
COMMENT ON COLUMN dana.job.started IS 'When the call began';
COMMENT ON COLUMN dana.job.ended IS 'When it ended';
COMMENT ON COLUMN dana.job.result IS 'The rows that the call returned';
COMMENT ON COLUMN dana.job.sqlstate IS 'Kind of the error that it ended with';
COMMENT ON COLUMN dana.job.message IS 'The error';
COMMENT ON COLUMN dana.job.detail IS 'Its detail';
COMMENT ON COLUMN dana.job.hint IS 'Its hint';
GRANT SELECT ON dana.job TO PUBLIC;

CREATE FUNCTION dana_start(function text, arguments jsonb) RETURNS bigint
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_start(text, jsonb) IS 'Call dana_train, dana_train_groups, dana_cross_validate or dana_search in the background, once this transaction commits; returns the job''s number';

CREATE FUNCTION dana_train_start(
	udf text,
	source regclass DEFAULT NULL,
	model text DEFAULT NULL,
	features text[] DEFAULT NULL,
	label text DEFAULT NULL,
	epochs integer DEFAULT NULL,
	hyper jsonb DEFAULT '{}',
	backend text DEFAULT 'sim',
	design jsonb DEFAULT '{}',
	query text DEFAULT NULL,
	filter text DEFAULT NULL,
	nulls text DEFAULT 'skip',
	nonfinite text DEFAULT 'keep',
	classes text[] DEFAULT NULL,
	test double precision DEFAULT NULL,
	seed integer DEFAULT 1,
	warm text DEFAULT NULL
) RETURNS bigint
	LANGUAGE sql VOLATILE PARALLEL UNSAFE
	AS $$
	SELECT @extschema@.dana_start('dana_train', pg_catalog.jsonb_build_object('udf', udf, 'source', COALESCE(
		-- whatever the search_path will be
		(SELECT pg_catalog.format('%s.%I', c.relnamespace::pg_catalog.regnamespace, c.relname) FROM pg_catalog.pg_class AS c
			WHERE c.oid OPERATOR(pg_catalog.=) source::pg_catalog.oid),
		source::text), 'model', model,
		'features', features, 'label', label, 'epochs', epochs, 'hyper', hyper, 'backend', backend, 'design', design, 'query', query,
		'filter', filter, 'nulls', nulls, 'nonfinite', nonfinite, 'classes', classes, 'test', test, 'seed', seed, 'warm', warm))
	$$;
COMMENT ON FUNCTION dana_train_start IS 'dana_train() in the background, once this transaction commits; returns the job''s number';

CREATE FUNCTION dana_train_wait(job bigint, timeout double precision DEFAULT NULL) RETURNS text
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_train_wait(bigint, double precision) IS 'Wait until a job ended, or for so many seconds; returns its state';

CREATE FUNCTION dana_train_cancel(job bigint) RETURNS boolean
	LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
	AS $$
DECLARE
	found_state text;
	process integer;
BEGIN
	SELECT j.state, j.pid INTO found_state, process FROM dana.job AS j WHERE j.id = job;
	IF NOT FOUND THEN
		RAISE undefined_object USING MESSAGE = pg_catalog.format('job %s does not exist', job),
			HINT = 'SELECT id, state FROM dana.job lists the jobs.';
	END IF;
	RETURN process IS NOT NULL AND pg_catalog.pg_cancel_backend(process);
END
$$;
COMMENT ON FUNCTION dana_train_cancel(bigint) IS 'Cancel a job; false where it is over';

REVOKE EXECUTE ON FUNCTION dana_start(text, jsonb) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION dana_train_start FROM PUBLIC;

-- Rules: who may read and train them

ALTER TABLE dana.udf
	ADD COLUMN everybody boolean NOT NULL DEFAULT true,
	ADD COLUMN users regrole[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN dana.udf.everybody IS 'Whether every role may read and train it: dana_grant_rule(), dana_revoke_rule()';
COMMENT ON COLUMN dana.udf.users IS 'Roles besides the owner that may read and train it where not everybody may';
ALTER TABLE dana.udf ENABLE ROW LEVEL SECURITY;
CREATE POLICY users ON dana.udf FOR SELECT USING (
	everybody
	OR pg_catalog.pg_has_role(owner, 'USAGE')
	OR EXISTS (SELECT FROM pg_catalog.unnest(users) AS u (role) WHERE pg_catalog.pg_has_role(u.role, 'USAGE'))
);

CREATE FUNCTION dana_grant_rule(name text, role regrole DEFAULT NULL) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_grant_rule(text, regrole) IS 'Let a role read and train one of your own rules; without a role: everybody, as it is at first';

CREATE FUNCTION dana_revoke_rule(name text, role regrole DEFAULT NULL) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_revoke_rule(text, regrole) IS 'Take back what dana_grant_rule() gave; without a role: from everybody, so that only its users and you are left';

REVOKE EXECUTE ON FUNCTION dana_grant_rule(text, regrole) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION dana_revoke_rule(text, regrole) FROM PUBLIC;

-- What the machine waited for, over a whole run
ALTER TABLE dana.run ADD COLUMN counters jsonb;
COMMENT ON COLUMN dana.run.counters IS 'Cycles by what the machine did or waited for, over all epochs; NULL where the backend counts none';

-- The loss of each epoch as it goes

CREATE FUNCTION dana_live_epochs(
	OUT pid integer, OUT source regclass, OUT epoch integer, OUT loss double precision, OUT tuples bigint,
	OUT skipped bigint, OUT cycles bigint, OUT seconds double precision
) RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_live_epochs() IS 'Epochs, the last 4096 of each, of the trainings that run now; dana.curve shows them beside those of dana.epoch';

CREATE VIEW dana.curve WITH (security_barrier) AS
	SELECT e.run, NULL::integer AS pid, r.model, r.source, e.epoch, e.loss, e.tuples, e.skipped, e.cycles, e.seconds
	FROM dana.epoch AS e JOIN dana.run AS r ON r.id = e.run WHERE pg_catalog.pg_has_role(r.owner, 'USAGE')
	UNION ALL
	SELECT NULL, l.pid, NULL, l.source::text, l.epoch, l.loss, l.tuples, l.skipped, l.cycles, l.seconds
	FROM @extschema@.dana_live_epochs() AS l;
COMMENT ON VIEW dana.curve IS 'Training curves: the epochs of dana.epoch, and those of trainings that run now, whose rows come when they commit';
COMMENT ON COLUMN dana.curve.run IS 'Run that it belongs to; NULL while it trains';
COMMENT ON COLUMN dana.curve.pid IS 'Process that trains, as in dana.progress and dana.job; NULL for what has ended';
COMMENT ON COLUMN dana.curve.model IS 'Model of the run; NULL while it trains';
COMMENT ON COLUMN dana.curve.source IS 'Table that it reads; NULL for a query, or in another database, while it trains';
COMMENT ON COLUMN dana.curve.epoch IS 'From 1';
COMMENT ON COLUMN dana.curve.loss IS 'Mean loss over the epoch''s rows; NULL where the rule has no setLoss()';
COMMENT ON COLUMN dana.curve.tuples IS 'Rows trained on';
COMMENT ON COLUMN dana.curve.skipped IS 'Rows left out';
COMMENT ON COLUMN dana.curve.cycles IS 'Cycles of the machine';
COMMENT ON COLUMN dana.curve.seconds IS 'Wall time';
GRANT SELECT ON dana.curve TO PUBLIC;

-- Evaluation runs no text of somebody else

CREATE OR REPLACE FUNCTION dana_evaluate(
	model text,
	source regclass DEFAULT NULL,
	query text DEFAULT NULL,
	filter text DEFAULT NULL,
	part text DEFAULT NULL,
	threshold double precision DEFAULT NULL
) RETURNS jsonb
	LANGUAGE plpgsql STABLE PARALLEL UNSAFE
	AS $$
DECLARE
	found record;
	of_model record;
	notes jsonb;
	rows_of text;
	condition text := 'true';
	label text;
	result jsonb;
BEGIN
	SELECT f.name, f.version INTO found FROM @extschema@.dana_find_model($1) AS f;
	SELECT m.name, m.version, m.owner::pg_catalog.oid, m.metadata INTO of_model FROM dana.model AS m
	WHERE m.name = found.name AND m.version = found.version;
	notes := of_model.metadata;
	-- texts of the model's owner, which would run as the caller: a superuser, too, is somebody else
	IF of_model.owner OPERATOR(pg_catalog.<>) current_user::pg_catalog.regrole::pg_catalog.oid
		AND (source IS NULL AND query IS NULL AND notes ? 'query'::text OR filter IS NULL AND notes ? 'filter'::text) THEN
		RAISE insufficient_privilege USING
			MESSAGE = pg_catalog.format('model "%s" of another role was trained with a query or a filter, which would run as you', $1),
			HINT = 'dana.model.metadata has them; read them, and give arguments "query" or "filter" yourself.';
	END IF;
	IF pg_catalog.jsonb_array_length(notes -> 'labels'::text) IS DISTINCT FROM 1 THEN
		RAISE object_not_in_prerequisite_state USING MESSAGE = pg_catalog.format('model "%s" has no label to compare with', $1);
	END IF;
	IF source IS NOT NULL AND query IS NOT NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = 'give either argument "source" or argument "query", not both';
	ELSIF query IS NOT NULL OR source IS NULL AND notes ? 'query'::text THEN
		rows_of := pg_catalog.format(E'(%s\n)', COALESCE(query, notes ->> 'query'::text));
	ELSE
		rows_of := COALESCE(source, (notes ->> 'source'::text)::pg_catalog.regclass)::text;
	END IF;
	IF COALESCE(filter, notes ->> 'filter'::text) IS NOT NULL THEN
		condition := pg_catalog.format(E'(%s\n)', COALESCE(filter, notes ->> 'filter'::text));
	END IF;
	part := COALESCE(part, CASE WHEN notes ? 'test'::text THEN 'test' ELSE 'all' END);
	IF part IN ('test', 'train') THEN
		IF NOT notes ? 'test'::text THEN
			RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('model "%s" was trained without a part for tests', $1),
				HINT = 'Train with test => 0.2, or evaluate on other rows.';
		ELSIF query IS NOT NULL OR EXISTS (
			SELECT FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) source::pg_catalog.oid AND c.relkind = 'v') THEN
			RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('part %s is rows of the table that model "%s" was trained on, and the rows of a %s have no place in it',
					part, $1, CASE WHEN query IS NULL THEN 'view' ELSE 'query' END),
				HINT = 'Evaluate on all of them with part => ''all''.';
		END IF;
		condition := condition || pg_catalog.format(' AND %s@extschema@.dana_holdout(ctid, %s::pg_catalog.float8, %s)',
			CASE part WHEN 'train' THEN 'NOT ' ELSE '' END, notes ->> 'test'::text, notes ->> 'seed'::text);
	ELSIF part <> 'all' THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('argument "part" must be all, train or test, not "%s"', part);
	END IF;
	label := pg_catalog.format('r.%I', notes -> 'labels'::text ->> 0);
	IF notes ? 'classes'::text THEN
		label := pg_catalog.format('(pg_catalog.array_position(%L::text[], %s::text) - 1)',
			ARRAY(SELECT pg_catalog.jsonb_array_elements_text(notes -> 'classes'::text)), label);
	END IF;
	EXECUTE pg_catalog.format($q$
		WITH scored AS MATERIALIZED (
			SELECT y, p::float8 FROM (
				SELECT dana.dana_number(%s) AS y, dana.dana_predict(%L::pg_catalog.text, %s) AS p FROM %s AS r WHERE %s
			) AS s WHERE y IS NOT NULL AND p IS NOT NULL
		), shape AS (
			SELECT pg_catalog.count(*) AS n, pg_catalog.avg(y) AS mean, pg_catalog.bool_and(y IN (0::float8, 1::float8)) AS zero_one,
				pg_catalog.bool_and(y IN ((-1)::float8, 1::float8)) AS signs, pg_catalog.bool_and(p >= 0::float8 AND p <= 1::float8) AS probable
			FROM scored
		), ranked AS (
			SELECT y > 0::float8 AS positive, p >= COALESCE(%s, CASE WHEN zero_one THEN 0.5::float8 ELSE 0::float8 END) AS chosen,
				pg_catalog.rank() OVER (ORDER BY p)::float8 + (pg_catalog.count(*) OVER (PARTITION BY p) - 1)::float8 / 2::float8 AS place,
				-- binary32 has no number between 1 and 1 - 2^-24
				pg_catalog.ln(CASE WHEN probable THEN GREATEST(CASE WHEN y > 0::float8 THEN p ELSE 1::float8 - p END, 5.9604644775390625e-8) END) AS log
			FROM scored, shape WHERE zero_one OR signs
		), counts AS (
			SELECT pg_catalog.count(*) FILTER (WHERE positive AND chosen)::float8 AS tp,
				pg_catalog.count(*) FILTER (WHERE NOT positive AND chosen)::float8 AS fp,
				pg_catalog.count(*) FILTER (WHERE positive AND NOT chosen)::float8 AS fn,
				pg_catalog.count(*) FILTER (WHERE NOT positive AND NOT chosen)::float8 AS tn,
				pg_catalog.sum(place) FILTER (WHERE positive)::float8 AS places, -pg_catalog.avg(log) AS log_loss
			FROM ranked
		), errors AS (
			SELECT pg_catalog.avg(pg_catalog.abs(y - p)) AS mae, pg_catalog.sqrt(pg_catalog.avg((y - p) * (y - p))) AS rmse,
				1::float8 - pg_catalog.sum((y - p) * (y - p)) / NULLIF(pg_catalog.sum((y - mean) * (y - mean)), 0::float8) AS r2
			FROM scored, shape
		)
		SELECT pg_catalog.jsonb_build_object('rows', n, 'mae', mae, 'rmse', rmse, 'r2', r2) || CASE WHEN zero_one OR signs THEN
			pg_catalog.jsonb_build_object(
				'accuracy', (tp + tn) / n::float8, 'precision', tp / NULLIF(tp + fp, 0::float8), 'recall', tp / NULLIF(tp + fn, 0::float8),
				'f1', 2::float8 * tp / NULLIF(2::float8 * tp + fp + fn, 0::float8), 'log_loss', log_loss,
				'auc', (places - (tp + fn) * (tp + fn + 1::float8) / 2::float8) / NULLIF((tp + fn) * (fp + tn), 0::float8),
				'confusion', pg_catalog.jsonb_build_object('tp', tp, 'fp', fp, 'fn', fn, 'tn', tn))
			ELSE '{}' END
		FROM shape, counts, errors
	$q$, label, of_model.name || '@' || of_model.version::text, @extschema@.dana_arguments(notes -> 'features'::text), rows_of, condition,
		COALESCE(threshold::text || '::float8', 'NULL::float8')) INTO result;
	IF (result ->> 'rows'::text)::bigint = 0 THEN
		RAISE data_exception USING MESSAGE = 'there is no row to evaluate on';
	END IF;
	RETURN pg_catalog.jsonb_build_object('model', of_model.name, 'version', of_model.version, 'part', part) || result;
END
$$;

-- Metrics that anybody can use, with GROUP BY and FILTER

CREATE FUNCTION dana.dana_class(value "any", classes text[]) RETURNS double precision
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_class';
COMMENT ON FUNCTION dana.dana_class("any", text[]) IS 'The number that a training gives a label of these classes, from 0; NULL where it is none of them';

CREATE FUNCTION dana.dana_regression_add(internal, double precision, double precision) RETURNS internal
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_regression_add';
COMMENT ON FUNCTION dana.dana_regression_add(internal, double precision, double precision) IS 'Transition function of dana_regression_metrics()';

CREATE FUNCTION dana.dana_regression_final(internal) RETURNS jsonb
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_regression_final';
COMMENT ON FUNCTION dana.dana_regression_final(internal) IS 'Final function of dana_regression_metrics()';

CREATE FUNCTION dana.dana_classification_add(internal, double precision, double precision) RETURNS internal
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_classification_add';
COMMENT ON FUNCTION dana.dana_classification_add(internal, double precision, double precision) IS 'Transition function of dana_classification_metrics()';

CREATE FUNCTION dana.dana_classification_add(internal, double precision, double precision, double precision) RETURNS internal
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_classification_add';
COMMENT ON FUNCTION dana.dana_classification_add(internal, double precision, double precision, double precision) IS 'Transition function of dana_classification_metrics() with a threshold';

CREATE FUNCTION dana.dana_classification_final(internal) RETURNS jsonb
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_classification_final';
COMMENT ON FUNCTION dana.dana_classification_final(internal) IS 'Final function of dana_classification_metrics()';

CREATE AGGREGATE dana_regression_metrics(label double precision, prediction double precision) (
	SFUNC = dana.dana_regression_add, STYPE = internal, FINALFUNC = dana.dana_regression_final, PARALLEL = SAFE
);
COMMENT ON AGGREGATE dana_regression_metrics(double precision, double precision) IS 'How far predictions are from labels: rows, mae, rmse and r2, as JSON. Rows with a NULL are left out; NULL where there is no other';

CREATE AGGREGATE dana_classification_metrics(label double precision, prediction double precision) (
	SFUNC = dana.dana_classification_add, STYPE = internal, FINALFUNC = dana.dana_classification_final, PARALLEL = SAFE
);
COMMENT ON AGGREGATE dana_classification_metrics(double precision, double precision) IS 'How well predictions tell two classes apart, labels 0 and 1 or -1 and 1: accuracy, precision, recall, f1, log_loss (where all predictions lie in 0 to 1), auc and confusion, as JSON. The positive class is chosen from a prediction of 0.5 (labels 0 and 1) or 0 (-1 and 1) on; a NaN counts as the largest. Rows with a NULL are left out; NULL where there is no other, and where labels are others';

CREATE AGGREGATE dana_classification_metrics(label double precision, prediction double precision, threshold double precision) (
	SFUNC = dana.dana_classification_add, STYPE = internal, FINALFUNC = dana.dana_classification_final, PARALLEL = SAFE
);
COMMENT ON AGGREGATE dana_classification_metrics(double precision, double precision, double precision) IS 'The same, and the positive class is chosen from this prediction on, the same for all rows; NULL: as without it';
