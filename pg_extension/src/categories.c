/*
 * The largest numbers of columns that hold categories: a rule's models have a row for each, so they say how large the
 * models are. Which columns those are, the worker knows.
 */
#include "postgres.h"

#include "executor/spi.h"

#include "dana.h"
#include "models.h"
#include "training.h"
#include "worker.h"

typedef struct category_look
{
	dana_texts columns;
	StringInfo found;
} category_look;

static bool
take_largest(TupleTableSlot *row, void *context)
{
	category_look *look = context;

	slot_getallattrs(row);
	for (int i = 0; i < look->columns.count; i++)
		if (row->tts_isnull[i])
			dana_json_text(look->found, look->columns.values[i], NULL);
		else
			dana_json_number(look->found, look->columns.values[i], DatumGetFloat8(row->tts_values[i]));
	return true;
}

/* The largest number of an array of numbers, or one number, as the training reads them */
static const char *
number_of_row(TupleDesc columns, const char *column)
{
	Oid		  type = TupleDescAttr(columns, SPI_fnumber(columns, column) - 1)->atttypid;
	dana_type holds;

	if (dana_type_of(type, &holds) && holds.array)
		return psprintf("(SELECT pg_catalog.max(e)::pg_catalog.float8 FROM pg_catalog.unnest(dana.dana_numbers(%s)) AS e)",
						quote_identifier(column));
	return psprintf("dana.dana_number(%s)", quote_identifier(column));
}

/* SELECT of the largest numbers, of the rows that are left out for a test, too */
static char *
statement(const category_look *look, dana_source *source, const char *held_out)
{
	TupleDesc	   columns = dana_source_columns(source);
	const char	  *filter = source->asked.filter != NULL ? source->asked.filter : "true";
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < look->columns.count; i++)
		appendStringInfo(&text, "%s pg_catalog.max(s.v%d) FILTER (WHERE pg_catalog.abs(s.v%d) OPERATOR(pg_catalog.<=) "
						 "3.4e38::pg_catalog.float8)", i > 0 ? "," : "SELECT", i, i);
	for (int i = 0; i < look->columns.count; i++)
		appendStringInfo(&text, "%s %s AS v%d", i > 0 ? "," : " FROM (SELECT",
						 number_of_row(columns, look->columns.values[i]), i);
	if (source->asked.query != NULL)
		appendStringInfo(&text, " FROM (%s\n) AS r) AS s", source->asked.query);
	else if (held_out != NULL)
		appendStringInfo(&text, " FROM %s WHERE (%s\n) OR (%s\n)) AS s", source->name, filter, held_out);
	else
		appendStringInfo(&text, " FROM %s WHERE (%s\n)) AS s", source->name, filter);
	return text.data;
}

void
dana_categories_find(const dana_training *training, dana_source *source, const dana_rule *rule)
{
	category_look  look;
	StringInfoData found;

	if (!dana_json_boolean(rule->description, "categories"))
		return;
	look.columns = dana_json_texts(dana_ask(DANA_MSG_CATEGORIES, dana_training_request(training, rule->text, source, NULL),
											DANA_MSG_COUNTED), "columns");
	look.found = &found;
	for (int i = 0; i < look.columns.count; i++)
		if (SPI_fnumber(dana_source_columns(source), look.columns.values[i]) <= 0)
			return; /* made of columns, by an encoder */
	if (look.columns.count == 0)
		return;
	dana_json_begin(&found);
	dana_rows_each(dana_source_plan(source, statement(&look, source, training->held_out)), 0, take_largest, &look);
	source->largest = dana_json_end(&found);
}
