/*
 * Classes: the values of a label, and their numbers from 0 in a rule with dana.output(classes=...).
 *
 * They are found before a training, in all rows of its table or query, including those held out for a test and those of
 * other groups or folds. Integers from 0 are their own numbers, so that their pages are read unchanged; all other
 * values are numbered in sorted order.
 */
#include "postgres.h"

#include <math.h>

#include "access/tableam.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/json.h"
#include "base/notices.h"
#include "base/relations.h"
#include "features/classes.h"
#include "models/models.h"
#include "request/training.h"
#include "rows/rows.h"
#include "rows/scan.h"
#include "source/labels.h"
#include "source/schema.h"
#include "source/source.h"
#include "values/label_values.h"
#include "values/values.h"

#define SAMPLED_PAGES 16
#define FEW_PAGES (4 * SAMPLED_PAGES) /* in smaller tables, scanning all pages is as fast */
#define SHOWN_VALUES 10
#define MANY_CLASSES 100 /* of numbers: probably not classes */

/* Values that are already known, for types that are passed by value */
#define REMEMBERED 8

/* The scan of the label's values */

/* A value, and its first row */
typedef struct label_value
{
	char		   *text;
	double			number; /* NaN if it is not a number */
	uint64			row;	/* from 1 */
	ItemPointerData place;	/* of a table's own row */
} label_value;

typedef struct label_survey
{
	const dana_training *training;
	dana_source			*source;
	const char			*column;
	int					 attribute; /* of the rows that are scanned */
	bool				 on_page;	/* these are the table's own */
	dana_label_type		 type;
	label_value			*values; /* sorted */
	int					 count;
	uint64				 rows;
	bool				 by_value;
	Datum				 remembered[REMEMBERED];
	int					 remembered_count;
	MemoryContext		 context;
	MemoryContext		 row_context;
} label_survey;

/* Whether text `a` sorts after, or before, `b`: as numbers if they are some, else by bytes */
static int
compare_labels(const dana_label_type *type, double a, const char *text, const label_value *b)
{
	return isnan(a) ? strcmp(text, b->text) : dana_compare_labels(type, a, text, b->number, b->text);
}

/* Takes the label of one row; the slot's tts_tid is its place, if it has one */
static bool
survey_label(TupleTableSlot *row, void *context)
{
	label_survey	 *survey = context;
	MemoryContext caller;
	bool		  isnull;
	/*
	 * a slot would deform all columns before the label, which is mostly last; a fixed offset in the tuple avoids that
	 */
	Datum value = survey->on_page
		? heap_getattr(ExecFetchSlotHeapTuple(row, false, NULL), survey->attribute, row->tts_tupleDescriptor, &isnull)
		: slot_getattr(row, survey->attribute, &isnull);
	char		 *text;
	double		  number = NAN;
	int			  first = 0, last = survey->count;

	survey->rows++;
	if (isnull)
		return true;
	for (int i = 0; i < survey->remembered_count; i++)
		if (survey->remembered[i] == value)
			return true;
	caller = MemoryContextSwitchTo(survey->row_context);
	text = dana_label_text(&survey->type, value);
	if (survey->type.number)
		number = dana_number_of(&survey->type.holds, value);
	while (first < last)
	{
		int middle = (first + last) / 2;
		int order = compare_labels(&survey->type, number, text, &survey->values[middle]);

		if (order == 0)
			break;
		if (order < 0)
			last = middle;
		else
			first = middle + 1;
	}
	/* rows with numbers that are not finite are handled where they are read */
	if (first == last && !(survey->type.number && !isfinite(number)))
	{
		if (survey->count == DANA_MAX_CLASSES)
			ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
							errmsg("column \"%s\" of %s has more than %d different values, too many for classes",
								   survey->column, survey->source->name, DANA_MAX_CLASSES),
							errhint("Rule \"%s\" predicts classes. Choose one that predicts numbers, such as ridge.",
									survey->training->rule)));
		memmove(&survey->values[first + 1], &survey->values[first], sizeof(label_value) * (survey->count++ - first));
		survey->values[first] = (label_value){MemoryContextStrdup(survey->context, text), number, survey->rows, row->tts_tid};
	}
	if (survey->by_value && survey->remembered_count < REMEMBERED)
		survey->remembered[survey->remembered_count++] = value;
	MemoryContextSwitchTo(caller);
	MemoryContextReset(survey->row_context);
	return true;
}

/* Scans all rows of the training's table or query, or those of a `sample` of so many pages */
static void
survey_rows(label_survey *survey, uint32 sample)
{
	const dana_training *training = survey->training;
	dana_source			*source = survey->source;
	const char			*from;
	char				*text;

	if (source->heap && TupleDescAttr(RelationGetDescr(source->relation), survey->attribute - 1)->attgenerated != 'v')
	{
		survey->on_page = true;
		dana_scan(source->relation, source->snapshot, training->filter, source->pages, sample, 0, survey_label, survey);
		return;
	}
	from = training->whole_query != NULL ? psprintf("(%s\n) AS r", training->whole_query)
										 : dana_relation_name(training->rows.relation);
	text = psprintf("SELECT %s FROM %s%s%s%s", quote_identifier(survey->column), from,
					training->filter != NULL ? " WHERE (" : "", training->filter != NULL ? training->filter : "",
					training->filter != NULL ? "\n)" : "");
	survey->attribute = 1;
	dana_rows_each(dana_source_plan(source, text), 0, survey_label, survey);
}

/* The first values of a label, quoted */
static char *
list_values(const label_survey *survey)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < Min(survey->count, SHOWN_VALUES); i++)
		appendStringInfo(&list, "%s\"%s\"", i > 0 ? ", " : "", survey->values[i].text);
	if (survey->count > SHOWN_VALUES)
		appendStringInfo(&list, " and %d more", survey->count - SHOWN_VALUES);
	return list.data;
}

/* Whether a value equals the previous one in double precision */
static bool
is_almost(const label_survey *survey, int i)
{
	return i > 0 && survey->values[i].number == survey->values[i - 1].number;
}

/* Raises an error if there are more values than the rule's classes; names the first row with a value beyond them */
static void
reject_more_values(const label_survey *survey, int classes)
{
	const label_value *odd = NULL;
	int				   usual = 0; /* of a rule for two: 0 and 1, or -1 and 1 */

	for (int i = 0; i < survey->count; i++)
		usual |= survey->values[i].number == 1 ? 1 : survey->values[i].number == 0 ? 2 : survey->values[i].number == -1 ? 4 : 0;
	for (int i = 0; i < survey->count; i++)
	{
		const label_value *value = &survey->values[i];
		int				   before = 0;

		CHECK_FOR_INTERRUPTS();
		if (classes == 2 && (usual & 1) != 0 && usual != 1)
			before = !is_almost(survey, i) &&
				(value->number == 1 || value->number == ((usual & 2) != 0 ? 0 : -1)) ? 0 : classes;
		else
			for (int k = 0; k < survey->count; k++)
				before += survey->values[k].row < value->row;
		if (before >= classes && (odd == NULL || value->row < odd->row))
			odd = value;
	}
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 errmsg("column \"%s\" of %s has %d different labels, more than the %d classes of rule \"%s\"", survey->column,
					survey->source->name, survey->count, classes, survey->training->rule),
			 errdetail("They are %s. The first row with \"%s\" is %s.", list_values(survey), odd->text,
					   ItemPointerIsValid(&odd->place) ? psprintf("(%u,%u)", ItemPointerGetBlockNumberNoCheck(&odd->place),
																  ItemPointerGetOffsetNumberNoCheck(&odd->place))
													   : psprintf("number " UINT64_FORMAT, odd->row)),
			 errhint("Choose a rule for more classes, such as softmax, or leave rows out with a filter.")));
}

/* The number of classes, from the caller or else the rule; 0: neither has one */
static int
classes_said(const dana_training *training, Jsonb *description)
{
	int			hyper = dana_argument(&training->arguments, "hyper");
	const char *dim = dana_json_string(description, "classes");

	if (dim[0] == '\0')
		return dana_json_integer(description, "classes");
	return training->arguments.nulls[hyper] ? 0 : dana_json_integer(DatumGetJsonbP(training->arguments.values[hyper]), dim);
}

/* The classes of the values found, in order */
static dana_texts
number_labels(const label_survey *survey, Jsonb *description)
{
	const int  said = classes_said(survey->training, description);
	dana_texts names = {.count = survey->count, .values = palloc(sizeof(char *) * Max(survey->count, 1))};
	bool	   whole = said > 0 && survey->type.number; /* integers from 0 that are below the given number */

	if (dana_json_string(description, "classes")[0] == '\0' && survey->count > said)
		reject_more_values(survey, said);
	if (survey->count == 1)
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
						errmsg("all labels in column \"%s\" of %s are \"%s\"", survey->column, survey->source->name,
							   survey->values[0].text),
						errhint("A rule that predicts classes needs at least two.")));
	if (survey->type.number && survey->count > MANY_CLASSES)
		dana_notice(NOTICE, "Choose a rule that learns numbers, such as ridge, if that is not meant.",
					"column \"%s\" of %s has %d different numbers, and rule \"%s\" takes each for a class", survey->column,
					survey->source->name, survey->count, survey->training->rule);
	for (int i = 0; i < survey->count; i++)
	{
		names.values[i] = survey->values[i].text;
		whole &= survey->values[i].number >= 0 && survey->values[i].number < said && !is_almost(survey, i) &&
			survey->values[i].number == floor(survey->values[i].number);
	}
	if (!whole || survey->count == 0)
		return names;
	names.count = survey->values[survey->count - 1].number + 1;
	names.values = palloc(sizeof(char *) * names.count);
	for (int i = 0; i < names.count; i++)
		names.values[i] = psprintf("%d", i);
	for (int i = 0; i < survey->count; i++)
		names.values[(int)survey->values[i].number] = survey->values[i].text;
	return names;
}

/* Raises an error for values unknown to the model to start from: it has weights for its own classes only */
static void
check_known(const label_survey *survey, const dana_texts *names, const char *rule)
{
	const dana_training *training = survey->training;

	for (int i = 0; i < survey->count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (dana_class_of_text(&survey->type, survey->values[i].text, names) >= 0)
			continue;
		if (strcmp(rule, training->rule) != 0)
			ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
							errmsg("model \"%s\", to start from, is of rule \"%s\", not of \"%s\"", training->warm_start_from,
								   rule, training->rule),
							errdetail("Nor are its classes those of column \"%s\" of %s, which holds \"%s\".", survey->column,
									  survey->source->name, survey->values[i].text),
							errhint("Start from a model of the same rule, or leave warm_start_from out.")));
		dana_error(DATA_EXCEPTION, "column \"%s\" of %s holds \"%s\", which is none of the classes of model \"%s\"",
				   survey->column, survey->source->name, survey->values[i].text, training->warm_start_from);
	}
}

/* Prepares the scan of the label's column; false: there is none */
static bool
begin_survey(label_survey *survey, Jsonb *description)
{
	dana_source		 *source = survey->source;
	TupleDesc		  descriptor =
		source->relation != NULL ? RelationGetDescr(source->relation) : dana_rows_descriptor(source->stream.plan);
	Form_pg_attribute attribute;

	survey->context = CurrentMemoryContext;
	survey->attribute = dana_training_label(survey->training, descriptor, description);
	if (survey->attribute <= 0)
		return false;
	attribute = TupleDescAttr(descriptor, survey->attribute - 1);
	survey->column = pstrdup(NameStr(attribute->attname));
	survey->by_value = attribute->attbyval;
	survey->row_context = AllocSetContextCreate(CurrentMemoryContext, "dana label", ALLOCSET_SMALL_SIZES);
	survey->values = palloc(sizeof(label_value) * DANA_MAX_CLASSES);
	dana_label_type_of(attribute->atttypid, &survey->type, CurrentMemoryContext);
	return true;
}

/*
 * Assumes the classes from some pages, if their values are integers from 0 and the rule's classes agree: then the
 * table's own pages are streamed, and labels.c checks all of them
 */
static bool
assume_classes(label_survey *survey, Jsonb *description)
{
	const dana_training *training = survey->training;
	dana_source			*source = survey->source;
	const int			 said = classes_said(training, description);
	dana_texts			 names;

	/* pages must hold the rows to be scanned, with labels that can be read from them */
	if (!source->heap || source->rows || source->pages < FEW_PAGES || training->warm_start_from != NULL ||
		source->asked.filter != training->filter || !survey->by_value || !survey->type.number ||
		survey->type.holds.number->element == DANA_ELEMENT_CONVERTED ||
		TupleDescAttr(RelationGetDescr(source->relation), survey->attribute - 1)->attgenerated == 'v')
		return false;
	survey_rows(survey, SAMPLED_PAGES);
	names.count = said == 2 ? 2 : survey->count; /* one of two classes may be rare */
	if (survey->count == 0 || names.count < 2 || names.count > MANY_CLASSES || (said > 0 && survey->count > said))
		return false;
	names.values = palloc(sizeof(char *) * names.count);
	for (int k = 0; k < names.count; k++)
		names.values[k] = survey->type.base == BOOLOID ? (k > 0 ? "true" : "false") : psprintf("%d", k);
	for (int i = 0; i < survey->count; i++)
	{
		const double number = survey->values[i].number;

		if (number < 0 || number >= names.count || number != floor(number) || signbit(number) ||
			(survey->count == names.count && number != i))
			return false;
		names.values[(int)number] = survey->values[i].text;
	}
	source->chosen.classes = names;
	source->chosen.class_type = dana_type_name(survey->type.base);
	source->chosen.assumed = dana_assumed_begin(&survey->type.holds, survey->attribute, names.count);
	return true;
}

bool
dana_classes_hold(const dana_training *training, dana_source *source, Jsonb *description)
{
	label_survey survey = {.training = training, .source = source};
	dana_texts names;

	if (source->stream.plan == NULL)
		return dana_assumed_holds(source->chosen.assumed);
	(void)begin_survey(&survey, description); /* there is one */
	survey_rows(&survey, 0);
	names = number_labels(&survey, description);
	for (int i = 0; i < names.count; i++)
		if (names.count != source->chosen.classes.count || strcmp(names.values[i], source->chosen.classes.values[i]) != 0)
			return false;
	return names.count > 0;
}

void
dana_classes_find(const dana_training *training, dana_source *source, Jsonb *description, bool assume)
{
	label_survey survey = {.training = training, .source = source};
	dana_texts names = {.count = -1};
	char	  *rule;
	bool	   same = true; /* numbers are their own numbers */

	source->chosen.classes = training->classes;
	if (dana_json_is_null(description, "classes") || training->classes.count > 0 || !begin_survey(&survey, description))
		return;
	source->chosen.class_column = survey.attribute;
	if (assume && assume_classes(&survey, description))
		return;
	survey.count = survey.rows = survey.remembered_count = 0;
	survey_rows(&survey, 0);
	MemoryContextDelete(survey.row_context);
	if (training->warm_start_from != NULL)
		names = dana_model_classes(training->warm_start_from, &rule);
	if (names.count >= 0)
		check_known(&survey, &names, rule);
	else
		names = number_labels(&survey, description);
	for (int i = 0; i < survey.count && same; i++)
	{
		CHECK_FOR_INTERRUPTS();
		same = survey.values[i].number == dana_class_of_text(&survey.type, survey.values[i].text, &names);
	}
	pfree(survey.values);
	if (names.count == 0 && !survey.type.number)
		dana_error(DATA_EXCEPTION, "%s has no row with a label in column \"%s\"", source->name, survey.column);
	if (names.count == 0)
		return; /* the worker reports it */
	source->chosen.classes = names;
	source->chosen.class_type = dana_type_name(survey.type.base);
	if (same) /* their pages are read unchanged */
		return;
	source->asked.cleaning.classes = names;
	source->rows = true;
}
