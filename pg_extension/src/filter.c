/*
 * A condition on rows.
 */
#include "postgres.h"

#include "access/table.h"
#include "executor/tuptable.h"
#include "nodes/parsenodes.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parse_collate.h"
#include "parser/parse_expr.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "rewrite/rewriteHandler.h"

#include "dana.h"
#include "filter.h"

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

/* Errors of the parser point into the filter's text, and not into the statement that it is an argument of */
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

/* The expression in a text: what PL/pgSQL calls one may be a whole SELECT without its first word */
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

dana_filter *
dana_filter_compile(Relation relation, const char *text)
{
	dana_filter			*filter = palloc0(sizeof *filter);
	ErrorContextCallback context = {error_context_stack, point_into_filter, unconstify(char *, text)};
	ParseState			*state = make_parsestate(NULL);
	ParseNamespaceItem	*table = addRangeTableEntryForRelation(state, relation, AccessShareLock, NULL, false, true);
	Node				*expression;
	MemoryContext		 caller;

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
#if PG_VERSION_NUM >= 180000
	expression = expand_generated_columns_in_expr(expression, relation, 1);
#endif
	free_parsestate(state);

	filter->state = CreateExecutorState();
	caller = MemoryContextSwitchTo(filter->state->es_query_cxt);
	filter->expression = ExecPrepareExpr((Expr *)expression, filter->state);
	filter->slot = MakeSingleTupleTableSlot(RelationGetDescr(relation), &TTSOpsHeapTuple);
	MemoryContextSwitchTo(caller);
	GetPerTupleExprContext(filter->state)->ecxt_scantuple = filter->slot;
	return filter;
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
