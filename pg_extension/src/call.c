/*
 * Calls of the extension's SQL functions with arguments from a JSON object. dana_statement(), a function in SQL, makes the
 * statement from what the function declares; the values travel as its one parameter.
 */
#include "call.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "json.h"

static char *
statement_for(const char *schema, const char *function, Jsonb *arguments)
{
	Oid	  types[] = {TEXTOID, JSONBOID};
	Datum values[] = {CStringGetTextDatum(function), JsonbPGetDatum(arguments)};
	char *text = psprintf("SELECT %s($1, $2)", quote_qualified_identifier(schema, "dana_statement"));

	if (SPI_execute_with_args(text, 2, types, values, NULL, true, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not make the statement for %s()", function);
	return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

static SPIPlanPtr
plan_for(const char *schema, const char *function, Jsonb *arguments)
{
	Oid		   types[] = {JSONBOID};
	SPIPlanPtr plan = SPI_prepare(statement_for(schema, function, arguments), 1, types);

	if (plan == NULL)
		elog(ERROR, "could not plan a call of %s(): %s", function, SPI_result_code_string(SPI_result));
	return plan;
}

void
dana_call_check(const char *schema, const char *function, Jsonb *arguments)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	(void)plan_for(schema, function, arguments);
	SPI_finish();
}

Jsonb *
dana_call(const char *schema, const char *function, Jsonb *arguments, Snapshot snapshot)
{
	MemoryContext context = CurrentMemoryContext;
	Datum		  values[] = {JsonbPGetDatum(arguments)};
	SPIPlanPtr	  plan;
	Datum		  rows;
	Jsonb		 *result;
	bool		  isnull;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	plan = plan_for(schema, function, arguments);
	if (SPI_execute_snapshot(plan, values, NULL, snapshot, InvalidSnapshot, false, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not call %s()", function);
	rows = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	MemoryContextSwitchTo(context);
	result = DatumGetJsonbPCopy(rows);
	SPI_finish();
	return result;
}

Jsonb *
dana_call_row(Jsonb *rows)
{
	JsonbValue *row = getIthJsonbValueFromContainer(&rows->root, 0);

	if (row == NULL || row->type != jbvBinary)
		elog(ERROR, "a function of dana returned no row");
	return JsonbValueToJsonb(row);
}

Jsonb *
dana_call_with_model(Jsonb *arguments, const char *name, int64 version)
{
	char		  *others = dana_json_utf8(JsonbToCString(NULL, &arguments->root, VARSIZE(arguments)));
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoString(&text, "{\"model\":");
	dana_json_append(&text, psprintf("%s@" INT64_FORMAT, name, version));
	appendStringInfo(&text, "%s%s", JB_ROOT_COUNT(arguments) > 0 ? "," : "", others + 1);
	return dana_json_parse(text.data);
}
