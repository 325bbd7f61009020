/*
 * Models and their history: stores a training's results, and finds models for the roles that may use them.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/namespace.h"
#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "storage/lmgr.h"
#include "utils/datum.h"
#include "utils/typcache.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/notices.h"
#include "models/models.h"
#include "models/weights.h"
#include "worker/session.h"

/* Position of "@version", or NULL; an "@" in the owner's name is skipped */
static const char *
find_version(const char *reference)
{
	return strchr(reference[0] == '"' ? strrchr(reference, '"') : reference, '@');
}

bool
dana_model_names_version(const char *reference)
{
	return find_version(reference) != NULL;
}

/* Cuts "@version" off; 0 if there is none. Only the canonical form is a version: @2, not @02 or @+2. */
static int
cut_version(char *reference)
{
	const char *at = find_version(reference);
	int			version = 0;

	if (at == NULL)
		return 0;
	if (at[1] != '0' && strspn(at + 1, "0123456789") == strlen(at + 1) && strlen(at + 1) < 10)
		version = atoi(at + 1);
	if (version == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_NAME), errmsg("\"%s\" is not a version of a model", reference),
						errhint("Write the model's name, or name@version with a version from 1.")));
	reference[at - reference] = '\0';
	return version;
}

/* Cuts "owner." off, a role's name, quoted or not; InvalidOid if there is no such role */
static Oid
cut_owner(char **reference)
{
	char *from = *reference;
	char *role = from;
	char *to = role;

	if (*from == '"')
	{
		for (from++; *from != '\0' && (*from != '"' || from[1] == '"'); from++)
		{
			from += *from == '"';
			*to++ = *from;
		}
		from += *from == '"';
	}
	else
		to = from += strcspn(from, ".");
	if (*from != '.')
		return InvalidOid;
	*to = '\0';
	*reference = from + 1;
	return get_role_oid(role, true);
}

char *
dana_model_version_of(const char *reference, int version)
{
	char *name = pstrdup(reference);

	(void)cut_version(name);
	return psprintf("%s@%d", name, version);
}

/* Another owner of a model of this name that the caller may use, for a hint; or NULL. A dropped role has no name. */
static char *
owner_of_namesake(const char *name, Oid caller)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT owner::text FROM dana.model WHERE name = $1 AND owner <> $2 AND owner IN (SELECT oid FROM pg_authid) "
		"AND (pg_has_role($2, owner, 'USAGE') "
		"OR EXISTS (SELECT FROM unnest(users) AS u (role) WHERE pg_has_role($2, u.role, 'USAGE'))) LIMIT 1",
		TEXTOID, OIDOID);
	Datum values[] = {CStringGetTextDatum(name), ObjectIdGetDatum(caller)};

	return dana_read(&find, values, NULL) == 0 ? NULL : TextDatumGetCString(dana_value(0, 1));
}

/* The version meant by the name $2 of role $1: the active one, else the highest; each is an index look-up */
#define MEANT_VERSION \
	"coalesce((SELECT version FROM dana.model WHERE owner = $1 AND name = $2 AND active), " \
	"(SELECT max(version) FROM dana.model WHERE owner = $1 AND name = $2))"

/* Finds a version among one role's models, and whether the caller may use it */
static bool
find_of_owner(Oid owner, const char *name, int version, Oid caller, bool read_only)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT * FROM dana.model WHERE owner = $1 AND name = $2 "
		"AND version = CASE WHEN $3 = 0 THEN " MEANT_VERSION " ELSE $3 END", OIDOID, TEXTOID, INT4OID);
	Datum values[] = {ObjectIdGetDatum(owner), CStringGetTextDatum(name), Int32GetDatum(version)};

	return OidIsValid(owner) && dana_execute(&find, values, NULL, InvalidSnapshot, read_only) > 0 &&
		dana_may_use(caller, owner, dana_value(0, DANA_MODEL_USERS));
}

void
dana_model_find(const char *reference, Oid caller, bool read_only)
{
	char *name = pstrdup(reference);
	int	  version = cut_version(name);
	char *rest = pstrdup(name);
	Oid	  owner;
	char *namesake;

	/* the caller's own models first: their names may contain a point */
	if (find_of_owner(caller, name, version, caller, read_only))
		return;
	owner = cut_owner(&rest);
	if (find_of_owner(owner, rest, version, caller, read_only))
		return;
	namesake = owner_of_namesake(name, caller);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("model \"%s\" does not exist", dana_shown(reference)),
			 namesake != NULL ? errhint("Perhaps you meant \"%s.%s\": a model of another role has its owner before the name.", namesake, name)
							  : errhint("SELECT owner, name, version FROM dana.model lists the models; dana_train() makes one.")));
}

Datum
dana_model_row(const char *type)
{
	Oid row = get_rel_type_id(dana_catalog_table(type));

	return heap_copy_tuple_as_datum(SPI_tuptable->vals[0], lookup_rowtype_tupdesc_copy(row, -1));
}

/* dana.dana_find_model(reference): its row of dana.model */
DANA_FUNCTION(dana_find_model)
{
	dana_identity before;
	Datum		  row;

	dana_require_arguments(fcinfo, 1);
	before = dana_become_owner();
	dana_model_find(text_to_cstring(PG_GETARG_TEXT_PP(0)), before.user, true);
	row = dana_model_row("model");
	dana_become_caller(before);
	PG_RETURN_DATUM(row);
}

int
dana_model_weights(Datum **parts, bool read_only)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT values FROM dana.weights WHERE owner = $1 AND name = $2 AND version = $3 ORDER BY part",
		OIDOID, TEXTOID, INT4OID);
	Datum key[] = {dana_value(0, DANA_MODEL_OWNER), dana_value(0, DANA_MODEL_NAME), dana_value(0, DANA_MODEL_VERSION)};
	Datum first = datumCopy(dana_value(0, DANA_MODEL_WEIGHTS), false, -1);
	int	  others = 0;

	if (toast_raw_datum_size(first) >= ARR_OVERHEAD_NONULLS(1) + sizeof(float4) * DANA_WEIGHTS_PART)
		others = (int)dana_execute(&find, key, NULL, InvalidSnapshot, read_only);
	*parts = palloc(sizeof(Datum) * (others + 1));
	(*parts)[0] = first;
	for (int k = 0; k < others; k++)
		(*parts)[k + 1] = datumCopy(dana_value(k, 1), false, -1);
	return others + 1;
}

/* dana.dana_values(reference, first, count): values of a model, from a given index */
DANA_FUNCTION(dana_values)
{
	const int32	  first = PG_GETARG_INT32(1), count = PG_GETARG_INT32(2);
	dana_identity before;
	ArrayType	 *values;
	Datum		 *parts;
	int			  n_parts;

	dana_require_arguments(fcinfo, 3);
	before = dana_become_owner();
	dana_model_find(text_to_cstring(PG_GETARG_TEXT_PP(0)), before.user, true);
	n_parts = dana_model_weights(&parts, true);
	dana_become_caller(before);
	if (first < 0 || count < 0 || (int64)first + count > dana_weights_count(parts, n_parts) ||
		count > (int32)((MaxAllocSize - ARR_OVERHEAD_NONULLS(1)) / sizeof(float4)))
		dana_error(INVALID_PARAMETER_VALUE, "there are no %d values from number %d on", count, first);
	if (count == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(FLOAT4OID));
	values = dana_weights_array(palloc(ARR_OVERHEAD_NONULLS(1) + sizeof(float4) * count), count);
	dana_weights_copy(parts, n_parts, first, count, (float *)ARR_DATA_PTR(values));
	PG_RETURN_POINTER(values);
}

/* What is read of a model before a training */
typedef struct start_reading
{
	const char *reference;
	Jsonb	   *parameters;
	dana_texts	features;
	Jsonb	   *centres; /* or NULL */
	dana_raw   *weights; /* NULL: not wanted */
	dana_texts	classes;
	char	   *rule;
} start_reading;

static void
read_start(void *state)
{
	start_reading *reading = state;
	dana_identity  before = dana_become_owner();
	Jsonb		  *metadata;
	Datum		  *parts;
	int			   n_parts;
	int64		   count;

	dana_model_find(reading->reference, before.user, false);
	reading->parameters = DatumGetJsonbPCopy(dana_value(0, DANA_MODEL_PARAMETERS));
	metadata = DatumGetJsonbPCopy(dana_value(0, DANA_MODEL_METADATA));
	/* a column with an encoding is several columns of the worker's */
	reading->features = dana_json_texts(metadata, dana_json_are_texts(metadata, "encoded") ? "encoded" : "features");
	if (!dana_json_is_null(metadata, "centres"))
		reading->centres = dana_json_member(metadata, "centres");
	if (reading->weights != NULL)
	{
		n_parts = dana_model_weights(&parts, false);
		count = dana_weights_count(parts, n_parts);
		reading->weights->bytes = sizeof(float4) * count;
		reading->weights->data = MemoryContextAllocHuge(CurrentMemoryContext, reading->weights->bytes);
		dana_weights_copy(parts, n_parts, 0, count, (float *)reading->weights->data);
	}
	dana_become_caller(before);
}

void
dana_model_append_start(StringInfo to, const char *reference, dana_raw *weights)
{
	start_reading reading = {.reference = reference, .weights = weights};

	dana_peek(read_start, &reading);
	dana_json_open(to, "warm_start_from", '{');
	dana_json_object(to, "parameters", reading.parameters);
	dana_json_list(to, "features", &reading.features);
	dana_json_object(to, "centres", reading.centres);
	dana_json_close(to, '}');
}

typedef struct metadata_reading
{
	const char *reference;
	Jsonb	   *metadata;
} metadata_reading;

static void
read_metadata(void *state)
{
	metadata_reading *reading = state;
	dana_identity	  before = dana_become_owner();

	dana_model_find(reading->reference, before.user, false);
	reading->metadata = DatumGetJsonbPCopy(dana_value(0, DANA_MODEL_METADATA));
	dana_become_caller(before);
}

Jsonb *
dana_model_metadata(const char *reference)
{
	metadata_reading reading = {.reference = reference};

	dana_peek(read_metadata, &reading);
	return reading.metadata;
}

static void
read_classes(void *state)
{
	start_reading *reading = state;
	dana_identity  before = dana_become_owner();

	dana_model_find(reading->reference, before.user, false);
	reading->classes = dana_json_texts(DatumGetJsonbPCopy(dana_value(0, DANA_MODEL_METADATA)), "classes");
	reading->rule = TextDatumGetCString(dana_value(0, DANA_MODEL_RULE));
	dana_become_caller(before);
}

dana_texts
dana_model_classes(const char *reference, char **rule)
{
	start_reading reading = {.reference = reference};

	dana_peek(read_classes, &reading);
	*rule = reading.rule;
	return reading.classes;
}

void
dana_model_check_name(const char *name)
{
	if (name[0] == '\0' || strlen(name) > DANA_NAME_LIMIT || strchr(name, '@') != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("\"%s\" cannot be a model's name",
						pnstrdup(name, pg_mbcliplen(name, strlen(name), DANA_NAME_LIMIT))),
				 errdetail("A name has 1 to %d bytes and no \"@\", which stands before a version.", DANA_NAME_LIMIT)));
}

/* Reports that a name, taken from the rule, now stands for a model of other rows */
static void
report_replaced(const dana_new_model *model, Datum owner, Datum name, int version)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT version, coalesce(metadata ->> 'query', metadata ->> 'source'), metadata ? 'query' FROM dana.model "
		"WHERE owner = $1 AND name = $2 AND version = " MEANT_VERSION, OIDOID, TEXTOID);
	const char *query = model->query;
	char	   *before;

	if (!model->unnamed || version == 1 || dana_run(&find, ((Datum[]){owner, name}), NULL) == 0)
		return;
	before = TextDatumGetCString(dana_value(0, 2));
	if (strcmp(before, query != NULL ? query : model->source) != 0)
		dana_notice(NOTICE, psprintf("\"%s@%d\" names the other one. To keep both in use, give the argument \"model\".",
									 model->name, DatumGetInt32(dana_value(0, 1))),
					"model \"%s\" was trained on %s (version %d), and is now trained on %s (version %d)", model->name,
					DatumGetBool(dana_value(0, 3)) ? "another query" : before, DatumGetInt32(dana_value(0, 1)),
					query != NULL ? "a query" : model->source, version);
}

/*
 * The next version of a model. Two trainings under one name must not choose the same in any isolation level: the lock,
 * which no SQL statement can take, is held until the transaction ends. It belongs to the owner, so no other role waits
 * for it. The models of groups share one: a lock for each of thousands would fill the lock table.
 */
static int
next_version(Oid owner, const char *name)
{
	static dana_statement find = DANA_STATEMENT(
		"SELECT coalesce(max(version), 0) + 1 FROM dana.model WHERE owner = $1 AND name = $2", OIDOID, TEXTOID);
	Datum		values[] = {ObjectIdGetDatum(owner), CStringGetTextDatum(name)};
	const Size	shared = strcspn(name, "[");
	const uint64 hash = hash_bytes_extended((const unsigned char *)name, shared + (name[shared] == '['), owner);

	LockDatabaseObject(dana_catalog_table("model"), (Oid)hash, (uint16)(hash >> 32), ExclusiveLock);
	dana_run_on_latest(&find, values);
	return DatumGetInt32(dana_value(0, 1));
}

Datum
dana_model_store(const dana_new_model *model)
{
	static dana_statement store_model = DANA_STATEMENT(
		"INSERT INTO dana.model (name, version, rule, owner, parameters, weights, predictor, metadata, users) "
		"VALUES ($1, $2, $3, $4, $5 -> 'parameters', $6, $7, $5 -> 'metadata', "
		"coalesce((SELECT users FROM dana.model WHERE owner = $4 AND name = $1 ORDER BY version DESC LIMIT 1), '{}'))",
		TEXTOID, INT4OID, TEXTOID, OIDOID, JSONBOID, FLOAT4ARRAYOID, BYTEAOID);
	static dana_statement store_part = DANA_STATEMENT(
		"INSERT INTO dana.weights (owner, name, version, part, values) VALUES ($1, $2, $3, $4, $5)",
		OIDOID, TEXTOID, INT4OID, INT4OID, FLOAT4ARRAYOID);
	/* returns the columns of dana.training */
	static dana_statement store_run = DANA_STATEMENT(
		"INSERT INTO dana.run (model, model_version, rule, source, owner, machine, started, wall_seconds, "
		" modelled_seconds, epochs, kept, converged, loss, validation_loss, tuples, skipped, pages, cycles, design, counters) "
		"SELECT $1, $2, $3, $4, $5, $6, clock_timestamp() - make_interval(secs => $7), $7, "
		" modelled_seconds, epochs, kept, converged, loss, validation_loss, tuples, skipped, pages, cycles, $9, "
		" (SELECT jsonb_object_agg(key, total) FROM (SELECT key, sum(counter::numeric) AS total "
		"   FROM jsonb_array_elements($10) AS e, jsonb_each_text(e -> 'counters') AS c (key, counter) "
		"   GROUP BY key) AS sums) "
		"FROM jsonb_populate_record(NULL::dana.run, $8) "
		"RETURNING model, model_version, id, epochs, kept, converged, loss, validation_loss, tuples, skipped, pages, "
		" cycles, modelled_seconds, wall_seconds",
		TEXTOID, INT4OID, TEXTOID, TEXTOID, OIDOID, TEXTOID, FLOAT8OID, JSONBOID, JSONBOID, JSONBOID);
	static dana_statement store_epochs = DANA_STATEMENT(
		"INSERT INTO dana.epoch (run, epoch, loss, validation_loss, tuples, skipped, cycles, seconds, counters) "
		"SELECT $1, epoch, loss, validation_loss, tuples, skipped, cycles, seconds, counters "
		"FROM jsonb_populate_recordset(NULL::dana.epoch, $2)",
		INT8OID, JSONBOID);
	dana_identity before = dana_become_owner();
	Datum		  name = CStringGetTextDatum(model->name);
	Datum		  rule = CStringGetTextDatum(model->rule);
	Datum		  owner = ObjectIdGetDatum(before.user);
	Datum		  version = Int32GetDatum(next_version(before.user, model->name));
	Datum		  result = JsonbPGetDatum(model->result);
	Datum		  epochs = JsonbPGetDatum(model->epochs);
	Datum		  of_model[] = {name, version, rule, owner, result, PointerGetDatum(model->weights),
								PointerGetDatum(model->predictor)};
	Datum		  of_run[] = {name, version, rule, CStringGetTextDatum(model->source), owner,
							  CStringGetTextDatum(model->machine), Float8GetDatum(model->wall_seconds), result,
							  JsonbPGetDatum(model->design), epochs};
	Datum		  of_epochs[] = {0, epochs};
	const int64	  count = ARR_DIMS(model->weights)[0];
	MemoryContext caller = CurrentMemoryContext;
	Datum		  row = 0;

	PG_TRY();
	{
		report_replaced(model, owner, name, DatumGetInt32(version));
		(void)dana_weights_array((char *)model->weights, Min(count, DANA_WEIGHTS_PART));
		dana_run(&store_model, of_model, model->predictor == NULL ? "      n" : NULL);
		for (int part = 1; (int64)part * DANA_WEIGHTS_PART < count; part++)
		{
			/* where the previous part holds its last numbers, which are stored: no copy is made */
			char  *place = (char *)model->weights + sizeof(float4) * (Size)part * DANA_WEIGHTS_PART;
			int64  left = count - (int64)part * DANA_WEIGHTS_PART;
			Datum  of_part[] = {owner, name, version, Int32GetDatum(part),
								PointerGetDatum(dana_weights_array(place, Min(left, DANA_WEIGHTS_PART)))};

			dana_run(&store_part, of_part, NULL);
		}
		dana_run(&store_run, of_run, NULL);
		row = dana_model_row("training");
		of_epochs[0] = dana_value(0, 3);
		dana_run(&store_epochs, of_epochs, NULL);
	}
	PG_CATCH();
	{
		dana_json_blame_worker(caller);
	}
	PG_END_TRY();
	dana_become_caller(before);
	return row;
}
