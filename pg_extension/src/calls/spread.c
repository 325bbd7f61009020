/*
 * dana_train(sync => …): a training on the rows of a table's shards. With "gather" they come here first. With "batch"
 * and "epoch" they stay: each shard's server trains on its own rows, and this one leads, on a table with the shards'
 * columns and a row for each label, from which it numbers the classes; what it needs to know of other columns, the
 * shards count and sum. dana/cluster/train.py does the same for shards of a list.
 *
 * Shards are reached with the caller's user mappings, which may have more rights there than the caller. So the
 * statements that run there are made here: of columns of the table, values of options, and a filter without functions
 * that anybody made.
 */
#include "postgres.h"

#include <math.h>

#include "access/heapam.h"
#include "access/relation.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "utils/guc.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/relations.h"
#include "calls/map.h"
#include "calls/relay.h"
#include "calls/spread.h"
#include "limits/bounds.h"
#include "models/rules.h"
#include "request/split.h"
#include "request/training.h"
#include "rows/rows.h"
#include "source/gathered.h"
#include "values/agreed.h"
#include "values/encode.h"
#include "values/values.h"

#if PG_VERSION_NUM >= 170000

#define HINT_GATHER "With sync => 'gather' the rows of all shards are at one server, and it can."

typedef struct spread
{
	const dana_training *asked;
	dana_rule			 rule;
	TupleDesc			 columns;
	const char			*name; /* of the leader's table, or of the sample */
	dana_shard			*shards;
	int					 count;
	char				*filter; /* for the shards, or NULL */
	char				*held_out; /* the same of the rows for validation */
	dana_split			 split;	   /* of their rows, if some are for a test */
	dana_texts			 features;
	char				*label; /* or NULL: the rule has none */
	Oid					 made;	/* the leader's table */
} spread;

/* Raises an error for an option that needs the rows of all shards at one server */
static void
check_options(const dana_training *asked)
{
	static const struct
	{
		const char *name, *needs;
	} rejected[] = {DANA_REJECTED};
	const dana_null_policy nulls = asked->rows.cleaning.nulls;

	for (int i = 0; i < lengthof(rejected); i++)
		if (!asked->arguments.nulls[dana_argument(&asked->arguments, rejected[i].name)])
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("argument \"%s\" cannot be given with sync => '%s': it needs %s", rejected[i].name,
								   asked->sync, rejected[i].needs),
							errhint(HINT_GATHER)));
	if (nulls == DANA_NULLS_MEDIAN)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("nulls => '%s' cannot be given with sync => '%s'", asked->nulls, asked->sync),
						errhint("Give 'mean', 'indicator' or a number. " HINT_GATHER)));
}

static bool
is_text(Form_pg_attribute column)
{
	return dana_is_text_type(dana_encoded_type(column->atttypid));
}

static Form_pg_attribute
column_named(const spread *of, const char *name, const char *role)
{
	int number = SPI_fnumber(of->columns, name);

	if (number <= 0)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("%s has no column \"%s\" for %s", dana_relation_name(of->asked->rows.relation),
							   dana_shown(name), role)));
	return TupleDescAttr(of->columns, number - 1);
}

/* The features: those given, or all columns but label, weight, and a primary key of one column */
static void
choose_columns(spread *of)
{
	const dana_training *asked = of->asked;
	const dana_texts	*key = &of->shards[0].key_columns;
	Jsonb			   **outputs;
	const bool has_output = dana_json_objects(of->rule.description, "outputs", &outputs) > 0;
	const int  label = has_output ? dana_training_label(asked, of->columns, of->rule.description) : 0;

	if (asked->weight != NULL)
		(void)column_named(of, asked->weight, "the weight");
	if (label > 0)
		of->label = pstrdup(NameStr(TupleDescAttr(of->columns, label - 1)->attname));
	else if (asked->label != NULL)
		(void)column_named(of, asked->label, "the label");
	of->features = asked->features;
	if (asked->features.count < 0)
	{
		of->features = (dana_texts){0, palloc(sizeof(char *) * Max(of->columns->natts, 1))};
		for (int i = 0; i < of->columns->natts; i++)
		{
			Form_pg_attribute column = TupleDescAttr(of->columns, i);
			char			 *name = NameStr(column->attname);

			if (!column->attisdropped && i + 1 != label && (asked->weight == NULL || strcmp(name, asked->weight) != 0) &&
				(key->count != 1 || strcmp(name, key->values[0]) != 0))
				of->features.values[of->features.count++] = pstrdup(name);
		}
	}
	for (int i = 0; i < of->features.count; i++)
	{
		Form_pg_attribute column = column_named(of, of->features.values[i], "a feature");
		dana_type		  holds;

		if (is_text(column))
			continue;
		if (!dana_type_of(column->atttypid, &holds))
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("column %s is %s: with sync => '%s' features are numbers, texts or dates", of->features.values[i],
								   format_type_with_typemod(column->atttypid, column->atttypmod), asked->sync),
							errhint("List features without it, or make it one of them in a view on each shard. " HINT_GATHER)));
		if (holds.array && dana_needs_middle(asked->rows.cleaning.nulls))
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("column %s is %s: with sync => '%s' its NULLs have no mean", of->features.values[i],
								   format_type_with_typemod(column->atttypid, column->atttypmod), asked->sync),
							errhint(HINT_GATHER)));
	}
}

/* The condition of rows that the filter takes and that have both columns, which may be NULL */
static char *
where(const spread *of, const char *one, const char *other)
{
	const char	  *columns[] = {one, other};
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfo(&text, "(%s)", of->filter == NULL ? "true" : of->filter);
	for (int i = 0; i < lengthof(columns); i++)
		if (columns[i] != NULL)
			appendStringInfo(&text, " AND %s IS NOT NULL", quote_identifier(columns[i]));
	return text.data;
}

/* Has the leader's table contain each label of the shards once */
static void
take_labels(spread *of)
{
	Form_pg_attribute column = column_named(of, of->label, "the label");
	const char		 *label = quote_identifier(of->label);
	Oid				  types[] = {TEXTARRAYOID};
	ArrayBuildState	 *labels = NULL;
	MemoryContext	  caller = CurrentMemoryContext;
	Datum			  all;

	/* casts to text and back, and what a domain checks, would run as the caller here and as the mapping's role there */
	if (column->atttypid >= FirstGenbkiObjectId)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("the label %s is %s: with sync => '%s' labels are of a type of PostgreSQL", of->label,
							   format_type_with_typemod(column->atttypid, column->atttypmod), of->asked->sync),
						errhint("Make it a text in a view on each shard. " HINT_GATHER)));
	for (int i = 0; i < of->count; i++)
	{
		char *statement = psprintf(DANA_SELECT_LABELS, label, of->shards[i].table, where(of, of->label, NULL));
		dana_shard_rows found = dana_shard_select(&of->shards[i], statement, 1, &(Oid){TEXTOID}, DANA_SHARD_LABELS);

		while (dana_shard_next(&found))
			if (!found.slot->tts_isnull[0])
				labels = accumArrayResult(labels, found.slot->tts_values[0], false, TEXTOID, CurrentMemoryContext);
	}
	if (labels == NULL)
		return;
	all = makeArrayResult(labels, CurrentMemoryContext);
	(void)SPI_execute_with_args(psprintf("INSERT INTO %s (%s) SELECT DISTINCT l::%s FROM pg_catalog.unnest($1) AS l",
										 dana_relation_name(of->made), label,
										 format_type_extended(column->atttypid, column->atttypmod,
															  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY)),
								1, types, &all, NULL, false, 0);
	MemoryContextSwitchTo(caller); /* SPI leaves one of its own, which ends before the result is read */
}

/* The rows of each class and number on all shards; their count */
static Size
draw_rows(const spread *of, const dana_split *split, dana_drawn **drawn)
{
	StringInfoData row;
	Size		   used = 0;

	initStringInfo(&row);
	appendStringInfo(&row, "%d, %s", split->seed,
					 split->label == NULL ? "NULL::pg_catalog.int4" : quote_identifier(split->label));
	for (int i = 0; i < split->key.count; i++)
		appendStringInfo(&row, ", %s", quote_identifier(split->key.values[i]));
	*drawn = palloc_extended(sizeof(dana_drawn) * of->count * (DANA_MAX_DRAWN + 1), MCXT_ALLOC_HUGE);
	for (int i = 0; i < of->count; i++)
	{
		char *statement = psprintf(DANA_SELECT_DRAWN, row.data, of->shards[i].table, where(of, NULL, NULL));
		dana_shard_rows found = dana_shard_select(&of->shards[i], statement, 3, (Oid[]){INT8OID, INT8OID, INT8OID},
												  DANA_MAX_DRAWN + 1);

		while (dana_shard_next(&found))
		{
			const bool	*isnull = found.slot->tts_isnull;
			const Datum *values = found.slot->tts_values;

			if (!isnull[0] && !isnull[1] && !isnull[2])
				(*drawn)[used++] = (dana_drawn){DatumGetInt64(values[0]) * DANA_DRAW_UNIT,
												DatumGetInt64(values[1]) * DANA_DRAW_UNIT, DatumGetInt64(values[2])};
		}
	}
	return used;
}

/* Whether a shard has a row for a test */
static bool
has_test(const spread *of, dana_shard *shard, const char *condition)
{
	char *statement = psprintf(DANA_SELECT_ANY, shard->table, where(of, NULL, NULL), condition);
	dana_shard_rows found = dana_shard_select(shard, statement, 1, &(Oid){BOOLOID}, 1);
	bool			has = false;

	while (dana_shard_next(&found))
		has = !found.slot->tts_isnull[0] && DatumGetBool(found.slot->tts_values[0]);
	return has;
}

/* Leaves out the rows of a part of this size, or later than test_after, which are chosen as those of one table */
static dana_split
leave_out(spread *of, double size, bool test)
{
	const dana_training *asked = of->asked;
	dana_split			 split = dana_split_elsewhere(asked, of->columns, &of->shards[0].key_columns, test);
	dana_drawn			*drawn = NULL;
	char				*condition;
	Size				 count = 0;
	bool				 some = !test;

	if (split.after == NULL)
	{
		if (asked->test_by == NULL && !dana_json_is_null(of->rule.description, "classes"))
			split.label = of->label;
		if (asked->test_by != NULL || split.label != NULL)
			count = draw_rows(of, &split, &drawn);
		dana_split_cut(&split, drawn, count, size);
	}
	condition = dana_split_condition(&split);
	for (int i = 0; i < of->count && !some; i++)
		some = has_test(of, &of->shards[i], condition);
	if (!some)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("argument \"%s\" leaves no row for a test", split.after != NULL ? "test_after" : "test_size"),
						errhint("Give another value, or more rows.")));
	if (!test)
		of->held_out = psprintf("%s AND (%s)", condition, of->filter == NULL ? "true" : of->filter);
	of->filter = psprintf("NOT %s AND (%s)", condition, of->filter == NULL ? "true" : of->filter);
	return split;
}

/* Appends the texts of a column, with the number of rows that have each on a shard */
static void
append_texts(const spread *of, const char *column, StringInfo to)
{
	dana_json_open(to, column, '[');
	for (int i = 0; i < of->count; i++)
	{
		char *statement = psprintf(DANA_SELECT_TEXTS, quote_identifier(column), of->shards[i].table,
								   where(of, of->label, of->asked->weight));
		dana_shard_rows found = dana_shard_select(&of->shards[i], statement, 2, (Oid[]){TEXTOID, INT8OID}, DANA_SHARD_TEXTS + 1);

		while (dana_shard_next(&found))
		{
			const bool	*isnull = found.slot->tts_isnull;
			const Datum *values = found.slot->tts_values;

			if (found.left == 0)
				ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
								errmsg("%s has more than %d different values in column %s", of->shards[i].label, DANA_SHARD_TEXTS, column),
								errhint("List features without it. " HINT_GATHER)));
			dana_json_open(to, NULL, '{');
			dana_json_text(to, "v", isnull[0] ? NULL : TextDatumGetCString(values[0]));
			dana_json_number(to, "n", isnull[1] ? 0 : DatumGetInt64(values[1]));
			dana_json_close(to, '}');
		}
	}
	dana_json_close(to, ']');
}

/* What is asked of a shard about a column of numbers */
enum
{
	SUM,
	COUNT,
	NULLS, /* more than 0: there are some */
	HOURS, /* the same, of times other than midnight */
	NUMBERS
};

/* Whether the rows of all shards decide how a column of numbers is encoded */
static bool
is_summed(const spread *of, const char *name)
{
	Form_pg_attribute column = column_named(of, name, "a feature");

	return dana_find_date_type(dana_encoded_type(column->atttypid)) != NULL ||
		(dana_needs_middle(of->asked->rows.cleaning.nulls) && !is_text(column));
}

/* Appends means of columns of numbers, and whether they have NULLs, and hours */
static void
append_numbers(const spread *of, StringInfo to)
{
	dana_texts	   columns = {.values = palloc(sizeof(char *) * Max(of->features.count, 1))};
	double		  *sums;
	StringInfoData wanted;

	initStringInfo(&wanted);
	for (int i = 0; i < of->features.count; i++)
	{
		if (!is_summed(of, of->features.values[i]))
			continue;
		columns.values[columns.count++] = of->features.values[i];
		appendStringInfoString(&wanted, columns.count == 1 ? "" : ", ");
		appendStringInfo(&wanted, DANA_NUMBERS_OF, quote_identifier(of->features.values[i]));
	}
	sums = palloc0(sizeof(double) * NUMBERS * Max(columns.count, 1));
	for (int i = 0; i < of->count && columns.count > 0; i++)
	{
		dana_shard_rows found = dana_shard_select(
			&of->shards[i],
			psprintf(DANA_SELECT_NUMBERS, wanted.data, of->shards[i].table, where(of, of->label, of->asked->weight)), 1,
			&(Oid){FLOAT8ARRAYOID}, 1);
		Datum *values;
		bool  *nulls;
		int	   count = 0;

		while (dana_shard_next(&found))
			if (!found.slot->tts_isnull[0])
				deconstruct_array(DatumGetArrayTypePCopy(found.slot->tts_values[0]), FLOAT8OID, sizeof(float8),
								  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &values, &nulls, &count);
		if (count != NUMBERS * columns.count)
			dana_shard_error(ERRCODE_PROTOCOL_VIOLATION, &of->shards[i], "it has not answered what its columns sum to");
		for (int k = 0; k < count; k++)
			if (!nulls[k])
				sums[k] += DatumGetFloat8(values[k]);
	}
	for (int i = 0; i < columns.count; i++)
	{
		const double *of_column = sums + NUMBERS * i;
		const double  mean = of_column[SUM] / of_column[COUNT];

		dana_json_open(to, columns.values[i], '{');
		if (isfinite(mean))
			dana_json_number(to, "mean", mean);
		dana_json_truth(to, "nulls", of_column[NULLS] > 0);
		dana_json_truth(to, "hours", of_column[HOURS] > 0);
		dana_json_close(to, '}');
	}
}

/* What columns have in the rows of all shards, so that the leader decides how features are encoded as if it had them */
static Jsonb *
find_columns(const spread *of)
{
	StringInfoData text;

	dana_json_begin(&text);
	dana_json_open(&text, "found", '{');
	append_numbers(of, &text);
	for (int i = 0; i < of->features.count && of->asked->warm_start_from == NULL; i++)
		if (is_text(column_named(of, of->features.values[i], "a feature")))
			append_texts(of, of->features.values[i], &text);
	dana_json_close(&text, '}');
	dana_json_list(&text, "key", &of->shards[0].key_columns);
	dana_json_text(&text, "parts", of->split.parts);
	dana_json_text(&text, "classes", of->split.label);
	return dana_json_end(&text);
}

typedef struct hashed_key
{
	int64 hash;
	int	  shard; /* from 0 */
} hashed_key;

static int
compare_hashed(const void *a, const void *b)
{
	const hashed_key *one = a, *other = b;

	return one->hash != other->hash ? (one->hash < other->hash ? -1 : 1) : one->shard - other->shard;
}

/* Reports shards that have the same keys; dana/cluster/train.py compares the same */
static void
compare_keys(const spread *of)
{
	hashed_key *keys = palloc(sizeof *keys * DANA_SHARD_KEYS * of->count);
	int			count = 0;

	if (of->shards[0].key_columns.count == 0)
		return;
	for (int i = 0; i < of->count; i++)
	{
		char *statement = psprintf(DANA_SELECT_KEYS, of->shards[i].key, of->shards[i].table);
		dana_shard_rows found = dana_shard_select(&of->shards[i], statement, 1, &(Oid){INT8OID}, DANA_SHARD_KEYS);

		while (dana_shard_next(&found))
			keys[count++] = (hashed_key){DatumGetInt64(found.slot->tts_values[0]), i};
	}
	qsort(keys, count, sizeof *keys, compare_hashed);
	for (int k = 1; k < count; k++)
		if (keys[k].hash == keys[k - 1].hash && keys[k].shard != keys[k - 1].shard)
		{
			ereport(WARNING, (errmsg("%s and %s have the same primary key (%s) in rows, which count for both",
									 of->shards[keys[k - 1].shard].label, of->shards[keys[k].shard].label,
									 of->shards[0].key),
							  errhint("Have each row on one shard alone.")));
			return;
		}
}

/* The arguments of a part; of the leader without its introduction */
static Jsonb *
arguments_of(const spread *of, Jsonb *introduction)
{
	static const char *const others[] = {"rule", "source", "features", "label", "sync", "filter"};
	static const char *const leader_s[] = {DANA_LEADERS};
	const dana_arguments *given = &of->asked->arguments;
	const bool			  leads = introduction == NULL;
	const dana_texts	  classes = leads ? (dana_texts){.count = -1} : dana_json_texts(introduction, "classes");
	const dana_texts	  features = leads ? of->asked->features : dana_json_texts(introduction, "features");
	StringInfoData		  text;

	dana_json_begin(&text);
	if (features.count >= 0)
		dana_json_list(&text, "features", &features);
	dana_json_text(&text, "label", of->label);
	for (int i = 0; i < given->count; i++)
	{
		const char *name = given->names[i];
		bool		skipped = given->nulls[i] || (classes.count >= 0 && strcmp(name, "classes") == 0);

		for (int k = 0; k < lengthof(others); k++)
			skipped |= strcmp(name, others[k]) == 0;
		for (int k = 0; k < lengthof(leader_s); k++)
			skipped |= !leads && strcmp(name, leader_s[k]) == 0;
		if (!skipped)
			dana_training_append(&text, given, i);
	}
	if (classes.count >= 0)
		dana_json_list(&text, "classes", &classes);
	/* it chooses rows of the shards; the leader's have labels alone */
	if (!leads && of->filter != NULL)
		dana_json_text(&text, "filter", of->filter);
	return dana_json_end(&text);
}

static Jsonb *
part_of(const spread *of, int number, Jsonb *introduction)
{
	StringInfoData text;

	dana_json_begin(&text);
	dana_json_text(&text, "mode", of->asked->sync);
	dana_json_number(&text, "number", number);
	dana_json_number(&text, "count", of->count);
	if (number > 0)
	{
		dana_json_truth(&text, "reports", true);
		dana_json_open(&text, "known", '{');
		dana_json_object(&text, "preprocess", dana_json_member(introduction, "preprocess"));
		dana_json_text(&text, "held_out", of->held_out);
		dana_json_close(&text, '}');
	}
	return dana_json_end(&text);
}

static char *
literal(Jsonb *value)
{
	return quote_literal_cstr(JsonbToCString(NULL, &value->root, VARSIZE(value)));
}

/* The statement that trains a shard's part */
static char *
follows(dana_relay *relay, const dana_shard *shard, Jsonb *introduction)
{
	const spread *of = relay->state;

	return psprintf("CALL dana.dana_train_part(%s::text, %s::regclass, %s::jsonb, %s::jsonb, %s::text, NULL::json)",
					quote_literal_cstr(of->asked->rule), quote_literal_cstr(shard->table),
					literal(arguments_of(of, introduction)),
					literal(part_of(of, (int)(shard - of->shards) + 1, introduction)),
					quote_literal_cstr(of->rule.text));
}

/* For the metadata of the model */
static void
record(const spread *of)
{
	StringInfoData text;

	dana_json_begin(&text);
	dana_json_text(&text, "source", dana_relation_name(of->asked->rows.relation));
	dana_json_open(&text, "shards", '[');
	for (int i = 0; i < of->count; i++)
	{
		dana_json_open(&text, NULL, '{');
		dana_json_number(&text, "shard", of->shards[i].number);
		dana_json_text(&text, "server", of->shards[i].server);
		dana_json_text(&text, "relation", of->shards[i].table);
		dana_json_text(&text, "snapshot", timestamptz_to_str(of->shards[i].snapshot));
		dana_json_close(&text, '}');
	}
	dana_json_close(&text, ']');
	dana_gathered_add(of->made, dana_json_end(&text), &(dana_texts){0});
}

/* Raises an error unless each shard can train a part */
static void
check_shards(const spread *of)
{
	for (int i = 0; i < of->count; i++)
	{
		const dana_shard *shard = &of->shards[i];

		if (shard->connection == NULL)
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("%s: with sync => '%s' this session leads, and cannot train a part, too", shard->label,
								   of->asked->sync),
							errhint("Name a foreign server for it that leads here. " HINT_GATHER)));
		if (shard->release == NULL || strcmp(shard->release, DANA_VERSION) != 0)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("%s has %s, and this server release " DANA_VERSION, shard->label,
								   shard->release == NULL ? "no extension dana"
														  : psprintf("release %s", dana_shown(shard->release))),
							errhint("Run CREATE EXTENSION dana there, of the same release. " HINT_GATHER)));
	}
}

/*
 * Creates a table with the shards' columns, domains as their base types: CHECKs would run as the caller. So would the
 * functions of types that are not PostgreSQL's own: `texts` makes them text
 */
static void
make_table(const spread *of, bool texts)
{
	StringInfoData columns;

	initStringInfo(&columns);
	for (int i = 0; i < of->columns->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(of->columns, i);
		int32			  typmod = column->atttypmod;
		Oid				  type = getBaseTypeAndTypmod(column->atttypid, &typmod);

		if (texts && type >= FirstGenbkiObjectId)
		{
			type = TEXTOID;
			typmod = -1;
		}
		if (!column->attisdropped)
			appendStringInfo(&columns, "%s%s %s", columns.len > 0 ? ", " : "", quote_identifier(NameStr(column->attname)),
							 format_type_extended(type, typmod, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
	}
	dana_run_once(psprintf("CREATE TEMPORARY TABLE %s (%s)", of->name, columns.data));
}

typedef struct leading
{
	Datum (*train)(void *training);
	dana_training *training;
} leading;

static Datum
lead(void *state)
{
	const leading *of = state;
	Datum		   row;

	/* this statement has made the rows that it reads */
	PushCopiedSnapshot(GetActiveSnapshot());
	UpdateActiveSnapshotCommandId();
	row = of->train(of->training);
	PopActiveSnapshot();
	return row;
}

/* Looks at the shards, and trains */
static Datum
train_spread(spread *of, Datum (*train)(void *training))
{
	dana_arguments arguments;
	dana_training  led;
	dana_relay	   relay = {.shards = of->shards, .count = of->count, .follows = follows, .state = of};
	Oid			   source = of->asked->rows.relation;
	double		   validation;

	dana_shards_open(of->shards, of->count, source, false);
	dana_shards_say_when(of->shards, of->count);
	check_shards(of);
	choose_columns(of);
	compare_keys(of);
	make_table(of, false);
	of->made = get_relname_relid(get_rel_name(source), LookupNamespaceNoError("pg_temp"));
	if (of->label != NULL && of->asked->classes.count < 0 && !dana_json_is_null(of->rule.description, "classes"))
		take_labels(of);
	validation = dana_split_validation(of->asked);
	if (of->asked->test_size > 0 || of->asked->test_after != NULL)
		of->split = leave_out(of, of->asked->test_size, true);
	if (validation > 0)
		(void)leave_out(of, validation, false);
	record(of);
	dana_arguments_from_json(dana_extension_function("dana_train"), arguments_of(of, NULL), &arguments);
	arguments.values[dana_argument(&arguments, "rule")] = CStringGetTextDatum(of->asked->rule);
	arguments.nulls[dana_argument(&arguments, "rule")] = false;
	arguments.values[dana_argument(&arguments, "source")] = ObjectIdGetDatum(of->made);
	arguments.nulls[dana_argument(&arguments, "source")] = false;
	dana_training_parse(&arguments, &led);
	led.part = part_of(of, 0, NULL);
	led.known = find_columns(of);
	led.leads = true;
	dana_split_known(&led);
	led.rows.given = source;
	return dana_relay_run(&relay, lead, &(leading){train, &led});
}

/* Reads the map, connected to SPI; a level of settings begins */
static int
begin(spread *of, Relation relation)
{
	const int level = NewGUCNestLevel();

	of->columns = RelationGetDescr(relation);
	of->name = quote_qualified_identifier("pg_temp", RelationGetRelationName(relation));
	/* operators are looked up in search_path: those that others have made would run as the caller */
	dana_set_for_now("search_path", "pg_catalog, pg_temp");
	dana_connect();
	of->count = dana_shards_of(RelationGetRelid(relation), dana_shards_timeout, &of->shards);
	return level;
}

/* Trains where the rows are */
static Datum
train_there(const dana_training *asked, Datum (*train)(void *training))
{
	spread		   of = {.asked = asked};
	Relation	   relation = dana_shards_lock(asked->rows.relation);
	volatile Datum row = (Datum)0;
	int			   level;

	check_options(asked);
	of.rule = dana_training_rule(asked);
	if (asked->filter != NULL)
		of.filter = dana_filter_elsewhere(relation, asked->filter);
	level = begin(&of, relation);
	PG_TRY();
	{
		row = train_spread(&of, train);
	}
	PG_FINALLY();
	{
		dana_shards_close(of.shards, of.count);
	}
	PG_END_TRY();
	dana_run_once(psprintf("DROP TABLE %s", of.name));
	SPI_finish();
	AtEOXact_GUC(false, level);
	relation_close(relation, NoLock);
	return row;
}

/* Gathers the rows, and trains here */
static Datum
train_gathered(dana_training *training, Datum (*train)(void *training))
{
	Datum row;

	training->rows.relation = dana_gather_shards(training->rows.relation, NULL, dana_shards_timeout, true);
	dana_split_rows(training, true);
	row = train(training);
	dana_connect();
	dana_run_once(psprintf("DROP TABLE %s", dana_relation_name(training->rows.relation)));
	SPI_finish();
	return row;
}

Datum
dana_train_shards(dana_training *training, Datum (*train)(void *training))
{
	/* rows will be left out */
	training->tried = training->test_size > 0 || training->test_after != NULL || dana_split_validation(training) > 0;
	return strcmp(training->sync, "gather") == 0 ? train_gathered(training, train) : train_there(training, train);
}

/* The machines that the shards are on; those reached by a socket of this one are on this one */
static int
count_hosts(const dana_shard *shards, int count)
{
	char **hosts = palloc(count * sizeof *hosts);
	int	   found = 0;

	for (int i = 0; i < count; i++)
	{
		char *host = "";
		int	  port, known = 0;

		if (shards[i].connection != NULL)
			walrcv_get_senderinfo(shards[i].connection, &host, &port);
		if (host == NULL || host[0] == '/' || host[0] == '@')
			host = "";
		while (known < found && strcmp(hosts[known], host) != 0)
			known++;
		hosts[known] = host;
		found = Max(found, known + 1);
	}
	return found;
}

/* Appends some rows of a shard to the sample; of types that are not PostgreSQL's own, as text */
static void
sample_shard(dana_shard *shard, Relation into)
{
	TupleDesc		columns = RelationGetDescr(into);
	const CommandId command = GetCurrentCommandId(true);
	Oid			   *types = palloc(sizeof *types * columns->natts);
	StringInfoData	wanted;
	dana_shard_rows found;

	initStringInfo(&wanted);
	for (int i = 0; i < columns->natts; i++)
	{
		const char *name = quote_identifier(NameStr(TupleDescAttr(columns, i)->attname));

		types[i] = TupleDescAttr(columns, i)->atttypid;
		/* by the type's output function: another role may have created a cast to text */
		appendStringInfo(&wanted, types[i] == TEXTOID ? "%sCASE pg_catalog.num_nulls(%s) WHEN 0 THEN pg_catalog.format('%%s', %s) END" : "%s%s",
						 i == 0 ? "" : ", ", name, name);
	}
	if (shard->connection == NULL)
	{
		const int level = NewGUCNestLevel();

		/* the author of the map chose the table: an error in the place of a policy, which would run as the caller */
		dana_set_for_now("row_security", "off");
		dana_run_once(psprintf("SELECT %s FROM %s LIMIT %d", wanted.data, shard->table, DANA_SHARD_SAMPLE));
		AtEOXact_GUC(false, level);
		for (uint64 i = 0; i < SPI_processed; i++)
			heap_insert(into, SPI_tuptable->vals[i], command, HEAP_INSERT_FROZEN, NULL);
		return;
	}
	found = dana_shard_select(shard, psprintf("SELECT %s FROM %s LIMIT %d", wanted.data, shard->table, DANA_SHARD_SAMPLE),
							  columns->natts, types, DANA_SHARD_SAMPLE);
	while (dana_shard_next(&found))
		heap_insert(into, ExecFetchSlotHeapTuple(found.slot, true, NULL), command, HEAP_INSERT_FROZEN, NULL);
}

/* Makes the table of the sample, with the shards' primary key where it has no key twice */
static Jsonb *
sample(const spread *of, dana_training *training)
{
	StringInfoData sizes;
	Relation	   into;
	double		   rows = 0, pages = 0;

	dana_shards_open(of->shards, of->count, training->rows.given, false);
	for (int i = 0; i < of->count; i++)
	{
		if (of->shards[i].rows < 0)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("%s: its rows have not been counted", of->shards[i].label),
							errhint("Run ANALYZE on it there; a view has no row count.")));
		rows += of->shards[i].rows;
		pages += of->shards[i].pages;
	}
	make_table(of, true);
	training->rows.relation =
		get_relname_relid(get_rel_name(training->rows.given), LookupNamespaceNoError("pg_temp"));
	into = relation_open(training->rows.relation, RowExclusiveLock);
	for (int i = 0; i < of->count; i++)
		sample_shard(&of->shards[i], into);
	relation_close(into, NoLock);
	if (of->shards[0].key[0] != '\0')
		dana_shards_index(of->name, of->shards[0].key);
	dana_json_begin(&sizes);
	dana_json_number(&sizes, "count", of->count);
	dana_json_number(&sizes, "hosts", count_hosts(of->shards, of->count));
	dana_json_number(&sizes, "rows", rows);
	dana_json_number(&sizes, "pages", pages);
	return dana_json_end(&sizes);
}

Jsonb *
dana_shards_sample(dana_training *training)
{
	spread		  of = {.asked = training};
	Relation	  relation = dana_shards_lock(training->rows.given);
	Jsonb *volatile sizes = NULL;
	const int	  level = begin(&of, relation);

	PG_TRY();
	{
		sizes = sample(&of, training);
	}
	PG_FINALLY();
	{
		dana_shards_close(of.shards, of.count);
	}
	PG_END_TRY();
	SPI_finish();
	AtEOXact_GUC(false, level);
	relation_close(relation, NoLock);
	return sizes;
}

void
dana_shards_forget(const dana_training *training)
{
	dana_connect();
	dana_run_once(psprintf("DROP TABLE %s", dana_relation_name(training->rows.relation)));
	SPI_finish();
}

#else

Jsonb *
dana_shards_sample(dana_training *training)
{
	(void)dana_train_shards(training, NULL);
	pg_unreachable();
}

void
dana_shards_forget(const dana_training *training)
{
}

Datum
dana_train_shards(dana_training *training, Datum (*train)(void *training))
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("argument \"sync\" needs PostgreSQL 17 or later"),
					errhint("Train with Python, db.train(…, shards=[…], sync=…), or with dana train --shard, for any version.")));
}

#endif
