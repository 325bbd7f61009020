\echo Use "ALTER EXTENSION dana UPDATE" to load this file. \quit

-- Models: the version in use, what is said of it, who else may use it

ALTER TABLE dana.model
	ADD COLUMN active boolean NOT NULL DEFAULT false,
	ADD COLUMN comment text,
	ADD COLUMN users regrole[] NOT NULL DEFAULT '{}';
CREATE UNIQUE INDEX model_active ON dana.model (name) WHERE active;
COMMENT ON COLUMN dana.model.active IS 'Whether dana_activate_model() chose this version; without a choice the highest is in use';
COMMENT ON COLUMN dana.model.comment IS 'What dana_comment_model() says of it';
COMMENT ON COLUMN dana.model.users IS 'Roles besides the owner that may read and use it: dana_grant_model()';
COMMENT ON COLUMN dana.model.version IS 'Counts the trainings under one name; dana_predict() uses the active one, else the highest, or "name@version"';

DROP POLICY owner ON dana.model;
CREATE POLICY owner ON dana.model FOR SELECT USING (
	pg_catalog.pg_has_role(owner, 'USAGE')
	OR EXISTS (SELECT FROM pg_catalog.unnest(users) AS u (role) WHERE pg_catalog.pg_has_role(u.role, 'USAGE'))
);

CREATE FUNCTION dana_activate_model(name text, version integer DEFAULT NULL) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_activate_model(text, integer) IS 'Choose the version that a model''s name stands for; NULL: the highest, whichever that will be';

CREATE FUNCTION dana_rollback_model(name text) RETURNS integer
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_rollback_model(text) IS 'Choose the version before the one in use; returns it';

CREATE FUNCTION dana_rename_model(name text, new_name text) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_rename_model(text, text) IS 'Rename all versions of one of your own models; its runs keep the name that it had';

CREATE FUNCTION dana_comment_model(name text, comment text, version integer DEFAULT NULL) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_comment_model(text, text, integer) IS 'Describe a version of one of your own models, or all of them; NULL removes it';

CREATE FUNCTION dana_grant_model(name text, role regrole) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_grant_model(text, regrole) IS 'Let a role read and use one of your own models, in all versions';

CREATE FUNCTION dana_revoke_model(name text, role regrole) RETURNS void
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_revoke_model(text, regrole) IS 'Take back what dana_grant_model() gave';

-- A part of the rows for tests

CREATE FUNCTION dana_holdout(place tid, part double precision, seed integer DEFAULT 1) RETURNS boolean
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_holdout_place';
COMMENT ON FUNCTION dana_holdout(tid, double precision, integer) IS 'Whether a row, given its ctid, is in the part that dana_train(test => part, seed => seed) leaves out';

CREATE FUNCTION dana_holdout(key bigint, part double precision, seed integer DEFAULT 1) RETURNS boolean
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_holdout_integer';
COMMENT ON FUNCTION dana_holdout(bigint, double precision, integer) IS 'Whether a row, given a key, is in a part chosen at random by the seed';

CREATE FUNCTION dana_holdout(key text, part double precision, seed integer DEFAULT 1) RETURNS boolean
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_holdout_text';
COMMENT ON FUNCTION dana_holdout(text, double precision, integer) IS 'Whether a row, given a key, is in a part chosen at random by the seed';

-- Trainings that run

CREATE FUNCTION dana_progress(
	OUT pid integer, OUT datid oid, OUT usesysid oid, OUT relid oid, OUT phase text, OUT epoch integer, OUT epochs integer,
	OUT page bigint, OUT pages bigint, OUT cycles bigint, OUT loss double precision, OUT seconds_left double precision
) RETURNS SETOF record
	LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'dana_progress_info';
COMMENT ON FUNCTION dana_progress() IS 'Trainings that run now; dana.progress shows them with names';

CREATE VIEW dana.progress AS
	SELECT p.pid, d.datname AS database, pg_catalog.pg_get_userbyid(p.usesysid) AS role,
		CASE WHEN d.datname = pg_catalog.current_database() THEN p.relid::pg_catalog.regclass END AS source,
		p.phase, p.epoch, p.epochs, p.page, p.pages, p.cycles, p.loss, p.seconds_left
	FROM @extschema@.dana_progress() AS p LEFT JOIN pg_catalog.pg_database AS d ON d.oid = p.datid;
COMMENT ON VIEW dana.progress IS 'Trainings that run now, of roles that you may look at';
COMMENT ON COLUMN dana.progress.pid IS 'Process of the session that trains';
COMMENT ON COLUMN dana.progress.database IS 'Its database';
COMMENT ON COLUMN dana.progress.role IS 'Its role';
COMMENT ON COLUMN dana.progress.source IS 'Table that it reads, if that is in this database; NULL for a query';
COMMENT ON COLUMN dana.progress.phase IS 'compiling, streaming (pages to the machine), training (on kept pages), storing';
COMMENT ON COLUMN dana.progress.epoch IS 'Epochs that ended';
COMMENT ON COLUMN dana.progress.epochs IS 'Epochs that there will be, unless it converges before';
COMMENT ON COLUMN dana.progress.page IS 'Pages sent in the current stream';
COMMENT ON COLUMN dana.progress.pages IS 'Pages that the stream will have; NULL: unknown, rows are made into pages';
COMMENT ON COLUMN dana.progress.cycles IS 'Cycles of the machine so far';
COMMENT ON COLUMN dana.progress.loss IS 'Mean loss of the last epoch that ended';
COMMENT ON COLUMN dana.progress.seconds_left IS 'Estimate from the epochs so far';
GRANT SELECT ON dana.progress TO PUBLIC;

-- dana_train() has more arguments; who may call it stays

CREATE TEMPORARY TABLE former_rights ON COMMIT DROP AS
	SELECT a.grantee, a.is_grantable FROM pg_catalog.pg_proc AS p, pg_catalog.aclexplode(p.proacl) AS a
	WHERE p.oid = '@extschema@.dana_train(text, regclass, text, text[], text, integer, jsonb, text, jsonb)'::pg_catalog.regprocedure
		AND a.grantee <> p.proowner;
ALTER EXTENSION dana DROP TABLE former_rights;

DROP FUNCTION dana_train(text, regclass, text, text[], text, integer, jsonb, text, jsonb);
CREATE FUNCTION dana_train(
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
) RETURNS dana.training
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_train IS 'Train a rule on a table or a query, as this statement sees it, and store the model';

DO $$
DECLARE
	former record;
BEGIN
	REVOKE EXECUTE ON FUNCTION @extschema@.dana_train FROM PUBLIC;
	FOR former IN SELECT * FROM pg_temp.former_rights LOOP
		EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION @extschema@.dana_train TO %s%s',
			CASE WHEN former.grantee = 0 THEN 'PUBLIC' ELSE former.grantee::pg_catalog.regrole::text END,
			CASE WHEN former.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
	END LOOP;
END
$$;
DROP TABLE pg_temp.former_rights;

REVOKE EXECUTE ON FUNCTION dana_activate_model(text, integer) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION dana_rollback_model(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION dana_rename_model(text, text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION dana_comment_model(text, text, integer) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION dana_grant_model(text, regrole) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION dana_revoke_model(text, regrole) FROM PUBLIC;

CREATE OR REPLACE FUNCTION dana_parameters(model text, version integer DEFAULT NULL)
	RETURNS TABLE (parameter text, shape integer[], "values" real[])
	LANGUAGE sql STABLE PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT p.value ->> 'name',
		ARRAY(SELECT d.value::integer FROM jsonb_array_elements_text(p.value -> 'shape') WITH ORDINALITY AS d (value, n) ORDER BY d.n),
		m.weights[(p.value ->> 'offset')::integer + 1 : (p.value ->> 'offset')::integer + (p.value ->> 'size')::integer]
	FROM (
		SELECT * FROM dana.model WHERE model.name = $1 AND ($2 IS NULL OR model.version = $2)
		ORDER BY active DESC, version DESC LIMIT 1
	) m, jsonb_array_elements(m.parameters) WITH ORDINALITY AS p (value, n)
	ORDER BY p.n
	$$;

-- How good a model is

-- Runs with the rights of the caller, on statements made of quoted names; every function it names is qualified.
CREATE FUNCTION dana_evaluate(
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
	reference text := model;
	of_model record;
	notes jsonb;
	rows_of text;
	condition text := 'true';
	label text;
	features text;
	result jsonb;
BEGIN
	SELECT m.name, m.version, m.metadata INTO of_model FROM dana.model AS m
	WHERE m.name = pg_catalog.split_part(reference, '@', 1)
		AND (pg_catalog.strpos(reference, '@') = 0 OR m.version::text = pg_catalog.split_part(reference, '@', 2))
	ORDER BY m.active DESC, m.version DESC LIMIT 1;
	IF NOT FOUND THEN
		RAISE undefined_object USING MESSAGE = pg_catalog.format('model "%s" does not exist', reference),
			HINT = 'SELECT name, version FROM dana.model lists the models.';
	END IF;
	notes := of_model.metadata;
	IF pg_catalog.jsonb_array_length(notes -> 'labels') IS DISTINCT FROM 1 THEN
		RAISE object_not_in_prerequisite_state USING MESSAGE = pg_catalog.format('model "%s" has no label to compare with', reference);
	END IF;
	IF source IS NOT NULL AND query IS NOT NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = 'give either argument "source" or argument "query", not both';
	ELSIF query IS NOT NULL OR source IS NULL AND notes ? 'query' THEN
		rows_of := pg_catalog.format(E'(%s\n)', COALESCE(query, notes ->> 'query'));
	ELSE
		rows_of := COALESCE(source, (notes ->> 'source')::pg_catalog.regclass)::text;
	END IF;
	IF COALESCE(filter, notes ->> 'filter') IS NOT NULL THEN
		condition := pg_catalog.format(E'(%s\n)', COALESCE(filter, notes ->> 'filter'));
	END IF;
	part := COALESCE(part, CASE WHEN notes ? 'test' THEN 'test' ELSE 'all' END);
	IF part IN ('test', 'train') THEN
		IF NOT notes ? 'test' THEN
			RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('model "%s" was trained without a part for tests', reference),
				HINT = 'Train with test => 0.2, or evaluate on other rows.';
		END IF;
		condition := condition || pg_catalog.format(' AND %s@extschema@.dana_holdout(ctid, %s, %s)',
			CASE part WHEN 'train' THEN 'NOT ' ELSE '' END, notes ->> 'test', notes ->> 'seed');
	ELSIF part <> 'all' THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('argument "part" must be all, train or test, not "%s"', part);
	END IF;
	label := pg_catalog.quote_ident(notes -> 'labels' ->> 0);
	IF notes ? 'classes' THEN
		label := pg_catalog.format('(pg_catalog.array_position(%L::text[], %s::text) - 1)',
			ARRAY(SELECT pg_catalog.jsonb_array_elements_text(notes -> 'classes')), label);
	END IF;
	SELECT CASE WHEN pg_catalog.count(*) < 90 THEN pg_catalog.string_agg(pg_catalog.quote_ident(f.name), ', ' ORDER BY f.n)
		ELSE 'ARRAY[' || pg_catalog.string_agg(pg_catalog.quote_ident(f.name) || '::float8', ', ' ORDER BY f.n) || ']' END
	INTO features FROM pg_catalog.jsonb_array_elements_text(notes -> 'features') WITH ORDINALITY AS f (name, n);
	EXECUTE pg_catalog.format($q$
		WITH scored AS MATERIALIZED (
			SELECT y, p::float8 FROM (
				SELECT (%s)::float8 AS y, @extschema@.dana_predict(%L, %s) AS p FROM %s AS r WHERE %s
			) AS s WHERE y IS NOT NULL AND p IS NOT NULL
		), shape AS (
			SELECT pg_catalog.count(*) AS n, pg_catalog.avg(y) AS mean, pg_catalog.bool_and(y IN (0, 1)) AS zero_one,
				pg_catalog.bool_and(y IN (-1, 1)) AS signs, pg_catalog.bool_and(p >= 0 AND p <= 1) AS probable
			FROM scored
		), ranked AS (
			SELECT y > 0 AS positive, p >= COALESCE(%s, CASE WHEN zero_one THEN 0.5 ELSE 0 END) AS chosen,
				pg_catalog.rank() OVER (ORDER BY p) + (pg_catalog.count(*) OVER (PARTITION BY p) - 1) / 2.0 AS place,
				-- binary32 has no number between 1 and 1 - 2^-24
				pg_catalog.ln(CASE WHEN probable THEN GREATEST(CASE WHEN y > 0 THEN p ELSE 1 - p END, 5.9604644775390625e-8) END) AS log
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
				1 - pg_catalog.sum((y - p) * (y - p)) / NULLIF(pg_catalog.sum((y - mean) * (y - mean)), 0) AS r2
			FROM scored, shape
		)
		SELECT pg_catalog.jsonb_build_object('rows', n, 'mae', mae, 'rmse', rmse, 'r2', r2) || CASE WHEN zero_one OR signs THEN
			pg_catalog.jsonb_build_object(
				'accuracy', (tp + tn) / n, 'precision', tp / NULLIF(tp + fp, 0), 'recall', tp / NULLIF(tp + fn, 0),
				'f1', 2 * tp / NULLIF(2 * tp + fp + fn, 0), 'log_loss', log_loss,
				'auc', (places - (tp + fn) * (tp + fn + 1) / 2) / NULLIF((tp + fn) * (fp + tn), 0),
				'confusion', pg_catalog.jsonb_build_object('tp', tp, 'fp', fp, 'fn', fn, 'tn', tn))
			ELSE '{}' END
		FROM shape, counts, errors
	$q$, label, of_model.name || '@' || of_model.version, features, rows_of, condition,
		COALESCE(threshold::text || '::float8', 'NULL::float8')) INTO result;
	IF (result ->> 'rows')::bigint = 0 THEN
		RAISE data_exception USING MESSAGE = 'there is no row to evaluate on';
	END IF;
	RETURN pg_catalog.jsonb_build_object('model', of_model.name, 'version', of_model.version, 'part', part) || result;
END
$$;
COMMENT ON FUNCTION dana_evaluate IS 'Compare a model''s predictions with the labels of a table or a query; by default on what it was trained on, or on the part that was left out';
