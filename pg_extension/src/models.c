/*
 * Models and their history: storing what a training leaves, dana_drop_model().
 */
#include "models.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"

#include "catalog.h"
#include "compat.h"

PG_FUNCTION_INFO_V1(dana_drop_model);

#define MODEL_NAME_LIMIT 255

/* Raises an error where a version of the model belongs to a role that the caller is not; called as the tables' owner */
static void
check_owner(Oid caller, const char *name)
{
	static dana_statement find = {"SELECT DISTINCT owner FROM dana.model WHERE name = $1", 1, {TEXTOID}, NULL};
	Datum				  values[] = {CStringGetTextDatum(name)};
	uint64				  owners = dana_run(&find, values, NULL);

	for (uint64 i = 0; i < owners; i++)
	{
		bool isnull;

		dana_require_owner(caller, DatumGetObjectId(dana_value(i, 1, &isnull)), "model", name);
	}
}

void
dana_model_check(const char *name)
{
	dana_identity before;

	if (name[0] == '\0' || strlen(name) > MODEL_NAME_LIMIT || strchr(name, '@') != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("\"%s\" cannot be a model's name", name),
				 errdetail("A name has 1 to %d bytes and no \"@\", which stands before a version.", MODEL_NAME_LIMIT)));
	before = dana_become_owner();
	check_owner(before.user, name);
	dana_become_caller(before);
}

/*
 * The next version of a model. Two trainings under one name, whatever their isolation level, must not choose the same:
 * the lock, which no SQL statement can take, is held until the transaction ends.
 */
static int
next_version(const char *name)
{
	static dana_statement find = {
		"SELECT coalesce(max(version), 0) + 1 FROM dana.model WHERE name = $1", 1, {TEXTOID}, NULL};
	Datum values[] = {CStringGetTextDatum(name)};
	bool  isnull;

	LockDatabaseObject(dana_catalog_table("model"), hash_bytes((const unsigned char *)name, strlen(name)), 0, ExclusiveLock);
	dana_run_on_latest(&find, values);
	return DatumGetInt32(dana_value(0, 1, &isnull));
}

Datum
dana_model_store(const dana_new_model *model, TupleDesc training)
{
	static dana_statement store_model = {
		"INSERT INTO dana.model (name, version, udf, owner, parameters, weights, predictor, metadata) "
		"VALUES ($1, $2, $3, $4, $5 -> 'parameters', $6, $7, $5 -> 'metadata')",
		7,
		{TEXTOID, INT4OID, TEXTOID, OIDOID, JSONBOID, FLOAT4ARRAYOID, BYTEAOID},
		NULL};
	/* returns the columns of dana.training */
	static dana_statement store_run = {
		"INSERT INTO dana.run (model, model_version, udf, source, owner, backend, started, wall_seconds, "
		" modelled_seconds, epochs, converged, loss, tuples, skipped, pages, cycles, design) "
		"SELECT $1, $2, $3, $4, $5, $6, clock_timestamp() - make_interval(secs => $7), $7, "
		" (r ->> 'modelled_seconds')::float8, (r ->> 'epochs')::int4, (r ->> 'converged')::bool, (r ->> 'loss')::float8, "
		" (r ->> 'tuples')::int8, (r ->> 'skipped')::int8, (r ->> 'pages')::int8, (r ->> 'cycles')::int8, $9 "
		"FROM (SELECT $8 AS r) AS result "
		"RETURNING model, model_version, id, epochs, converged, loss, tuples, skipped, pages, cycles, "
		" modelled_seconds, wall_seconds",
		9,
		{TEXTOID, INT4OID, TEXTOID, TEXTOID, OIDOID, TEXTOID, FLOAT8OID, JSONBOID, JSONBOID},
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
	check_owner(before.user, model->name);
	{
		Datum values[] = {name, version, udf, owner, JsonbPGetDatum(model->result), PointerGetDatum(model->weights),
						  PointerGetDatum(model->predictor)};

		dana_run(&store_model, values, model->predictor == NULL ? "      n" : NULL);
	}
	{
		Datum values[] = {name, version, udf, CStringGetTextDatum(model->source), owner,
						  CStringGetTextDatum(model->backend), Float8GetDatum(model->wall_seconds),
						  JsonbPGetDatum(model->result), JsonbPGetDatum(model->design)};

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

/* dana_drop_model(name, version) */
Datum
dana_drop_model(PG_FUNCTION_ARGS)
{
	static dana_statement drop = {
		"DELETE FROM dana.model WHERE name = $1 AND ($2 IS NULL OR version = $2)", 2, {TEXTOID, INT4OID}, NULL};
	dana_identity before;
	char		 *name;
	uint64		  dropped;
	Datum		  values[2];

	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the model's name must not be NULL")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	before = dana_become_owner();
	check_owner(before.user, name);
	values[0] = CStringGetTextDatum(name);
	values[1] = PG_ARGISNULL(1) ? (Datum)0 : PG_GETARG_DATUM(1);
	dropped = dana_run(&drop, values, PG_ARGISNULL(1) ? " n" : NULL);
	dana_become_caller(before);
	if (dropped == 0)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("model \"%s\" does not exist", name)));
	PG_RETURN_INT64((int64)dropped);
}
