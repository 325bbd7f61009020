/*
 * The scan of a source's rows before a training: categories of texts, means and medians, the range of dates, keys.
 *
 * It runs with the caller's rights and reads the rows that the training will read. Values are compared by their bytes:
 * no user-defined cast, operator or collation is called.
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/relation.h"
#include "catalog/pg_index.h"

#include "base/dana.h"
#include "base/json.h"
#include "base/notices.h"
#include "features/survey.h"
#include "rows/rows.h"
#include "source/gathered.h"
#include "source/schema.h"
#include "source/source.h"
#include "values/agreed.h"
#include "values/encode.h"
#include "values/texts.h"
#include "values/values.h"

#define LEAST_ROWS		5	/* of a category */
#define LEAST_FOR_CLASS 20	/* the same, where the label is a class: few rows may all have the same */
#define MAX_VALUES		1000 /* of a column where few rows have a category: */
#define LEAST_COVERED	10 /* one of so many rows */

/* Whether a text g.v is a decimal number; codes such as 01067 are not */
#define NUMBER_IN_TEXT \
	"g.v OPERATOR(pg_catalog.~) '^ *[-+]?((0|[1-9][0-9]*)([.][0-9]*)?|[.][0-9]+)([eE][-+]?[0-9]+)? *$'"

/* Rows of the source, for FROM, except rows with a NULL in the label or the weight, which a training leaves out */
static char *
rows_of(const dana_survey *survey)
{
	const dana_source *source = survey->source;
	StringInfoData	   rows;

	initStringInfo(&rows);
	if (source->asked.query != NULL)
		appendStringInfo(&rows, "(%s\n) AS r WHERE true", source->asked.query);
	else
		appendStringInfo(&rows, "%s WHERE (%s\n)", source->from,
						 source->asked.filter != NULL ? source->asked.filter : "true");
	for (int i = 0; i < survey->labels.count; i++)
		appendStringInfo(&rows, " AND %s IS NOT NULL", quote_identifier(survey->labels.values[i]));
	return rows.data;
}

/* Rows of a category at least; a caller's number of categories includes rare ones */
static int
least_rows(const dana_survey *survey, const dana_candidate *feature)
{
	return feature->max_given ? 1 : survey->classes ? LEAST_FOR_CLASS : LEAST_ROWS;
}

/* Before any report on the columns */
static _Noreturn void
reject_no_rows(const dana_survey *survey)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
					errmsg("%s has no row to train on", survey->source->name),
					survey->labels.count > 0 ? errdetail("Rows with a NULL label or weight are left out.") : 0,
					survey->source->asked.filter != NULL ? errhint("Argument filter or test_size may leave none.") : 0));
}

/* NULL comes first, then the most frequent texts; each row also has the number of rows and of texts, including NULL */
static bool
take_category(TupleTableSlot *row, void *context)
{
	dana_survey *survey = context;
	dana_candidate *feature = survey->current;
	dana_texts *categories = &feature->encoder.categories;
	text	  *value;
	int64	   rows;

	slot_getallattrs(row);
	rows = DatumGetInt64(row->tts_values[1]);
	feature->short_enough = DatumGetInt64(row->tts_values[5]);
	survey->numbers = !row->tts_isnull[4] && DatumGetBool(row->tts_values[4]);
	if (row->tts_isnull[0])
	{
		feature->has_nulls = true;
		feature->rows = DatumGetInt64(row->tts_values[2]) - rows;
		feature->values = DatumGetInt64(row->tts_values[3]) - 1;
		return true;
	}
	value = DatumGetTextPP(row->tts_values[0]);
	if (!feature->has_nulls)
	{
		feature->rows = DatumGetInt64(row->tts_values[2]);
		feature->values = DatumGetInt64(row->tts_values[3]);
	}
	if (VARSIZE_ANY_EXHDR(value) > DANA_TEXT_BYTES || categories->count == feature->most || rows < least_rows(survey, feature))
		return true;
	feature->covered += rows;
	categories->values[categories->count++] = MemoryContextStrdup(survey->context, text_to_cstring(value));
	return true;
}

static int
compare_texts(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Whether the rows are those of other parts, which were counted and summed there */
static bool
is_elsewhere(const dana_survey *survey)
{
	return survey->training->leads && survey->training->known != NULL;
}

/* What these have in a column: an array of texts, or an object */
static Jsonb *
found_elsewhere(const dana_survey *survey, const char *column, bool texts)
{
	Jsonb *found = dana_json_member(survey->training->known, "found");

	if (JB_ROOT_IS_OBJECT(found))
		found = dana_json_member(found, column);
	if (texts ? !JB_ROOT_IS_ARRAY(found) || JB_ROOT_IS_SCALAR(found) : !JB_ROOT_IS_OBJECT(found))
		dana_reject_argument("part", "say what the rows of all shards have in column \"%s\"", column);
	return found;
}

/* The texts of a column, v, and the number of rows with each, n */
static char *
count_texts(const dana_survey *survey, const char *column, Oid type)
{
	Jsonb *found;

	if (!is_elsewhere(survey))
		return psprintf("SELECT (%s) COLLATE pg_catalog.\"C\" AS v, pg_catalog.count(*) AS n FROM %s GROUP BY 1",
						dana_text_expression(column, type), rows_of(survey));
	found = found_elsewhere(survey, column, true);
	return psprintf("SELECT t.v COLLATE pg_catalog.\"C\" AS v, pg_catalog.sum(t.n)::pg_catalog.int8 AS n "
					"FROM pg_catalog.jsonb_to_recordset(%s::pg_catalog.jsonb) AS t (v pg_catalog.text, n pg_catalog.int8) "
					"GROUP BY 1", quote_literal_cstr(JsonbToCString(NULL, &found->root, VARSIZE(found))));
}

void
dana_survey_texts(dana_survey *survey, dana_candidate *feature)
{
	const Oid type = TupleDescAttr(survey->columns, feature->column - 1)->atttypid;
	char *text = psprintf(
		"SELECT g.v, g.n, (pg_catalog.sum(g.n) OVER ())::pg_catalog.int8, pg_catalog.count(*) OVER (), "
		"pg_catalog.bool_and(pg_catalog.octet_length(g.v) OPERATOR(pg_catalog.<=) %d AND " NUMBER_IN_TEXT ") OVER (), "
		"pg_catalog.count(*) FILTER (WHERE pg_catalog.octet_length(g.v) OPERATOR(pg_catalog.<=) %d) OVER () "
		"FROM (%s) AS g "
		"ORDER BY pg_catalog.octet_length(g.v) OPERATOR(pg_catalog.>) %d NULLS FIRST, g.n DESC, g.v LIMIT %d",
		DANA_TEXT_BYTES, DANA_TEXT_BYTES, count_texts(survey, feature->encoder.column, type), DANA_TEXT_BYTES, feature->most + 1);
	dana_texts *categories = &feature->encoder.categories;

	categories->values = palloc(sizeof(char *) * feature->most);
	survey->current = feature;
	survey->numbers = false;
	dana_rows_each(dana_source_plan(survey->source, text), 0, take_category, survey);
	qsort(categories->values, categories->count, sizeof(char *), compare_texts);
	if (feature->rows == 0 && !feature->has_nulls)
		reject_no_rows(survey);
	if (survey->numbers && feature->values > 2 && dana_is_text_type(dana_encoded_type(type)))
		dana_notice(NOTICE, psprintf("As text they are categories, without an order. To train on the numbers, convert them in "
									 "the table, or in a view or a query: %s::numeric.",
									 quote_identifier(feature->encoder.column)),
					"column %s: its " INT64_FORMAT " different values are numbers, stored as text", feature->encoder.column,
					feature->values);
	if (feature->values < 2)
		feature->excluded = feature->values == 0 ? "all its values are NULL" : "it has a single value in all rows";
	else if (feature->values > feature->rows / 2 || (feature->values > MAX_VALUES && feature->covered * LEAST_COVERED < feature->rows))
		feature->excluded = psprintf("it has " INT64_FORMAT " different values in " INT64_FORMAT " rows",
									feature->values, feature->rows);
	else if (feature->short_enough == 0)
		feature->excluded = psprintf("all its values have more than %d bytes", DANA_TEXT_BYTES);
	else if (categories->count == 0)
		feature->excluded = psprintf("none of its " INT64_FORMAT " values is in %d rows", feature->values,
									least_rows(survey, feature));
}

/* Whether a column needs its mean or median, or its hours */
static bool
needs_number(const dana_candidate *feature)
{
	return feature->choose_parts ||
		(feature->encoder.kind != DANA_ENCODE_ONE_HOT && feature->encoder.width > 0 &&
		 dana_needs_middle(feature->nulls));
}

/* For each such feature its mean or median, the largest distance from midnight, and whether it has NULLs */
static bool
take_numbers(TupleTableSlot *row, void *context)
{
	dana_survey *survey = context;
	int	  at = 0;
	int64 rows = 0;

	slot_getallattrs(row);
	for (int i = survey->first; i < survey->last; i++) /* the features of dana_survey_numbers() */
		if (survey->features[i].excluded == NULL && needs_number(&survey->features[i]))
		{
			survey->features[i].has_value = !row->tts_isnull[at];
			if (row->tts_isnull[at])
				survey->features[i].excluded = "all its values are NULL";
			rows += DatumGetInt64(row->tts_values[at + 3]);
			survey->features[i].value = row->tts_isnull[at] ? 0 : DatumGetFloat8(row->tts_values[at]);
			survey->features[i].has_hours = !row->tts_isnull[at + 1] && DatumGetFloat8(row->tts_values[at + 1]) > 0;
			survey->features[i].has_nulls = !row->tts_isnull[at + 2] && DatumGetBool(row->tts_values[at + 2]);
			at += 4;
		}
	if (rows == 0)
		reject_no_rows(survey);
	return true;
}

/* The same of the rows of other parts; the worker reports that there are none */
static void
take_numbers_elsewhere(dana_survey *survey)
{
	for (int i = survey->first; i < survey->last; i++)
	{
		dana_candidate *feature = &survey->features[i];
		Jsonb		   *found;

		if (feature->excluded != NULL || !needs_number(feature))
			continue;
		found = found_elsewhere(survey, feature->encoder.column, false);
		feature->has_value = !dana_json_is_null(found, "mean");
		if (!feature->has_value)
			feature->excluded = "all its values are NULL";
		feature->value = dana_json_double(found, "mean");
		feature->has_hours = dana_json_boolean(found, "hours");
		feature->has_nulls = dana_json_boolean(found, "nulls");
	}
}

/* Of the numbers s.v%d that are neither NaN nor infinite */
#define FINITE "FILTER (WHERE pg_catalog.abs(s.v%d) OPERATOR(pg_catalog.<=) 3.4e38::pg_catalog.float8)"
#define MEDIAN "pg_catalog.percentile_cont(0.5::pg_catalog.float8) WITHIN GROUP (ORDER BY s.v%d) %s"
#define MEAN   "pg_catalog.avg(s.v%d) %s"

void
dana_survey_numbers(dana_survey *survey, int first)
{
	StringInfoData aggregates;
	StringInfoData values;

	initStringInfo(&aggregates);
	initStringInfo(&values);
	survey->first = first;
	survey->last = Min(first + DANA_MAX_NUMBERS, survey->count);
	if (is_elsewhere(survey))
		return take_numbers_elsewhere(survey);
	for (int i = survey->first; i < survey->last; i++)
	{
		const dana_candidate *feature = &survey->features[i];
		const char		*comma = aggregates.len > 0 ? ", " : "";
		char *finite = psprintf(FINITE, i);

		if (feature->excluded != NULL || !needs_number(feature))
			continue;
		appendStringInfoString(&aggregates, comma);
		appendStringInfo(&aggregates, feature->nulls == DANA_NULLS_MEDIAN ? MEDIAN : MEAN, i, finite);
		appendStringInfo(&aggregates,
						 ", pg_catalog.max(s.v%d OPERATOR(pg_catalog.-) (86400::pg_catalog.float8 OPERATOR(pg_catalog.*) "
						 "pg_catalog.floor(s.v%d OPERATOR(pg_catalog./) 86400::pg_catalog.float8))) %s, "
						 "pg_catalog.bool_or(s.v%d IS NULL), pg_catalog.count(*)", i, i, finite, i);
		appendStringInfo(&values, "%sdana.dana_number(%s) AS v%d", comma, quote_identifier(feature->encoder.column), i);
	}
	if (aggregates.len > 0)
	{
		char *text = psprintf("SELECT %s FROM (SELECT %s FROM %s) AS s", aggregates.data, values.data,
							  rows_of(survey));

		dana_rows_each(dana_source_plan(survey->source, text), 0, take_numbers, survey);
	}
}

/* For each such array, whether it is or contains a NULL */
static bool
take_arrays(TupleTableSlot *row, void *context)
{
	dana_survey *survey = context;
	int		   at = 0;

	slot_getallattrs(row);
	for (int i = 0; i < survey->count; i++)
		if (survey->features[i].excluded == NULL && dana_array_mean(&survey->features[i]))
		{
			survey->features[i].has_nulls = !row->tts_isnull[at] && DatumGetBool(row->tts_values[at]);
			at++;
		}
	return true;
}

/* The mean or the median of each element, in their order */
static bool
take_element(TupleTableSlot *row, void *context)
{
	dana_survey	   *survey = context;
	dana_candidate *feature = survey->current;
	const int		count = feature->mean_count++;

	slot_getallattrs(row);
	if (row->tts_isnull[0])
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
						errmsg("element %d of the arrays in column \"%s\" of %s has no value to take a mean or a median of",
							   feature->mean_count, feature->encoder.column, survey->source->name),
						errhint("Give a number for its NULLs, or leave the column out.")));
	if (count == 0)
		feature->means = MemoryContextAlloc(survey->context, sizeof(double));
	else if ((count & (count - 1)) == 0) /* a power of two: the list is full */
		feature->means = repalloc(feature->means, sizeof(double) * 2 * count);
	feature->means[count] = DatumGetFloat8(row->tts_values[0]);
	return true;
}

static void
survey_elements(dana_survey *survey, dana_candidate *feature)
{
	char	 *name = (char *)quote_identifier(feature->encoder.column);
	char	 *finite = psprintf(FINITE, 0);
	dana_type type;

	(void)dana_type_of(TupleDescAttr(survey->columns, feature->column - 1)->atttypid, &type);
	survey->current = feature;
	dana_rows_each(
		dana_source_plan(
			survey->source,
			psprintf("SELECT %s FROM (SELECT dana.dana_number(u.e) AS v0, u.k FROM (SELECT %s AS x FROM %s) AS t "
					 "CROSS JOIN LATERAL pg_catalog.unnest(t.x) WITH ORDINALITY AS u(e, k)) AS s GROUP BY s.k ORDER BY s.k",
					 psprintf(feature->nulls == DANA_NULLS_MEDIAN ? MEDIAN : MEAN, 0, finite),
					 type.vector ? psprintf("dana.dana_numbers(%s)", name) : name, rows_of(survey))),
		0, take_element, survey);
	if (feature->mean_count == 0)
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
						errmsg("column \"%s\" of %s has no value to take a mean or a median of", feature->encoder.column,
							   survey->source->name),
						errhint("Give a number for its NULLs, or leave the column out.")));
}

void
dana_survey_arrays(dana_survey *survey)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < survey->count; i++)
		if (survey->features[i].excluded == NULL && dana_array_mean(&survey->features[i]))
			appendStringInfo(&list, "%spg_catalog.bool_or(dana.dana_numbers(%s) IS NULL)", list.len > 0 ? ", " : "",
							 quote_identifier(survey->features[i].encoder.column));
	if (list.len > 0)
		dana_rows_each(dana_source_plan(survey->source, psprintf("SELECT %s FROM %s", list.data, rows_of(survey))), 0,
					   take_arrays, survey);
	for (int i = 0; i < survey->count; i++)
		if (survey->features[i].excluded == NULL && dana_array_mean(&survey->features[i]) && survey->features[i].has_nulls)
			survey_elements(survey, &survey->features[i]);
}

/* Excludes a column */
static void
exclude(dana_survey *survey, const char *column, const char *why)
{
	for (int i = 0; i < survey->count; i++)
		if (strcmp(survey->features[i].encoder.column, column) == 0)
			survey->features[i].excluded = why;
}

void
dana_survey_keys(dana_survey *survey)
{
	Oid		   id = survey->training->rows.relation;
	Relation   relation = OidIsValid(id) ? relation_open(id, AccessShareLock) : NULL;
	dana_texts key = is_elsewhere(survey) ? dana_json_texts(survey->training->known, "key") : dana_gathered_key(id);
	ListCell  *cell;

	if (key.count == 1)
		exclude(survey, key.values[0], "it is the primary key");
	if (relation == NULL)
		return;
	foreach (cell, RelationGetIndexList(relation))
	{
		Relation		  index = index_open(lfirst_oid(cell), AccessShareLock);
		Form_pg_index	  form = index->rd_index;
		int				  key = form->indisunique && form->indnkeyatts == 1 ? form->indkey.values[0] : 0;
		Form_pg_attribute column = key > 0 ? TupleDescAttr(RelationGetDescr(relation), key - 1) : NULL;

		if (column != NULL && (form->indisprimary || column->attidentity != '\0'))
			exclude(survey, NameStr(column->attname),
					form->indisprimary ? "it is the primary key" : "it is a unique identity column");
		index_close(index, AccessShareLock);
	}
	relation_close(relation, NoLock);
}
