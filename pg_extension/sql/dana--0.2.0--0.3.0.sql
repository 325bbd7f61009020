\echo Use "ALTER EXTENSION dana UPDATE TO '0.3.0'" to load this file. \quit


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
	reference text := model;
	names jsonb;
	features text;
BEGIN
	IF model IS NULL OR source IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = pg_catalog.format('argument "%s" must not be NULL',
			CASE WHEN model IS NULL THEN 'model' ELSE 'source' END);
	END IF;
	SELECT m.metadata -> 'features' INTO names FROM dana.model AS m
	WHERE m.name = pg_catalog.split_part(reference, '@', 1)
		AND (pg_catalog.strpos(reference, '@') = 0 OR m.version::text = pg_catalog.split_part(reference, '@', 2))
	ORDER BY m.active DESC, m.version DESC LIMIT 1;
	IF NOT FOUND THEN
		RAISE undefined_object USING MESSAGE = pg_catalog.format('model "%s" does not exist', reference),
			HINT = 'SELECT name, version FROM dana.model lists the models.';
	END IF;
	-- a function has 100 arguments at most; a row is slower to make than arguments
	features := CASE WHEN pg_catalog.jsonb_array_length(names) BETWEEN 1 AND 98 THEN (
		SELECT pg_catalog.string_agg(pg_catalog.format('r.%I', f.name), ', ' ORDER BY f.n)
		FROM pg_catalog.jsonb_array_elements_text(names) WITH ORDINALITY AS f (name, n)
	) ELSE 'r.*' END;
	IF key IS NULL THEN
		SELECT a.attname INTO key FROM pg_catalog.pg_index AS i
		JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = source AND i.indisprimary AND i.indnkeyatts = 1;
	END IF;
	RETURN QUERY EXECUTE pg_catalog.format(E'SELECT r.%I::pg_catalog.text, @extschema@.dana_predict(%L, %s) FROM %s AS r WHERE (%s\n)',
		COALESCE(key, 'ctid'), model, features, source, COALESCE(filter, 'true'));
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

-- who may train may also ask
DO $$
DECLARE
	allowed record;
BEGIN
	REVOKE EXECUTE ON FUNCTION @extschema@.dana_explain FROM PUBLIC;
	FOR allowed IN SELECT a.grantee, a.is_grantable FROM pg_catalog.pg_proc AS p, pg_catalog.aclexplode(p.proacl) AS a
		WHERE p.oid = '@extschema@.dana_train'::pg_catalog.regproc AND a.grantee <> p.proowner
	LOOP
		EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION @extschema@.dana_explain TO %s%s',
			CASE WHEN allowed.grantee = 0 THEN 'PUBLIC' ELSE allowed.grantee::pg_catalog.regrole::text END,
			CASE WHEN allowed.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END);
	END LOOP;
END
$$;

-- Limits

COMMENT ON COLUMN dana.progress.phase IS 'waiting (for others to end: dana.max_runs), compiling, streaming (pages to the machine), training (on kept pages), storing';
