/*
 * The description of a source for the worker.
 *
 * The description has every attribute of a table in attnum order, as the page's layout needs it; or the columns of a
 * query.
 */
#include "postgres.h"

#include <math.h>

#include "access/detoast.h"
#include "access/tupmacs.h"

#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/relations.h"
#include "rows/rows.h"
#include "rows/scan.h"
#include "source/schema.h"
#include "source/source.h"
#include "values/encode.h"
#include "values/values.h"

#define ARRAY_PROBE_ROWS 1000

/* The description */

/* Properties of an array column, from the first rows: a rule's inputs need a size before the rows come */
typedef struct array_column
{
	int	 length;	  /* elements of the first one-dimensional value; -1: none was found */
	bool out_of_line; /* that value is compressed, or stored out of line */
	bool wanted;	  /* it is an array without a known extent */
} array_column;

struct dana_array_probe
{
	int			 unknown; /* columns that are wanted */
	const int	*numbers; /* of the rows' columns; NULL: those of the source */
	array_column columns[FLEXIBLE_ARRAY_MEMBER];
};

/* Examines a row with the source's columns or, with `numbers`, some of them; false: nothing is left to find */
static bool
probe_row(TupleTableSlot *row, void *context)
{
	dana_array_probe *probe = context;

	slot_getallattrs(row);
	for (int i = 0; i < row->tts_tupleDescriptor->natts; i++)
	{
		array_column *column = &probe->columns[probe->numbers != NULL ? probe->numbers[i] - 1 : i];
		const void	 *value = DatumGetPointer(row->tts_values[i]);

		if (!column->wanted || row->tts_isnull[i])
			continue;
		column->length = dana_array_length(TupleDescAttr(row->tts_tupleDescriptor, i)->atttypid, row->tts_values[i]);
		if (column->length < 0)
			continue;
		column->out_of_line = VARATT_IS_EXTERNAL(value) || VARATT_IS_COMPRESSED(value);
		column->wanted = false;
		probe->unknown--;
	}
	return probe->unknown > 0;
}

dana_rows *
dana_source_plan(dana_source *source, const char *text)
{
	if (!source->spi)
		dana_connect();
	source->spi = true;
	return dana_rows_plan(text, source->name, source->asked.query == NULL);
}

char *
dana_source_select(dana_source *source, int columns, const int *numbers)
{
	TupleDesc	   descriptor = RelationGetDescr(source->relation);
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoString(&text, "SELECT ");
	for (int i = 0; i < columns; i++)
	{
		if (numbers[i] < 1 || numbers[i] > descriptor->natts || TupleDescAttr(descriptor, numbers[i] - 1)->attisdropped)
			dana_protocol_error("asked for column %d of %s", numbers[i], source->name);
		appendStringInfo(&text, "%s%s", i > 0 ? ", " : "",
						 quote_identifier(NameStr(TupleDescAttr(descriptor, numbers[i] - 1)->attname)));
	}
	appendStringInfo(&text, " FROM %s", source->from);
	if (source->asked.filter != NULL) /* it was checked to be one expression; the newline ends a comment in it */
		appendStringInfo(&text, " WHERE (%s\n)", source->asked.filter);
	return text.data;
}

TupleDesc
dana_source_columns(dana_source *source)
{
	return source->asked.query != NULL ? dana_rows_descriptor(source->stream.plan) : RelationGetDescr(source->relation);
}

void
dana_source_probe(dana_source *source)
{
	TupleDesc		  descriptor = dana_source_columns(source);
	int				 *numbers = palloc(sizeof(int) * Max(descriptor->natts, 1));
	dana_array_probe *probe;

	if (source->probe != NULL)
		return;
	probe = palloc0(offsetof(dana_array_probe, columns) + sizeof(array_column) * descriptor->natts);
	source->probe = probe;
	for (int i = 0; i < descriptor->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(descriptor, i);
		dana_type		  type = {0};

		if (!attribute->attisdropped)
			(void)dana_type_of(attribute->atttypid, &type);
		probe->columns[i] = (array_column){.length = -1, .wanted = type.array};
		if (type.array)
			numbers[probe->unknown++] = i + 1;
	}
	if (probe->unknown == 0)
		return;
	if (source->asked.query != NULL)
		dana_rows_each(source->stream.plan, ARRAY_PROBE_ROWS, probe_row, probe);
	else if (!source->rows)
		dana_scan(source->relation, source->snapshot, NULL, source->pages, 0, ARRAY_PROBE_ROWS, probe_row, probe);
	else
	{
		/* the rows of a view, of a table with children, or of a table under its filter */
		char *text = dana_source_select(source, probe->unknown, numbers);

		probe->numbers = numbers;
		dana_rows_each(dana_source_plan(source, text), ARRAY_PROBE_ROWS, probe_row, probe);
	}
}

/* One attribute, of a column or of an encoded number; `number` from 0 */
static void
append_attribute(StringInfo to, const char *name, Form_pg_attribute attribute, int number, const array_column *found)
{
	Oid		  type = attribute->attisdropped ? InvalidOid : getBaseType(attribute->atttypid);
	dana_type holds = {0};

	if (OidIsValid(type))
		(void)dana_type_of(type, &holds);
	if (holds.vector)
		type = FLOAT4ARRAYOID; /* reported to the worker as unreadable for a Strider */
	dana_json_open(to, NULL, '{');
	dana_json_number(to, "number", number + 1);
	dana_json_text(to, "name", name);
	dana_json_number(to, "type_oid", type);
	dana_json_text(to, "type_name", attribute->attisdropped ? "" : dana_type_name(type));
	dana_json_number(to, "length", attribute->attlen);
	dana_json_text(to, "align", (char[]){attribute->attalign, '\0'});
	dana_json_truth(to, "by_value", attribute->attbyval);
	dana_json_truth(to, "not_null", attribute->attnotnull);
	dana_json_truth(to, "dropped", attribute->attisdropped);
	dana_json_text(to, "generated", (char[]){attribute->attgenerated, '\0'});
	dana_json_truth(to, "has_missing", attribute->atthasmissing);
	if (found->length >= 0)
	{
		dana_json_number(to, "array_length", found->length);
		dana_json_truth(to, "out_of_line", holds.vector || found->out_of_line);
	}
	dana_json_close(to, '}');
}

/* The columns that features become, then the labels */
static void
append_encoded(StringInfo to, const dana_source *source, TupleDesc descriptor)
{
	const dana_encoding *encoding = source->chosen.encoding;
	FormData_pg_attribute made = {
		.atttypid = FLOAT4OID, .attlen = sizeof(float4), .attalign = TYPALIGN_INT, .attbyval = true};
	const array_column	  scalar = {.length = -1};
	int					  number = 0;

	for (int i = 0; i < encoding->count + encoding->labels; i++)
	{
		const int			column = encoding->numbers[i] - 1;
		Form_pg_attribute	attribute = TupleDescAttr(descriptor, column);
		const dana_encoder *encoder = i < encoding->count ? &encoding->encoders[i] : NULL;
		const int			width = encoder != NULL ? abs(encoder->width) : 1;

		for (int k = 0; k < width; k++, number++)
			if (encoder == NULL || (encoder->kind == DANA_ENCODE_NONE && k == 0))
				append_attribute(to, NameStr(attribute->attname), attribute, number, &source->probe->columns[column]);
			else
				append_attribute(to, source->chosen.features.values[number], &made, number, &scalar);
	}
}

void
dana_source_describe(dana_source *source, StringInfo to)
{
	TupleDesc	descriptor = dana_source_columns(source);
	const bool	has_pages = source->relation != NULL && source->chosen.encoding == NULL && source->pages > 0 &&
		RELKIND_HAS_STORAGE(source->relation->rd_rel->relkind);

	dana_source_probe(source);
	dana_json_open(to, "relation", '{');
	dana_json_text(to, "name", source->name);
	dana_json_truth(to, "rows", source->rows);
	if (has_pages || !source->rows)
		dana_json_number(to, "pages", has_pages ? source->pages : 0);
	else
		dana_json_text(to, "pages", NULL);
	dana_json_open(to, "attributes", '[');
	for (int i = 0; i < descriptor->natts && source->chosen.encoding == NULL; i++)
		append_attribute(to, NameStr(TupleDescAttr(descriptor, i)->attname), TupleDescAttr(descriptor, i), i,
						 &source->probe->columns[i]);
	if (source->chosen.encoding != NULL)
		append_encoded(to, source, descriptor);
	dana_json_close(to, ']');
	dana_json_close(to, '}');
}
