\echo Use "CREATE EXTENSION dana" to load this file. \quit

-- Functions for users go to the schema that CREATE EXTENSION chooses. Schema dana, where no other role may create, has
-- the tables, internal functions (dana.dana_*), and one function per rule, named after it.
CREATE SCHEMA dana;
COMMENT ON SCHEMA dana IS 'Rules, trained models and their history; one function per rule, named after it';

-- Roles in tables: like regrole, but the number of a dropped role in a dump does not become another role where it is
-- restored

CREATE TYPE dana.role;
CREATE FUNCTION dana.dana_role_in(cstring) RETURNS dana.role STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME';
CREATE FUNCTION dana.dana_role_out(dana.role) RETURNS cstring STABLE STRICT PARALLEL SAFE LANGUAGE c AS 'MODULE_PATHNAME';
CREATE TYPE dana.role (INPUT = dana.dana_role_in, OUTPUT = dana.dana_role_out, LIKE = oid, CATEGORY = 'N');
COMMENT ON TYPE dana.role IS 'A role, or one that was dropped';
COMMENT ON FUNCTION dana.dana_role_in IS 'Input function of dana.role';
COMMENT ON FUNCTION dana.dana_role_out IS 'Output function of dana.role';
CREATE CAST (dana.role AS oid) WITHOUT FUNCTION AS IMPLICIT;
COMMENT ON CAST (dana.role AS oid) IS 'The same number';
CREATE CAST (dana.role AS regrole) WITHOUT FUNCTION AS IMPLICIT;
COMMENT ON CAST (dana.role AS regrole) IS 'The same number';
CREATE CAST (oid AS dana.role) WITHOUT FUNCTION AS ASSIGNMENT;
COMMENT ON CAST (oid AS dana.role) IS 'The same number';
CREATE CAST (regrole AS dana.role) WITHOUT FUNCTION AS ASSIGNMENT;
COMMENT ON CAST (regrole AS dana.role) IS 'The same number';

-- Tables

CREATE TABLE dana.rule (
	name text PRIMARY KEY CHECK (name <> '' AND octet_length(name) < 64),
	text text NOT NULL,
	description jsonb NOT NULL,
	owner dana.role NOT NULL,
	created timestamptz NOT NULL DEFAULT now(),
	public boolean NOT NULL DEFAULT true,
	users dana.role[] NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE dana.rule IS 'Rules: written by dana_create_udf() and dana_drop_rule()';
COMMENT ON COLUMN dana.rule.name IS 'Name of the rule, and of its function in schema dana';
COMMENT ON COLUMN dana.rule.text IS 'Text of the rule; parsed, never executed';
COMMENT ON COLUMN dana.rule.description IS 'The worker''s description of it: models, inputs, outputs, metas';
COMMENT ON COLUMN dana.rule.owner IS 'Role that may replace and drop it';
COMMENT ON COLUMN dana.rule.created IS 'When it was created or last replaced';
COMMENT ON COLUMN dana.rule.public IS 'Whether PUBLIC may read and train it: dana_grant_rule(), dana_revoke_rule()';
COMMENT ON COLUMN dana.rule.users IS 'Further roles that may read and train it if PUBLIC may not';

CREATE TABLE dana.model (
	owner dana.role,
	name text CHECK (name <> '' AND octet_length(name) < 256 AND strpos(name, '@') = 0),
	version integer CHECK (version > 0),
	active boolean NOT NULL DEFAULT false,
	rule text NOT NULL,
	created timestamptz NOT NULL DEFAULT now(),
	comment text,
	users dana.role[] NOT NULL DEFAULT '{}',
	parameters jsonb NOT NULL,
	weights real[] NOT NULL,
	predictor bytea,
	metadata jsonb NOT NULL,
	PRIMARY KEY (owner, name, version)
);
ALTER TABLE dana.model ALTER COLUMN weights SET STORAGE EXTERNAL; -- dana_predict() reads slices; floats do not shrink
CREATE UNIQUE INDEX model_active ON dana.model (owner, name) WHERE active;
COMMENT ON TABLE dana.model IS 'Trained models: written by dana_train() in the transaction that calls it';
COMMENT ON COLUMN dana.model.owner IS 'Role that trained it, and may read, use and drop it; each role has its own namespace';
COMMENT ON COLUMN dana.model.name IS 'Name of the model, by default the rule''s. Other roles than the owner write owner.name';
COMMENT ON COLUMN dana.model.version IS 'Number of the training under this name; dana_predict() uses the active version, else the highest, or "name@version"';
COMMENT ON COLUMN dana.model.active IS 'Whether dana_activate_model() chose this version; if none is active, the highest is in use';
COMMENT ON COLUMN dana.model.rule IS 'Rule that it was trained with';
COMMENT ON COLUMN dana.model.created IS 'Start of the transaction that trained it';
COMMENT ON COLUMN dana.model.comment IS 'Text set by dana_comment_model()';
COMMENT ON COLUMN dana.model.users IS 'Further roles that may read and use it: dana_grant_model()';
COMMENT ON COLUMN dana.model.parameters IS 'The rule''s models in order: name, shape, and the offset of their values in weights, in row-major order';
COMMENT ON COLUMN dana.model.weights IS 'Values of all parameters; beyond the first 4,194,304, dana.weights has the rest; dana_parameters() splits them';
COMMENT ON COLUMN dana.model.predictor IS 'Program that dana_predict() evaluates; NULL if the rule has no setPrediction()';
COMMENT ON COLUMN dana.model.metadata IS 'Source, features, label, metas and options it was trained with';

-- One field with a gigabyte of text, which 80 million numbers take, could not be dumped
CREATE TABLE dana.weights (
	owner dana.role,
	name text,
	version integer,
	part integer CHECK (part > 0),
	"values" real[] NOT NULL,
	PRIMARY KEY (owner, name, version, part),
	FOREIGN KEY (owner, name, version) REFERENCES dana.model ON UPDATE CASCADE ON DELETE CASCADE
);
ALTER TABLE dana.weights ALTER COLUMN "values" SET STORAGE EXTERNAL;
COMMENT ON TABLE dana.weights IS 'Further values of dana.model.weights: part k of a model holds at most 4,194,304 values, from number 4,194,304 k on';
COMMENT ON COLUMN dana.weights.owner IS 'Owner of the model';
COMMENT ON COLUMN dana.weights.name IS 'Name of the model';
COMMENT ON COLUMN dana.weights.version IS 'Its version';
COMMENT ON COLUMN dana.weights.part IS 'Number of the part, from 1';
COMMENT ON COLUMN dana.weights."values" IS 'Values of the part';

CREATE TABLE dana.run (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	owner dana.role NOT NULL,
	model text NOT NULL,
	model_version integer NOT NULL,
	rule text NOT NULL,
	source text NOT NULL,
	machine text NOT NULL,
	started timestamptz NOT NULL,
	wall_seconds double precision NOT NULL,
	modelled_seconds double precision,
	epochs integer NOT NULL,
	kept integer NOT NULL,
	converged boolean NOT NULL,
	loss double precision,
	validation_loss double precision,
	tuples bigint NOT NULL,
	skipped bigint NOT NULL,
	pages bigint NOT NULL,
	cycles bigint,
	design jsonb NOT NULL,
	counters jsonb
);
COMMENT ON TABLE dana.run IS 'History: one row per training';
COMMENT ON SEQUENCE dana.run_id_seq IS 'Numbers of runs';
COMMENT ON COLUMN dana.run.id IS 'Number of the run';
COMMENT ON COLUMN dana.run.owner IS 'Role that trained';
COMMENT ON COLUMN dana.run.model IS 'Model that it trained';
COMMENT ON COLUMN dana.run.model_version IS 'Version of that model';
COMMENT ON COLUMN dana.run.rule IS 'Rule that it used';
COMMENT ON COLUMN dana.run.source IS 'Table that it read, by its name at the time';
COMMENT ON COLUMN dana.run.machine IS 'Machine that trained: sim, rtl or interp';
COMMENT ON COLUMN dana.run.started IS 'When the call began';
COMMENT ON COLUMN dana.run.wall_seconds IS 'Seconds from the call to the result';
COMMENT ON COLUMN dana.run.modelled_seconds IS 'Seconds that the modelled machine needs; NULL for interp, which has no time model';
COMMENT ON COLUMN dana.run.epochs IS 'Passes over the table';
COMMENT ON COLUMN dana.run.kept IS 'Number of the epoch with the model that was kept';
COMMENT ON COLUMN dana.run.converged IS 'Whether the rule''s convergence test ended it, or its loss no longer improved';
COMMENT ON COLUMN dana.run.loss IS 'Mean loss of the stored model over the rows trained on, measured after the last epoch; NULL if the rule has no setLoss()';
COMMENT ON COLUMN dana.run.validation_loss IS 'Mean loss of the kept model over the rows for validation; NULL if there are none';
COMMENT ON COLUMN dana.run.tuples IS 'Rows trained on in an epoch';
COMMENT ON COLUMN dana.run.skipped IS 'Rows left out in an epoch because a used column was NULL';
COMMENT ON COLUMN dana.run.pages IS 'Pages read, over all epochs';
COMMENT ON COLUMN dana.run.cycles IS 'Cycles of the machine, over all epochs; NULL for interp';
COMMENT ON COLUMN dana.run.design IS 'Summary of the design: its parameters, and what it was compiled from';
COMMENT ON COLUMN dana.run.counters IS 'Cycles by activity or stall of the machine, over all epochs; NULL for interp, which has none';

CREATE TABLE dana.epoch (
	run bigint NOT NULL REFERENCES dana.run ON DELETE CASCADE,
	epoch integer NOT NULL,
	loss double precision,
	validation_loss double precision,
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
COMMENT ON COLUMN dana.epoch.loss IS 'Mean loss over the epoch''s rows, while the models change; NULL if the rule has no setLoss()';
COMMENT ON COLUMN dana.epoch.validation_loss IS 'Mean loss over the rows for validation, with the models at the end of the epoch';
COMMENT ON COLUMN dana.epoch.tuples IS 'Rows trained on';
COMMENT ON COLUMN dana.epoch.skipped IS 'Rows left out because a used column was NULL';
COMMENT ON COLUMN dana.epoch.cycles IS 'Cycles of the machine';
COMMENT ON COLUMN dana.epoch.seconds IS 'Wall time';
COMMENT ON COLUMN dana.epoch.counters IS 'Further counts of the machine by name';

CREATE TABLE dana.job_log (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	function text NOT NULL,
	arguments jsonb NOT NULL,
	settings jsonb NOT NULL,
	limits jsonb NOT NULL,
	owner dana.role NOT NULL,
	state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')),
	pid integer,
	created timestamptz NOT NULL DEFAULT now(),
	started timestamptz,
	ended timestamptz,
	result jsonb,
	sqlstate text,
	message text,
	detail text,
	hint text,
	notices text[] NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE dana.job_log IS 'Jobs: calls in the background, as recorded by their processes; dana.job shows them';
COMMENT ON SEQUENCE dana.job_log_id_seq IS 'Numbers of jobs';
COMMENT ON COLUMN dana.job_log.id IS 'Number of the job';
COMMENT ON COLUMN dana.job_log.function IS 'Function that it calls';
COMMENT ON COLUMN dana.job_log.arguments IS 'Arguments of the call';
COMMENT ON COLUMN dana.job_log.settings IS 'Settings of the session that started it';
COMMENT ON COLUMN dana.job_log.limits IS 'Limits of the session that started it; stricter limits of the role also apply';
COMMENT ON COLUMN dana.job_log.owner IS 'Role that makes the call';
COMMENT ON COLUMN dana.job_log.state IS 'queued, running, done, failed, cancelled';
COMMENT ON COLUMN dana.job_log.pid IS 'Its process';
COMMENT ON COLUMN dana.job_log.created IS 'Start of the transaction that started it';
COMMENT ON COLUMN dana.job_log.started IS 'When the call began';
COMMENT ON COLUMN dana.job_log.ended IS 'When it ended';
COMMENT ON COLUMN dana.job_log.result IS 'The rows that the call returned';
COMMENT ON COLUMN dana.job_log.sqlstate IS 'SQLSTATE of the error that it ended with';
COMMENT ON COLUMN dana.job_log.message IS 'Message of the error';
COMMENT ON COLUMN dana.job_log.detail IS 'Detail of the error';
COMMENT ON COLUMN dana.job_log.hint IS 'Hint of the error';
COMMENT ON COLUMN dana.job_log.notices IS 'NOTICEs and WARNINGs about the data, each with its hint; set when the job is over';

CREATE TABLE dana.checkpoint (
	owner dana.role,
	model text,
	epoch integer NOT NULL,
	written timestamptz NOT NULL DEFAULT now(),
	state bytea NOT NULL,
	PRIMARY KEY (owner, model)
);
ALTER TABLE dana.checkpoint ALTER COLUMN state SET STORAGE EXTERNAL; -- floats do not shrink
COMMENT ON TABLE dana.checkpoint IS 'From where dana_train(..., sync => ..., resume => ...) goes on: one row for each model, until its training has ended';
COMMENT ON COLUMN dana.checkpoint.owner IS 'Role that trains it';
COMMENT ON COLUMN dana.checkpoint.model IS 'Name of the model';
COMMENT ON COLUMN dana.checkpoint.epoch IS 'Number of the epoch after which this was the state';
COMMENT ON COLUMN dana.checkpoint.written IS 'When it was written';
COMMENT ON COLUMN dana.checkpoint.state IS 'Models, states of optimisers, and what the training has counted';

CREATE TABLE dana.shard (
	source regclass,
	shard integer CHECK (shard > 0),
	server name,
	-- what libpq marks as not to be shown
	conninfo text CHECK (conninfo !~* '^[[:space:]]*postgres(ql)?://|(password|oauth_client_secret|scram_(client|server)_key|replication|sslkeylogfile)[[:space:]]*='),
	relation text,
	PRIMARY KEY (source, shard),
	CHECK (server IS NULL OR conninfo IS NULL)
);
COMMENT ON TABLE dana.shard IS 'The map of shards: which servers have the parts of a table; written by the table''s owner, whom a DBA has granted it. A partitioned table without rows here has its partitions as shards';
COMMENT ON COLUMN dana.shard.source IS 'The table; it need have no rows of its own';
COMMENT ON COLUMN dana.shard.shard IS 'Number of the shard: rows are gathered in the order of these numbers';
COMMENT ON COLUMN dana.shard.server IS 'Foreign server of postgres_fdw that has it, to which the table''s owner has USAGE; NULL, without conninfo: this server';
COMMENT ON COLUMN dana.shard.conninfo IS 'Connection string, keyword = value, without secrets, instead of a foreign server; only superusers may write and use it';
COMMENT ON COLUMN dana.shard.relation IS 'Name of the part there, in the schema of the table unless it has one; NULL: the name of the table';

-- pg_dump includes the objects of users, but not jobs and checkpoints, as it does not include their processes
SELECT pg_catalog.pg_extension_config_dump('dana.rule', '');
SELECT pg_catalog.pg_extension_config_dump('dana.model', '');
SELECT pg_catalog.pg_extension_config_dump('dana.weights', '');
SELECT pg_catalog.pg_extension_config_dump('dana.run', '');
SELECT pg_catalog.pg_extension_config_dump('dana.run_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('dana.epoch', '');
-- the number of a dropped table would become another table's where it is restored
SELECT pg_catalog.pg_extension_config_dump('dana.shard', 'WHERE source IN (SELECT oid FROM pg_catalog.pg_class)');

-- A model and its history reveal the contents of its table: only the owner's roles, and roles that it grants access,
-- see them, even if a role may read every table
ALTER TABLE dana.rule ENABLE ROW LEVEL SECURITY;
ALTER TABLE dana.model ENABLE ROW LEVEL SECURITY;
ALTER TABLE dana.run ENABLE ROW LEVEL SECURITY;
ALTER TABLE dana.epoch ENABLE ROW LEVEL SECURITY;
ALTER TABLE dana.weights ENABLE ROW LEVEL SECURITY;
ALTER TABLE dana.job_log ENABLE ROW LEVEL SECURITY;
ALTER TABLE dana.checkpoint ENABLE ROW LEVEL SECURITY;
ALTER TABLE dana.shard ENABLE ROW LEVEL SECURITY;
CREATE POLICY users ON dana.rule FOR SELECT USING (
	public OR pg_catalog.pg_has_role(owner, 'USAGE')
	OR EXISTS (SELECT FROM pg_catalog.unnest(users) AS u (role) WHERE pg_catalog.pg_has_role(u.role, 'USAGE')));
CREATE POLICY users ON dana.model FOR SELECT USING (
	pg_catalog.pg_has_role(owner, 'USAGE')
	OR EXISTS (SELECT FROM pg_catalog.unnest(users) AS u (role) WHERE pg_catalog.pg_has_role(u.role, 'USAGE')));
CREATE POLICY owner ON dana.run FOR SELECT USING (pg_catalog.pg_has_role(owner, 'USAGE'));
CREATE POLICY owner ON dana.epoch FOR SELECT USING (EXISTS (SELECT FROM dana.run AS r WHERE r.id = run));
CREATE POLICY users ON dana.weights FOR SELECT USING (EXISTS (SELECT FROM dana.model AS m
	WHERE m.owner = weights.owner AND m.name = weights.name AND m.version = weights.version));
CREATE POLICY owner ON dana.job_log FOR SELECT USING (pg_catalog.pg_has_role(owner, 'USAGE'));
CREATE POLICY owner ON dana.checkpoint FOR SELECT USING (pg_catalog.pg_has_role(owner, 'USAGE'));
-- A map belongs to its table. A connection string is not for its owner: the server's own account would log in
CREATE POLICY owner ON dana.shard USING (
	pg_catalog.pg_has_role((SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid = source), 'USAGE'))
	WITH CHECK (conninfo IS NULL
		AND pg_catalog.pg_has_role((SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid = source), 'USAGE'));
CREATE POLICY readers ON dana.shard FOR SELECT USING (pg_catalog.has_any_column_privilege(source, 'SELECT'));

-- Functions are VOLATILE and PARALLEL UNSAFE, PostgreSQL's defaults, unless they are declared otherwise.

-- Rules

CREATE FUNCTION dana_create_udf(name text, text text) RETURNS void LANGUAGE c STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_create_udf IS 'Check a rule and store it under a name, or replace one of your own; creates the function dana.<name>(table, options)';

CREATE FUNCTION dana_drop_rule(name text) RETURNS void LANGUAGE c STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_drop_rule IS 'Remove one of your own rules and its function; its models stay';

CREATE FUNCTION dana_grant_rule(name text, role regrole DEFAULT NULL) RETURNS void LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_grant_rule IS 'Let a role read and train one of your own rules; without a role: PUBLIC, the default';

CREATE FUNCTION dana_revoke_rule(name text, role regrole DEFAULT NULL) RETURNS void LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_revoke_rule IS 'Revoke the rights of dana_grant_rule(); without a role: from PUBLIC, so that only its users and you remain';

-- Training

CREATE TYPE dana.training AS (
	model text, version integer, run bigint, epochs integer, kept integer, converged boolean, loss double precision,
	validation_loss double precision, tuples bigint, skipped bigint, pages bigint, cycles bigint, modelled_seconds double precision, wall_seconds double precision
);
COMMENT ON TYPE dana.training IS 'Result of dana_train(); the columns are those of dana.run';
COMMENT ON COLUMN dana.training.version IS 'Its version: the number of trainings under that name';
COMMENT ON COLUMN dana.training.run IS 'Number of the run in dana.run and dana.epoch';

-- The only declaration of a training's options. The default of every argument is NULL, which means the default in
-- training.c; functions that train in other ways take options as members of a JSON object.
CREATE FUNCTION dana_train(
	rule text,
	source regclass DEFAULT NULL,
	model text DEFAULT NULL,
	features text[] DEFAULT NULL,
	label text DEFAULT NULL,
	epochs integer DEFAULT NULL,
	patience integer DEFAULT NULL,
	tolerance double precision DEFAULT NULL,
	hyper jsonb DEFAULT NULL,
	machine text DEFAULT NULL,
	design jsonb DEFAULT NULL,
	query text DEFAULT NULL,
	filter text DEFAULT NULL,
	nulls text DEFAULT NULL,
	preprocess jsonb DEFAULT NULL,
	nonfinite text DEFAULT NULL,
	standardize boolean DEFAULT NULL,
	stored_as text DEFAULT NULL,
	classes text[] DEFAULT NULL,
	weight text DEFAULT NULL,
	class_weight jsonb DEFAULT NULL,
	shuffle boolean DEFAULT NULL,
	test_size double precision DEFAULT NULL,
	test_by text DEFAULT NULL,
	test_after jsonb DEFAULT NULL,
	early_stopping boolean DEFAULT NULL,
	validation_size double precision DEFAULT NULL,
	calibrate text DEFAULT NULL,
	seed integer DEFAULT NULL,
	warm_start_from text DEFAULT NULL,
	sync text DEFAULT NULL,
	resume text DEFAULT NULL
) RETURNS dana.training LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_train IS 'Train a rule on a table or a query, under the snapshot of this statement, and store the model';

CREATE FUNCTION dana.dana_train_rule(rule text, source regclass, training jsonb) RETURNS dana.training
	LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_train_rule IS 'dana_train() with its options in a JSON object, for the rules'' functions; requires EXECUTE on dana_train()';

CREATE TYPE dana.group_training AS (
	key jsonb, model text, version integer, run bigint, epochs integer, converged boolean, loss double precision,
	tuples bigint, skipped bigint, wall_seconds double precision, sqlstate text, error text
);
COMMENT ON TYPE dana.group_training IS 'Training of a group; if it failed because of the group''s data, sqlstate and error are set';
COMMENT ON COLUMN dana.group_training.key IS 'Values of the columns that define the group';
COMMENT ON COLUMN dana.group_training.model IS 'Name of the group''s model: dana_group(model, keys)';
COMMENT ON COLUMN dana.group_training.sqlstate IS 'SQLSTATE of the group''s error, or NULL';
COMMENT ON COLUMN dana.group_training.error IS 'Message of the error';

CREATE FUNCTION dana.dana_trained_on(metadata jsonb) RETURNS regclass
	LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'dana_trained_on_of';
COMMENT ON FUNCTION dana.dana_trained_on IS 'The table that a model was trained on; an error if its owner has changed, or if it is a temporary table of another session';

-- With the caller's search_path, on which a query or a filter depends
CREATE FUNCTION dana_refresh(model text) RETURNS dana.training
	LANGUAGE plpgsql
	AS $$
DECLARE
	safe boolean := dana.dana_catalog_first();
	found dana.model := dana.dana_administered($1, 'dana_refresh');
	kept pg_catalog.jsonb := found.metadata;
	differs pg_catalog.text;
	result dana.training;
BEGIN
	IF found.owner::pg_catalog.oid <> pg_catalog.quote_ident(current_user)::pg_catalog.regrole::pg_catalog.oid THEN
		RAISE insufficient_privilege USING
			MESSAGE = pg_catalog.format('model "%s" belongs to another role, and its table would be used with your rights', $1),
			HINT = 'SET ROLE to its owner, or train a model of your own: dana_train(..., warm_start_from => ...).';
	ELSIF kept ? 'group'::pg_catalog.text THEN
		RAISE feature_not_supported USING MESSAGE = pg_catalog.format('model "%s" is that of a group', $1),
			HINT = 'Train the groups again: dana_train_groups().';
	ELSIF kept ? 'gathered'::pg_catalog.text THEN
		RAISE feature_not_supported USING MESSAGE = pg_catalog.format('model "%s" was trained on the rows of shards', $1),
			HINT = 'Train it again: dana_train(..., sync => ..., warm_start_from => ...).';
	ELSIF NOT kept ? 'asked'::pg_catalog.text THEN
		RAISE feature_not_supported USING MESSAGE = pg_catalog.format('model "%s" does not record the options of its training', $1),
			HINT = 'Train it again: dana_train(..., warm_start_from => ...).';
	ELSIF NOT EXISTS (SELECT FROM dana.rule AS r WHERE r.name = found.rule AND pg_catalog.md5(r.text) = kept ->> 'rule_md5'::pg_catalog.text) THEN
		RAISE object_not_in_prerequisite_state USING
			MESSAGE = pg_catalog.format('rule "%s" is not the one that model "%s" was trained with: it has been replaced, or dropped', found.rule, $1),
			HINT = 'Train with the current rule: dana_train(..., warm_start_from => ...).';
	END IF;
	SELECT pg_catalog.format('%s is %L, but was %L', s.key, pg_catalog.current_setting(s.key), s.value) INTO differs
	FROM pg_catalog.jsonb_each_text(kept -> 'settings'::pg_catalog.text) AS s
	WHERE pg_catalog.current_setting(s.key) <> s.value ORDER BY s.key LIMIT 1;
	IF differs IS NOT NULL THEN
		RAISE object_not_in_prerequisite_state USING
			MESSAGE = pg_catalog.format('the query or filter of model "%s" may mean other rows now: %s', $1, differs),
			HINT = 'SET it as it was when the model was trained.';
	END IF;
	result := dana.dana_train_rule(found.rule,
		CASE WHEN NOT kept ? 'query'::pg_catalog.text THEN dana.dana_trained_on(kept) END,
		kept -> 'asked'::pg_catalog.text || pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
			'model', found.name, 'warm_start_from', $1, 'query', kept -> 'query'::pg_catalog.text,
			'filter', kept -> 'filter'::pg_catalog.text, 'features', kept -> 'features'::pg_catalog.text, 'label',
			CASE pg_catalog.jsonb_array_length(kept -> 'labels'::pg_catalog.text) WHEN 1 THEN kept #> '{labels,0}'::pg_catalog.text[] END)));
	RAISE NOTICE USING MESSAGE = pg_catalog.format('model "%s": a warm start from version %s, which read all %s rows %s times',
		$1, found.version, result.tuples, result.epochs);
	RETURN result;
END
$$;
COMMENT ON FUNCTION dana_refresh IS 'Train one of your own models again on the current rows, with the options of its training: a warm start, which becomes its next version';

CREATE FUNCTION dana_train_groups(
	rule text, source regclass DEFAULT NULL, group_by text[] DEFAULT NULL, training jsonb DEFAULT NULL
) RETURNS SETOF dana.group_training LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_train_groups IS 'Train a rule on each group of rows of a table or a query, and store a model for each; training: options of dana_train()';

CREATE FUNCTION dana_group(model text, VARIADIC keys text[]) RETURNS text
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_group IS 'Name of the model that dana_train_groups() trains for a group: dana_predict(dana_group(''m'', region), ...)';

CREATE FUNCTION dana_explain(
	rule text, source regclass DEFAULT NULL, training jsonb DEFAULT NULL, device text DEFAULT NULL,
	search boolean DEFAULT NULL, format text DEFAULT NULL
) RETURNS SETOF text LANGUAGE c ROWS 20 COST 1000000 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_explain IS
	'The machine that dana_train() would use, or the best one for an FPGA: program, cycles, bottleneck, area, and an estimate compared with the last run; trains nothing';

-- Parts of the rows

CREATE FUNCTION dana_holdout(place tid, part double precision, seed integer DEFAULT 1) RETURNS boolean
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_holdout(tid, double precision, integer) IS 'Whether a row with this ctid is in the part that dana_train(test_size => part, seed => seed) leaves out of a table without a primary key';

CREATE FUNCTION dana_holdout(key bigint, part double precision, seed integer DEFAULT 1) RETURNS boolean
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_holdout(bigint, double precision, integer) IS 'Whether a row with this key is in a part chosen at random by the seed: for a primary key of one column, the part that dana_train(test_size => part, seed => seed) leaves out';

CREATE FUNCTION dana_holdout(key text, part double precision, seed integer DEFAULT 1) RETURNS boolean
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_holdout(text, double precision, integer) IS 'Whether a row with this key is in a part chosen at random by the seed';

CREATE FUNCTION dana.dana_part(parts double precision[], seed integer, label "any", VARIADIC key "any") RETURNS integer
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_part IS 'Number, from 0, of the part that a row with this key is in; a row of `parts` for each class has its number and the bounds of its parts';

CREATE FUNCTION dana.dana_draws(seed integer, label "any", VARIADIC key "any") RETURNS bigint[]
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_draws IS 'The numbers of the class and the key of a row, in units of 2^-53, by which dana_train(sync => …) chooses rows for tests';

CREATE FUNCTION dana.dana_part_bounds(draws bigint[], size double precision, stratify boolean, OUT parts text, OUT classes boolean)
	LANGUAGE c IMMUTABLE STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_part_bounds IS 'From class, number (as dana_draws() has them) and count of rows the bounds of a part of this size, as dana_part() reads them, and whether classes have their own, which `stratify` asks for';

CREATE FUNCTION dana.dana_draw("row" record, seed integer) RETURNS double precision
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_draw_row';
COMMENT ON FUNCTION dana.dana_draw IS 'A number in [0, 1) that a seed and the values of a row give, the same in every session';

CREATE FUNCTION dana_fold(place tid, folds integer, seed integer DEFAULT 1) RETURNS integer
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_fold(tid, integer, integer) IS 'Number, from 1, of the part that a row with this ctid is in';

CREATE FUNCTION dana_fold(key text, folds integer, seed integer DEFAULT 1) RETURNS integer
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_fold(text, integer, integer) IS 'Number, from 1, of the part that a row with this key is in';

-- Models

CREATE FUNCTION dana.dana_find_model(reference text) RETURNS dana.model
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_find_model IS 'The row of the version that a reference means, "name", "name@version", "owner.name" ...; an error if you may not use it or it does not exist';

CREATE FUNCTION dana.dana_administered(reference text, caller text) RETURNS dana.model
	LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_administered IS 'The row of the version in use of a model of your roles, for a function that will change it; an error for other models, and in a read-only transaction';

CREATE FUNCTION dana.dana_values(reference text, first integer, count integer) RETURNS real[]
	LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_values IS 'Some of a model''s values, from number `first` on, counted from 0';

CREATE FUNCTION dana_parameters(model text, version integer DEFAULT NULL)
	RETURNS TABLE (parameter text, shape integer[], "values" real[])
	LANGUAGE sql STABLE PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT p.value ->> 'name',
		ARRAY(SELECT d.value::integer FROM jsonb_array_elements_text(p.value -> 'shape') WITH ORDINALITY AS d (value, n) ORDER BY d.n),
		dana.dana_values($1 || COALESCE('@' || $2, ''), (p.value ->> 'offset')::integer, (p.value ->> 'size')::integer)
	FROM dana.dana_find_model($1 || COALESCE('@' || $2, '')) AS m, jsonb_array_elements(m.parameters) WITH ORDINALITY AS p (value, n)
	ORDER BY p.n
	$$;
COMMENT ON FUNCTION dana_parameters IS 'The parameters of a model, by name and version or as "name@version": name, shape, and values in row-major order';

CREATE FUNCTION dana_coefficients(model text, version integer DEFAULT NULL)
	RETURNS TABLE (label text, term text, coefficient double precision, standard_error double precision, statistic double precision,
		p_value double precision, lower double precision, upper double precision)
	LANGUAGE sql STABLE PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT CASE WHEN jsonb_array_length(c.made -> 'values') > 1 THEN COALESCE(m.metadata -> 'classes' ->> (s.n - 1)::integer,
			(CASE m.metadata ->> 'predicts' WHEN 'numbers' THEN s.n ELSE s.n - 1 END)::text) END,
		t.term, t.coefficient::double precision, e.error, t.coefficient::double precision / NULLIF(e.error, 0),
		(c.made -> 'p_values' -> (s.n - 1)::integer ->> t.n::integer)::double precision,
		t.coefficient::double precision - e.reach, t.coefficient::double precision + e.reach
	FROM dana.dana_find_model($1 || COALESCE('@' || $2, '')) AS m, LATERAL (SELECT m.metadata -> 'coefficients') AS c (made),
		jsonb_array_elements(c.made -> 'values') WITH ORDINALITY AS s (value, n),
		LATERAL (SELECT '(intercept)', c.made -> 'intercepts' ->> (s.n - 1)::integer, 0
			UNION ALL SELECT c.made -> 'terms' ->> (v.n - 1)::integer, v.value, v.n
			FROM jsonb_array_elements_text(s.value) WITH ORDINALITY AS v (value, n)) AS t (term, coefficient, n),
		LATERAL (SELECT f.error, f.error * (c.made ->> 'critical')::double precision
			FROM (SELECT (c.made -> 'errors' -> (s.n - 1)::integer ->> t.n::integer)::double precision) AS f (error)) AS e (error, reach)
	ORDER BY s.n, t.n
	$$;
COMMENT ON FUNCTION dana_coefficients IS 'Coefficients of the columns in a model that predicts from weighted sums: by name, in the columns'' own units, with standard errors and 95 % confidence intervals if the model is at the maximum of its likelihood; no rows for other models';

CREATE FUNCTION dana_contributions(model text, VARIADIC features "any", OUT label text, OUT feature text, OUT contribution double precision)
	RETURNS SETOF record LANGUAGE c STABLE PARALLEL SAFE COST 10 ROWS 10 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_contributions IS
	'What each feature of a row adds to a weighted sum that the model predicts from: coefficient * (value - mean); with the base, the sum for a row of means, they add up to the sum; features as for dana_predict()';

CREATE FUNCTION dana_export_model(model text) RETURNS jsonb
	LANGUAGE sql STABLE STRICT PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT jsonb_build_object('format', 'dana model 1', 'name', m.name, 'version', m.version, 'rule', m.rule, 'created', m.created,
		'comment', m.comment, 'metadata', m.metadata,
		'parameters', (SELECT jsonb_agg(jsonb_build_object('name', p.value ->> 'name', 'shape', p.value -> 'shape',
			'values', to_jsonb(dana.dana_values($1, (p.value ->> 'offset')::integer, (p.value ->> 'size')::integer)))
			ORDER BY p.n) FROM jsonb_array_elements(m.parameters) WITH ORDINALITY AS p (value, n)),
		'predictor', translate(encode(m.predictor, 'base64'), E'\n', ''))
	FROM dana.dana_find_model($1) AS m
	$$;
COMMENT ON FUNCTION dana_export_model IS
	'A model as JSON: parameters with their values, features, label, predictor in base64; dana export converts it to ONNX and PMML';

CREATE FUNCTION dana_drop_model(name text, version integer DEFAULT NULL) RETURNS bigint LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_drop_model IS 'Remove a version of one of your own models, or all of them; returns how many';

CREATE FUNCTION dana_activate_model(name text, version integer DEFAULT NULL) RETURNS void
	LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_activate_model IS 'Choose the version that a model''s name stands for; NULL: always the highest';

CREATE FUNCTION dana_rollback_model(name text) RETURNS integer
	LANGUAGE plpgsql
	SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	used dana.model := dana.dana_administered($1, 'dana_rollback_model');
	before integer := (SELECT max(m.version) FROM dana.model AS m
		WHERE m.owner = used.owner AND m.name = used.name AND m.version < used.version);
BEGIN
	IF before IS NULL THEN
		RAISE object_not_in_prerequisite_state USING MESSAGE = format('model "%s" has no version before the one in use', $1);
	END IF;
	PERFORM @extschema@.dana_activate_model($1, before);
	RETURN before;
END
$$;
COMMENT ON FUNCTION dana_rollback_model IS 'Activate the version before the one in use; returns it';

CREATE FUNCTION dana_rename_model(name text, new_name text) RETURNS void LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_rename_model IS 'Rename all versions of one of your own models; its runs keep the old name';

CREATE FUNCTION dana_comment_model(name text, comment text, version integer DEFAULT NULL) RETURNS void
	LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_comment_model IS 'Describe a version of one of your own models, or all of them; NULL removes it';

CREATE FUNCTION dana_grant_model(name text, role regrole) RETURNS void LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_grant_model IS 'Let a role read and use one of your own models, in all versions';

CREATE FUNCTION dana_revoke_model(name text, role regrole) RETURNS void LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_revoke_model IS 'Revoke the rights of dana_grant_model()';

-- Prediction

CREATE FUNCTION dana.dana_expand_row(internal) RETURNS internal
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_expand_row(internal) IS 'For the planner: replaces a whole row among the arguments of dana_predict() by its columns';

CREATE FUNCTION dana_predict(model text, VARIADIC features "any") RETURNS real
	LANGUAGE c STABLE PARALLEL SAFE COST 10 SUPPORT dana.dana_expand_row AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_predict IS
	'Prediction of a model ("name", or "name@version") for one row: its features in the order of training, as columns or arrays, or a whole row with columns found by name';

CREATE FUNCTION dana_predict_double(model text, VARIADIC features "any") RETURNS double precision
	LANGUAGE c STABLE PARALLEL SAFE COST 10 SUPPORT dana.dana_expand_row AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_predict_double IS
	'dana_predict() in double precision: a label with more digits than real has is trained on less its centre, which is added without rounding';

CREATE FUNCTION dana_predict_array(model text, VARIADIC features "any") RETURNS real[]
	LANGUAGE c STABLE PARALLEL SAFE COST 10 SUPPORT dana.dana_expand_row AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_predict_array IS 'All numbers that a model predicts for a row: several if its rule predicts a vector, else one; features as for dana_predict()';

CREATE FUNCTION dana_classify(model text, VARIADIC features "any") RETURNS text
	LANGUAGE c STABLE PARALLEL SAFE COST 10 SUPPORT dana.dana_expand_row AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_classify IS 'The label that a model of a rule with classes predicts for a row; features as for dana_predict()';

CREATE FUNCTION dana_probabilities(model text, VARIADIC features "any") RETURNS real[]
	LANGUAGE c STABLE PARALLEL SAFE COST 10 SUPPORT dana.dana_expand_row AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_probabilities IS 'Probability of each class for a row, in the order of the model''s classes (dana.model.metadata); features as for dana_predict()';

-- For internal statements: in the extension's schema a role with CREATE could add a function with argument types that
-- fit better than "any". In this schema no other role can.
CREATE FUNCTION dana.dana_predict(model text, VARIADIC features "any") RETURNS real
	LANGUAGE c STABLE PARALLEL SAFE COST 10 SUPPORT dana.dana_expand_row AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_predict IS 'dana_predict(), for internal statements';

CREATE FUNCTION dana.dana_contributions(model text, VARIADIC features "any", OUT label text, OUT feature text, OUT contribution double precision)
	RETURNS SETOF record LANGUAGE c STABLE PARALLEL SAFE COST 10 ROWS 10 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_contributions IS 'dana_contributions(), for internal statements';

CREATE FUNCTION dana.dana_predict_double(model text, VARIADIC features "any") RETURNS double precision
	LANGUAGE c STABLE PARALLEL SAFE COST 10 SUPPORT dana.dana_expand_row AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_predict_double IS 'dana_predict_double(), for internal statements';

CREATE FUNCTION dana.dana_classify(model text, VARIADIC features "any") RETURNS text
	LANGUAGE c STABLE PARALLEL SAFE COST 10 SUPPORT dana.dana_expand_row AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_classify IS 'dana_classify(), for internal statements';

CREATE FUNCTION dana.dana_predict_array(model text, VARIADIC features "any") RETURNS real[]
	LANGUAGE c STABLE PARALLEL SAFE COST 10 SUPPORT dana.dana_expand_row AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_predict_array IS 'dana_predict_array(), for internal statements';

CREATE FUNCTION dana.dana_scored(model text, VARIADIC features "any") RETURNS real[]
	LANGUAGE c STABLE PARALLEL SAFE COST 10 SUPPORT dana.dana_expand_row AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_scored IS 'dana_predict_array() for an evaluation: less the centre of the label, NaN for rows that the training would have left out for NaN or an infinity in a feature';

CREATE FUNCTION dana.dana_number(value "any") RETURNS double precision
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_number IS 'The number that a training uses for a value, before it is rounded to real: of a boolean, a date, a time ...';

CREATE FUNCTION dana.dana_numbers(VARIADIC "values" "any") RETURNS real[]
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_label_numbers';
COMMENT ON FUNCTION dana.dana_numbers IS 'The numbers that a training uses for several values, which may be arrays; NULL if one is NULL';

CREATE FUNCTION dana.dana_text(value "any") RETURNS text
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_text IS 'A value as text, by PostgreSQL''s own casts only, never a user-defined one';

CREATE FUNCTION dana.dana_fixed_text(value "any") RETURNS text
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_fixed_text IS 'A value as the text of labels and keys of groups, the same in every session: dates in ISO style, timestamps in UTC';

CREATE FUNCTION dana.dana_arguments(metadata jsonb, model text, source regclass) RETURNS text
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_feature_list';
COMMENT ON FUNCTION dana.dana_arguments IS 'The arguments of dana_predict() after the model, for rows of a table with alias r: the columns of a model''s metadata; an error if the table lacks one';

-- For functions that run with the caller's search_path, because their statements contain a query or a filter of the
-- caller
CREATE FUNCTION dana.dana_catalog_first() RETURNS boolean
	LANGUAGE plpgsql STABLE
	AS $$
BEGIN
	IF pg_catalog.array_position(pg_catalog.array_remove(pg_catalog.current_schemas(true),
		(pg_catalog.pg_my_temp_schema()::pg_catalog.regnamespace)::pg_catalog.name), 'pg_catalog'::pg_catalog.name)
		OPERATOR(pg_catalog.<>) 1 THEN
		RAISE object_not_in_prerequisite_state USING MESSAGE = 'schema pg_catalog must not come after others in search_path',
			HINT = 'Leave pg_catalog out of search_path: then it comes first, and no operator of another schema is taken for one of PostgreSQL.';
	END IF;
	RETURN true;
END $$;
COMMENT ON FUNCTION dana.dana_catalog_first() IS 'Raises an error if search_path puts other schemas before pg_catalog; else true';

CREATE FUNCTION dana.dana_may_write(command text) RETURNS boolean
	LANGUAGE plpgsql STABLE
	AS $$
BEGIN
	IF pg_catalog.current_setting('transaction_read_only'::pg_catalog.text)::pg_catalog.bool THEN
		RAISE read_only_sql_transaction USING MESSAGE = pg_catalog.format('cannot execute %s in a read-only transaction', command);
	END IF;
	RETURN true;
END $$;
COMMENT ON FUNCTION dana.dana_may_write IS 'Raises an error in a read-only transaction, before a function in PL/pgSQL reads its rows; else true';

-- Runs with the rights of the caller. Materialised, like every function in FROM. PARALLEL UNSAFE, because a filter may
-- call anything; the query inside may use parallel workers.
CREATE FUNCTION dana_predict_table(
	model text, source regclass, key text DEFAULT NULL, filter text DEFAULT NULL, OUT id text, OUT prediction real, OUT label text,
	OUT predictions real[]
) RETURNS SETOF record
	LANGUAGE plpgsql STABLE ROWS 100000 COST 1000000
	AS $$
DECLARE
	safe boolean := dana.dana_catalog_first();
	arguments pg_catalog.text;
	classes boolean;
	several boolean;
	functions pg_catalog.text;
	identifier pg_catalog.text;
BEGIN
	IF model IS NULL OR source IS NULL THEN
		RAISE null_value_not_allowed USING MESSAGE = pg_catalog.format('argument "%s" must not be null',
			CASE WHEN model IS NULL THEN 'model' ELSE 'source' END);
	END IF;
	SELECT dana.dana_arguments(m.metadata, $1, $2),
		m.metadata ? 'classes'::pg_catalog.text AND m.metadata ->> 'predicts'::pg_catalog.text <> 'number'::pg_catalog.text,
		m.metadata ->> 'predicts'::pg_catalog.text = 'numbers'::pg_catalog.text
	INTO arguments, classes, several FROM dana.dana_find_model($1) AS m;
	IF key IS NOT NULL THEN
		identifier := pg_catalog.format('dana.dana_text(%I)', key);
	ELSE
		-- a key of several columns as the text of a row, which the caller can compare with that of the row (a, b)
		SELECT CASE pg_catalog.count(*) WHEN 0 THEN NULL WHEN 1 THEN pg_catalog.format('dana.dana_text(%s)', pg_catalog.min(n.name))
			ELSE pg_catalog.format('ROW(%s)::pg_catalog.text', pg_catalog.string_agg(n.name, ', ' ORDER BY n.place)) END
		INTO identifier FROM (SELECT pg_catalog.quote_ident(a.attname) AS name, k.place FROM pg_catalog.pg_index AS i,
			pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (place), pg_catalog.pg_attribute AS a
			WHERE a.attrelid = i.indrelid AND a.attnum = i.indkey[k.place]
			AND i.indrelid OPERATOR(pg_catalog.=) source::pg_catalog.oid AND i.indisprimary) AS n;
	END IF;
	IF identifier IS NULL THEN
		-- each partition has a ctid of its own
		SELECT CASE WHEN c.relkind = 'v' THEN NULL
			WHEN c.relhassubclass THEN 'ROW(tableoid::pg_catalog.regclass, ctid)::pg_catalog.text' ELSE 'dana.dana_text(ctid)' END
		INTO identifier FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) source::pg_catalog.oid;
	END IF;
	IF identifier IS NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = 'argument "key" must name a column of the view that identifies its rows';
	END IF;
	functions := CASE
		WHEN several THEN 'NULL::pg_catalog.float4, NULL::pg_catalog.text, dana.dana_predict_array(%1$L::pg_catalog.text, %2$s)'
		WHEN classes THEN 'dana.dana_predict(%1$L::pg_catalog.text, %2$s), dana.dana_classify(%1$L::pg_catalog.text, %2$s), NULL::pg_catalog.float4[]'
		ELSE 'dana.dana_predict(%1$L::pg_catalog.text, %2$s), NULL::pg_catalog.text, NULL::pg_catalog.float4[]' END;
	RETURN QUERY EXECUTE pg_catalog.format(E'SELECT %s, %s FROM %s AS r WHERE (%s\n)',
		identifier, pg_catalog.format(functions, model, arguments), source, COALESCE(filter, 'true'));
END
$$;
COMMENT ON FUNCTION dana_predict_table IS
	'Predictions for the rows of a table or view: the key column (by default the primary key, of several columns as the text of a row, else ctid, of partitions with the partition) as text; the prediction, or the predictions if a rule predicts several numbers; and the predicted label for a rule with classes';

-- Evaluation

CREATE VIEW dana.metric (name, predictions, better, meaning) AS VALUES
-- Written by python -m dana.generated: dana/metrics.py
	('accuracy', 'classes', 'greater', 'share of the rows with the predicted class'),
	('auc', 'two classes', 'greater', 'area under the ROC curve: share of the pairs of a positive and a negative row in the right order'),
	('average_precision', 'two classes', 'greater', 'area under the curve of precision and recall (PR-AUC)'),
	('precision', 'classes', 'greater', 'share of the rows of a predicted class that are of it'),
	('recall', 'classes', 'greater', 'share of the rows of a class that are predicted as it'),
	('f1', 'classes', 'greater', 'harmonic mean of precision and recall'),
	('log_loss', 'classes', 'less', 'mean of the negative logarithm of the probability of a row''s class'),
	('brier', 'classes', 'less', 'mean squared error of the probabilities; for more than two classes, summed over them'),
	('r2', 'numbers', 'greater', 'share of the variance of the labels that is explained'),
	('rmse', 'numbers', 'less', 'root of the mean squared error'),
	('mae', 'numbers', 'less', 'mean of the absolute error'),
	('poisson_deviance', 'numbers', 'less', 'mean deviance of counts from predictions above 0; of rules with the loss of Poisson regression'),
	('gamma_deviance', 'numbers', 'less', 'mean deviance of labels above 0 from predictions above 0; of rules with the loss of gamma regression'),
	('pinball_loss', 'numbers', 'less', 'mean loss of a quantile; of rules with the loss of quantile regression'),
	('not_finite', NULL, NULL, 'rows with a NaN or an infinity in a feature, the label or the prediction'),
	('other_labels', NULL, NULL, 'rows with a label that is not a class of the model'),
	('not_predicted', NULL, NULL, 'rows with a NULL prediction'),
	('unseen_categories', NULL, NULL, 'rows with a category that the training did not have'),
	('calibration', NULL, NULL, 'rows, mean probability and share of positive rows, by tenths of the probability'),
	('classes', NULL, NULL, 'metrics of each class'),
	('confusion', NULL, NULL, 'rows by label and predicted class'),
	('outputs', NULL, NULL, 'metrics of each of several numbers');
-- to here
COMMENT ON VIEW dana.metric IS 'Members of what dana_evaluate() returns';
COMMENT ON COLUMN dana.metric.name IS 'Name of the member';
COMMENT ON COLUMN dana.metric.predictions IS 'Predictions that the metric applies to: numbers, classes, two classes; NULL: not a metric';
COMMENT ON COLUMN dana.metric.better IS 'less or greater; NULL: not a metric';
COMMENT ON COLUMN dana.metric.meaning IS 'What it measures';

CREATE FUNCTION dana.dana_metric_names() RETURNS text
	LANGUAGE sql STABLE PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
	SELECT format('There are %s, for classes %s, and for two of them %s.', string_agg(m.name, ', ') FILTER (WHERE m.predictions = 'numbers'),
		string_agg(m.name, ', ') FILTER (WHERE m.predictions = 'classes'), string_agg(m.name, ', ') FILTER (WHERE m.predictions = 'two classes'))
	FROM dana.metric AS m
	$$;
COMMENT ON FUNCTION dana.dana_metric_names() IS 'The metrics, as the hint of an error';

CREATE FUNCTION dana.dana_class(value "any", classes text[]) RETURNS double precision
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_class IS 'The number that a training assigns to a label of these classes, from 0; NULL for any other label';

CREATE FUNCTION dana.dana_regression_add(internal, double precision, double precision) RETURNS internal
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_regression_add(internal, double precision, double precision) IS 'Transition function of dana_regression_metrics()';

CREATE FUNCTION dana.dana_regression_add(internal, double precision, double precision, double precision) RETURNS internal
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_regression_add(internal, double precision, double precision, double precision) IS 'Transition function of dana_regression_metrics() with a quantile';

CREATE FUNCTION dana.dana_regression_final(internal) RETURNS jsonb
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_regression_final IS 'Final function of dana_regression_metrics()';

CREATE FUNCTION dana.dana_regression_add(internal, real[], real[]) RETURNS internal
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_regression_add_each';
COMMENT ON FUNCTION dana.dana_regression_add(internal, real[], real[]) IS 'Transition function of dana_regression_metrics() with several labels';

CREATE FUNCTION dana.dana_regression_final_each(internal) RETURNS jsonb
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_regression_final_each IS 'Final function of dana_regression_metrics() with several labels';

CREATE FUNCTION dana.dana_classification_add(internal, double precision, double precision) RETURNS internal
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_classification_add(internal, double precision, double precision) IS 'Transition function of dana_classification_metrics()';

CREATE FUNCTION dana.dana_classification_add(internal, double precision, double precision, double precision) RETURNS internal
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_classification_add(internal, double precision, double precision, double precision) IS 'Transition function of dana_classification_metrics() with a threshold';

CREATE FUNCTION dana.dana_classification_add(internal, double precision, real[]) RETURNS internal
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_classification_add_each';
COMMENT ON FUNCTION dana.dana_classification_add(internal, double precision, real[]) IS 'Transition function of dana_classification_metrics() with a number for each class';

CREATE FUNCTION dana.dana_classification_add(internal, double precision, real[], text[], double precision) RETURNS internal
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'dana_classification_add_each';
COMMENT ON FUNCTION dana.dana_classification_add(internal, double precision, real[], text[], double precision) IS 'Transition function of dana_classification_metrics() with a number for each class, their names and a threshold';

CREATE FUNCTION dana.dana_classification_final(internal) RETURNS jsonb
	LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_classification_final IS 'Final function of dana_classification_metrics()';

CREATE AGGREGATE dana_regression_metrics(label double precision, prediction double precision) (
	SFUNC = dana.dana_regression_add, STYPE = internal, FINALFUNC = dana.dana_regression_final, PARALLEL = SAFE
);
COMMENT ON AGGREGATE dana_regression_metrics(double precision, double precision) IS 'Errors of predictions, as JSON: rows, mae, rmse, r2, poisson_deviance (of labels from 0 on and predictions above 0; else null), gamma_deviance (of labels and predictions above 0), and not_finite, the number of rows with a label or prediction that is NaN or infinite, which the other metrics leave out. Rows with a NULL are ignored; NULL if there are no others';

CREATE AGGREGATE dana_regression_metrics(label double precision, prediction double precision, quantile double precision) (
	SFUNC = dana.dana_regression_add, STYPE = internal, FINALFUNC = dana.dana_regression_final, PARALLEL = SAFE
);
COMMENT ON AGGREGATE dana_regression_metrics(double precision, double precision, double precision) IS 'The same with pinball_loss, for predictions of this quantile, between 0 and 1. It must be the same for all rows; NULL: pinball_loss is null';

CREATE AGGREGATE dana_regression_metrics(labels real[], predictions real[]) (
	SFUNC = dana.dana_regression_add, STYPE = internal, FINALFUNC = dana.dana_regression_final_each, PARALLEL = SAFE
);
COMMENT ON AGGREGATE dana_regression_metrics(real[], real[]) IS 'The same for rows with several labels and as many predictions: mae, rmse and r2 are means over the labels, and outputs has the metrics of each';

CREATE AGGREGATE dana_classification_metrics(label double precision, prediction double precision) (
	SFUNC = dana.dana_classification_add, STYPE = internal, FINALFUNC = dana.dana_classification_final, PARALLEL = SAFE
);
COMMENT ON AGGREGATE dana_classification_metrics(double precision, double precision) IS 'Metrics of predicted classes, as JSON. Two classes, labels 0 and 1 or -1 and 1: rows, accuracy, precision, recall, f1, auc, average_precision, confusion, and if all predictions are in 0 to 1 log_loss, brier, and calibration; predictions from 0.5 (labels 0 and 1) or 0 (-1 and 1) on mean the positive class. More classes, if labels and predictions are class numbers: rows, accuracy, the means of precision, recall and f1 over the classes, these metrics of each class, and confusion. not_finite: rows with a prediction that is NaN or infinite, which the other metrics leave out. Rows with a NULL are ignored; NULL if there are no others, and for any other labels';

CREATE AGGREGATE dana_classification_metrics(label double precision, prediction double precision, threshold double precision) (
	SFUNC = dana.dana_classification_add, STYPE = internal, FINALFUNC = dana.dana_classification_final, PARALLEL = SAFE
);
COMMENT ON AGGREGATE dana_classification_metrics(double precision, double precision, double precision) IS 'The same with a threshold: predictions from it on mean the positive class. It must be the same for all rows; NULL: the default';

CREATE AGGREGATE dana_classification_metrics(label double precision, probabilities real[]) (
	SFUNC = dana.dana_classification_add, STYPE = internal, FINALFUNC = dana.dana_classification_final, PARALLEL = SAFE
);
COMMENT ON AGGREGATE dana_classification_metrics(double precision, real[]) IS 'The same for one number per class, labels from 0; the largest number is the predicted class; with log_loss and brier if they are probabilities';

CREATE AGGREGATE dana_classification_metrics(
	label double precision, probabilities real[], classes text[], threshold double precision
) (
	SFUNC = dana.dana_classification_add, STYPE = internal, FINALFUNC = dana.dana_classification_final, PARALLEL = SAFE
);
COMMENT ON AGGREGATE dana_classification_metrics(double precision, real[], text[], double precision) IS 'The same with the names of the classes, and the threshold for two classes; NULL: the default';

CREATE FUNCTION dana_evaluate(
	model text, source regclass DEFAULT NULL, query text DEFAULT NULL, filter text DEFAULT NULL, part text DEFAULT NULL,
	threshold double precision DEFAULT NULL
) RETURNS jsonb LANGUAGE c STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_evaluate IS 'Compare a model''s predictions with the labels of a table or a query; by default of the rows that it was trained on, or of the part that was left out';

CREATE FUNCTION dana_test_rows(model text) RETURNS text LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_test_rows IS 'SQL condition that is true for the rows that the training of one of your models held out for a test';

CREATE FUNCTION dana.dana_permuted(
	model text, source regclass, query text, filter text, part text, threshold double precision, repeats integer, "rows" integer,
	seed integer
) RETURNS TABLE (feature text, metrics jsonb) LANGUAGE c STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_permuted IS 'The metrics of a model on rows, with feature NULL, and on the same rows with the values of each feature permuted, repeatedly';

CREATE FUNCTION dana_importance(
	model text, source regclass DEFAULT NULL, query text DEFAULT NULL, filter text DEFAULT NULL, part text DEFAULT NULL,
	threshold double precision DEFAULT NULL, metric text DEFAULT NULL, repeats integer DEFAULT NULL, "rows" integer DEFAULT NULL,
	seed integer DEFAULT NULL
) RETURNS TABLE (feature text, importance double precision, deviation double precision)
	LANGUAGE plpgsql STABLE
	AS $$
DECLARE
	safe boolean := dana.dana_catalog_first();
	measured pg_catalog.jsonb;
	features pg_catalog.text[];
	metrics pg_catalog.jsonb[];
	sign pg_catalog.float8;
BEGIN
	IF metric IS NOT NULL AND NOT EXISTS (SELECT FROM dana.metric AS k WHERE k.name = metric AND k.better IS NOT NULL) THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('there is no metric "%s"', metric),
			HINT = dana.dana_metric_names();
	END IF;
	SELECT pg_catalog.array_agg(p.feature), pg_catalog.array_agg(p.metrics) INTO features, metrics
	FROM dana.dana_permuted($1, $2, $3, $4, $5, $6, COALESCE($8, 5), COALESCE($9, 10000), COALESCE($10, 1)) AS p;
	measured := metrics[1];
	metric := COALESCE(metric, CASE WHEN measured ? 'rmse'::pg_catalog.text THEN 'rmse'
		WHEN measured ->> 'log_loss'::pg_catalog.text IS NOT NULL THEN 'log_loss' ELSE 'accuracy' END);
	IF measured ->> metric IS NULL OR measured ->> metric = 'NaN' THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('there is no %s on these rows', metric),
			HINT = pg_catalog.format('There are: %s.', (SELECT pg_catalog.string_agg(m.key, ', ') FROM pg_catalog.jsonb_each(measured) AS m
				JOIN dana.metric AS k ON k.name = m.key AND k.better IS NOT NULL));
	END IF;
	sign := CASE WHEN (SELECT k.better FROM dana.metric AS k WHERE k.name = metric) = 'greater' THEN -1 ELSE 1 END;
	RETURN QUERY
		SELECT p.feature, pg_catalog.avg(p.lost), pg_catalog.stddev_pop(p.lost)
		FROM (SELECT u.feature, u.n, sign * ((u.metrics ->> metric)::pg_catalog.float8 - (measured ->> metric)::pg_catalog.float8) AS lost
			FROM ROWS FROM (pg_catalog.unnest(features), pg_catalog.unnest(metrics)) WITH ORDINALITY AS u (feature, metrics, n) WHERE u.feature IS NOT NULL) AS p
		GROUP BY p.feature ORDER BY 2 DESC, pg_catalog.min(p.n);
END
$$;
COMMENT ON FUNCTION dana_importance IS 'Permutation importance: by how much a metric gets worse, in the mean over repeats, when the values of a feature are permuted among the rows, and the standard deviation';

-- Drift: how far a table has moved from the rows that a model was trained on. A profile has, for each number of each
-- feature and label, or text, the number of rows in each of its bins: first NULL; then single values, if there are at
-- most 30, or the 30 most frequent categories; then all others, numbers in deciles. It is part of the version's
-- metadata.

CREATE FUNCTION dana.dana_checked_profile(profile jsonb, model text) RETURNS jsonb
	LANGUAGE plpgsql IMMUTABLE
	SET search_path = pg_catalog, pg_temp
	AS $$
BEGIN
	IF jsonb_typeof(profile) IS DISTINCT FROM 'array' OR jsonb_array_length(profile) <> jsonb_array_length(jsonb_path_query_array(profile, 'strict $[*] ? (
		@.feature.type() == "string" && (@.element == null || @.element.floor() == @.element && @.element.abs() < 1e15)
		&& (@.values == null || @.values.type() == "array") && (@.bounds == null || @.bounds.type() == "array" && !exists(@.bounds[*] ? (
			!(@.type() == "string" && (@ == "Infinity" || @ == "-Infinity" || @ == "NaN")
			|| @.type() == "number" && (@ == 0 || @.abs() >= 1e-45 && @.abs() <= 3.4028235e38)))))
		&& @.rows.type() == "array" && !exists(@.rows[*] ? (!(@.type() == "number" && @ >= 0 && @.floor() == @ && @ < 1e15))))', '{}', true)) THEN
		RAISE data_exception USING MESSAGE = format('the profile of model "%s" is malformed', model),
			DETAIL = 'It has an element for each number or text of the features, with members feature, element, values, bounds and rows.',
			HINT = format('SELECT dana_profile(%L) stores one, of the table that the model was trained on.', model);
	END IF;
	RETURN profile;
END
$$;
COMMENT ON FUNCTION dana.dana_checked_profile IS 'The profile, which dana_drift() can read; else an error';

CREATE FUNCTION dana.dana_store_profile(name text, profile jsonb, version integer) RETURNS void
	LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_store_profile IS 'Store the profile of a version of one of your own models';

CREATE FUNCTION dana.dana_bin("values" text[], bounds real[], value text) RETURNS integer
	LANGUAGE sql IMMUTABLE PARALLEL SAFE
	RETURN CASE WHEN value IS NULL THEN 1
		ELSE COALESCE(pg_catalog.array_position("values", value) + 1, COALESCE(pg_catalog.cardinality("values"), 0) + 2
			+ CASE WHEN bounds IS NULL THEN 0 ELSE pg_catalog.width_bucket(value::real, bounds) END) END;
COMMENT ON FUNCTION dana.dana_bin IS 'Number of the bin of a profile that contains a value, from 1';

CREATE FUNCTION dana.dana_as_trained(metadata jsonb, "column" text, type oid) RETURNS text
	LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_as_trained IS 'SQL for a column of a type, with a cast if it was another date or time type in the training of these metadata';

CREATE FUNCTION dana.dana_is_text(category "char", label boolean) RETURNS boolean
	LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
	RETURN category IN ('S', 'E') OR (label AND category NOT IN ('N', 'B', 'D', 'A'));
COMMENT ON FUNCTION dana.dana_is_text IS 'Whether a profile treats values of a feature or a label as texts, from their categories or types';

CREATE FUNCTION dana.dana_counted(model text, metadata jsonb, source regclass)
	RETURNS TABLE (feature text, element bigint, value text, number real, "rows" bigint)
	LANGUAGE plpgsql STABLE
	SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	texts boolean;
	expression text;
	needed text := dana.dana_arguments($2, $1, $3);
BEGIN
	-- the label may be missing, as in rows to be predicted
	FOR feature, texts, expression IN SELECT f.value, dana.dana_is_text(t.typcategory, f.label), dana.dana_as_trained($2, f.value, a.atttypid)
		FROM (SELECT u.value, false FROM jsonb_array_elements_text($2 -> 'features') AS u
			UNION ALL SELECT l.value, true FROM jsonb_array_elements_text($2 -> 'labels') AS l
			WHERE NOT $2 -> 'features' ? l.value) AS f (value, label)
		JOIN pg_attribute AS a ON a.attrelid = $3 AND a.attname = f.value AND NOT a.attisdropped
		JOIN pg_type AS t ON t.oid = a.atttypid
	LOOP
		RETURN QUERY EXECUTE format('SELECT %L, n.k, n.v, CASE WHEN n.k IS NOT NULL THEN n.v::real END, count(*) FROM %s AS r LEFT JOIN LATERAL '
			|| CASE WHEN texts THEN '(SELECT dana.dana_fixed_text(r.%3$s), NULL::bigint)' ELSE 'unnest(dana.dana_numbers(r.%3$s)::text[]) WITH ORDINALITY' END
			|| ' AS n (v, k) ON true GROUP BY n.k, n.v', feature, $3, expression);
	END LOOP;
END
$$;
COMMENT ON FUNCTION dana.dana_counted IS 'Frequencies of the values of a model''s features and labels in a table; elements of an array are numbered';

CREATE FUNCTION dana_profile(model text, source regclass DEFAULT NULL) RETURNS void
	LANGUAGE plpgsql
	SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	found dana.model := dana.dana_administered($1, 'dana_profile');
	profile jsonb;
BEGIN
	IF $2 IS NULL AND (found.metadata ? 'query' OR found.metadata ? 'filter') THEN
		RAISE invalid_parameter_value USING MESSAGE = format('model "%s" was trained on a query, or on some rows of a table', $1),
			HINT = 'Make a view of these rows, and name it: dana_profile(model, view).';
	ELSIF $2 IS NULL AND found.owner::oid <> quote_ident(current_user)::regrole::oid THEN
		RAISE insufficient_privilege USING
			MESSAGE = format('model "%s" belongs to another role, and its table would be used with your rights', $1),
			HINT = 'Choose the table: dana_profile(model, source). dana.model.metadata has the owner''s; read it before you use it.';
	END IF;
	WITH counted AS (
		SELECT c.*, count(c.value) OVER w AS different,
			sum(c."rows") FILTER (WHERE c.value IS NOT NULL) OVER (w ORDER BY c.number) AS below,
			sum(c."rows") FILTER (WHERE c.value IS NOT NULL) OVER w AS "all"
		FROM dana.dana_counted($1, found.metadata, COALESCE($2, dana.dana_trained_on(found.metadata))) AS c
		WINDOW w AS (PARTITION BY c.feature, c.element)
	), cut AS (
		SELECT c.feature, c.element,
			CASE WHEN max(c.different) <= 30 OR c.element IS NULL OR found.metadata -> 'categories' ? c.feature THEN
				(array_agg(c.value ORDER BY c."rows" DESC, c.value) FILTER (WHERE c.value IS NOT NULL))[:30] END AS "values",
			CASE WHEN max(c.different) > 30 AND c.element IS NOT NULL THEN ARRAY(SELECT DISTINCT b FROM unnest(ARRAY[
				min(c.number) FILTER (WHERE c.below >= c."all" * 0.1), min(c.number) FILTER (WHERE c.below >= c."all" * 0.2),
				min(c.number) FILTER (WHERE c.below >= c."all" * 0.3), min(c.number) FILTER (WHERE c.below >= c."all" * 0.4),
				min(c.number) FILTER (WHERE c.below >= c."all" * 0.5), min(c.number) FILTER (WHERE c.below >= c."all" * 0.6),
				min(c.number) FILTER (WHERE c.below >= c."all" * 0.7), min(c.number) FILTER (WHERE c.below >= c."all" * 0.8),
				min(c.number) FILTER (WHERE c.below >= c."all" * 0.9)]) AS b ORDER BY b) END AS bounds
		FROM counted AS c GROUP BY c.feature, c.element
	), binned AS (
		SELECT u.feature, u.element, dana.dana_bin(u."values", u.bounds, c.value) AS bin, sum(c."rows") AS "rows"
		FROM cut AS u JOIN counted AS c ON c.feature = u.feature AND (c.element IS NOT DISTINCT FROM u.element OR c.value IS NULL)
		GROUP BY u.feature, u.element, bin
	)
	SELECT jsonb_agg(jsonb_build_object('feature', u.feature, 'element', u.element, 'values', to_jsonb(u."values"),
		'bounds', to_jsonb(u.bounds), 'rows', (
			SELECT jsonb_agg(COALESCE(b."rows", 0) ORDER BY n.bin)
			FROM generate_series(1, COALESCE(cardinality(u."values"), 0) + COALESCE(cardinality(u.bounds), 0) + 2) AS n (bin)
			LEFT JOIN binned AS b ON b.feature = u.feature AND b.element IS NOT DISTINCT FROM u.element AND b.bin = n.bin)))
	INTO profile FROM cut AS u WHERE u."values" IS NOT NULL OR u.bounds IS NOT NULL;
	IF profile IS NULL THEN
		RAISE no_data_found USING MESSAGE = 'there are no rows to make a profile of';
	END IF;
	PERFORM dana.dana_store_profile($1, profile, found.version);
END
$$;
COMMENT ON FUNCTION dana_profile IS
	'Store with a model''s version the distribution of the features and labels of its rows, by default from the current rows of the table that it was trained on';

CREATE FUNCTION dana_drift(model text, source regclass)
	RETURNS TABLE (feature text, element bigint, psi double precision, trained bigint, found bigint)
	LANGUAGE plpgsql STABLE
	SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	kept jsonb;
	known jsonb;
	filled boolean;
	other record;
BEGIN
	SELECT m.metadata -> 'profile', m.metadata INTO kept, known FROM dana.dana_find_model($1) AS m;
	IF kept IS NOT NULL THEN
		kept := dana.dana_checked_profile(kept, $1);
	ELSE
		RAISE object_not_in_prerequisite_state USING MESSAGE = format('model "%s" has no profile of its rows', $1),
			HINT = format('SELECT dana_profile(%L) keeps one, of the table that it was trained on.', $1);
	END IF;
	PERFORM dana.dana_arguments(known, $1, $2); -- for its errors
	EXECUTE format('SELECT EXISTS (SELECT FROM %s)', $2) INTO filled;
	IF NOT filled THEN
		RAISE no_data_found USING MESSAGE = format('%s has no rows to compare with those that model "%s" was trained on', $2, $1);
	END IF;
	-- a column that contains texts now and numbers then, or vice versa, has no value in common
	SELECT p.value ->> 'feature' AS feature, format_type(a.atttypid, a.atttypmod) AS type, p.value ->> 'element' IS NULL AS texts
	INTO other FROM jsonb_array_elements(kept) AS p
	JOIN pg_attribute AS a ON a.attrelid = $2 AND a.attname = p.value ->> 'feature' AND NOT a.attisdropped
	JOIN pg_type AS t ON t.oid = a.atttypid
	WHERE (p.value ->> 'element' IS NULL) <> dana.dana_is_text(t.typcategory, NOT known -> 'features' ? (p.value ->> 'feature')) LIMIT 1;
	IF FOUND THEN
		RAISE datatype_mismatch USING MESSAGE = format('column "%s" of %s has type %s, and model "%s" was trained on %s: none of its values can be compared',
				other.feature, $2, other.type, $1, CASE WHEN other.texts THEN 'categories' ELSE 'numbers' END),
			HINT = 'Compare a table or a view with the columns of the training.';
	END IF;
	RETURN QUERY
	WITH bins AS (
		SELECT p.n, p.value ->> 'feature' AS feature, (p.value ->> 'element')::bigint AS element,
			CASE WHEN jsonb_typeof(p.value -> 'values') = 'array' THEN ARRAY(SELECT jsonb_array_elements_text(p.value -> 'values')) END AS "values",
			CASE WHEN jsonb_typeof(p.value -> 'bounds') = 'array' THEN ARRAY(SELECT b.value::real FROM jsonb_array_elements_text(p.value -> 'bounds') AS b) END AS bounds,
			p.value -> 'rows' AS "rows"
		FROM jsonb_array_elements(kept) WITH ORDINALITY AS p (value, n)
	), today AS MATERIALIZED (SELECT c.* FROM dana.dana_counted($1, known, $2) AS c
	), binned AS (
		SELECT b.n, dana.dana_bin(b."values", b.bounds, t.value) AS bin, sum(t."rows") AS "rows"
		FROM bins AS b JOIN today AS t ON t.feature = b.feature AND (t.element IS NOT DISTINCT FROM b.element OR t.value IS NULL)
		GROUP BY b.n, bin
	), counted AS (
		SELECT b.n, r.bin, r.value::bigint AS before, COALESCE(i."rows", 0)::bigint AS now
		FROM bins AS b CROSS JOIN LATERAL jsonb_array_elements_text(b."rows") WITH ORDINALITY AS r (value, bin)
		LEFT JOIN binned AS i ON i.n = b.n AND i.bin = r.bin
		-- a label may be missing now
		WHERE EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = $2 AND a.attname = b.feature AND NOT a.attisdropped)
	), summed AS (
		SELECT c.n, sum(c.before)::bigint AS before, sum(c.now)::bigint AS now, count(*) AS bins
		FROM counted AS c WHERE c.before + c.now > 0 GROUP BY c.n
	)
	SELECT b.feature, b.element, CASE WHEN s.now = 0 THEN 'Infinity' ELSE sum((a.now - a.before) * ln(a.now / a.before))::double precision END,
		s.before, s.now
	FROM bins AS b JOIN summed AS s USING (n) JOIN LATERAL (
		SELECT (c.now + 0.5) / (s.now + 0.5 * s.bins) AS now, (c.before + 0.5) / (s.before + 0.5 * s.bins) AS before
		FROM counted AS c WHERE c.n = b.n AND c.before + c.now > 0) AS a ON true
	GROUP BY b.n, b.feature, b.element, s.before, s.now ORDER BY 3 DESC, b.n;
END
$$;
COMMENT ON FUNCTION dana_drift IS
	'How far a table is from the rows that a model was trained on: the population stability index of each feature and label, the largest first; below 0.1 they are similar, from 0.25 on train again. Requires dana_profile()';

-- Cross-validation and search. They run with the rights of the caller, so operators and functions in them are qualified
-- with their schema or take only types of PostgreSQL; all trials are one statement, so that they see the same rows.

CREATE FUNCTION dana.dana_check_metrics(rule text, metrics text[]) RETURNS void
	LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_check_metrics IS 'Raises an error unless these metrics fit the rule: loss for a rule without a label, others for one with a label';

CREATE FUNCTION dana.dana_trial_rows(
	rule text, source regclass, training jsonb, folds integer, test_size double precision, test_after jsonb, seed integer
) RETURNS text LANGUAGE c STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_trial_rows IS 'SQL that splits rows for dana_trial(): the number of a row''s fold, from 0, or without folds whether it is left out';

CREATE FUNCTION dana.dana_trial(
	rule text, source regclass, training jsonb, split text, fold integer, threshold double precision, part text DEFAULT NULL
) RETURNS jsonb LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_trial IS 'Train on all but a fold of the rows, or on a part of these, evaluate on it, and store nothing; returns the result of both, or an error caused by the data';

CREATE TYPE dana.validation AS (
	fold text, trained bigint, tested bigint, epochs double precision, loss double precision, metrics jsonb
);
COMMENT ON TYPE dana.validation IS 'A fold of dana_cross_validate(); two last rows have the mean and the deviation over the folds';
COMMENT ON COLUMN dana.validation.fold IS 'Number of the fold; mean and deviation in the last two rows';
COMMENT ON COLUMN dana.validation.trained IS 'Rows trained on';
COMMENT ON COLUMN dana.validation.tested IS 'Rows tested on';
COMMENT ON COLUMN dana.validation.metrics IS 'Metrics of dana_evaluate() on the fold that was left out';

CREATE FUNCTION dana_cross_validate(
	rule text, source regclass DEFAULT NULL, folds integer DEFAULT NULL, training jsonb DEFAULT NULL,
	seed integer DEFAULT NULL, threshold double precision DEFAULT NULL,
	metrics text[] DEFAULT NULL
) RETURNS SETOF dana.validation
	LANGUAGE plpgsql
	AS $$
DECLARE
	safe boolean := dana.dana_catalog_first();
	writes boolean := dana.dana_may_write('dana_cross_validate()');
	number integer := COALESCE(folds, 5);
	split pg_catalog.text := dana.dana_trial_rows(rule, source, training, number, NULL::pg_catalog.float8, NULL::pg_catalog.jsonb, seed);
	results dana.validation[];
	failed pg_catalog.jsonb;
	unknown pg_catalog.text;
BEGIN
	-- before the folds are trained; a metric of other rules is rejected after it
	SELECT pg_catalog.string_agg(pg_catalog.quote_literal(m), ', ') INTO unknown FROM pg_catalog.unnest(metrics) AS m
	WHERE m <> 'loss' AND NOT EXISTS (SELECT FROM dana.metric AS k WHERE k.name = m);
	IF unknown IS NOT NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('there is no metric %s', unknown),
			HINT = dana.dana_metric_names();
	END IF;
	PERFORM dana.dana_check_metrics($1, $7);
	WITH trials AS MATERIALIZED (
		SELECT f.n, dana.dana_trial(
			$1, $2, COALESCE($4, '{}') || pg_catalog.jsonb_build_object('seed', $5), split, f.n, $6) AS t FROM pg_catalog.generate_series(1, number) AS f (n)
	)
	SELECT pg_catalog.array_agg(ROW(t.n::pg_catalog.text, t.t #>> '{training,tuples}'::pg_catalog.text[], t.t #>> '{scores,rows}'::pg_catalog.text[], t.t #>> '{training,epochs}'::pg_catalog.text[],
			t.t #>> '{training,loss}'::pg_catalog.text[], (t.t -> 'scores'::pg_catalog.text) - ARRAY['model', 'version', 'part', 'rows'])::dana.validation ORDER BY t.n),
		(pg_catalog.array_agg(t.t || pg_catalog.jsonb_build_object('fold', t.n) ORDER BY t.n) FILTER (WHERE t.t ? 'error'::pg_catalog.text))[1]
	INTO results, failed FROM trials AS t;
	IF failed IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = failed ->> 'sqlstate'::pg_catalog.text,
			MESSAGE = pg_catalog.format('fold %s of %s: %s', failed ->> 'fold'::pg_catalog.text, number, failed ->> 'error'::pg_catalog.text),
			HINT = COALESCE(failed ->> 'hint'::pg_catalog.text, CASE failed ->> 'sqlstate'::pg_catalog.text WHEN '22023' THEN 'It comes from the argument "training".'
				ELSE 'Each fold needs rows to train on and rows to test on: fewer folds have more.' END);
	END IF;
	SELECT pg_catalog.string_agg(pg_catalog.quote_literal(m), ', ') INTO unknown FROM pg_catalog.unnest(metrics) AS m
	WHERE NOT (results[1]).metrics ? m;
	IF unknown IS NOT NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('there is no metric %s', unknown),
			HINT = pg_catalog.format('There are: %s.', (SELECT pg_catalog.string_agg(m, ', ') FROM pg_catalog.jsonb_object_keys((results[1]).metrics) AS m));
	END IF;
	RETURN QUERY
		SELECT r.fold, r.trained, r.tested, r.epochs, r.loss, CASE WHEN $7 IS NULL THEN r.metrics ELSE
			(SELECT pg_catalog.jsonb_object_agg(m.key, m.value) FROM pg_catalog.jsonb_each(r.metrics) AS m WHERE m.key = ANY ($7)) END
		FROM pg_catalog.unnest(results) AS r;
	RETURN QUERY
		WITH numbers AS (
			SELECT m.key AS name, pg_catalog.avg(v.number) AS mean, pg_catalog.stddev_samp(v.number) AS deviation
			FROM pg_catalog.unnest(results) AS r, pg_catalog.jsonb_each(r.metrics) AS m,
				LATERAL (SELECT CASE WHEN pg_catalog.jsonb_typeof(m.value) NOT IN ('object', 'array') THEN (m.value #>> '{}'::pg_catalog.text[])::pg_catalog.float8 END AS number) AS v
			WHERE m.key <> 'positive' AND pg_catalog.jsonb_typeof(m.value) NOT IN ('object', 'array') AND ($7 IS NULL OR m.key = ANY ($7)) GROUP BY m.key
		)
		SELECT k.kind, NULL::bigint, NULL::bigint,
			CASE k.kind WHEN 'mean' THEN pg_catalog.avg(r.epochs) ELSE pg_catalog.stddev_samp(r.epochs) END,
			CASE k.kind WHEN 'mean' THEN pg_catalog.avg(r.loss) ELSE pg_catalog.stddev_samp(r.loss) END,
			(SELECT pg_catalog.jsonb_object_agg(n.name, CASE k.kind WHEN 'mean' THEN n.mean ELSE n.deviation END) FROM numbers AS n)
		FROM pg_catalog.unnest(results) AS r, (VALUES ('mean'), ('deviation')) AS k (kind)
		GROUP BY k.kind ORDER BY k.kind DESC;
END
$$;
COMMENT ON FUNCTION dana_cross_validate IS 'Train a rule on all but a fold of the rows and evaluate on that fold, for each fold; returns a row for each, then their mean and deviation';

CREATE TYPE dana.search_point AS (
	rank bigint, hyper jsonb, score double precision, deviation double precision, metrics jsonb, error text, round integer
);
COMMENT ON TYPE dana.search_point IS 'A point of a grid, scored by the metric''s mean over the folds; rank 1 is the best, NULL if a training failed';
COMMENT ON COLUMN dana.search_point.rank IS 'Rank by score; 1 is the best, NULL if a training failed';
COMMENT ON COLUMN dana.search_point.hyper IS 'The point: hyperparameters for dana_train()';
COMMENT ON COLUMN dana.search_point.score IS 'The metric''s mean over the folds';
COMMENT ON COLUMN dana.search_point.deviation IS 'Its standard deviation over the folds';
COMMENT ON COLUMN dana.search_point.metrics IS 'Means of all metrics';
COMMENT ON COLUMN dana.search_point.error IS 'Message of the error if a training failed';
COMMENT ON COLUMN dana.search_point.round IS 'Last round that it took part in; 1 without halving';

CREATE FUNCTION dana.dana_ranked(outcomes jsonb[], metric text) RETURNS TABLE (n integer, point dana.search_point)
	LANGUAGE plpgsql STABLE
	SET search_path = pg_catalog, pg_temp
	AS $$
BEGIN
	-- one that suits the rule: a rule with classes has no rmse, and a rule that predicts scores no log_loss
	metric := COALESCE(metric, (SELECT CASE WHEN bool_or(t -> 'scores' ? 'rmse') THEN 'rmse'
			WHEN bool_or(t -> 'scores' ? 'loss') THEN 'loss'
			WHEN bool_and(t #>> '{scores,log_loss}' IS NOT NULL) THEN 'log_loss' ELSE 'accuracy' END
		FROM unnest(outcomes) AS t WHERE t ? 'scores'), 'rmse');
	RETURN QUERY WITH trials AS (
		SELECT (t ->> 'n')::integer AS n, (t ->> 'fold')::integer AS fold, (t ->> 'round')::integer AS round, t -> 'tried' AS tried, t
		FROM unnest(outcomes) AS t
	), last AS (
		SELECT t.* FROM trials AS t NATURAL JOIN (SELECT o.n, max(o.round) AS round FROM trials AS o GROUP BY o.n) AS l
	), means AS (
		SELECT t.n, m.key AS name, avg((m.value #>> '{}')::float8) AS mean, stddev_samp((m.value #>> '{}')::float8) AS deviation
		FROM last AS t, jsonb_each((t.t -> 'scores') - ARRAY['model', 'version', 'part', 'rows', 'positive']) AS m
		WHERE jsonb_typeof(m.value) NOT IN ('object', 'array')
		GROUP BY t.n, m.key
	), scored AS (
		SELECT t.n, t.round, t.tried, (array_agg(t.t ->> 'error' ORDER BY t.fold) FILTER (WHERE t.t ? 'error'))[1] AS error,
			(SELECT jsonb_object_agg(m.name, m.mean) FROM means AS m WHERE m.n = t.n) AS metrics,
			(SELECT m.mean FROM means AS m WHERE m.n = t.n AND m.name = metric) AS score,
			(SELECT m.deviation FROM means AS m WHERE m.n = t.n AND m.name = metric) AS deviation
		FROM last AS t GROUP BY t.n, t.round, t.tried
	), judged AS (
		SELECT s.n, s.round, s.tried, s.deviation, s.metrics, s.score, COALESCE(s.error,
			CASE WHEN s.score IS NULL THEN format('there is no %s on these rows', metric)
				WHEN s.score = 'NaN' THEN format('%s is not a number: a training diverged, or rows hold NaN', metric) END) AS error
		FROM scored AS s
	), ranked AS (
		SELECT j.*, CASE WHEN j.error IS NULL THEN rank() OVER (ORDER BY j.error IS NOT NULL, j.round DESC,
			CASE WHEN k.better = 'greater' THEN -j.score ELSE j.score END) END AS rank
		FROM judged AS j LEFT JOIN dana.metric AS k ON k.name = metric
	)
	SELECT r.n, ROW(r.rank, r.tried, CASE WHEN r.error IS NULL THEN r.score END, CASE WHEN r.error IS NULL THEN r.deviation END,
		CASE WHEN r.error IS NULL THEN r.metrics END, r.error, r.round)::dana.search_point FROM ranked AS r ORDER BY r.rank NULLS LAST, r.n;
END
$$;
COMMENT ON FUNCTION dana.dana_ranked IS 'The points of a search by rank, each scored by the outcomes of dana_trial() in its last round';

CREATE FUNCTION dana.dana_grid(grid jsonb) RETURNS SETOF jsonb
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
			exp(least(40, sum(CASE jsonb_typeof(g.value) WHEN 'array' THEN ln(NULLIF(jsonb_array_length(g.value), 0)::numeric) END))) END
		INTO points FROM jsonb_each(grid) AS g;
	END IF;
	IF points IS NULL OR points = 0 THEN
		RAISE invalid_parameter_value USING MESSAGE = 'argument "grid" must name values to try for each hyperparameter',
			HINT = 'As an object of arrays, {"lr": [0.01, 0.1], "k": [2, 3]}, or as an array of objects, one for each point; a range needs the argument "candidates".';
	END IF;
	IF points > 10000.5 THEN
		RAISE program_limit_exceeded USING MESSAGE = format('the grid has %s points, more than 10000',
			CASE WHEN points < 1e15 THEN round(points)::text ELSE 'too many' END);
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
COMMENT ON FUNCTION dana.dana_grid(jsonb) IS 'The points of a grid: all combinations of an object''s arrays, or the objects of an array';

CREATE FUNCTION dana.dana_candidates(grid jsonb, candidates integer, seed integer) RETURNS SETOF jsonb
	LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp
	AS $$
DECLARE
	wrong text;
BEGIN
	IF candidates NOT BETWEEN 1 AND 10000 THEN
		RAISE invalid_parameter_value USING MESSAGE = format('argument "candidates" must be between 1 and 10000, not %s', candidates);
	ELSIF candidates IS NULL OR jsonb_typeof(grid) IS DISTINCT FROM 'object'
		OR NOT EXISTS (SELECT FROM jsonb_each(grid) AS g WHERE jsonb_typeof(g.value) = 'object') THEN
		RETURN QUERY SELECT d.point FROM (SELECT g.point, g.n FROM dana.dana_grid(grid) WITH ORDINALITY AS g (point, n)
			ORDER BY CASE WHEN candidates IS NOT NULL THEN hashint8extended(g.n, seed) END, g.n LIMIT candidates) AS d ORDER BY d.n;
		RETURN;
	END IF;
	SELECT g.key INTO wrong FROM jsonb_each(grid) AS g WHERE NOT COALESCE(CASE jsonb_typeof(g.value)
		WHEN 'array' THEN jsonb_array_length(g.value) > 0
		WHEN 'object' THEN CASE WHEN jsonb_typeof(g.value -> 'low') = 'number' AND jsonb_typeof(g.value -> 'high') = 'number'
			AND g.value - '{low,high,log}'::text[] = '{}' AND jsonb_typeof(COALESCE(g.value -> 'log', 'false')) = 'boolean'
			AND NOT g.value @? '$.* ? (@ > 3.4028235e38 || @ < -3.4028235e38 || @ != 0 && @ > -1e-300 && @ < 1e-300)'
			THEN (g.value ->> 'low')::float8 < (g.value ->> 'high')::float8
				AND ((g.value ->> 'low')::float8 > 0 OR COALESCE(g.value -> 'log', 'false') = 'false') END
		END, false) LIMIT 1;
	IF wrong IS NOT NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = format('argument "grid" must have values or a range for "%s", not %s', wrong,
				regexp_replace((grid -> wrong)::text, '^(.{100}).+$', '\1...')),
			DETAIL = 'The ends of a range are numbers of type real, and low is below high.',
			HINT = 'Values are [0.01, 0.1], a range is {"low": 0.001, "high": 1}, and {"low": 0.001, "high": 1, "log": true} draws from it by orders of magnitude, above 0.';
	END IF;
	RETURN QUERY SELECT jsonb_object_agg(g.key, CASE WHEN jsonb_typeof(g.value) = 'array' THEN g.value -> floor(u.part * jsonb_array_length(g.value))::integer
			WHEN g.value -> 'log' = 'true' THEN to_jsonb(exp(ln(r.low) + u.part * (ln(r.high) - ln(r.low))))
			ELSE to_jsonb(r.low + u.part * (r.high - r.low)) END)
		FROM generate_series(1, candidates) AS c (n), jsonb_each(grid) AS g,
			LATERAL (SELECT (g.value ->> 'low')::float8, (g.value ->> 'high')::float8) AS r (low, high),
			-- 53 bits of a hash, from 0 to just below 1
			LATERAL (SELECT ((hashtextextended(concat(g.key, ':', c.n), seed) >> 11) & 9007199254740991) / 9007199254740992::float8) AS u (part)
		GROUP BY c.n ORDER BY c.n;
END
$$;
COMMENT ON FUNCTION dana.dana_candidates(jsonb, integer, integer) IS 'Points of a grid, or so many of them, drawn at random by a seed, from values and ranges';

CREATE FUNCTION dana_search(
	rule text, source regclass DEFAULT NULL, grid jsonb DEFAULT NULL, metric text DEFAULT NULL,
	folds integer DEFAULT NULL, test_size double precision DEFAULT NULL, test_after jsonb DEFAULT NULL, keep text DEFAULT NULL,
	training jsonb DEFAULT NULL, seed integer DEFAULT NULL, threshold double precision DEFAULT NULL, candidates integer DEFAULT NULL,
	halving boolean DEFAULT NULL
) RETURNS SETOF dana.search_point
	LANGUAGE plpgsql
	AS $$
DECLARE
	safe boolean := dana.dana_catalog_first();
	writes boolean := dana.dana_may_write('dana_search()');
	begun pg_catalog.jsonb[];
	rounds integer := 1;
	parts pg_catalog.text[];
	split pg_catalog.text;
	points dana.search_point[];
BEGIN
	IF metric <> 'loss' AND NOT EXISTS (SELECT FROM dana.metric AS k WHERE k.name = metric AND k.better IS NOT NULL) THEN
		RAISE invalid_parameter_value USING MESSAGE = pg_catalog.format('there is no metric "%s"', metric),
			HINT = dana.dana_metric_names();
	ELSIF pg_catalog.num_nonnulls(folds, test_size, test_after) > 1 THEN
		RAISE invalid_parameter_value USING MESSAGE = 'give one of the arguments "folds", "test_size" and "test_after"';
	END IF;
	PERFORM dana.dana_check_metrics($1, CASE WHEN metric IS NOT NULL THEN ARRAY[metric] END);
	training := COALESCE(training, '{}');
	folds := CASE WHEN pg_catalog.num_nulls(test_size, test_after) = 2 THEN COALESCE(folds, 5) END;
	split := dana.dana_trial_rows(rule, source, training, folds, test_size, test_after, seed);
	SELECT pg_catalog.array_agg(pg_catalog.jsonb_build_object('n', p.n, 'round', 0, 'tried',
		CASE WHEN training ->> 'hyper'::pg_catalog.text IS NULL THEN '{}' ELSE training -> 'hyper'::pg_catalog.text END || p.point) ORDER BY p.n)
	INTO begun FROM dana.dana_candidates(grid, candidates, COALESCE(seed, 1)) WITH ORDINALITY AS p (point, n);
	-- each round trains the best third of the one before on three times the rows, the last round on all; the parts are
	-- nested, and chosen by another seed than folds, tests (seed) and validation (seed + 1)
	WHILE halving AND pg_catalog.power(3, rounds)::integer <= pg_catalog.cardinality(begun) LOOP
		parts := pg_catalog.array_prepend(dana.dana_trial_rows(rule, source, training, NULL::integer, pg_catalog.power(3, -rounds),
			NULL::pg_catalog.jsonb, COALESCE(seed, 1) # (1 << 30)), parts);
		rounds := rounds + 1;
	END LOOP;
	-- one statement, so that all trials see the same rows
	WITH RECURSIVE searched (round, outcomes) AS (
		SELECT 0, begun
		UNION ALL
		SELECT s.round + 1, (
			SELECT pg_catalog.array_agg(pg_catalog.jsonb_build_object('n', p.n, 'fold', f.n, 'round', s.round + 1, 'tried', p.tried) || dana.dana_trial(
				$1, $2, training || pg_catalog.jsonb_build_object('hyper', p.tried, 'seed', seed), split, CASE WHEN folds > 0 THEN f.n END, threshold,
				parts[s.round + 1]) ORDER BY p.n, f.n)
			-- keep the best third; all, if the round trained on fewer than 100 rows
			FROM (SELECT r.n, (r.point).hyper AS tried FROM dana.dana_ranked(s.outcomes, metric) AS r LIMIT (
					SELECT CASE WHEN pg_catalog.max((t #>> '{training,tuples}'::pg_catalog.text[])::bigint) >= 100 THEN (pg_catalog.count(DISTINCT t -> 'n'::pg_catalog.text) + 2) / 3 END
					FROM pg_catalog.unnest(s.outcomes) AS t)) AS p,
				pg_catalog.generate_series(1, COALESCE(folds, 1)) AS f (n))
		FROM searched AS s WHERE s.round < rounds
	)
	SELECT pg_catalog.array_agg(r.point ORDER BY r.place) INTO points
	FROM (SELECT pg_catalog.array_agg(t) AS outcomes FROM searched AS s, pg_catalog.unnest(s.outcomes) AS t) AS o,
		dana.dana_ranked(o.outcomes, metric) WITH ORDINALITY AS r (n, point, place);
	IF (points[1]).rank IS NULL THEN
		RAISE data_exception USING MESSAGE = pg_catalog.format('no point of the grid has a score: %s', (points[1]).error);
	END IF;
	IF keep IS NOT NULL THEN
		PERFORM dana.dana_train_rule(rule, source, CASE WHEN folds > 0 THEN training - 'test_by'::pg_catalog.text ELSE training END
			|| pg_catalog.jsonb_build_object('model', keep, 'hyper', (points[1]).hyper, 'seed', seed, 'test_size', test_size, 'test_after', test_after));
	END IF;
	RETURN QUERY SELECT * FROM pg_catalog.unnest(points);
END
$$;
COMMENT ON FUNCTION dana_search IS 'Search hyperparameters: train and evaluate for each point of a grid, and rank the points; keep: train a model of that name with the best';

-- Trainings that run

CREATE FUNCTION dana.dana_progress(
	OUT pid integer, OUT datid oid, OUT usesysid oid, OUT relid oid, OUT phase text, OUT epoch integer, OUT epochs integer,
	OUT page bigint, OUT pages bigint, OUT cycles bigint, OUT loss double precision, OUT seconds_left double precision,
	OUT shard integer
) RETURNS SETOF record LANGUAGE c PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'dana_progress_info';
COMMENT ON FUNCTION dana.dana_progress IS 'Trainings that run now; dana.progress shows them with names';

CREATE VIEW dana.progress AS
	SELECT p.pid, d.datname AS database, pg_catalog.pg_get_userbyid(p.usesysid) AS role,
		CASE WHEN d.datname = pg_catalog.current_database() THEN p.relid::pg_catalog.regclass END AS source,
		p.phase, p.epoch, p.epochs, p.page, p.pages, p.cycles, p.loss, p.seconds_left, p.shard
	FROM dana.dana_progress() AS p LEFT JOIN pg_catalog.pg_database AS d ON d.oid = p.datid;
COMMENT ON VIEW dana.progress IS 'Trainings that run now, of roles that you may monitor';
COMMENT ON COLUMN dana.progress.pid IS 'Process of the session that trains';
COMMENT ON COLUMN dana.progress.database IS 'Its database';
COMMENT ON COLUMN dana.progress.role IS 'Its role';
COMMENT ON COLUMN dana.progress.source IS 'Table that it reads, if it is in this database; NULL for a query';
COMMENT ON COLUMN dana.progress.phase IS 'looking (scanning labels and columns), waiting (until other trainings end: dana.max_runs), compiling, streaming (pages to the machine), training (on kept pages), storing';
COMMENT ON COLUMN dana.progress.epoch IS 'Epochs completed';
COMMENT ON COLUMN dana.progress.epochs IS 'Maximum number of epochs; fewer if the training converges';
COMMENT ON COLUMN dana.progress.page IS 'Pages sent in the current stream';
COMMENT ON COLUMN dana.progress.pages IS 'Pages in the stream; NULL: unknown, because rows are converted to pages';
COMMENT ON COLUMN dana.progress.cycles IS 'Cycles of the machine so far';
COMMENT ON COLUMN dana.progress.loss IS 'Mean loss of the last completed epoch';
COMMENT ON COLUMN dana.progress.seconds_left IS 'Estimate from the epochs so far';
COMMENT ON COLUMN dana.progress.shard IS 'Number of the shard whose message is waited for, as dana_shards() has it; NULL: none is';

CREATE FUNCTION dana.dana_live_epochs(
	OUT pid integer, OUT source regclass, OUT epoch integer, OUT loss double precision, OUT validation_loss double precision, OUT tuples bigint,
	OUT skipped bigint, OUT cycles bigint, OUT seconds double precision
) RETURNS SETOF record LANGUAGE c PARALLEL RESTRICTED AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_live_epochs IS 'Epochs of the trainings that run now, the last 4096 of each; dana.curve adds them to those of dana.epoch';

CREATE VIEW dana.curve WITH (security_barrier) AS
	SELECT e.run, NULL::integer AS pid, r.model, r.source, e.epoch, e.loss, e.validation_loss, e.tuples, e.skipped, e.cycles, e.seconds
	FROM dana.epoch AS e JOIN dana.run AS r ON r.id = e.run WHERE pg_catalog.pg_has_role(r.owner, 'USAGE')
	UNION ALL
	SELECT NULL, l.pid, NULL, l.source::text, l.epoch, l.loss, l.validation_loss, l.tuples, l.skipped, l.cycles, l.seconds
	FROM dana.dana_live_epochs() AS l;
COMMENT ON VIEW dana.curve IS 'Training curves: the epochs of dana.epoch, and of trainings that run now and store them at commit';
COMMENT ON COLUMN dana.curve.run IS 'Run that it belongs to; NULL during the training';
COMMENT ON COLUMN dana.curve.pid IS 'Process that trains, as in dana.progress and dana.job; NULL after the training';
COMMENT ON COLUMN dana.curve.model IS 'Model of the run; NULL during the training';
COMMENT ON COLUMN dana.curve.source IS 'Table that it reads; NULL for a query, and during a training in another database';

-- Tables on several servers

CREATE FUNCTION dana_shard_pages(relation regclass, pages integer DEFAULT 64) RETURNS SETOF bytea
	LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_shard_pages IS
	'The pages of a table for a training on another server, at most so many in a row, with the rows that the snapshot sees alone. Needs SELECT on the table';

CREATE FUNCTION dana.dana_take_pages(relation regclass, pages bytea) RETURNS bigint LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_take_pages IS
	'Append what dana_shard_pages() returned on another server to a temporary table that this transaction created, after a check of each value; returns the number of rows';

CREATE FUNCTION dana.dana_record_shards(relation regclass, gathered jsonb, key text[]) RETURNS boolean LANGUAGE c STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_record_shards IS
	'Record what a client has gathered into a temporary table of this session, for the metadata of models; returns whether it is certain that no two rows have the same key, which is then their primary key without an index';

CREATE FUNCTION dana_shards(source regclass, timeout double precision DEFAULT 10)
	RETURNS TABLE (shard integer, server text, relation text, "rows" bigint, pages bigint, version text, reachable boolean, error text)
	LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_shards IS
	'The shards of a table, from dana.shard or its partitions, and what each server answers: rows as its planner estimates them, pages, its version, and the error that keeps the shard from being gathered';

CREATE PROCEDURE dana.dana_train_part(rule text, source regclass, training jsonb, part jsonb, text text, INOUT result json)
	LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON PROCEDURE dana.dana_train_part IS
	'A part of a training on several servers, which the client relays (CopyBoth, as in streaming replication): number 0 leads, without rows, and stores the model; each other one trains on its rows. Requires EXECUTE on dana_train()';

CREATE FUNCTION dana_gather(source regclass, "into" text DEFAULT NULL, timeout double precision DEFAULT 60) RETURNS regclass
	LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_gather IS
	'Gather the pages of a table''s shards, which dana_shards() lists, into a temporary table to train on; it goes with the transaction, or with the session if into has its name';

-- Calls in the background

CREATE FUNCTION dana.dana_job_lost(job bigint) RETURNS boolean LANGUAGE c STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana.dana_job_lost IS 'Whether a job of yours has ended without recording it';

-- A lost job: its process or the server was killed before it recorded the end. Its worker's lock shows that. A job that
-- ended after the statement's snapshot is shown in its earlier state.
CREATE VIEW dana.job WITH (security_barrier) AS
	SELECT j.id, j.function, j.arguments, j.owner,
		CASE WHEN f.lost THEN 'lost' ELSE j.state END AS state,
		l.pid, j.created, j.started, j.ended, j.result, j.sqlstate,
		CASE WHEN f.lost THEN 'the process of the job ended without a word' ELSE j.message END AS message, j.detail,
		CASE WHEN f.lost THEN 'The server''s log may say why. dana_start(function, arguments) calls it again.' ELSE j.hint END AS hint,
		j.notices
	FROM dana.job_log AS j LEFT JOIN pg_catalog.pg_locks AS l ON j.state IN ('queued', 'running') AND l.locktype = 'object'
		AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
		AND l.classid = 'dana.job_log'::pg_catalog.regclass AND l.objid = (j.id & 4294967295)::pg_catalog.oid
		AND l.mode = 'ExclusiveLock' AND l.granted
	CROSS JOIN LATERAL (SELECT j.state IN ('queued', 'running') AND l.pid IS NULL AND dana.dana_job_lost(j.id)) AS f (lost)
	WHERE pg_catalog.pg_has_role(j.owner, 'USAGE');
COMMENT ON VIEW dana.job IS 'Calls in the background, of your roles';
COMMENT ON COLUMN dana.job.state IS 'queued, running, done, failed, cancelled; lost: its process was killed';
COMMENT ON COLUMN dana.job.pid IS 'Its process, while there is one';

CREATE FUNCTION dana_start(function text, arguments jsonb) RETURNS bigint LANGUAGE c STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_start(text, jsonb) IS 'Call dana_train, dana_train_groups, dana_cross_validate or dana_search in the background, once this transaction commits; returns the job''s number';

CREATE FUNCTION dana_wait(job bigint, timeout double precision DEFAULT NULL) RETURNS text
	LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_wait IS 'Wait until a job has ended, or for so many seconds; returns its state';

CREATE FUNCTION dana_cancel(job bigint) RETURNS boolean LANGUAGE c STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_cancel IS 'Cancel a job; false if it is over';

CREATE FUNCTION dana_prune(older_than interval DEFAULT NULL, keep integer DEFAULT NULL)
	RETURNS TABLE (models bigint, runs bigint, jobs bigint, checkpoints bigint)
	LANGUAGE c AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION dana_prune IS
	'Remove versions of models, runs with their epochs, finished jobs, and checkpoints: of your roles (superusers: of all), older than the interval, and not among the newest `keep` of their name, model or role. The version in use and the highest always stay. Returns the number removed';

-- Columns of results and views that are columns of a table get their description from there
DO $$
DECLARE
	same record;
BEGIN
	FOR same IN SELECT v.result, a.attname, pg_catalog.col_description(t.attrelid, t.attnum) AS text
		FROM (VALUES ('training', 'run'), ('group_training', 'run'), ('group_training', 'training'), ('validation', 'run'),
			('curve', 'epoch'), ('job', 'job_log')) AS v (result, origin)
		JOIN pg_catalog.pg_class AS c ON c.relname = v.result AND c.relnamespace = 'dana'::pg_catalog.regnamespace
		JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND pg_catalog.col_description(c.oid, a.attnum) IS NULL
		JOIN pg_catalog.pg_attribute AS t ON t.attrelid = ('dana.' || v.origin)::pg_catalog.regclass AND t.attname = a.attname
			AND pg_catalog.col_description(t.attrelid, t.attnum) IS NOT NULL
	LOOP
		EXECUTE pg_catalog.format('COMMENT ON COLUMN dana.%I.%I IS %L', same.result, same.attname, same.text);
	END LOOP;
END
$$;

-- What default privileges gave of schema, tables and sequences when they were made is taken back: then PUBLIC's part
DO $$
DECLARE
	given record;
BEGIN
	FOR given IN SELECT DISTINCT o.kind, o.name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS role
		FROM (SELECT 'SCHEMA', 'dana', n.nspacl, n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'dana'
			UNION ALL SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, c.relacl, c.relowner
			FROM pg_catalog.pg_class AS c WHERE c.relnamespace = 'dana'::regnamespace AND c.relkind IN ('r', 'v', 'S')
		) AS o (kind, name, acl, owner), pg_catalog.aclexplode(o.acl) AS a
		WHERE a.grantee <> o.owner
	LOOP
		EXECUTE pg_catalog.format('REVOKE ALL ON %s %s FROM %s', given.kind, given.name, given.role);
	END LOOP;
END
$$;
GRANT USAGE ON SCHEMA dana TO PUBLIC;
-- writing dana.shard is for a DBA to grant: a role that may write a table may also lock it
GRANT SELECT ON dana.rule, dana.model, dana.run, dana.epoch, dana.metric, dana.progress, dana.curve, dana.job,
	dana.checkpoint, dana.shard TO PUBLIC;

-- What uses the worker, or changes what others see, a DBA grants
REVOKE EXECUTE ON FUNCTION dana_create_udf, dana_drop_rule, dana_grant_rule, dana_revoke_rule, dana_train, dana_train_groups,
	dana_explain, dana_cross_validate, dana_search, dana_start, dana_drop_model, dana_activate_model, dana_rollback_model,
	dana_rename_model, dana_comment_model, dana_profile, dana_refresh, dana_grant_model, dana_revoke_model, dana_prune FROM PUBLIC;
