/*
 * Chooses the columns of a source that are features, the weight and the labels, and reports a choice that the caller
 * did not make. dana/compiler/binding/columns.py chooses in the same way.
 */
#include "postgres.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/json.h"
#include "base/notices.h"
#include "features/choose.h"
#include "features/survey.h"
#include "request/training.h"
#include "values/encode.h"
#include "values/values.h"

/* The rule's description of its inputs, or of its outputs */
typedef struct described
{
	dana_texts names;
	bool	   shaped; /* one of them is a vector or a matrix */
	bool	   vector; /* the last one is a vector */
} described;

bool
dana_survey_has(const dana_survey *survey, const dana_texts *names)
{
	for (int i = 0; i < names->count; i++)
		if (SPI_fnumber(survey->columns, names->values[i]) <= 0)
			return false;
	return names->count > 0;
}

void
dana_survey_add(dana_survey *survey, int column)
{
	dana_candidate *feature = &survey->features[survey->count++];

	*feature = (dana_candidate){.column = column};
	feature->encoder = (dana_encoder){.column = NameStr(TupleDescAttr(survey->columns, column - 1)->attname), .width = 1};
}

/* A member of the rule's description, without the outputs; count 0 if it has no member of that name */
static described
described_as(Jsonb *description, const char *key, const dana_texts *outputs)
{
	Jsonb	**list;
	described found = {.names.count = 0};
	int		  count = dana_json_objects(description, key, &list);

	found.names.values = palloc(sizeof(char *) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		char *name = dana_json_string(list[i], "name");
		int	  axes = dana_json_texts(list[i], "shape").count;

		if (outputs != NULL && dana_is_one_of(name, outputs))
			continue;
		found.names.values[found.names.count++] = name;
		found.shaped |= axes > 0;
		found.vector = axes == 1;
	}
	return found;
}

static bool
is_array(const dana_survey *survey, int column)
{
	dana_type holds;

	return dana_type_of(TupleDescAttr(survey->columns, column - 1)->atttypid, &holds) && holds.array;
}

/* The last column that is not the weight; 0: there is none */
static int
last_column(const dana_survey *survey)
{
	const char *weight = survey->training->weight;
	int			last = survey->columns->natts;

	while (last > 0 && (TupleDescAttr(survey->columns, last - 1)->attisdropped ||
						(weight != NULL && strcmp(NameStr(TupleDescAttr(survey->columns, last - 1)->attname), weight) == 0)))
		last--;
	return last;
}

static void
put_first(char *name, dana_texts *names)
{
	char **values = palloc(sizeof(char *) * (names->count + 1));

	values[0] = name;
	memcpy(values + 1, names->values, sizeof(char *) * names->count);
	*names = (dana_texts){names->count + 1, values};
}

static void
append_name(StringInfo to, const char *name)
{
	appendStringInfo(to, "%s%s", to->len > 0 ? ", " : "", name);
}

/* Reports the columns that could be features too, if those with the inputs' names are used; except keys */
static void
report_unused(const dana_survey *survey)
{
	dana_survey	   others = *survey;
	int			   count = 0;
	StringInfoData unused, taken;

	initStringInfo(&unused);
	initStringInfo(&taken);
	for (int i = 0; i < survey->count; i++)
		append_name(&taken, survey->features[i].encoder.column);
	others.count = 0;
	others.features = palloc0(sizeof(dana_candidate) * survey->columns->natts);
	for (int i = 0; i < survey->columns->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(survey->columns, i);
		dana_type		  holds;
		bool			  used = column->attisdropped || dana_is_one_of(NameStr(column->attname), &survey->labels);

		for (int k = 0; k < survey->count; k++)
			used |= survey->features[k].column == i + 1;
		if (!used && (dana_type_of(column->atttypid, &holds) || dana_is_text_type(dana_encoded_type(column->atttypid))))
			dana_survey_add(&others, i + 1);
	}
	dana_survey_keys(&others);
	for (int i = 0; i < others.count; i++)
		if (others.features[i].excluded == NULL)
		{
			append_name(&unused, others.features[i].encoder.column);
			count++;
		}
	if (count > 0)
		dana_notice(NOTICE, "Choose other columns with features => ARRAY[...].",
					"column%s %s: no feature%s, %s %s of %s ha%s the name%s of the rule's input%s", count > 1 ? "s" : "",
					unused.data, count > 1 ? "s" : "", survey->count > 1 ? "columns" : "array", taken.data, survey->source->name,
					survey->count > 1 ? "ve" : "s", survey->count > 1 ? "s" : "", survey->count > 1 ? "s" : "");
}

/* Reports the label if it is not the last column, which is then a feature by default */
static void
report_label(const dana_survey *survey)
{
	const char *label = survey->labels.values[survey->labels.count - 1];
	const int	last = last_column(survey);

	if (SPI_fnumber(survey->columns, label) != last)
		dana_notice(NOTICE, "Choose another one with label.",
					"column %s of %s is the label, since the rule calls it so; the last column, %s, is not", label,
					survey->source->name, NameStr(TupleDescAttr(survey->columns, last - 1)->attname));
}

/* The weight and the labels; whether the label was found by the name of the rule's one output */
static bool
choose_labels(dana_survey *survey, const dana_texts *outputs)
{
	const dana_training *training = survey->training;
	const bool			 by_name = training->label == NULL && outputs->count == 1 && dana_survey_has(survey, outputs);

	survey->labels = *outputs;
	if (training->label != NULL)
		survey->labels = (dana_texts){1, (char **)&training->label};
	else if (outputs->count == 1 && !by_name)
	{
		int last = last_column(survey);

		survey->labels.count = last > 0;
		survey->labels.values[0] = last > 0 ? NameStr(TupleDescAttr(survey->columns, last - 1)->attname) : NULL;
	}
	survey->label_count = survey->labels.count;
	if (training->weight != NULL)
		put_first(training->weight, &survey->labels);
	return by_name;
}

bool
dana_choose_columns(dana_survey *survey, Jsonb *description)
{
	const dana_training *training = survey->training;
	described	outputs = described_as(description, "outputs", NULL);
	described	inputs = described_as(description, "inputs", &outputs.names);
	dana_texts	named = training->features;
	const bool	label_by_name = choose_labels(survey, &outputs.names);
	bool		by_name;

	survey->single = inputs.names.count == 1 && inputs.vector;
	survey->chooses = dana_json_boolean(description, "chooses");
	if (survey->labels.count > 0 && !dana_survey_has(survey, &survey->labels))
		return false;
	by_name = named.count < 0 && dana_survey_has(survey, &inputs.names);
	/* the numbered name of an input for many is an ordinary column */
	if (by_name && inputs.names.count == 1 && inputs.shaped)
		by_name = is_array(survey, SPI_fnumber(survey->columns, inputs.names.values[0]));
	for (int i = 0; by_name && i < inputs.names.count; i++) /* a label is not an input by its name */
		by_name = !dana_is_one_of(inputs.names.values[i], &survey->labels);
	if (by_name)
		named = inputs.names;
	survey->named = named.count >= 0;
	survey->features = palloc0(sizeof(dana_candidate) * Max(Max(survey->columns->natts, named.count), 1));
	if (survey->named && !dana_survey_has(survey, &named))
		return false;
	for (int i = 0; i < named.count; i++)
		dana_survey_add(survey, SPI_fnumber(survey->columns, named.values[i]));
	for (int i = 0; i < survey->columns->natts && !survey->named; i++)
		if (!TupleDescAttr(survey->columns, i)->attisdropped &&
			!dana_is_one_of(NameStr(TupleDescAttr(survey->columns, i)->attname), &survey->labels))
			dana_survey_add(survey, i + 1);
	if (by_name && inputs.shaped)
		report_unused(survey);
	if (label_by_name && !survey->named)
		report_label(survey);
	return true;
}

/* Names of columns as elements of an SQL ARRAY */
static char *
array_of_names(const dana_survey *survey, bool arrays)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < survey->count; i++)
		if (survey->features[i].excluded == NULL && (survey->features[i].encoder.width < 0) == arrays)
			append_name(&list, quote_literal_cstr(survey->features[i].encoder.column));
	return list.data;
}

void
dana_reject_array_among_others(const dana_survey *survey)
{
	const char *array = NULL;
	int			count = 0, arrays = 0;

	for (int i = 0; i < survey->count; i++)
	{
		const dana_candidate *feature = &survey->features[i];

		if (feature->excluded != NULL)
			continue;
		count++;
		if (feature->encoder.width < 0 && arrays++ == 0)
			array = feature->encoder.column;
	}
	if (arrays == 0 || count == 1)
		return;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("column \"%s\" of %s is an array among other columns, and rule \"%s\" takes one array or columns "
						   "of numbers", array, survey->source->name, survey->training->rule),
					count > arrays
						? errhint("Name the array, features => ARRAY[%s], or the others, features => ARRAY[%s].",
								  quote_literal_cstr(array), array_of_names(survey, false))
						: errhint("Name one of them, features => ARRAY[%s].", quote_literal_cstr(array))));
}
