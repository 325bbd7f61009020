/*
 * Models and their history: storing what a training leaves, and who may use it.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "common/hashfn.h"
#include "storage/lmgr.h"
#include "utils/typcache.h"

#include "dana.h"
#include "arguments.h"
#include "models.h"

#define MODEL_NAME_LIMIT 255

/* Cuts "@version" off; 0 where there is none. A version is written in one way: @2, not @02 or @+2. */
static int
cut_version(char *reference)
{
	char *at = strchr(reference[0] == '"' ? strrchr(reference, '"') : reference, '@'); /* not one in the owner's name */
	int	  version = 0;

	if (at == NULL)
		return 0;
	if (at[1] != '0' && strspn(at + 1, "0123456789") == strlen(at + 1) && strlen(at + 1) < 10)
		version = atoi(at + 1);
	if (version == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_NAME), errmsg("\"%s\" names no version of a model", reference),
						errhint("Write the model's name, or name@version with a version from 1.")));
	*at = '\0';
	return version;
}

/* Cuts "owner." off the front, a role as quote_identifier() writes it or as it is; InvalidOid where there is no such role */
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

/* Who else has a model of the name that the caller may use, for a hint; or NULL. A role that is gone has no name. */
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

/* Finds a version among one role's models, and whether the caller may use it */
static bool
find_of_owner(dana_statement *find, Oid owner, const char *name, int version, Oid caller,
			  uint64 (*run)(dana_statement *statement, Datum *values, const char *nulls))
{
	Datum values[] = {ObjectIdGetDatum(owner), CStringGetTextDatum(name), Int32GetDatum(version)};

	return OidIsValid(owner) && run(find, values, NULL) > 0 && dana_may_use(caller, owner, dana_value(0, 2));
}

void
dana_model_find(dana_statement *find, const char *reference, Oid caller,
				uint64 (*run)(dana_statement *statement, Datum *values, const char *nulls))
{
	char *name = pstrdup(reference);
	int	  version = cut_version(name);
	char *rest = pstrdup(name);
	Oid	  owner;
	char *namesake;

	/* the caller's own first: a point in its name makes it no one else's */
	if (find_of_owner(find, caller, name, version, caller, run))
		return;
	owner = cut_owner(&rest);
	if (find_of_owner(find, owner, rest, version, caller, run))
		return;
	namesake = owner_of_namesake(name, caller);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("model \"%s\" does not exist", reference),
			 namesake != NULL ? errhint("Perhaps you meant \"%s.%s\": a model of another role has its owner before the name.", namesake, name)
							  : errhint("SELECT owner, name, version FROM dana.model lists the models; dana_train() makes one.")));
}

/* dana.dana_find_model(reference): owner, name and version */
DANA_FUNCTION(dana_find_model)
{
	static dana_statement find = DANA_MODEL_FIND("NULL");
	TupleDesc	  type;
	dana_identity before;
	Datum		  values[3];
	bool		  nulls[3] = {false};
	HeapTuple	  row;

	if (get_call_result_type(fcinfo, NULL, &type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "dana_find_model() must return a row");
	dana_require_arguments(fcinfo, 1);
	before = dana_become_owner();
	dana_model_find(&find, text_to_cstring(PG_GETARG_TEXT_PP(0)), before.user, dana_read);
	values[0] = dana_value(0, 1);
	values[1] = dana_value(0, 3);
	values[2] = dana_value(0, 4);
	row = heap_form_tuple(BlessTupleDesc(type), values, nulls);
	dana_become_caller(before);
	PG_RETURN_DATUM(HeapTupleGetDatum(row));
}

typedef struct weights_reading
{
	StringInfo	to;
	const char *key;
	const char *reference;
} weights_reading;

static void
append_weights(void *state)
{
	static dana_statement find = DANA_MODEL_FIND("parameters, weights");
	weights_reading *reading = state;
	dana_identity	 before = dana_become_owner();
	ArrayType		*weights;
	Size			 length;
	char			*hex;

	dana_model_find(&find, reading->reference, before.user, dana_run);
	weights = DatumGetArrayTypePCopy(dana_value(0, DANA_MODEL_COLUMNS + 2));
	length = sizeof(float4) * ArrayGetNItems(ARR_NDIM(weights), ARR_DIMS(weights));
	hex = palloc(2 * length + 1);
	hex[hex_encode(ARR_DATA_PTR(weights), length, hex)] = '\0';
	pfree(weights);
	dana_json_open(reading->to, reading->key, '{');
	dana_json_object(reading->to, "parameters", DatumGetJsonbP(dana_value(0, DANA_MODEL_COLUMNS + 1)));
	dana_json_text(reading->to, "weights", hex);
	dana_json_close(reading->to, '}');
	dana_become_caller(before);
}

void
dana_model_append_weights(StringInfo to, const char *key, const char *reference)
{
	dana_peek(append_weights, &(weights_reading){to, key, reference});
}

void
dana_model_check_name(const char *name)
{
	if (name[0] == '\0' || strlen(name) > MODEL_NAME_LIMIT || strchr(name, '@') != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("\"%s\" cannot be a model's name", name),
				 errdetail("A name has 1 to %d bytes and no \"@\", which stands before a version.", MODEL_NAME_LIMIT)));
}

/*
 * The next version of a model. Two trainings under one name, whatever their isolation level, must not choose the same:
 * the lock, which no SQL statement can take, is held until the transaction ends. It is the owner's, so no other role waits
 * for it. The models of groups share one: a lock for each of some thousand would fill the table of locks.
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
	/* returns the columns of dana.training */
	static dana_statement store_run = DANA_STATEMENT(
		"INSERT INTO dana.run (model, model_version, rule, source, owner, backend, started, wall_seconds, "
		" modelled_seconds, epochs, converged, loss, tuples, skipped, pages, cycles, design, counters) "
		"SELECT $1, $2, $3, $4, $5, $6, clock_timestamp() - make_interval(secs => $7), $7, "
		" (r ->> 'modelled_seconds')::float8, (r ->> 'epochs')::int4, (r ->> 'converged')::bool, (r ->> 'loss')::float8, "
		" (r ->> 'tuples')::int8, (r ->> 'skipped')::int8, (r ->> 'pages')::int8, (r ->> 'cycles')::int8, $9, "
		" (SELECT jsonb_object_agg(key, total) FROM (SELECT key, sum(counter::numeric) AS total "
		"   FROM jsonb_array_elements($10) AS e, jsonb_each_text(e -> 'counters') AS c (key, counter) GROUP BY key) AS sums) "
		"FROM (SELECT $8 AS r) AS result "
		"RETURNING model, model_version, id, epochs, converged, loss, tuples, skipped, pages, cycles, "
		" modelled_seconds, wall_seconds",
		TEXTOID, INT4OID, TEXTOID, TEXTOID, OIDOID, TEXTOID, FLOAT8OID, JSONBOID, JSONBOID, JSONBOID);
	static dana_statement store_epochs = DANA_STATEMENT(
		"INSERT INTO dana.epoch (run, epoch, loss, tuples, skipped, cycles, seconds, counters) "
		"SELECT $1, (e ->> 'epoch')::int4, (e ->> 'loss')::float8, (e ->> 'tuples')::int8, (e ->> 'skipped')::int8, "
		" (e ->> 'cycles')::int8, (e ->> 'seconds')::float8, e -> 'counters' FROM jsonb_array_elements($2) AS e",
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
							  CStringGetTextDatum(model->backend), Float8GetDatum(model->wall_seconds), result,
							  JsonbPGetDatum(model->design), epochs};
	Datum		  of_epochs[] = {0, epochs};
	Oid			  type = DatumGetObjectId(DirectFunctionCall1(regtypein, CStringGetDatum("dana.training")));
	Datum		  row;

	dana_run(&store_model, of_model, model->predictor == NULL ? "      n" : NULL);
	dana_run(&store_run, of_run, NULL);
	row = heap_copy_tuple_as_datum(SPI_tuptable->vals[0], lookup_rowtype_tupdesc_copy(type, -1));
	of_epochs[0] = dana_value(0, 3);
	dana_run(&store_epochs, of_epochs, NULL);
	dana_become_caller(before);
	return row;
}
