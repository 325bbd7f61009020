/*
 * The rows that a training leaves out, for a test and for validation: chosen by a column that the caller names, else by
 * the primary key, else by their place or, where rows have none, by all of their values.
 *
 * In a rule with classes each class has its share, and so have all rows if the caller names a column: rows in the order
 * of their numbers are cut where the share ends, and the bounds are kept with the model. Beyond DANA_MAX_DRAWN different
 * numbers the parts are large enough for the numbers alone, and the pass over the rows ends.
 */
#include "postgres.h"

#include <math.h>

#include "access/relation.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/relations.h"
#include "models/rules.h"
#include "request/split.h"
#include "request/training.h"
#include "rows/places.h"
#include "rows/rows.h"
#include "rows/scan.h"
#include "source/gathered.h"
#include "source/schema.h"
#include "source/source.h"
#include "source/stream.h"
#include "values/texts.h"

/* As the folds of scikit-learn's CalibratedClassifierCV */
#define CALIBRATION_SIZE 0.2

static bool
is_given(const dana_training *training, const char *argument)
{
	return !training->arguments.nulls[dana_argument(&training->arguments, argument)];
}

/* What errors call the rows */
static const char *
name_of(const dana_training *training)
{
	return training->rows.query != NULL ? "the query" : dana_relation_name(training->rows.given);
}

/* The columns of the rows */
static TupleDesc
columns_of(const dana_training *training)
{
	const Oid  relation = training->rows.relation;
	const bool by_values = training->rows.query != NULL || !dana_has_places(relation);
	TupleDesc  columns;
	Relation   table;
	dana_rows *rows;

	if (!by_values)
	{
		table = relation_open(relation, AccessShareLock);
		columns = CreateTupleDescCopy(RelationGetDescr(table));
		relation_close(table, NoLock);
		return columns;
	}
	dana_connect();
	rows = dana_rows_plan(training->rows.query != NULL ? training->rows.query
													   : psprintf("SELECT * FROM %s", dana_relation_name(relation)),
						  name_of(training), false);
	if (training->test_by == NULL && training->test_after == NULL && dana_rows_volatile(rows))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("rows of %s cannot be chosen by their values, which differ each time they are read",
							   name_of(training)),
						errdetail("It contains volatile functions, or a sample without REPEATABLE."),
						errhint("Name a column that identifies its rows with test_by, or store the rows in a table.")));
	columns = CreateTupleDescCopy(dana_rows_descriptor(rows));
	SPI_finish();
	return columns;
}

/* The type of a column that an argument names */
static Oid
require_column(const dana_training *training, TupleDesc columns, const char *argument, const char *name)
{
	const int number = SPI_fnumber(columns, name);

	if (number <= 0)
		dana_error(UNDEFINED_COLUMN, "%s has no column \"%s\", which argument \"%s\" names", name_of(training),
				   dana_shown(name), argument);
	return SPI_gettypeid(columns, number);
}

/* What identifies a row */
static dana_split
identify(const dana_training *training, TupleDesc columns)
{
	const Oid  relation = training->rows.relation;
	dana_split split = {.seed = training->seed};

	if (training->test_by != NULL)
	{
		(void)require_column(training, columns, "test_by", training->test_by);
		split.key = (dana_texts){1, palloc(sizeof(char *))};
		split.key.values[0] = training->test_by;
	}
	else if (training->rows.query != NULL)
		split.row = "r.*";
	else
	{
		split.key = dana_gathered_key(relation);
		if (split.key.count == 0)
			split.key = dana_key_of(relation);
	}
	if (split.key.count == 0 && split.row == NULL && !dana_has_places(relation))
		split.row = psprintf("%s.*", dana_relation_name(relation));
	return split;
}

/* Classes */

typedef struct strata
{
	const dana_split *split;
	int			label; /* number of its column, 0: there are no classes */
	Oid			label_type;
	int			count; /* of the values that identify a row; 0: its place does */
	int		   *numbers; /* of their columns */
	Oid		   *types;
	NullableDatum *key;
	dana_drawn  *rows; /* one for each number */
	Size		used, size;
	MemoryContext of_row;
} strata;

static int
compare_rows(const void *a, const void *b)
{
	const dana_drawn *one = a, *other = b;

	if (one->class != other->class)
		return one->class < other->class ? -1 : 1;
	return (one->number > other->number) - (one->number < other->number);
}

/* Sorts rows and adds up the counts of equal ones; returns how many remain, at the front */
static Size
merge(dana_drawn *rows, Size count)
{
	Size used = 0;

	if (count > 0)
		qsort(rows, count, sizeof *rows, compare_rows);
	for (Size i = 0; i < count; i++)
		if (used > 0 && compare_rows(&rows[used - 1], &rows[i]) == 0)
			rows[used - 1].count += rows[i].count;
		else
			rows[used++] = rows[i];
	return used;
}

static bool
take_row(TupleTableSlot *row, void *context)
{
	static const Oid place = TIDOID;
	strata		 *of = context;
	MemoryContext caller = MemoryContextSwitchTo(of->of_row);
	NullableDatum label = {0, true}, tid = {PointerGetDatum(&row->tts_tid), false};
	dana_drawn	  found = {.count = 1};

	if (of->label > 0)
		label.value = slot_getattr(row, of->label, &label.isnull);
	for (int i = 0; i < of->count; i++)
		of->key[i].value = slot_getattr(row, of->numbers[i], &of->key[i].isnull);
	found.class = dana_draw_of_class(of->label_type, label);
	found.number = of->count > 0 ? dana_draw(of->split->seed, of->types, of->key, of->count)
								 : dana_draw(of->split->seed, &place, &tid, 1);
	MemoryContextSwitchTo(caller);
	MemoryContextReset(of->of_row);
	if (of->used == of->size)
		of->rows = repalloc(of->rows, sizeof(dana_drawn) * (of->size *= 2));
	of->rows[of->used++] = found;
	if (of->used < 2 * DANA_MAX_DRAWN)
		return true;
	of->used = merge(of->rows, of->used);
	return of->used <= DANA_MAX_DRAWN;
}

/* Reads class and number of the rows that the training has so far */
static void
read_rows(strata *of, const dana_training *training, const char *label)
{
	dana_source_request request = training->rows;
	dana_source		   *source = dana_source_open(&request);
	TupleDesc			columns = dana_source_columns(source);
	const dana_split   *split = of->split;
	char			   *place = split->key.count == 0 && split->row == NULL ? "ctid" : NULL;
	dana_rows		   *rows = NULL;
	bool				virtual = false;
	StringInfoData		text;

	of->label = label == NULL ? 0 : SPI_fnumber(columns, label);
	for (int i = 0; i < split->key.count; i++)
		virtual |= TupleDescAttr(columns, SPI_fnumber(columns, split->key.values[i]) - 1)->attgenerated == 'v';
	if (!source->heap || virtual || (label != NULL && TupleDescAttr(columns, of->label - 1)->attgenerated == 'v'))
	{
		initStringInfo(&text);
		appendStringInfo(&text, "SELECT %s", split->row != NULL ? "*" : label == NULL ? "NULL" : quote_identifier(label));
		for (int i = 0; i < split->key.count; i++)
			appendStringInfo(&text, ", %s", quote_identifier(split->key.values[i]));
		if (place != NULL)
			appendStringInfo(&text, ", %s", place);
		if (request.query != NULL)
			appendStringInfo(&text, " FROM (%s\n) AS r", request.query);
		else
			appendStringInfo(&text, " FROM %s WHERE (%s\n)", source->from, request.filter != NULL ? request.filter : "true");
		rows = dana_source_plan(source, text.data);
		columns = dana_rows_descriptor(rows);
		of->label = split->row != NULL || label == NULL ? of->label : 1;
	}
	of->label_type = of->label > 0 ? getBaseType(SPI_gettypeid(columns, of->label)) : InvalidOid;
	of->numbers = palloc(sizeof(int) * columns->natts);
	of->types = palloc(sizeof(Oid) * columns->natts);
	of->key = palloc(sizeof(NullableDatum) * columns->natts);
	for (int i = 0; i < columns->natts && (rows != NULL || i < split->key.count); i++)
	{
		const int number = rows == NULL ? SPI_fnumber(columns, split->key.values[i]) : i + 1;

		if (rows != NULL && split->row == NULL && i == 0) /* the label */
			continue;
		of->numbers[of->count] = number;
		of->types[of->count++] = getBaseType(SPI_gettypeid(columns, number));
	}
	if (rows != NULL)
		dana_rows_each(rows, 0, take_row, of);
	else
		dana_scan(source->relation, source->snapshot, request.filter, source->pages, 0, 0, take_row, of);
	dana_source_close(source);
}

/* The number below which `wanted` rows of a class lie; those of one number stay together, on the nearer side */
static double
bound_of(const dana_drawn *rows, Size count, double wanted, bool some_left)
{
	int64 before = 0;

	for (Size i = 0; i < count; before += rows[i++].count)
		if (before + rows[i].count > wanted)
		{
			const bool last = i + 1 == count;

			if (wanted - before <= before + rows[i].count - wanted || (last && some_left))
				return rows[i].number;
			return last ? 1 : rows[i + 1].number;
		}
	return count > 0 && some_left ? rows[count - 1].number : 1;
}

/* Appends the bounds of a class's parts: `bounds` themselves if its rows are unknown */
static void
append_parts(StringInfo to, double class, const dana_drawn *rows, Size count, const double *bounds, int parts)
{
	int64 all = 0;

	for (Size i = 0; i < count; i++)
		all += rows[i].count;
	appendStringInfo(to, "%s{%.17g", to->len > 1 ? "," : "", class);
	for (int i = 0; i < parts - 1; i++) /* of two parts, some rows are to train */
		appendStringInfo(to, ",%.17g",
						 count > 0 ? bound_of(rows, count, floor(bounds[i] * all + 0.5), parts == 2) : bounds[i]);
	appendStringInfoChar(to, '}');
}

/* The column of a rule's classes, or NULL */
static char *
class_column(const dana_training *training, TupleDesc columns)
{
	dana_rule rule = dana_rule_read(training->rule);
	int		  number;

	if (dana_json_is_null(rule.description, "classes"))
		return NULL;
	number = dana_training_label(training, columns, rule.description);
	return number > 0 ? NameStr(TupleDescAttr(columns, number - 1)->attname) : NULL;
}

/* Cuts rows into parts */
static void
cut_rows(dana_split *split, dana_drawn *rows, Size count, const double *bounds, int parts)
{
	Size		   used = merge(rows, count), last; /* the end of those with known parts */
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoChar(&text, '{');
	if (used > DANA_MAX_DRAWN)
		used = 0, split->label = NULL;
	for (last = 0; last < used && rows[last].class < DANA_OTHER_CLASSES;)
	{
		const Size first = last;

		CHECK_FOR_INTERRUPTS();
		while (last < used && rows[last].class == rows[first].class)
			last++;
		append_parts(&text, rows[first].class, rows + first, last - first, bounds, parts);
	}
	/* classes that come later have no rows yet */
	append_parts(&text, DANA_OTHER_CLASSES, rows + last, split->label == NULL ? used : 0, bounds, parts);
	appendStringInfoChar(&text, '}');
	split->parts = text.data;
}

/* Cuts the rows that the training has so far into parts */
static void
cut(const dana_training *training, dana_split *split, bool stratify, const double *bounds, int parts)
{
	strata of = {.split = split, .size = 1024};

	if (stratify && training->test_by == NULL)
		split->label = class_column(training, columns_of(training));
	if (split->label != NULL || (stratify && training->test_by != NULL))
	{
		of.rows = palloc(sizeof(dana_drawn) * of.size);
		of.of_row = AllocSetContextCreate(CurrentMemoryContext, "dana split row", ALLOCSET_SMALL_SIZES);
		read_rows(&of, training, split->label);
		MemoryContextDelete(of.of_row);
	}
	cut_rows(split, of.rows, of.used, bounds, parts);
	if (of.rows != NULL)
		pfree(of.rows);
}

/* Time */

/* Whether values of a type come one after another, as times or numbers do */
static bool
has_order(Oid type)
{
	switch (type)
	{
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
			return true;
		default:
			return false;
	}
}

/* A value as one of the column of times; an error that names the argument if it is none */
static Datum
read_value(const dana_split *split, Oid function, char *value)
{
	MemoryContext  caller = CurrentMemoryContext;
	volatile Datum read = (Datum)0;

	PG_TRY();
	{
		read = OidInputFunctionCall(function, value, split->time_type, -1);
	}
	PG_CATCH();
	{
		ErrorData *error;

		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		FlushErrorState();
		ereport(ERROR, (errcode(error->sqlerrcode),
						errmsg("argument \"test_after\" must have a value of column \"%s\", which is of type %s: %s", split->time,
							   format_type_be(split->time_type), error->message)));
	}
	PG_END_TRY();
	return read;
}

/* Reads {"column": value}; the value is kept as a text that is the same in every session */
static void
read_after(const dana_training *training, TupleDesc columns, dana_split *split)
{
	const dana_texts names = dana_json_keys(training->test_after);
	char	*value = names.count == 1 ? dana_json_scalar(training->test_after, names.values[0]) : NULL;
	Oid		 function, argument;
	bool	 varlena;
	FmgrInfo output;

	if (value == NULL || value[0] == '\0')
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("argument \"test_after\" must name one column and a value"),
						errhint("For instance '{\"day\": \"2024-01-01\"}': rows of a later day are held out.")));
	split->time = names.values[0];
	split->time_type = getBaseType(require_column(training, columns, "test_after", split->time));
	if (!has_order(split->time_type))
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("column \"%s\" of %s, which argument \"test_after\" names, is of type %s, which has no times",
							   split->time, name_of(training), format_type_be(split->time_type)),
						errhint("Name a date, a timestamp or a number; a query can convert it.")));
	getTypeInputInfo(split->time_type, &function, &argument);
	getTypeOutputInfo(split->time_type, &argument, &varlena);
	fmgr_info(argument, &output);
	split->after = dana_fixed_output(&output, split->time_type, read_value(split, function, value));
}

/* The rows that are left out */

/* A SELECT from the rows of a filter, or query */
static char *
select_from(const dana_training *training, const char *list, const char *rows)
{
	if (training->rows.query != NULL)
		return psprintf("SELECT %s FROM (%s\n) AS r", list, rows);
	return psprintf("SELECT %s FROM %s WHERE (%s\n)", list, dana_relation_name(training->rows.relation),
					rows != NULL ? rows : "true");
}

/* Runs a statement that returns a row */
static void
select_row(const char *text)
{
	if (SPI_execute(text, true, 1) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "could not examine the parts of the rows");
}

/* Raises an error for rows, a filter or query, that are all on one side of test_after */
static _Noreturn void
reject_time(const dana_training *training, const dana_split *split, const char *rows, bool later)
{
	const char *column = quote_identifier(split->time);

	select_row(select_from(training, psprintf("dana.dana_fixed_text(pg_catalog.%s(%s))", later ? "min" : "max", column), rows));
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("argument \"test_after\" leaves no row %s: %s column \"%s\" of %s is later than %s",
						   later ? "to train on" : "for a test", later ? "each value of" : "no value of", split->time,
						   name_of(training), split->after),
					DatumGetPointer(dana_value(0, 1)) == NULL ? errdetail("All of them are null.")
					: errdetail("The %s is %s.", later ? "smallest" : "largest", TextDatumGetCString(dana_value(0, 1))),
					errhint("Give %s value.", later ? "a later" : "an earlier")));
}

/* Raises an error for rows, a filter or query, none of them in the part of test_size */
static _Noreturn void
reject_part(const dana_training *training, const char *rows)
{
	const char *by = training->test_by == NULL ? "*" : psprintf("DISTINCT ROW(%s)", quote_identifier(training->test_by));
	int64		count;

	select_row(select_from(training, psprintf("pg_catalog.count(%s)", by), rows));
	count = DatumGetInt64(dana_value(0, 1));
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("argument \"test_size\" leaves no row for a test: it is %g", training->test_size),
					training->test_by == NULL
						? errdetail("%s has " INT64_FORMAT " row%s.", name_of(training), count, count == 1 ? "" : "s")
						: errdetail("Column \"%s\", which argument \"test_by\" names, has " INT64_FORMAT
									" different value%s, and rows with the same one stay together.",
									training->test_by, count, count == 1 ? "" : "s"),
					training->test_by != NULL && count < 2 ? errhint("Name another column with test_by.")
														   : errhint("Give a larger test_size, or more rows.")));
}

static bool
find_one(TupleTableSlot *row, void *found)
{
	*(bool *)found = true;
	return false;
}

/* Whether there are rows of a filter, or query; `pages`: a heap's are read, which checks its tuples, before the executor's */
static bool
have_row(const dana_training *training, char *rows, bool pages)
{
	dana_source_request request = training->rows;
	dana_source		   *source;
	bool				found = false;

	*(request.query != NULL ? &request.query : &request.filter) = rows;
	if (!pages && request.query == NULL)
		request.query = select_from(training, "*", rows);
	source = dana_source_open(&request);
	if (source->heap)
		dana_scan(source->relation, source->snapshot, rows, source->pages, 0, 0, find_one, &found);
	else
		dana_rows_each(dana_source_plan(source, select_from(training, "", rows)), 1, find_one, &found);
	dana_source_close(source);
	return found;
}

/* Raises an error if one of two parts of rows, filters or queries, is empty */
static void
check_parts(const dana_training *training, const dana_split *split, char *test, char *train, const char *rows, bool pages)
{
	const bool tests = have_row(training, test, pages), trains = have_row(training, train, pages);

	if (tests && trains)
		return;
	dana_connect();
	/* without any row, the training's own error is the better one */
	if (tests != trains && split->after != NULL)
		reject_time(training, split, rows, tests);
	if (trains && !tests)
		reject_part(training, rows);
	SPI_finish();
}

/* Takes a part out of the training's rows, and returns a filter, or query, for it alone */
static char *
take_part(dana_training *training, const dana_split *split)
{
	char **rows = training->rows.query != NULL ? &training->rows.query : &training->rows.filter;
	char  *condition = dana_split_condition(split);
	char  *taken = dana_training_rows(training, condition, *rows);

	*rows = dana_training_rows(training, psprintf("NOT %s", condition), *rows);
	training->tried = true;
	return taken;
}

static void
check_size(const char *argument, double size)
{
	if (!(size > 0 && size < 1))
		dana_reject_argument("%s", "be a part of the rows between 0 and 1, not \"%g\"", argument, size);
}

/* Raises an error for arguments that contradict each other; returns whether rows are for validation */
static bool
check_arguments(dana_training *training)
{
	const bool validates = is_given(training, "validation_size");

	if (!validates && (training->early_stopping || training->calibrate != NULL))
		training->validation_size = training->calibrate != NULL ? CALIBRATION_SIZE : DANA_VALIDATION_SIZE;
	else if (validates && training->calibrate == NULL && is_given(training, "early_stopping") && !training->early_stopping)
		dana_error(INVALID_PARAMETER_VALUE, "argument \"validation_size\" goes with early_stopping, which is false");
	if (is_given(training, "test_size") && training->test_after != NULL)
		dana_error(INVALID_PARAMETER_VALUE, "give either argument \"test_size\" or argument \"test_after\", not both");
	if (is_given(training, "test_size"))
		check_size("test_size", training->test_size);
	if (validates)
		check_size("validation_size", training->validation_size);
	return training->validation_size > 0;
}

static dana_split
split_for_test(const dana_training *training, TupleDesc columns, bool stratify)
{
	dana_split split = identify(training, columns);

	if (training->test_after != NULL)
		read_after(training, columns, &split);
	else
		cut(training, &split, stratify, &training->test_size, 2);
	return split;
}

void
dana_split_rows(dana_training *training, bool stratify)
{
	const bool validates = check_arguments(training);
	TupleDesc  columns;

	if (training->test_size == 0 && training->test_after == NULL && !validates)
		return;
	columns = columns_of(training);
	if (training->test_size > 0 || training->test_after != NULL)
	{
		const char *whole = training->rows.query != NULL ? training->rows.query : training->rows.filter;
		char	   *test;

		training->split = split_for_test(training, columns, stratify);
		test = take_part(training, &training->split);
		check_parts(training, &training->split, test,
					training->rows.query != NULL ? training->rows.query : training->rows.filter, whole, stratify);
	}
	if (validates)
	{
		dana_split split = identify(training, columns);

		/* by another seed: the two parts are independent of each other */
		split.seed = (int)((uint32)training->seed + 1);
		cut(training, &split, stratify, &training->validation_size, 2);
		training->held_out = take_part(training, &split);
	}
}

double
dana_split_validation(const dana_training *training)
{
	dana_training checked = *training;

	return check_arguments(&checked) ? checked.validation_size : 0;
}

dana_split
dana_split_elsewhere(const dana_training *training, TupleDesc columns, const dana_texts *key, bool test)
{
	dana_split split = {.seed = test ? training->seed : (int)((uint32)training->seed + 1), .key = *key};

	if (training->test_by != NULL)
	{
		(void)require_column(training, columns, "test_by", training->test_by);
		split.key = (dana_texts){1, palloc(sizeof(char *))};
		split.key.values[0] = training->test_by;
	}
	if (test && training->test_after != NULL)
		read_after(training, columns, &split);
	else if (split.key.count == 0)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("the shards of %s have no primary key, by which rows for a test or validation are chosen", name_of(training)),
						errdetail("On one server their places would choose them, and places on several are not those of one table."),
						errhint("Name a column that identifies rows with test_by, add a primary key on each shard, or gather the rows.")));
	return split;
}

void
dana_split_cut(dana_split *split, dana_drawn *rows, Size count, double size)
{
	cut_rows(split, rows, count, &size, 2);
}

void
dana_split_known(dana_training *training)
{
	const dana_texts key = dana_json_texts(training->known, "key");
	char			*label = dana_json_string(training->known, "classes");

	training->tried = check_arguments(training);
	if (training->tried)
		training->held_out = "true"; /* the other parts have these rows */
	if (training->test_size == 0 && training->test_after == NULL)
		return;
	training->split = dana_split_elsewhere(training, columns_of(training), &key, true);
	training->split.parts = dana_json_string(training->known, "parts");
	training->split.label = *label == '\0' ? NULL : label;
	training->tried = true;
}

/* dana.dana_part_bounds(draws, size, stratify): the bounds of a part; `draws` has class, number and count of rows in turn */
DANA_FUNCTION(dana_part_bounds)
{
	ArrayType  *draws = PG_GETARG_ARRAYTYPE_P(0);
	const Size	count = ArrayGetNItems(ARR_NDIM(draws), ARR_DIMS(draws)) / 3;
	const int64 *numbers = (const int64 *)ARR_DATA_PTR(draws);
	dana_split	split = {.label = PG_GETARG_BOOL(2) ? "" : NULL};
	dana_drawn *rows = palloc_extended(sizeof *rows * Max(count, 1), MCXT_ALLOC_HUGE);
	Datum		values[2];
	TupleDesc	columns;

	if (ARR_HASNULL(draws) || get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE)
		dana_error(INVALID_PARAMETER_VALUE, "argument \"draws\" must not have NULLs");
	check_size("test_size", PG_GETARG_FLOAT8(1));
	for (Size i = 0; i < count; i++, numbers += 3)
		rows[i] = (dana_drawn){numbers[0] * DANA_DRAW_UNIT, numbers[1] * DANA_DRAW_UNIT, numbers[2]};
	dana_split_cut(&split, rows, count, PG_GETARG_FLOAT8(1));
	values[0] = CStringGetTextDatum(split.parts);
	values[1] = BoolGetDatum(split.label != NULL);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(columns, values, (bool[]){false, false})));
}

void
dana_split_restrict(dana_training *training, const char *condition)
{
	char **rows = training->rows.query != NULL ? &training->rows.query : &training->rows.filter;

	*rows = dana_training_rows(training, condition, *rows);
	if (training->held_out != NULL)
		training->held_out = dana_training_rows(training, condition, training->held_out);
	training->tried = true;
}

char *
dana_split_folds(const dana_training *training, int folds)
{
	TupleDesc  columns = columns_of(training);
	dana_split split = identify(training, columns);
	double	  *bounds;
	const char *rows = training->rows.query != NULL ? training->rows.query : training->rows.filter;
	char	  *condition;

	if (folds == 0)
	{
		if (training->test_after == NULL)
			check_size("test_size", training->test_size);
		split = split_for_test(training, columns, true);
		condition = dana_split_condition(&split);
		check_parts(training, &split, dana_training_rows(training, condition, rows),
					dana_training_rows(training, psprintf("NOT %s", condition), rows), rows, true);
		return condition;
	}
	bounds = palloc(sizeof(double) * folds);
	for (int i = 0; i < folds; i++)
		bounds[i] = (i + 1.0) / folds;
	cut(training, &split, true, bounds, folds);
	return dana_split_part(&split);
}
