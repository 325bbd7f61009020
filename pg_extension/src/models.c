/*
 * Models and their history: storing what a training leaves, and who may use it.
 */
#include "models.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "catalog.h"
#include "compat.h"
#include "json.h"

#define MODEL_NAME_LIMIT 255

PG_FUNCTION_INFO_V1(dana_find_model);

/* Splits "name@version"; version 0 where there is none. A version is written in one way: @2, not @02 or @+2. */
static char *
split(const char *reference, int *version)
{
	char *name = pstrdup(reference);
	char *at = strchr(name, '@');

	*version = 0;
	if (at == NULL)
		return name;
	*at = '\0';
	if (at[1] != '0' && strspn(at + 1, "0123456789") == strlen(at + 1) && strlen(at + 1) < 10)
		*version = atoi(at + 1);
	if (*version == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("\"%s\" names no version of a model", reference),
				 errhint("Write the model's name, or name@version with a version from 1.")));
	return name;
}

void
dana_model_find(dana_statement *find, const char *reference, Oid caller,
				uint64 (*run)(dana_statement *statement, Datum *values, const char *nulls))
{
	int	  version;
	char *name = split(reference, &version);
	Datum values[] = {CStringGetTextDatum(name), Int32GetDatum(version)};
	Datum users;
	bool  isnull;

	if (run(find, values, NULL) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("model \"%s\" does not exist", reference),
				 errhint("SELECT name, version FROM dana.model lists the models; dana_train() makes one.")));
	users = dana_value(0, 2, &isnull);
	dana_require_use(caller, DatumGetObjectId(dana_value(0, 1, &isnull)), users, "model", name);
}

/* dana_find_model(reference): name and version */
Datum
dana_find_model(PG_FUNCTION_ARGS)
{
	static dana_statement find = DANA_MODEL_FIND("name, version");
	MemoryContext caller = CurrentMemoryContext;
	TupleDesc	  type;
	dana_identity before;
	MemoryContext ours;
	Datum		  values[2];
	bool		  nulls[2] = {false, false};
	bool		  isnull;

	if (get_call_result_type(fcinfo, NULL, &type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "dana_find_model() must return a row");
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the model's name must not be NULL")));
	before = dana_become_owner();
	dana_model_find(&find, text_to_cstring(PG_GETARG_TEXT_PP(0)), before.user, dana_read);
	ours = MemoryContextSwitchTo(caller);
	values[0] = CStringGetTextDatum(TextDatumGetCString(dana_value(0, 3, &isnull)));
	values[1] = dana_value(0, 4, &isnull);
	MemoryContextSwitchTo(ours);
	dana_become_caller(before);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(type), values, nulls)));
}

void
dana_model_append_weights(StringInfo to, const char *reference)
{
	static dana_statement find = DANA_MODEL_FIND("parameters::text, weights");
	static const char digits[] = "0123456789abcdef";
	MemoryContext	  context = CurrentMemoryContext;
	dana_identity	  before;
	MemoryContext	  ours;
	ArrayType		 *weights;
	const uint8		 *bytes;
	char			 *hex;
	Size			  length;
	bool			  isnull;

	before = dana_become_owner();
	dana_model_find(&find, reference, before.user, dana_run);
	weights = DatumGetArrayTypeP(dana_value(0, 4, &isnull));
	bytes = (const uint8 *)ARR_DATA_PTR(weights);
	length = sizeof(float4) * ArrayGetNItems(ARR_NDIM(weights), ARR_DIMS(weights));
	ours = MemoryContextSwitchTo(context);
	hex = palloc(2 * length + 1);
	for (Size i = 0; i < length; i++)
	{
		hex[2 * i] = digits[bytes[i] >> 4];
		hex[2 * i + 1] = digits[bytes[i] & 15];
	}
	hex[2 * length] = '\0';
	appendStringInfo(to, "{\"parameters\":%s,\"weights\":\"%s\"}",
					 dana_json_utf8(TextDatumGetCString(dana_value(0, 3, &isnull))), hex);
	MemoryContextSwitchTo(ours);
	dana_become_caller(before);
}

uint64
dana_model_check_owner(Oid caller, const char *name)
{
	static dana_statement find = {"SELECT DISTINCT owner FROM dana.model WHERE name = $1", 1, {TEXTOID}, NULL};
	Datum				  values[] = {CStringGetTextDatum(name)};
	uint64				  owners = dana_run(&find, values, NULL);

	for (uint64 i = 0; i < owners; i++)
	{
		bool isnull;

		dana_require_owner(caller, DatumGetObjectId(dana_value(i, 1, &isnull)), "model", name);
	}
	return owners;
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

void
dana_model_check(const char *name)
{
	dana_identity before;

	dana_model_check_name(name);
	before = dana_become_owner();
	(void)dana_model_check_owner(before.user, name);
	dana_become_caller(before);
}

/*
 * The next version of a model. Two trainings under one name, whatever their isolation level, must not choose the same:
 * the lock, which no SQL statement can take, is held until the transaction ends. The models of groups share one: a lock
 * for each of some thousand would fill the table of locks.
 */
static int
next_version(const char *name)
{
	static dana_statement find = {
		"SELECT coalesce(max(version), 0) + 1 FROM dana.model WHERE name = $1", 1, {TEXTOID}, NULL};
	Datum values[] = {CStringGetTextDatum(name)};
	bool  isnull;

	LockDatabaseObject(dana_catalog_table("model"), hash_bytes((const unsigned char *)name, strcspn(name, "[")), 0, ExclusiveLock);
	dana_run_on_latest(&find, values);
	return DatumGetInt32(dana_value(0, 1, &isnull));
}

Datum
dana_model_store(const dana_new_model *model, TupleDesc training)
{
	static dana_statement store_model = {
		"INSERT INTO dana.model (name, version, udf, owner, parameters, weights, predictor, metadata, users) "
		"VALUES ($1, $2, $3, $4, $5 -> 'parameters', $6, $7, $5 -> 'metadata', "
		"coalesce((SELECT users FROM dana.model WHERE name = $1 ORDER BY version DESC LIMIT 1), '{}'))",
		7,
		{TEXTOID, INT4OID, TEXTOID, OIDOID, JSONBOID, FLOAT4ARRAYOID, BYTEAOID},
		NULL};
	/* returns the columns of dana.training */
	static dana_statement store_run = {
		"INSERT INTO dana.run (model, model_version, udf, source, owner, backend, started, wall_seconds, "
		" modelled_seconds, epochs, converged, loss, tuples, skipped, pages, cycles, design, counters) "
		"SELECT $1, $2, $3, $4, $5, $6, clock_timestamp() - make_interval(secs => $7), $7, "
		" (r ->> 'modelled_seconds')::float8, (r ->> 'epochs')::int4, (r ->> 'converged')::bool, (r ->> 'loss')::float8, "
		" (r ->> 'tuples')::int8, (r ->> 'skipped')::int8, (r ->> 'pages')::int8, (r ->> 'cycles')::int8, $9, "
		" (SELECT jsonb_object_agg(key, total) FROM (SELECT key, sum(counter::numeric) AS total "
		"   FROM jsonb_array_elements($10) AS e, jsonb_each_text(e -> 'counters') AS c (key, counter) GROUP BY key) AS sums) "
		"FROM (SELECT $8 AS r) AS result "
		"RETURNING model, model_version, id, epochs, converged, loss, tuples, skipped, pages, cycles, "
		" modelled_seconds, wall_seconds",
		10,
		{TEXTOID, INT4OID, TEXTOID, TEXTOID, OIDOID, TEXTOID, FLOAT8OID, JSONBOID, JSONBOID, JSONBOID},
		NULL};
	static dana_statement store_epochs = {
		"INSERT INTO dana.epoch (run, epoch, loss, tuples, skipped, cycles, seconds, counters) "
		"SELECT $1, (e ->> 'epoch')::int4, (e ->> 'loss')::float8, (e ->> 'tuples')::int8, (e ->> 'skipped')::int8, "
		" (e ->> 'cycles')::int8, (e ->> 'seconds')::float8, e -> 'counters' FROM jsonb_array_elements($2) AS e",
		2,
		{INT8OID, JSONBOID},
		NULL};
	MemoryContext context = CurrentMemoryContext;
	dana_identity before = dana_become_owner();
	Datum		  name = CStringGetTextDatum(model->name);
	Datum		  udf = CStringGetTextDatum(model->udf);
	Datum		  owner = ObjectIdGetDatum(before.user);
	Datum		  version = Int32GetDatum(next_version(model->name));
	Datum		  row;
	bool		  isnull;

	/* another role may have taken the name while we trained */
	(void)dana_model_check_owner(before.user, model->name);
	{
		Datum values[] = {name, version, udf, owner, JsonbPGetDatum(model->result), PointerGetDatum(model->weights),
						  PointerGetDatum(model->predictor)};

		dana_run(&store_model, values, model->predictor == NULL ? "      n" : NULL);
	}
	{
		Datum values[] = {name, version, udf, CStringGetTextDatum(model->source), owner,
						  CStringGetTextDatum(model->backend), Float8GetDatum(model->wall_seconds),
						  JsonbPGetDatum(model->result), JsonbPGetDatum(model->design), JsonbPGetDatum(model->epochs)};

		dana_run(&store_run, values, NULL);
	}
	{
		MemoryContext ours = MemoryContextSwitchTo(context);
		Datum		  values[] = {dana_value(0, 3, &isnull), JsonbPGetDatum(model->epochs)};

		row = heap_copy_tuple_as_datum(SPI_tuptable->vals[0], training);
		MemoryContextSwitchTo(ours);
		dana_run(&store_epochs, values, NULL);
	}
	dana_become_caller(before);
	return row;
}
