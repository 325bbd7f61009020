\echo Use "CREATE EXTENSION dana" to load this file. \quit

-- Functions go to the schema that CREATE EXTENSION chooses; tables, and one function per rule, to this one.
CREATE SCHEMA dana;
COMMENT ON SCHEMA dana IS 'Rules, trained models and their history; one function per rule, named after it';
GRANT USAGE ON SCHEMA dana TO PUBLIC;

CREATE TABLE dana.udf (
	name text PRIMARY KEY CHECK (name <> '' AND octet_length(name) < 64),
	source text NOT NULL,
	description jsonb NOT NULL,
	owner regrole NOT NULL,
	created timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE dana.udf IS 'Rules: written by dana_create_udf() and dana_drop_udf()';
COMMENT ON COLUMN dana.udf.name IS 'Name of the rule, and of its function in schema dana';
COMMENT ON COLUMN dana.udf.source IS 'Text of the rule; parsed, never executed';
COMMENT ON COLUMN dana.udf.description IS 'What the worker found in it: models, inputs, outputs, metas';
COMMENT ON COLUMN dana.udf.owner IS 'Role that may replace and drop it';
COMMENT ON COLUMN dana.udf.created IS 'When it was created or last replaced';

CREATE TABLE dana.model (
	name text CHECK (name <> '' AND octet_length(name) < 256 AND strpos(name, '@') = 0),
	version integer CHECK (version > 0),
	udf text NOT NULL,
	owner regrole NOT NULL,
	created timestamptz NOT NULL DEFAULT now(),
	parameters jsonb NOT NULL,
	weights real[] NOT NULL,
	predictor bytea,
	metadata jsonb NOT NULL,
	PRIMARY KEY (name, version)
);
COMMENT ON TABLE dana.model IS 'Trained models: written by dana_train() in the transaction that calls it';
COMMENT ON COLUMN dana.model.name IS 'Name of the model; the rule''s unless dana_train() was told another';
COMMENT ON COLUMN dana.model.version IS 'Counts the trainings under one name; dana_predict() uses the highest, or "name@version"';
COMMENT ON COLUMN dana.model.udf IS 'Rule that it was trained with';
COMMENT ON COLUMN dana.model.owner IS 'Role that may read, use and drop it';
COMMENT ON COLUMN dana.model.created IS 'Start of the transaction that trained it';
COMMENT ON COLUMN dana.model.parameters IS 'The rule''s models in order: name, shape, and where in weights their values are, row by row';
COMMENT ON COLUMN dana.model.weights IS 'Values of all parameters; dana_parameters() takes them apart';
COMMENT ON COLUMN dana.model.predictor IS 'Program that dana_predict() evaluates; NULL where the rule has no setPrediction()';
COMMENT ON COLUMN dana.model.metadata IS 'Features, label, metas and versions it was trained with';

CREATE TABLE dana.run (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	model text NOT NULL,
	model_version integer NOT NULL,
	udf text NOT NULL,
	source text NOT NULL,
	owner regrole NOT NULL,
	backend text NOT NULL,
	started timestamptz NOT NULL,
	wall_seconds double precision NOT NULL,
	modelled_seconds double precision,
	epochs integer NOT NULL,
	converged boolean NOT NULL,
	loss double precision,
	tuples bigint NOT NULL,
	skipped bigint NOT NULL,
	pages bigint NOT NULL,
	cycles bigint,
	design jsonb NOT NULL
);
COMMENT ON TABLE dana.run IS 'History: one row per training';
COMMENT ON COLUMN dana.run.id IS 'Number of the run';
COMMENT ON COLUMN dana.run.model IS 'Model that it trained';
COMMENT ON COLUMN dana.run.model_version IS 'Version of that model';
COMMENT ON COLUMN dana.run.udf IS 'Rule that it used';
COMMENT ON COLUMN dana.run.source IS 'Table that it read, as it was called then';
COMMENT ON COLUMN dana.run.owner IS 'Role that trained';
COMMENT ON COLUMN dana.run.backend IS 'What trained: sim, rtl or interp';
COMMENT ON COLUMN dana.run.started IS 'When the call began';
COMMENT ON COLUMN dana.run.wall_seconds IS 'Seconds from the call to the result';
COMMENT ON COLUMN dana.run.modelled_seconds IS 'Seconds that the modelled machine needs; NULL where the backend models none';
COMMENT ON COLUMN dana.run.epochs IS 'Passes over the table';
COMMENT ON COLUMN dana.run.converged IS 'Whether the rule''s convergence test ended it';
COMMENT ON COLUMN dana.run.loss IS 'Mean loss of the last epoch; NULL where the rule has no setLoss()';
COMMENT ON COLUMN dana.run.tuples IS 'Rows trained on in an epoch';
COMMENT ON COLUMN dana.run.skipped IS 'Rows left out in an epoch because a used column was NULL';
COMMENT ON COLUMN dana.run.pages IS 'Pages read, over all epochs';
COMMENT ON COLUMN dana.run.cycles IS 'Cycles of the machine, over all epochs';
COMMENT ON COLUMN dana.run.design IS 'Summary of the machine';

CREATE TABLE dana.epoch (
	run bigint NOT NULL REFERENCES dana.run ON DELETE CASCADE,
	epoch integer NOT NULL,
	loss double precision,
	tuples bigint NOT NULL,
	skipped bigint NOT NULL,
	cycles bigint,
	seconds double precision NOT NULL,
	counters jsonb NOT NULL,
	PRIMARY KEY (run, epoch)
);
COMMENT ON TABLE dana.epoch IS 'The training curve: one row per epoch of a run';
COMMENT ON COLUMN dana.epoch.run IS 'Run that it belongs to';
COMMENT ON COLUMN dana.epoch.epoch IS 'From 1';
COMMENT ON COLUMN dana.epoch.loss IS 'Mean loss over the epoch''s rows; NULL where the rule has no setLoss()';
COMMENT ON COLUMN dana.epoch.tuples IS 'Rows trained on';
COMMENT ON COLUMN dana.epoch.skipped IS 'Rows left out because a used column was NULL';
COMMENT ON COLUMN dana.epoch.cycles IS 'Cycles of the machine';
COMMENT ON COLUMN dana.epoch.seconds IS 'Wall time';
COMMENT ON COLUMN dana.epoch.counters IS 'Further counts of the machine by name';

-- pg_dump carries what users made
SELECT pg_catalog.pg_extension_config_dump('dana.udf', '');
SELECT pg_catalog.pg_extension_config_dump('dana.model', '');
SELECT pg_catalog.pg_extension_config_dump('dana.run', '');
SELECT pg_catalog.pg_extension_config_dump('dana.run_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('dana.epoch', '');

-- Rules are public, as functions are. A model and its history show what is in the table: only the owner's roles see them.
GRANT SELECT ON dana.udf, dana.model, dana.run, dana.epoch TO PUBLIC;
ALTER TABLE dana.model ENABLE ROW LEVEL SECURITY;
ALTER TABLE dana.run ENABLE ROW LEVEL SECURITY;
ALTER TABLE dana.epoch ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner ON dana.model FOR SELECT USING (pg_catalog.pg_has_role(owner, 'USAGE'));
CREATE POLICY owner ON dana.run FOR SELECT USING (pg_catalog.pg_has_role(owner, 'USAGE'));
CREATE POLICY owner ON dana.epoch FOR SELECT USING (EXISTS (SELECT FROM dana.run r WHERE r.id = run));

CREATE TYPE dana.training AS (
	model text,
	version integer,
	run bigint,
	epochs integer,
	converged boolean,
	loss double precision,
	tuples bigint,
	skipped bigint,
	pages bigint,
	cycles bigint,
	modelled_seconds double precision,
	wall_seconds double precision
);
COMMENT ON TYPE dana.training IS 'What dana_train() returns; the columns are those of dana.run';

CREATE FUNCTION dana_create_udf(name text, source text) RETURNS void
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_create_udf(text, text) IS 'Check a rule and store it under a name, or replace one of your own; makes the function dana.<name>(table, ...)';

CREATE FUNCTION dana_drop_udf(name text) RETURNS void
	LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_drop_udf(text) IS 'Remove one of your own rules and its function; its models stay';

CREATE FUNCTION dana_drop_model(name text, version integer DEFAULT NULL) RETURNS bigint
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_drop_model(text, integer) IS 'Remove a version of one of your own models, or all of them; returns how many';

CREATE FUNCTION dana_train(
	udf text,
	source regclass,
	model text DEFAULT NULL,
	features text[] DEFAULT NULL,
	label text DEFAULT NULL,
	epochs integer DEFAULT NULL,
	hyper jsonb DEFAULT '{}',
	backend text DEFAULT 'sim',
	design jsonb DEFAULT '{}'
) RETURNS dana.training
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_train(text, regclass, text, text[], text, integer, jsonb, text, jsonb) IS
	'Train a rule on a table, as this statement sees it, and store the model';

CREATE FUNCTION dana_predict(model text, VARIADIC features "any") RETURNS real
	LANGUAGE c STABLE STRICT PARALLEL SAFE COST 10 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_predict(text, "any") IS
	'Prediction of a model ("name", or "name@version") for one row; features in the order of training, as columns or arrays';

CREATE FUNCTION dana_parameters(model text, version integer DEFAULT NULL)
	RETURNS TABLE (parameter text, shape integer[], "values" real[])
	LANGUAGE sql STABLE PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT p.value ->> 'name',
		ARRAY(SELECT d.value::integer FROM jsonb_array_elements_text(p.value -> 'shape') WITH ORDINALITY AS d (value, n) ORDER BY d.n),
		m.weights[(p.value ->> 'offset')::integer + 1 : (p.value ->> 'offset')::integer + (p.value ->> 'size')::integer]
	FROM (
		SELECT * FROM dana.model WHERE model.name = $1 AND ($2 IS NULL OR model.version = $2) ORDER BY version DESC LIMIT 1
	) m, jsonb_array_elements(m.parameters) WITH ORDINALITY AS p (value, n)
	ORDER BY p.n
	$$;
COMMENT ON FUNCTION dana_parameters(text, integer) IS 'The parameters of a model: name, shape, and values row by row';

-- These use the worker, and change what others see; a DBA grants them.
REVOKE EXECUTE ON FUNCTION dana_create_udf(text, text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION dana_drop_udf(text) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION dana_drop_model(text, integer) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION dana_train(text, regclass, text, text[], text, integer, jsonb, text, jsonb) FROM PUBLIC;
