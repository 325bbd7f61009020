/*
 * The encoding of the columns that are features: the caller's choice, else the default of their types.
 */
#include "postgres.h"

#include <math.h>

#include "base/arguments.h"
#include "base/dana.h"
#include "base/json.h"
#include "base/notices.h"
#include "features/choose.h"
#include "features/features.h"
#include "features/survey.h"
#include "models/models.h"
#include "request/training.h"
#include "source/schema.h"
#include "source/source.h"
#include "values/datetimes.h"
#include "values/encode.h"
#include "values/values.h"

static _Noreturn void
reject_type(const dana_survey *survey, const dana_candidate *feature, const char *what)
{
	ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
					errmsg("column \"%s\" of %s has type %s, %s", feature->encoder.column, survey->source->name,
						   format_type_be(TupleDescAttr(survey->columns, feature->column - 1)->atttypid), what)));
}

/* The maximum number of categories of a column */
static void
read_categories(dana_candidate *feature, Jsonb *settings)
{
	const char *text = dana_json_scalar(settings, "categories");
	char	   *end;
	const long	number = strtol(text, &end, 10);

	if (end == text || *end != '\0' || number < 1 || number > DANA_MAX_COLUMNS)
		dana_reject_argument("preprocess", "have a whole number from 1 to %d of categories for column \"%s\", not \"%s\"",
							 DANA_MAX_COLUMNS, feature->encoder.column, text);
	feature->most = number;
	feature->max_given = true;
}

/* The caller's settings for a column */
static void
read_settings(dana_survey *survey, dana_candidate *feature, Jsonb *settings)
{
	dana_encoder *encoder = &feature->encoder;
	Oid			  type = dana_encoded_type(TupleDescAttr(survey->columns, feature->column - 1)->atttypid);
	char		 *word = dana_json_string(settings, "encode");
	dana_texts	  words = dana_json_keys(settings);

	for (int i = 0; i < words.count; i++)
		if (strcmp(words.values[i], "encode") != 0 && strcmp(words.values[i], "impute") != 0 &&
			strcmp(words.values[i], "categories") != 0)
			dana_reject_argument("preprocess", "say \"encode\", \"categories\" or \"impute\" of column \"%s\", not \"%s\"",
								 encoder->column, words.values[i]);
	if (!dana_json_is_null(settings, "categories"))
		read_categories(feature, settings);
	if (!dana_json_is_null(settings, "impute"))
		feature->nulls = dana_read_nulls("preprocess", dana_json_scalar(settings, "impute"), &feature->number);
	if (dana_json_is_null(settings, "encode"))
		return;
	feature->choose_parts = false;
	*encoder = (dana_encoder){.column = encoder->column, .width = 1};
	if (strcmp(word, "one_hot") == 0 || strcmp(word, "hash") == 0)
	{
		if (word[0] == 'h')
		{
			encoder->buckets = feature->most;
			feature->most = 0; /* none is listed */
		}
		encoder->kind = DANA_ENCODE_ONE_HOT;
		if (!dana_is_text_type(type) && !dana_is_integer_type(type))
			reject_type(survey, feature, "which cannot be encoded as categories");
	}
	else if (strcmp(word, "none") != 0)
	{
		if (dana_json_are_texts(settings, "encode"))
			words = dana_json_texts(settings, "encode");
		else
			words.count = 0;
		if (!dana_encoder_set_parts(encoder, &words))
			dana_reject_argument("preprocess", "encode column \"%s\" as \"one_hot\", \"hash\", \"none\", or some of [\"year\", "
								 "\"month\", \"day\", \"dow\", \"hour\"]", encoder->column);
		if (dana_find_date_type(type) == NULL)
			reject_type(survey, feature, "which has no date or time parts");
	}
}

static Jsonb *
settings_of(const dana_survey *survey, const char *column)
{
	Jsonb *preprocess = survey->training->preprocess;

	return preprocess == NULL || dana_json_is_null(preprocess, column) ? NULL : dana_json_member(preprocess, column);
}

/* The default of a column's type, then the caller's settings */
static void
plan_feature(dana_survey *survey, dana_candidate *feature)
{
	const dana_cleaning *cleaning = &survey->source->asked.cleaning;
	dana_encoder *encoder = &feature->encoder;
	Oid			  declared = TupleDescAttr(survey->columns, feature->column - 1)->atttypid;
	Oid			  type = dana_encoded_type(declared);
	Jsonb		 *settings = settings_of(survey, encoder->column);
	dana_type	  holds;

	feature->nulls = cleaning->nulls;
	feature->number = cleaning->fill;
	feature->most = DANA_MAX_CATEGORIES;
	if (survey->single && dana_is_text_type(type))
	{
		if (survey->chooses && (settings == NULL || (JB_ROOT_IS_OBJECT(settings) && dana_json_is_null(settings, "encode"))))
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
							errmsg("column \"%s\" of %s has type %s, and the rule wants a number from 0 for each "
								   "category: it chooses a row of a model", encoder->column, survey->source->name,
								   format_type_be(declared)),
							errhint("Number its categories in a query or a view, as docs/recipes.md shows, or leave it out: "
									"features => '{…}'.")));
		encoder->kind = DANA_ENCODE_ONE_HOT;
	}
	else if (survey->single && dana_find_date_type(type) != NULL)
	{
		encoder->kind = DANA_ENCODE_PARTS;
		feature->choose_parts = true;
	}
	if (settings != NULL)
	{
		if (!JB_ROOT_IS_OBJECT(settings))
			dana_reject_argument("preprocess", "have an object for column \"%s\", such as {\"impute\": \"mean\"}",
								 encoder->column);
		read_settings(survey, feature, settings);
	}
	if (feature->nulls == DANA_NULLS_INDICATOR && !survey->single)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("a NULL of column \"%s\" of %s has no indicator: rule \"%s\" does not have one vector as its "
							   "only input", encoder->column, survey->source->name, survey->training->rule),
						errhint("Use 'mean', 'median' or a number.")));
	if (feature->max_given && encoder->kind != DANA_ENCODE_ONE_HOT)
		dana_reject_argument("preprocess", "say \"encode\": \"one_hot\" or \"hash\" of column \"%s\" where it says \"categories\"",
							 encoder->column);
	if (encoder->kind != DANA_ENCODE_NONE)
		return;
	if (!dana_type_of(declared, &holds))
	{
		feature->excluded = psprintf("its type is %s", format_type_be(declared));
		feature->nulls = DANA_NULLS_SKIP; /* if the caller named it, the worker raises the error */
	}
	else if (holds.array)
		encoder->width = -1;
}

/* The maximum number of categories of columns with no settings of their own */
static void
share_categories(dana_survey *survey)
{
	int columns = 0;

	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < survey->count; i++)
		{
			dana_candidate *feature = &survey->features[i];

			if (feature->encoder.kind != DANA_ENCODE_ONE_HOT || feature->encoder.buckets > 0 || feature->max_given ||
				feature->excluded != NULL)
				continue;
			if (pass == 0)
				columns++;
			else
				feature->most = Max(DANA_MAX_CATEGORIES, DANA_ALL_CATEGORIES / columns);
		}
}

/* Makes an encoder from the values found */
static void
finish_feature(dana_survey *survey, dana_candidate *feature)
{
	dana_encoder *encoder = &feature->encoder;
	const dana_date_type *date =
		dana_find_date_type(dana_encoded_type(TupleDescAttr(survey->columns, feature->column - 1)->atttypid));
	const bool	  seen = dana_needs_middle(feature->nulls);
	dana_texts	  parts = {.count = 3, .values = (char *[]){"year", "month", "dow", "hour"}};

	if (feature->choose_parts)
	{
		parts.count += date->unit < USECS_PER_DAY && feature->has_hours;
		(void)dana_encoder_set_parts(encoder, &parts);
	}
	encoder->indicator = feature->nulls == DANA_NULLS_INDICATOR && feature->has_nulls && encoder->width > 0;
	if (encoder->kind == DANA_ENCODE_ONE_HOT)
		encoder->other = encoder->buckets == 0 &&
			(feature->covered < feature->rows || encoder->categories.count == 0 ||
			 (feature->has_nulls && feature->nulls > DANA_NULLS_ERROR && !encoder->indicator));
	dana_encoder_finish(encoder);
	if (feature->nulls <= DANA_NULLS_ERROR || (seen && encoder->width < 0 && feature->means == NULL))
		return;
	if (feature->means != NULL)
	{
		encoder->fill = feature->means;
		encoder->fills = feature->mean_count;
		return;
	}
	encoder->fills = Max(encoder->width, 1);
	encoder->fill = palloc0(sizeof(double) * encoder->fills);
	if (encoder->kind == DANA_ENCODE_ONE_HOT)
	{
		if (encoder->other && !encoder->indicator)
			encoder->fill[encoder->width - 1] = 1;
	}
	else if (seen && !feature->has_value)
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
						errmsg("column \"%s\" of %s has no value to take a mean or a median of", encoder->column,
							   survey->source->name),
						errhint("Give a number for its NULLs, or leave the column out.")));
	else if (encoder->kind == DANA_ENCODE_PARTS)
	{
		/* of the day, or the second, that the number stands for, within some thousand years */
		const bool	 days = date->unit == USECS_PER_DAY;
		const double units = (seen ? feature->value : feature->number) * (days ? 1 : USECS_PER_SEC);
		const double most = days ? 1e6 : 1e17;

		dana_write_parts(encoder, date, rint(Max(Min(units, most), -most)));
		for (int k = 0; k < encoder->width - encoder->indicator; k++)
			encoder->fill[k] = encoder->made[k];
	}
	else
		for (int k = 0; k < encoder->fills; k++)
			encoder->fill[k] = seen ? feature->value : feature->number;
	if (encoder->indicator)
		encoder->fill[encoder->width - 1] = 1;
}

/* The hint for a date or a timestamp after another one: their parts do not show the time between them */
static const char *
hint_at_difference(const dana_survey *survey, const dana_candidate *feature)
{
	for (const dana_candidate *before = survey->features; before < feature; before++)
	{
		const char *first = before->encoder.column, *second = feature->encoder.column;

		if (before->encoder.kind == DANA_ENCODE_PARTS && before->excluded == NULL)
			return psprintf("The time from %s to %s is no feature; extract(epoch FROM %s::timestamp - %s::timestamp) in a "
							"query would be.", first, second, quote_identifier(second), quote_identifier(first));
	}
	return NULL;
}

/* How many of so many values are expected to have a column of a hash in common with others */
static double
expected_to_share(int64 values, int columns)
{
	return values * (1 - pow(1 - 1.0 / columns, values - 1));
}

static void
report_feature(const dana_survey *survey, const dana_candidate *feature)
{
	const dana_encoder *encoder = &feature->encoder;
	const bool	   cut = encoder->kind == DANA_ENCODE_ONE_HOT && encoder->buckets == 0 &&
		encoder->categories.count < feature->short_enough;
	StringInfoData done;
	const char	  *hint = NULL;

	if (feature->excluded != NULL)
	{
		dana_notice(NOTICE, NULL, "column %s: no feature, %s", encoder->column, feature->excluded);
		return;
	}
	initStringInfo(&done);
	if (encoder->buckets > 0)
	{
		appendStringInfo(&done, INT64_FORMAT " categories hashed into %d columns", feature->values, encoder->buckets);
		if (expected_to_share(feature->values, encoder->buckets) >= 1)
			hint = psprintf("About %.0f of them share a column, and so a weight, with others; \"categories\" is the number of "
							"columns.", expected_to_share(feature->values, encoder->buckets));
	}
	else if (cut)
		appendStringInfo(&done, "one-hot, the %d most frequent of " INT64_FORMAT " categories, and other",
						 encoder->categories.count, feature->values);
	else if (encoder->kind == DANA_ENCODE_ONE_HOT)
		appendStringInfo(&done, "one-hot, %d categor%s%s", encoder->categories.count,
						 encoder->categories.count == 1 ? "y" : "ies", encoder->other ? " and other" : "");
	if (cut && encoder->categories.count < DANA_MAX_COLUMNS)
		hint = psprintf("To have more of them: preprocess => '{\"%s\": {\"encode\": \"one_hot\", \"categories\": %d}}'; "
						"with \"hash\" in place of \"one_hot\", all of them share so many columns.", encoder->column,
						(int)Min(feature->short_enough, DANA_MAX_COLUMNS));
	if (encoder->kind == DANA_ENCODE_PARTS)
		hint = hint_at_difference(survey, feature);
	for (int k = 0; k < encoder->width - encoder->indicator && encoder->kind == DANA_ENCODE_PARTS; k++)
		appendStringInfo(&done, "%s%s", k > 0 ? ", " : "", dana_part_names[encoder->parts[k]]);
	if (encoder->fill != NULL && feature->has_nulls)
	{
		appendStringInfoString(&done, done.len > 0 ? "; NULL becomes " : "NULL becomes ");
		if (encoder->kind == DANA_ENCODE_ONE_HOT)
			appendStringInfoString(&done, encoder->indicator ? "a category of its own" : encoder->other ? "other" : "no category");
		else if (feature->means != NULL)
			appendStringInfo(&done, "the %s of the element%s", feature->nulls == DANA_NULLS_MEDIAN ? "median" : "mean",
							 feature->nulls == DANA_NULLS_INDICATOR ? "; an array has no indicator" : "");
		else
			for (int k = 0; k < encoder->fills - encoder->indicator; k++)
				appendStringInfo(&done, "%s%g", k > 0 ? ", " : "", encoder->fill[k]);
		if (encoder->kind != DANA_ENCODE_ONE_HOT && feature->means == NULL && feature->nulls != DANA_NULLS_FILL)
			appendStringInfoString(&done, feature->nulls == DANA_NULLS_MEDIAN ? ", the median" : ", the mean");
		if (encoder->kind != DANA_ENCODE_ONE_HOT && encoder->indicator)
			appendStringInfo(&done, ", and %s.null is 1", encoder->column);
	}
	if (done.len > 0)
		dana_notice(NOTICE, hint, "column %s: %s", encoder->column, done.data);
}

/* Whether a column is passed to the worker unchanged */
static bool
is_plain(const dana_survey *survey, const dana_candidate *feature)
{
	return feature->encoder.kind == DANA_ENCODE_NONE && feature->encoder.fill == NULL &&
		feature->nulls == survey->source->asked.cleaning.nulls;
}

static _Noreturn void
reject_twice(const char *column, const char *source)
{
	dana_error(INVALID_PARAMETER_VALUE, "column \"%s\" of %s is used twice; each column fills one place", column, source);
}

/* Sets the encoding of the features and the columns that follow them */
static void
adopt_encoding(dana_survey *survey, dana_encoding *encoding)
{
	dana_source *source = survey->source;

	encoding->labels = survey->labels.count;
	encoding->numbers = palloc(sizeof(int) * (survey->count + survey->labels.count + 1));
	for (int i = 0; i < survey->count; i++)
	{
		encoding->numbers[i] = survey->features[i].column;
		encoding->columns += abs(encoding->encoders[i].width);
		for (int k = 0; k < i; k++)
			if (encoding->numbers[k] == encoding->numbers[i])
				reject_twice(encoding->encoders[i].column, source->name);
		if (dana_is_one_of(encoding->encoders[i].column, &survey->labels))
			dana_error(INVALID_PARAMETER_VALUE, "column \"%s\" of %s is a feature and the label or the weight",
					   encoding->encoders[i].column, source->name);
	}
	for (int i = 0; i < survey->labels.count; i++)
	{
		for (int k = 0; k < i; k++)
			if (strcmp(survey->labels.values[k], survey->labels.values[i]) == 0)
				reject_twice(survey->labels.values[i], source->name);
		encoding->numbers[survey->count + i] = SPI_fnumber(survey->columns, survey->labels.values[i]);
	}
	if (encoding->columns + encoding->labels > DANA_MAX_COLUMNS)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("the features of %s become %d columns, more than %d", source->name, encoding->columns,
							   DANA_MAX_COLUMNS - encoding->labels),
						errhint("Name fewer of them with features => ARRAY[...].")));
	source->chosen.encoding = encoding;
	source->rows = true;
	source->chosen.features = dana_encoding_names(encoding);
	if (survey->label_count == 1)
		source->chosen.label = survey->labels.values[survey->labels.count - 1];
}

/* Takes the list of the model to start from, or of the part that leads; false if it has none */
static bool
adopt_list(dana_survey *survey, Jsonb *metadata, const char *reference)
{
	dana_encoding *encoding = palloc0(sizeof *encoding);
	dana_texts	   features = dana_json_texts(metadata, "features");
	const dana_texts *named = &survey->training->features;

	encoding->encoders = dana_encoders_read(metadata, &encoding->count);
	if (encoding->encoders == NULL)
	{
		/* a model that was trained on numbers goes on with numbers */
		survey->single = false;
		if (named->count < 0 && dana_survey_has(survey, &features))
		{
			survey->count = 0;
			survey->named = survey->other = true;
			for (int i = 0; i < Min(features.count, survey->columns->natts); i++)
				dana_survey_add(survey, SPI_fnumber(survey->columns, features.values[i]));
		}
		return false;
	}
	if (survey->training->preprocess != NULL)
		dana_reject_argument("preprocess", "not be given where model \"%s\", to start from, says what is done to "
							 "columns", reference);
	survey->count = 0;
	survey->features = palloc0(sizeof(dana_candidate) * encoding->count);
	for (int i = 0; i < encoding->count; i++)
	{
		int			column = SPI_fnumber(survey->columns, encoding->encoders[i].column);
		const bool	other = named->count >= 0 &&
			(named->count != encoding->count || strcmp(named->values[i], encoding->encoders[i].column) != 0);

		if (column <= 0 || other)
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
							errmsg("model \"%s\", to start from, has feature \"%s\", which the training does not have%s",
								   reference, encoding->encoders[i].column, column > 0 ? " in that position" : "")));
		dana_survey_add(survey, column);
		survey->features[i].encoder.kind = encoding->encoders[i].kind;
		encoding->encoders[i].nulls = survey->source->asked.cleaning.nulls;
	}
	adopt_encoding(survey, encoding);
	return true;
}

/*
 * Stores the types of features and labels. Dates and times count units of their own: unless they are categories, a model
 * to start from must have been trained on the same types.
 */
static void
keep_types(dana_survey *survey, int count)
{
	const dana_training *training = survey->training;
	Jsonb		  *started = training->warm_start_from == NULL ? NULL : dana_model_metadata(training->warm_start_from);
	StringInfoData kept;

	dana_json_begin(&kept);
	for (int i = 0; i < count + survey->labels.count; i++)
	{
		const int column = i < count ? survey->features[i].column : SPI_fnumber(survey->columns, survey->labels.values[i - count]);
		Form_pg_attribute attribute = TupleDescAttr(survey->columns, column - 1);

		dana_types_append(&kept, attribute);
		if (started != NULL && (i >= count || survey->features[i].encoder.kind != DANA_ENCODE_ONE_HOT))
			dana_datetime_require(started, training->warm_start_from, attribute, survey->source->name);
	}
	survey->source->chosen.types = dana_json_end(&kept);
}

/* Raises an error for settings of columns that are not features */
static void
check_wishes(const dana_survey *survey)
{
	dana_texts names = dana_json_keys(survey->training->preprocess);
	dana_texts known = {.values = palloc(sizeof(char *) * Max(survey->count, 1))};

	while (known.count < survey->count)
	{
		known.values[known.count] = survey->features[known.count].encoder.column;
		known.count++;
	}
	for (int k = 0; k < names.count; k++)
	{
		int i = 0;

		while (i < survey->count && strcmp(survey->features[i].encoder.column, names.values[k]) != 0)
			i++;
		if (i == survey->count)
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
							errmsg("argument \"preprocess\" names \"%s\", which is no feature of %s", dana_shown(names.values[k]),
								   survey->source->name),
							errhint("%s", dana_hint_of(names.values[k], &known))));
	}
}

void
dana_source_encode(dana_source *source, const dana_training *training, Jsonb *description)
{
	dana_encoding *encoding = palloc0(sizeof *encoding);
	dana_survey		   survey = {.training = training, .source = source, .columns = dana_source_columns(source),
						   .context = CurrentMemoryContext, .classes = !dana_json_is_null(description, "classes")};
	bool		   plain = true;
	int			   kept = 0;

	if (!dana_choose_columns(&survey, description))
		return;
	source->chosen.targets = survey.labels;
	if (training->warm_start_from != NULL &&
		adopt_list(&survey, dana_model_metadata(training->warm_start_from), training->warm_start_from))
		return keep_types(&survey, survey.count);
	if (training->known != NULL && !training->leads && adopt_list(&survey, training->known, training->model))
		return keep_types(&survey, survey.count);
	if (training->preprocess != NULL)
		check_wishes(&survey);
	for (int i = 0; i < survey.count; i++)
		plan_feature(&survey, &survey.features[i]);
	if (survey.single && !survey.named)
		dana_survey_keys(&survey);
	share_categories(&survey);
	for (int i = 0; i < survey.count; i++)
		if (survey.features[i].encoder.kind == DANA_ENCODE_ONE_HOT && survey.features[i].excluded == NULL)
			dana_survey_texts(&survey, &survey.features[i]);
	for (int i = 0; i < survey.count; i += DANA_MAX_NUMBERS)
		dana_survey_numbers(&survey, i);
	dana_survey_arrays(&survey);
	for (int i = 0; i < survey.count; i++) /* the worker reports on columns that were named */
		if (survey.named || !survey.single || settings_of(&survey, survey.features[i].encoder.column) != NULL)
			survey.features[i].excluded = NULL;
	if (survey.single && !survey.named)
		dana_reject_array_among_others(&survey);
	encoding->encoders = palloc(sizeof(dana_encoder) * Max(survey.count, 1));
	for (int i = 0; i < survey.count; i++)
	{
		dana_candidate *feature = &survey.features[i];

		if (feature->excluded == NULL)
			finish_feature(&survey, feature);
		report_feature(&survey, feature);
		if (feature->excluded != NULL)
			continue;
		plain &= is_plain(&survey, feature);
		feature->encoder.nulls = dana_array_mean(feature) && feature->means == NULL ? DANA_NULLS_SKIP : feature->nulls;
		encoding->encoders[kept] = feature->encoder;
		survey.features[kept++] = *feature;
	}
	encoding->count = kept;
	keep_types(&survey, kept);
	if (!plain)
	{
		survey.count = kept;
		adopt_encoding(&survey, encoding);
	}
	else if (kept < survey.count || survey.other || training->leads) /* the leader sends the list to the other parts */
	{
		source->chosen.features = (dana_texts){.values = palloc(sizeof(char *) * Max(kept, 1)), .count = kept};
		for (int i = 0; i < kept; i++)
			source->chosen.features.values[i] = survey.features[i].encoder.column;
	}
}
