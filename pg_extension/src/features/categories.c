/*
 * A scan of columns with numbers that choose rows of a rule's models. The largest numbers determine the size of the
 * models; a NOTICE reports values that are probably a mistake. The worker knows which columns these are.
 */
#include "postgres.h"

#include "executor/spi.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/json.h"
#include "base/notices.h"
#include "features/categories.h"
#include "models/rules.h"
#include "request/training.h"
#include "rows/rows.h"
#include "source/schema.h"
#include "source/source.h"
#include "values/encode.h"
#include "values/values.h"
#include "worker/session.h"

/* A model with more rows than this, and so many times the number of rows that choose them, is reported */
#define MANY_ROWS		  100000
#define MANY_TIMES		  4
#define NUMBERS_OF_COLUMN 4 /* of the statement's result */

/* The statement's result for a column */
typedef struct category_numbers
{
	double largest; /* -1: none, or another column determines the size of the models */
	int64  negative; /* rows */
	int64  nulls; /* rows */
	int64  numbers;
} category_numbers;

typedef struct category_survey
{
	const dana_source *source;
	dana_texts columns;	 /* columns that are scanned */
	dana_texts unsaid;	 /* columns that determine the size of a model */
	dana_texts unknown;	 /* columns where a negative number is not a category */
	StringInfo found;
} category_survey;

/* A table's column unchanged but with its NULLs replaced; NULL if there is no such feature */
static const dana_encoder *
filled_column(const dana_source *source, const char *name)
{
	for (int i = 0; source->chosen.encoding != NULL && i < source->chosen.encoding->count; i++)
	{
		const dana_encoder *encoder = &source->chosen.encoding->encoders[i];

		if (encoder->kind == DANA_ENCODE_NONE && encoder->fill != NULL && strcmp(encoder->column, name) == 0)
			return encoder;
	}
	return NULL;
}

static void
report_column(const category_survey *survey, const char *name, const category_numbers *found, int64 rows)
{
	const dana_encoder *filled = filled_column(survey->source, name);
	const bool			unknown = dana_is_one_of(name, &survey->unknown);

	if (found->largest >= MANY_ROWS && found->largest >= (double)MANY_TIMES * found->numbers)
		dana_notice(NOTICE, "Number the values without gaps, as docs/recipes.md shows.",
					"column %s: models get %.0f rows for its numbers, but the " INT64_FORMAT " rows of %s choose at most " INT64_FORMAT,
					name, found->largest + 1, rows, survey->source->name, found->numbers);
	if (found->negative > 0 && unknown)
		dana_notice(NOTICE, NULL, "column %s: " INT64_FORMAT " rows hold numbers below 0, which are taken as unknown",
					name, found->negative);
	if (found->nulls > 0 && filled != NULL && !(filled->fill[0] < 0 && unknown))
		dana_notice(NOTICE, "Leave such rows out with nulls => 'skip' if they do not mean that.",
					"column %s: " INT64_FORMAT " rows hold NULL, which becomes %g, as if it were that category", name,
					found->nulls, filled->fill[0]);
}

static bool
take_numbers(TupleTableSlot *row, void *context)
{
	category_survey *survey = context;

	slot_getallattrs(row);
	for (int i = 0; i < survey->columns.count; i++)
	{
		const char	  *name = survey->columns.values[i];
		const Datum	  *values = row->tts_values + 1 + NUMBERS_OF_COLUMN * i;
		const bool	  *nulls = row->tts_isnull + 1 + NUMBERS_OF_COLUMN * i;
		const bool	   asked = dana_is_one_of(name, &survey->unsaid);
		const dana_encoder *filled = filled_column(survey->source, name);
		category_numbers found = {.largest = -1, .negative = DatumGetInt64(values[1]), .nulls = DatumGetInt64(values[2]),
								  .numbers = nulls[3] ? 0 : DatumGetInt64(values[3])};

		if (asked && !nulls[0])
			found.largest = DatumGetFloat8(values[0]);
		if (asked && filled != NULL && found.nulls > 0)
			found.largest = Max(found.largest, filled->fill[0]);
		if (asked && nulls[0])
			dana_json_text(survey->found, name, NULL);
		else if (asked)
			dana_json_number(survey->found, name, found.largest);
		report_column(survey, name, &found, DatumGetInt64(row->tts_values[0]));
	}
	return true;
}

/* The largest or the least number of an array of numbers, or one number, as the training reads them; and their count */
static const char *
number_of_row(TupleDesc columns, const char *column, const char *of_array, const char *of_number)
{
	Oid		  type = TupleDescAttr(columns, SPI_fnumber(columns, column) - 1)->atttypid;
	dana_type holds;

	return psprintf(dana_type_of(type, &holds) && holds.array ? of_array : of_number, quote_identifier(column));
}

#define NUMBER "dana.dana_number(%s)"
#define EXTREME_OF_ARRAY(extreme) \
	"(SELECT pg_catalog." extreme "(e)::pg_catalog.float8 FROM pg_catalog.unnest(dana.dana_numbers(%s)) AS e)"

/* SELECT of the number of rows, then NUMBERS_OF_COLUMN of each column; includes rows that are not trained on */
static char *
statement(const category_survey *survey, dana_source *source, const dana_training *training)
{
	TupleDesc	   columns = dana_source_columns(source);
	const char	  *query = training->tried ? training->whole_query : source->asked.query;
	const char	  *filter = training->tried ? training->filter : source->asked.filter;
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoString(&text, "SELECT pg_catalog.count(*)");
	for (int i = 0; i < survey->columns.count; i++)
		appendStringInfo(&text, ", pg_catalog.max(s.v%d) FILTER (WHERE pg_catalog.abs(s.v%d) OPERATOR(pg_catalog.<=) "
						 "3.4e38::pg_catalog.float8), pg_catalog.count(*) FILTER (WHERE s.w%d OPERATOR(pg_catalog.<) "
						 "0::pg_catalog.float8), pg_catalog.count(*) FILTER (WHERE s.v%d IS NULL), "
						 "(pg_catalog.sum(s.n%d))::pg_catalog.int8", i, i, i, i, i);
	for (int i = 0; i < survey->columns.count; i++)
	{
		const char *name = survey->columns.values[i];

		appendStringInfo(&text, "%s %s AS v%d, %s AS w%d, %s AS n%d", i > 0 ? "," : " FROM (SELECT",
						 number_of_row(columns, name, EXTREME_OF_ARRAY("max"), NUMBER), i,
						 number_of_row(columns, name, EXTREME_OF_ARRAY("min"), NUMBER), i,
						 number_of_row(columns, name, "pg_catalog.cardinality(dana.dana_numbers(%s))",
									   "((%s) IS NOT NULL)::pg_catalog.int4"), i);
	}
	if (query != NULL)
		appendStringInfo(&text, " FROM (%s\n) AS r) AS s", query);
	else
		appendStringInfo(&text, " FROM %s WHERE (%s\n)) AS s", source->from, filter != NULL ? filter : "true");
	return text.data;
}

/* Raises an error for a mean of numbers that are names, and for a median, which makes as little sense */
static void
reject_means(const category_survey *survey)
{
	const dana_source *source = survey->source;

	for (int i = 0; source->chosen.encoding != NULL && i < source->chosen.encoding->count; i++)
	{
		const dana_encoder *encoder = &source->chosen.encoding->encoders[i];
		const char *column = encoder->column;

		if (!dana_needs_middle(encoder->nulls) || encoder->kind != DANA_ENCODE_NONE || !dana_is_one_of(column, &source->chosen.choosing))
			continue;
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("column \"%s\" of %s chooses rows of a model: a %s of its numbers cannot replace NULLs",
							   column, source->name, encoder->nulls == DANA_NULLS_MEDIAN ? "median" : "mean"),
						dana_is_one_of(column, &survey->unknown)
							? errhint("Give -1, which the rule takes as unknown: preprocess => '{\"%s\": {\"impute\": -1}}'; "
									  "or leave such rows out, with \"skip\" in its place.", column)
							: errhint("Leave such rows out: preprocess => '{\"%s\": {\"impute\": \"skip\"}}'.", column)));
	}
}

void
dana_categories_find(const dana_training *training, dana_source *source, const dana_rule *rule)
{
	category_survey  survey = {.source = source};
	StringInfoData found;
	Jsonb		  *counted;
	bool		   needed = false;

	if (!dana_json_boolean(rule->description, "chooses"))
		return;
	counted = dana_ask(DANA_MSG_CATEGORIES, dana_training_request(training, rule->text, source, NULL), DANA_MSG_COUNTED);
	survey.unsaid = dana_json_texts(counted, "columns");
	survey.unknown = dana_json_texts(counted, "unknown");
	source->chosen.choosing = dana_json_texts(counted, "choosing");
	survey.columns.values = palloc(sizeof(char *) * Max(source->chosen.choosing.count, 1));
	reject_means(&survey);
	for (int i = 0; i < source->chosen.choosing.count; i++)
	{
		char *name = source->chosen.choosing.values[i];

		if (SPI_fnumber(dana_source_columns(source), name) <= 0)
			continue; /* made by an encoder */
		survey.columns.values[survey.columns.count++] = name;
		needed |= dana_is_one_of(name, &survey.unsaid) || dana_is_one_of(name, &survey.unknown) ||
			filled_column(source, name) != NULL;
	}
	if (!needed)
		return;
	survey.found = &found;
	dana_json_begin(&found);
	dana_rows_each(dana_source_plan(source, statement(&survey, source, training)), 0, take_numbers, &survey);
	source->chosen.largest = dana_json_end(&found);
}
