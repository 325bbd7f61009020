/*
 * Rows of a query, and rows of a table that satisfy a condition.
 *
 * The executor's rows go to a receiver: no row is kept, none is copied. A query runs read-only, never in parallel, and
 * under the snapshot of the calling statement, so that every epoch sees the same rows in the same order.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parse_collate.h"
#include "parser/parse_expr.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "rewrite/rewriteHandler.h"
#include "tcop/dest.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/ruleutils.h"

#include "base/dana.h"
#include "base/extension.h"
#include "limits/bounds.h"
#include "rows/rows.h"

struct dana_rows
{
	SPIPlanPtr	plan;
	const char *name;
	bool		in_order;
};

static CachedPlanSource *
source_of(dana_rows *rows)
{
	return linitial(SPI_plan_get_plan_sources(rows->plan));
}

static Query *
query_of(dana_rows *rows)
{
	return linitial_node(Query, source_of(rows)->query_list);
}

dana_rows *
dana_rows_plan(const char *text, const char *name, bool in_order)
{
	dana_rows	 *rows = palloc0(sizeof *rows);
	MemoryContext caller = CurrentMemoryContext;

	rows->name = name;
	rows->in_order = in_order;
	rows->plan = SPI_prepare_cursor(text, 0, NULL, CURSOR_OPT_NO_SCROLL);
	MemoryContextSwitchTo(caller); /* SPI's calls leave a context that ends with the connection */
	if (rows->plan == NULL)
		dana_error(FEATURE_NOT_SUPPORTED, "cannot train on %s: %s", name, SPI_result_code_string(SPI_result));
	if (list_length(SPI_plan_get_plan_sources(rows->plan)) != 1 || !SPI_is_cursor_plan(rows->plan) ||
		source_of(rows)->commandTag != CMDTAG_SELECT)
		ereport(ERROR, (errcode(ERRCODE_SYNTAX_ERROR), errmsg("cannot train on %s: it is not one SELECT", name),
						errhint("Give one SELECT, VALUES or TABLE.")));
	if (query_of(rows)->hasModifyingCTE || query_of(rows)->rowMarks != NIL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("cannot train on %s: it changes or locks rows", name),
						errhint("Give a SELECT that only reads.")));
	return rows;
}

TupleDesc
dana_rows_descriptor(dana_rows *rows)
{
	return source_of(rows)->resultDesc;
}

/* TABLESAMPLE without REPEATABLE returns other rows each time */
static bool
samples_at_random(Query *query)
{
	ListCell *cell;

	foreach (cell, query->rtable)
	{
		RangeTblEntry *entry = lfirst_node(RangeTblEntry, cell);

		if (entry->tablesample != NULL && entry->tablesample->repeatable == NULL)
			return true;
		if (entry->rtekind == RTE_SUBQUERY && samples_at_random(entry->subquery))
			return true;
	}
	foreach (cell, query->cteList)
		if (samples_at_random(castNode(Query, lfirst_node(CommonTableExpr, cell)->ctequery)))
			return true;
	return false;
}

bool
dana_rows_volatile(dana_rows *rows)
{
	return contain_volatile_functions((Node *)query_of(rows)) || samples_at_random(query_of(rows));
}

/* A receiver of rows; the executor requires its first member */
typedef struct rows_taking
{
	DestReceiver receiver;
	bool (*take)(TupleTableSlot *row, void *context);
	void *context;
} rows_taking;

static bool
rows_take_one(TupleTableSlot *row, DestReceiver *self)
{
	rows_taking *to = (rows_taking *)self;

	dana_bounds_check();
	return to->take(row, to->context);
}

void
dana_rows_each(dana_rows *rows, uint64 limit, bool (*take)(TupleTableSlot *row, void *context), void *context)
{
	static const char *const other_orders[] = {"enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"};
	rows_taking		  to = {*None_Receiver, take, context}; /* the executor calls it at the beginning and the end */
	SPIExecuteOptions options = {.read_only = true, .tcount = limit, .dest = &to.receiver};
	MemoryContext	  caller = CurrentMemoryContext;
	int				  level = NewGUCNestLevel();
	int				  code;

	to.receiver.receiveSlot = rows_take_one;
	/* a synchronized scan would begin in the middle of the table, at a different place each time */
	dana_set_for_now("synchronize_seqscans", "off");
	for (int i = 0; i < lengthof(other_orders) && rows->in_order; i++)
		dana_set_for_now(other_orders[i], "off");
	code = SPI_execute_plan_extended(rows->plan, &options);
	MemoryContextSwitchTo(caller);
	if (code < 0)
		elog(ERROR, "could not run the query of %s: %s", rows->name, SPI_result_code_string(code));
	AtEOXact_GUC(true, level);
}

/* A condition */

struct dana_filter
{
	EState		   *state;
	ExprState	   *expression;
	TupleTableSlot *slot;
};

static void
check_shape(bool right)
{
	if (!right)
		ereport(ERROR, (errcode(ERRCODE_SYNTAX_ERROR),
						errmsg("argument \"filter\" must be one expression, such as what follows WHERE"),
						errhint("For instance filter => 'age > 18 AND city IS NOT NULL'.")));
}

/* Errors of the parser show a position in the filter's text, not in the statement that contains it */
static void
point_into_filter(void *text)
{
	int position = geterrposition();

	if (position <= 0)
		return;
	errposition(0);
	internalerrposition(position);
	internalerrquery(text);
}

/* The expression in a text: PL/pgSQL's parser also accepts a whole SELECT without its first word */
static Node *
filter_parse(const char *text)
{
	List	   *parsed = raw_parser(text, RAW_PARSE_PLPGSQL_EXPR);
	SelectStmt	plain = {.type = T_SelectStmt}; /* no other clause */
	SelectStmt *select;
	ResTarget  *target;

	check_shape(list_length(parsed) == 1 && IsA(linitial_node(RawStmt, parsed)->stmt, SelectStmt));
	select = (SelectStmt *)linitial_node(RawStmt, parsed)->stmt;
	plain.targetList = select->targetList;
	check_shape(list_length(select->targetList) == 1 && equal(select, &plain));
	target = linitial_node(ResTarget, select->targetList);
	check_shape(target->name == NULL && target->indirection == NIL);
	return target->val;
}

void
dana_filter_check(const char *text)
{
	ErrorContextCallback context = {error_context_stack, point_into_filter, unconstify(char *, text)};

	error_context_stack = &context;
	(void)filter_parse(text);
	error_context_stack = context.previous;
}

/* The expression in a text, over the columns of a table */
static Node *
filter_transform(Relation relation, const char *text)
{
	ErrorContextCallback context = {error_context_stack, point_into_filter, unconstify(char *, text)};
	ParseState			*state = make_parsestate(NULL);
	ParseNamespaceItem	*table = addRangeTableEntryForRelation(state, relation, AccessShareLock, NULL, false, true);
	Node				*expression;

	error_context_stack = &context;
	state->p_sourcetext = text;
	addNSItemToQuery(state, table, true, true, true);
	expression = transformExpr(state, filter_parse(text), EXPR_KIND_WHERE);
	expression = coerce_to_boolean(state, expression, "filter");
	assign_expr_collations(state, expression);
	error_context_stack = context.previous;
	if (state->p_hasSubLinks)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("argument \"filter\" must not contain a subquery"),
						errhint("Use query => 'SELECT ...' instead of a table and a filter.")));
	if (contain_volatile_functions(expression))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("argument \"filter\" must not contain volatile functions"),
						errdetail("Each epoch evaluates it again, and must see the same rows."),
						errhint("dana_holdout(ctid, 0.2, 1) chooses rows at random in the same way each time.")));
	free_parsestate(state);
	return expression;
}

dana_filter *
dana_filter_compile(Relation relation, const char *text)
{
	dana_filter	 *filter = palloc0(sizeof *filter);
	Node		 *expression = filter_transform(relation, text);
	MemoryContext caller;

#if PG_VERSION_NUM >= 180000
	expression = expand_generated_columns_in_expr(expression, relation, 1);
#endif
	filter->state = CreateExecutorState();
	caller = MemoryContextSwitchTo(filter->state->es_query_cxt);
	filter->expression = ExecPrepareExpr((Expr *)expression, filter->state);
	filter->slot = MakeSingleTupleTableSlot(RelationGetDescr(relation), &TTSOpsHeapTuple);
	MemoryContextSwitchTo(caller);
	GetPerTupleExprContext(filter->state)->ecxt_scantuple = filter->slot;
	return filter;
}

static bool
is_made_here(Oid object, void *context)
{
	return object >= FirstGenbkiObjectId;
}

/*
 * Whether an expression has a function or a type that not every server has. PostgreSQL does not count what a domain
 * checks, and what compares rows, among functions: so kinds of nodes are listed that have neither.
 */
static bool
has_made_here(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_List:
		case T_CaseWhen:
			break;
		case T_Var: /* a column; of an enum, too: PostgreSQL's own functions compare those */
		{
			const Oid type = getBaseType(((Var *)node)->vartype);

			if (((Var *)node)->varattno <= 0 || (is_made_here(type, NULL) && !type_is_enum(type)))
				return true;
			break;
		}
		case T_Const:
		case T_FuncExpr:
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
		case T_ScalarArrayOpExpr:
		case T_BoolExpr:
		case T_RelabelType:
		case T_CoerceViaIO:
		case T_ArrayCoerceExpr:
		case T_CaseExpr:
		case T_CaseTestExpr:
		case T_ArrayExpr:
		case T_CoalesceExpr:
		case T_MinMaxExpr:
		case T_NullTest:
		case T_BooleanTest:
			if (is_made_here(exprType(node), NULL))
				return true;
			break;
		default:
			return true;
	}
	return check_functions_in_node(node, is_made_here, NULL) || expression_tree_walker(node, has_made_here, context);
}

char *
dana_filter_elsewhere(Relation relation, const char *text)
{
	Node *expression = filter_transform(relation, text);
	int	  level = NewGUCNestLevel();
	char *deparsed;

	if (contain_mutable_functions(expression) || has_made_here(expression, NULL))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("argument \"filter\" must have immutable functions of PostgreSQL alone with \"sync\""),
						errdetail("Another server evaluates it, with the rights of your user mapping."),
						errhint("Compare columns with constants, or make a view with these rows there.")));
	/* as dana_shard_look() has them there */
	dana_set_for_now("search_path", "pg_catalog");
	dana_set_for_now("datestyle", "ISO");
	dana_set_for_now("intervalstyle", "postgres");
	dana_set_for_now("extra_float_digits", "3");
	deparsed = deparse_expression(expression, deparse_context_for(RelationGetRelationName(relation), RelationGetRelid(relation)),
								  false, false);
	AtEOXact_GUC(false, level);
	return deparsed;
}

bool
dana_filter_passes(dana_filter *filter, HeapTuple tuple)
{
	ExprContext *context = GetPerTupleExprContext(filter->state);
	bool		 isnull;
	Datum		 value;

	ExecStoreHeapTuple(tuple, filter->slot, false);
	value = ExecEvalExprSwitchContext(filter->expression, context, &isnull);
	ResetExprContext(context);
	return !isnull && DatumGetBool(value);
}

void
dana_filter_free(dana_filter *filter)
{
	ExecDropSingleTupleTableSlot(filter->slot);
	FreeExecutorState(filter->state);
}
