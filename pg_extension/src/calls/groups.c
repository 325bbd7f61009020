/*
 * dana_train_groups(): one model for each group of rows.
 *
 * One statement reads the rows once, sorted by group and within a group in the order of the table or the query. A
 * group's rows are kept (in work_mem, beyond that in a temporary file) until the last one; then it is trained like a
 * query with those rows. A group that cannot be trained gets a result row with the error, and the next group follows.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/notices.h"
#include "base/relations.h"
#include "calls/train.h"
#include "features/categories.h"
#include "features/classes.h"
#include "features/features.h"
#include "limits/bounds.h"
#include "models/models.h"
#include "models/rules.h"
#include "request/split.h"
#include "request/training.h"
#include "rows/places.h"
#include "rows/rows.h"
#include "source/schema.h"
#include "source/stream.h"
#include "values/encode.h"
#include "values/label_values.h"
#include "values/texts.h"

#define TRUNCATED_NAME 200
#define COLUMNS			  12 /* of the result */

/* A name for the model of a group */

static void
append_key(StringInfo to, const char *key)
{
	for (; *key != '\0'; key++)
	{
		CHECK_FOR_INTERRUPTS();
		if ((unsigned char)*key < ' ' || strchr("%@[],", *key) != NULL)
			appendStringInfo(to, "%%%02X", *key);
		else
			appendStringInfoChar(to, *key);
	}
}

/*
 * dana_group(model, VARIADIC keys text[]): "model[key,key]", with what would be ambiguous in it written as %XX. The end
 * of a name that would be too long is replaced by a hash of all of it. NULL where a key is NULL.
 */
DANA_FUNCTION(dana_group)
{
	const dana_texts keys = dana_texts_of("keys", PG_GETARG_DATUM(1));
	StringInfoData	 name;

	initStringInfo(&name);
	appendStringInfoString(&name, text_to_cstring(PG_GETARG_TEXT_PP(0)));
	for (int i = 0; i < keys.count; i++)
	{
		if (keys.values[i] == NULL)
			PG_RETURN_NULL();
		appendStringInfoChar(&name, i == 0 ? '[' : ',');
		append_key(&name, keys.values[i]);
	}
	appendStringInfoString(&name, keys.count == 0 ? "[]" : "]");
	if (name.len > DANA_NAME_LIMIT)
	{
		uint64 hash = hash_bytes_extended((unsigned char *)name.data, name.len, 0);

		name.len = pg_mbcliplen(name.data, name.len, TRUNCATED_NAME);
		appendStringInfo(&name, "~%08x%08x]", (uint32)(hash >> 32), (uint32)hash);
	}
	PG_RETURN_TEXT_P(cstring_to_text_with_len(name.data, name.len));
}

/* The statement */

typedef struct grouping
{
	dana_training	*training;
	dana_source		*source;
	dana_rule		 rule;
	dana_texts		 by;	/* columns */
	char		   **text;	/* SQL for their texts */
	int				 columns;	/* columns of the rows, before the added ones */
	MemoryContext	 one;		/* memory of the current group */
	dana_training	 current;	/* its training; name NULL: there is no group */
	dana_new_model	 model;
	char		   **key;		/* its values */
	ReturnSetInfo	*result;
	uint64			 groups;
	uint64			 failed;
	uint64			 taken;		/* rows of the current group that train, not held out for a test */
	dana_label_type	 label;
	MemoryContext	 of_row;
	int				 only;		/* class of all its rows, NONE_YET or SEVERAL */
	uint64			 keyless;	/* rows with a NULL in a grouping column */
} grouping;

/* Class numbers are 0 or larger */
#define NONE_YET (-1)
#define SEVERAL	 (-2)

/* Whether features and label are named, so that no right on other columns is needed. A wrong name's error lists all. */
static bool
names_all(const dana_training *training, TupleDesc descriptor)
{
	if (training->split.row != NULL) /* all columns choose the rows for a test */
		return false;
	if (training->features.count < 0 || training->label == NULL || SPI_fnumber(descriptor, training->label) <= 0)
		return false;
	for (int i = 0; i < training->features.count; i++)
		if (SPI_fnumber(descriptor, training->features.values[i]) <= 0)
			return false;
	return training->weight == NULL || SPI_fnumber(descriptor, training->weight) > 0;
}

/* Whether a column chooses the rows for a test */
static bool
is_of_split(const char *name, const dana_split *split)
{
	return dana_is_one_of(name, &split->key) || (split->label != NULL && strcmp(name, split->label) == 0) ||
		(split->time != NULL && strcmp(name, split->time) == 0);
}

/* The columns that a training may use: those that are named, else all except the grouping ones */
static char *
select_list(grouping *grouping, TupleDesc descriptor)
{
	const dana_training *training = grouping->training;
	const bool			 named = names_all(training, descriptor);
	StringInfoData		 list;

	initStringInfo(&list);
	for (int i = 0; i < descriptor->natts; i++)
	{
		char *name = NameStr(TupleDescAttr(descriptor, i)->attname);

		if ((named || dana_is_one_of(name, &grouping->by)) && !dana_is_one_of(name, &training->features) &&
			!is_of_split(name, &training->split) &&
			(training->label == NULL || strcmp(name, training->label) != 0) &&
			(training->weight == NULL || strcmp(name, training->weight) != 0))
			continue;
		appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "", quote_identifier(name));
	}
	return list.data;
}

/* Finds the grouping columns, and the SQL for their texts */
static void
find_columns(grouping *grouping, TupleDesc descriptor)
{
	grouping->text = palloc0(sizeof(char *) * grouping->by.count);
	for (int k = 0; k < grouping->by.count; k++)
	{
		const char *column = grouping->by.values[k];
		int			number = SPI_fnumber(descriptor, column);

		if (number <= 0)
			dana_error(UNDEFINED_COLUMN, "%s has no column \"%s\" to group by", grouping->source->name, column);
		grouping->text[k] = dana_text_expression(column, SPI_gettypeid(descriptor, number));
	}
}

/* Opens the rows as a query; returns the statement that returns them sorted by group */
static dana_rows *
open_rows(grouping *grouping)
{
	const dana_training *training = grouping->training;
	dana_source_request	 request = training->rows;
	char			   *table = NULL;
	char			   *from;
	char			   *list;
	dana_source		   *source;
	dana_rows		   *rows;
	StringInfoData		sorted;

	if (request.query == NULL)
	{
		table = dana_relation_name(request.relation);
		/* the filter was checked to be one expression; the newline ends a comment in it */
		from = request.filter == NULL ? table : psprintf("%s WHERE (%s\n)", table, request.filter);
		request.query = psprintf("SELECT * FROM %s", from);
	}
	else
		from = psprintf("(%s\n) AS r", request.query);
	/* as it was given first, so that an error shows the caller's text */
	source = grouping->source = dana_source_open(&request);
	if (table != NULL)
		source->name = source->from = table;
	find_columns(grouping, dana_rows_descriptor(source->stream.plan));
	if (table != NULL && !names_all(training, dana_rows_descriptor(source->stream.plan)) &&
		dana_denied_columns(request.relation) != NULL)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for table %s", table),
						errdetail("Without named features and label, all columns are read, and there is no SELECT on %s.",
								  dana_denied_columns(request.relation)),
						errhint("Name \"features\" and \"label\" in argument \"training\".")));
	list = select_list(grouping, dana_rows_descriptor(source->stream.plan));
	source->asked.query = psprintf("SELECT %s FROM %s", list, from);
	source->stream.plan = dana_source_plan(source, source->asked.query);
	grouping->columns = dana_rows_descriptor(source->stream.plan)->natts;

	initStringInfo(&sorted);
	appendStringInfo(&sorted, "SELECT %s%s%s(%s::pg_catalog.text, VARIADIC ARRAY[", list, grouping->columns > 0 ? ", " : "",
					 dana_extension_name("dana_group"),
					 quote_literal_cstr(training->model));
	for (int i = 0; i < grouping->by.count; i++)
		appendStringInfo(&sorted, "%s%s", i > 0 ? ", " : "", grouping->text[i]);
	appendStringInfoString(&sorted, "]) COLLATE pg_catalog.\"C\", pg_catalog.row_number() OVER ()");
	for (int i = 0; i < grouping->by.count; i++)
		appendStringInfo(&sorted, ", %s", grouping->text[i]);
	/* includes rows held out for a test, so that a group of only those has a row in the result */
	if (training->tried)
		from = table == NULL ? psprintf("(%s\n) AS r", training->whole_query)
							 : psprintf("%s WHERE (%s\n)", table, training->filter == NULL ? "true" : training->filter);
	appendStringInfo(&sorted, ", %s FROM %s ORDER BY %d, %d",
					 training->tried ? dana_split_condition(&training->split) : "false",
					 from, grouping->columns + 1, grouping->columns + 2);
	rows = dana_rows_plan(sorted.data, source->name, table != NULL);
	source->stream.row_type = dana_rows_descriptor(rows);
	/* here, for all groups */
	dana_source_probe(source);
	dana_source_encode(source, training, grouping->rule.description);
	return rows;
}

/* The group of a model, for its metadata */
static dana_group_key *
describe_group(grouping *grouping)
{
	dana_group_key *group = palloc(sizeof *group);
	StringInfoData	key;
	StringInfoData	condition;

	initStringInfo(&condition);
	dana_json_begin(&key);
	for (int i = 0; i < grouping->by.count; i++)
	{
		dana_json_text(&key, grouping->by.values[i], grouping->key[i]);
		appendStringInfo(&condition, "%s%s OPERATOR(pg_catalog.=) %s", i == 0 ? "" : " AND ", grouping->text[i],
						 quote_literal_cstr(grouping->key[i]));
	}
	group->of = grouping->training->model;
	group->key = dana_json_end(&key);
	group->condition = condition.data;
	return group;
}

/* An error of the group's data, not of the call, the worker or the server */
static bool
is_of_data(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_DATA_EXCEPTION && sqlstate != ERRCODE_INVALID_PARAMETER_VALUE;
}

/* Whether a training on the rows alone would find their classes, and reject a single one */
static bool
needs_classes(const grouping *grouping)
{
	return grouping->source->chosen.class_column > 0 && grouping->training->warm_start_from == NULL;
}

/* Finds out whether the group's rows, including held-out ones, have several classes */
static void
check_class(grouping *grouping, TupleTableSlot *row)
{
	bool		  isnull;
	Datum		  value = slot_getattr(row, grouping->source->chosen.class_column, &isnull);
	MemoryContext caller;
	char		 *text;
	int			  class;

	if (isnull)
		return;
	caller = MemoryContextSwitchTo(grouping->of_row);
	class = dana_class_of(&grouping->label, value, &grouping->source->chosen.classes, &text);
	if (class >= 0 && grouping->only != class)
		grouping->only = grouping->only == NONE_YET ? class : SEVERAL;
	MemoryContextSwitchTo(caller);
	MemoryContextReset(grouping->of_row);
}

static void
train_group(void *state)
{
	grouping *grouping = state;
	const dana_source *source = grouping->source;

	if (needs_classes(grouping) && grouping->only >= 0)
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
						errmsg("all labels in column \"%s\" of the group are \"%s\"",
							   NameStr(TupleDescAttr(source->stream.row_type, source->chosen.class_column - 1)->attname),
							   source->chosen.classes.values[grouping->only])));
	if (grouping->taken == 0)
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
						errmsg("the group has no row to train on: all of them are held out for a test")));
	(void)dana_train_model(&grouping->current, grouping->source, &grouping->rule, &grouping->model);
}

/* Trains the current group, if there is one, stores its model, and adds its row to the result */
static void
end_group(grouping *grouping)
{
	/* columns 2 to 8, from 0, of dana.group_training */
	static const char *const same[] = {"version", "run", "epochs", "converged", "loss", "tuples", "skipped"};
	MemoryContext caller;
	Datum		  values[COLUMNS] = {0};
	bool		  nulls[COLUMNS] = {false};
	ErrorData	 *error;

	if (grouping->current.model == NULL)
		return;
	caller = MemoryContextSwitchTo(grouping->one);
	INSTR_TIME_SET_CURRENT(grouping->model.started);
	grouping->current.group = describe_group(grouping);
	dana_model_check_name(grouping->current.model);
	/* it writes nothing, so its subtransaction gets no number */
	dana_notices_about(grouping->current.model);
	error = dana_attempt(train_group, grouping, true);
	dana_notices_about(NULL);
	if (error != NULL && !is_of_data(error->sqlerrcode))
		ReThrowError(error);
	values[0] = JsonbPGetDatum(grouping->current.group->key);
	values[1] = CStringGetTextDatum(grouping->current.model);
	grouping->groups++;
	if (error == NULL)
	{
		HeapTupleHeader row = DatumGetHeapTupleHeader(dana_model_store(&grouping->model));

		for (int i = 0; i < lengthof(same); i++)
			values[2 + i] = GetAttributeByName(row, same[i], &nulls[2 + i]);
		nulls[10] = nulls[11] = true;
		values[9] = Float8GetDatum(grouping->model.wall_seconds);
	}
	else
	{
		for (int i = 2; i < 10; i++)
			nulls[i] = true;
		values[10] = CStringGetTextDatum(unpack_sql_state(error->sqlerrcode));
		values[11] = CStringGetTextDatum(error->message);
		grouping->failed++;
	}
	dana_results_add(grouping->result, values, nulls);
	tuplestore_clear(grouping->source->stream.stored);
	dana_bounds_start_clock(); /* for the next one */
	MemoryContextSwitchTo(caller);
	MemoryContextReset(grouping->one);
	grouping->current.model = NULL;
}

static void
begin_group(grouping *grouping, text *name, TupleTableSlot *row)
{
	MemoryContext caller = MemoryContextSwitchTo(grouping->one);
	bool		  isnull;

	grouping->current = *grouping->training;
	grouping->current.model = text_to_cstring(name);
	grouping->model = (dana_new_model){0};
	grouping->taken = 0;
	grouping->only = NONE_YET;
	grouping->key = palloc(sizeof(char *) * grouping->by.count);
	for (int i = 0; i < grouping->by.count; i++)
		grouping->key[i] = TextDatumGetCString(slot_getattr(row, grouping->columns + 3 + i, &isnull));
	MemoryContextSwitchTo(caller);
}

/* Takes one row of the sorted statement */
static bool
take_grouped_row(TupleTableSlot *row, void *context)
{
	grouping *grouping = context;
	bool	  isnull;
	const bool held_out = DatumGetBool(slot_getattr(row, grouping->columns + 3 + grouping->by.count, &isnull));
	Datum	  datum = slot_getattr(row, grouping->columns + 1, &isnull);
	text	 *name;
	char	 *current;

	CHECK_FOR_INTERRUPTS();
	if (isnull)
	{
		grouping->keyless += !held_out;
		return true;
	}
	name = DatumGetTextPP(datum);
	current = grouping->current.model;
	if (current == NULL || strlen(current) != VARSIZE_ANY_EXHDR(name) ||
		memcmp(current, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name)) != 0)
	{
		end_group(grouping);
		begin_group(grouping, name, row);
	}
	if (needs_classes(grouping) && grouping->only != SEVERAL)
		check_class(grouping, row);
	if (!held_out)
		tuplestore_puttupleslot(grouping->source->stream.stored, row);
	grouping->taken += !held_out;
	return true;
}

static void
report_groups(const grouping *grouping, const dana_cleaning *cleaning)
{
	if (grouping->keyless > 0 && cleaning->nulls == DANA_NULLS_ERROR)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg(UINT64_FORMAT " rows of %s have a null in a grouping column", grouping->keyless,
							   grouping->source->name),
						errhint("Fill them in, or use nulls => 'skip'.")));
	if (grouping->groups == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("%s has no row to train on", grouping->source->name),
				 grouping->keyless > 0 ? errdetail("All " UINT64_FORMAT " have a null in a grouping column.", grouping->keyless) : 0));
	if (grouping->keyless > 0)
		dana_notice(NOTICE, NULL, UINT64_FORMAT " rows of %s were left out because of a null in a grouping column",
					grouping->keyless, grouping->source->name);
	if (grouping->failed > 0)
		dana_notice(NOTICE, "Their rows of the result say why.", UINT64_FORMAT " of " UINT64_FORMAT
					" groups could not be trained", grouping->failed, grouping->groups);
}

static Datum
train_groups(void *state)
{
	grouping	  *grouping = state;
	dana_training *training = grouping->training;
	dana_rows	  *rows;

	grouping->one = AllocSetContextCreate(CurrentMemoryContext, "dana group", ALLOCSET_DEFAULT_SIZES);
	grouping->rule = dana_training_rule(training);
	rows = open_rows(grouping);
	dana_classes_find(training, grouping->source, grouping->rule.description, false);
	dana_categories_find(training, grouping->source, &grouping->rule);
	grouping->of_row = AllocSetContextCreate(CurrentMemoryContext, "dana group row", ALLOCSET_SMALL_SIZES);
	if (needs_classes(grouping))
		dana_label_type_of(SPI_gettypeid(grouping->source->stream.row_type, grouping->source->chosen.class_column), &grouping->label,
						   CurrentMemoryContext);
	grouping->source->stream.stored = tuplestore_begin_heap(false, false, work_mem);
	dana_rows_each(rows, 0, take_grouped_row, grouping);
	end_group(grouping);
	report_groups(grouping, &training->rows.cleaning);
	tuplestore_end(grouping->source->stream.stored);
	dana_source_close(grouping->source);
	pgstat_progress_end_command();
	return (Datum)0;
}

/* dana_train_groups(rule, source, group_by, training) */
DANA_COMMAND(dana_train_groups)
{
	dana_training training;
	grouping	  grouping = {.training = &training};

	dana_training_from_call(fcinfo, 3, &training);
	dana_training_reject_sync(&training);
	dana_split_rows(&training, false);
	grouping.by = dana_argument_texts("group_by", PG_GETARG_DATUM(2), PG_ARGISNULL(2));
	if (grouping.by.count < 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"group_by\" must name a column"),
						errhint("For instance group_by => ARRAY['region'].")));
	if (training.validation_size > 0)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("groups are trained without rows for validation"),
						errhint("Leave early_stopping, validation_size and calibrate out; the loss of the training rows chooses the epoch.")));
	dana_model_check_name(training.model);
	grouping.result = dana_results_begin(fcinfo);
	dana_notices_merge();
	return dana_bounds_train(train_groups, &grouping);
}
