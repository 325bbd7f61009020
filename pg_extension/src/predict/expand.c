/*
 * dana.dana_expand_row(): the planner's support function of the functions that predict. It replaces a whole row among
 * their arguments by the row's columns, so that the executor does not form a tuple for each call.
 *
 * dana_predict(model, row) becomes dana_predict(model, names, column, ...), where `names` is a name[] that inputs.c
 * finds the model's columns in: only the execution knows the model.
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "nodes/supportnodes.h"
#include "parser/parsetree.h"
#include "utils/typcache.h"

#include "base/dana.h"
#include "base/extension.h"

/* Whether an outer join may make a NULL of a row of a table, where a row of NULLs would be another argument */
static bool
may_be_null(const PlannerInfo *root, const Var *row)
{
#if PG_VERSION_NUM >= 180000
	if (row->varreturningtype != VAR_RETURNING_DEFAULT) /* OLD of a row inserted, NEW of one deleted */
		return true;
#endif
#if PG_VERSION_NUM >= 160000
	return row->varnullingrels != NULL;
#else
	ListCell *cell;

	foreach (cell, root->parse->rtable)
	{
		const RangeTblEntry *entry = lfirst_node(RangeTblEntry, cell);

		if (entry->rtekind == RTE_JOIN && entry->jointype != JOIN_INNER)
			return true;
	}
	return false;
#endif
}

/* The values of a row's columns as expressions; NULL if they are not known. NIL in `colnames`: names are the type's. */
static List *
values_of(const PlannerInfo *root, Node *argument, TupleDesc type, List **colnames)
{
	List *values = NIL;

	*colnames = NIL;
	if (IsA(argument, RowExpr)) /* of a view or a subquery, or as the user wrote it */
	{
		*colnames = ((RowExpr *)argument)->colnames;
		return ((RowExpr *)argument)->args;
	}
	if (IsA(argument, Var) && ((Var *)argument)->varattno == InvalidAttrNumber && ((Var *)argument)->varlevelsup == 0)
	{
		const Var *row = (Var *)argument;

		if (rt_fetch(row->varno, root->parse->rtable)->rtekind != RTE_RELATION || may_be_null(root, row))
			return NIL;
		for (int i = 0; i < type->natts; i++)
		{
			const Form_pg_attribute column = TupleDescAttr(type, i);

			values = lappend(values, column->attisdropped
										 ? (Node *)makeNullConst(INT4OID, -1, InvalidOid)
										 : (Node *)makeVar(row->varno, i + 1, column->atttypid, column->atttypmod,
														   column->attcollation, 0));
		}
	}
	return values;
}

/* The call with columns in the place of the row that it has now; NULL: it stays as it is */
static FuncExpr *
expanded(const PlannerInfo *root, const FuncExpr *call)
{
	Node	 *argument = lsecond(call->args);
	const Oid row = exprType(argument);
	TupleDesc type;
	List	 *values, *colnames, *arguments = NIL;
	Datum	 *names;
	int		  count = 0;
	FuncExpr *result;

	/* a row that a grouping set leaves out is NULL */
	if (root->parse->groupingSets != NIL || !type_is_rowtype(row) || (row == RECORDOID && !IsA(argument, RowExpr)))
		return NULL;
	type = row == RECORDOID ? NULL : lookup_rowtype_tupdesc_domain(row, -1, false);
	values = values_of(root, argument, type, &colnames);
	if (type != NULL)
		colnames = NIL;
	if (values == NIL || list_length(values) != (type != NULL ? type->natts : list_length(colnames)) ||
		list_length(values) + 2 > FUNC_MAX_ARGS)
	{
		if (type != NULL)
			ReleaseTupleDesc(type);
		return NULL;
	}
	names = palloc(sizeof(Datum) * list_length(values));
	for (int i = 0; i < list_length(values); i++)
		if (type == NULL || !TupleDescAttr(type, i)->attisdropped)
		{
			const char *name = type == NULL ? strVal(list_nth(colnames, i)) : NameStr(TupleDescAttr(type, i)->attname);

			names[count++] = DirectFunctionCall1(namein, CStringGetDatum(name));
			arguments = lappend(arguments, list_nth(values, i));
		}
	if (type != NULL)
		ReleaseTupleDesc(type);
	result = makeNode(FuncExpr);
	*result = *call;
	result->args = list_concat(list_make2(linitial(call->args),
										  makeConst(NAMEARRAYOID, -1, InvalidOid, -1,
													PointerGetDatum(construct_array(names, count, NAMEOID, NAMEDATALEN,
																					false, TYPALIGN_CHAR)),
													false, false)),
							   arguments);
	return result;
}

/* dana.dana_expand_row(request) */
DANA_FUNCTION(dana_expand_row)
{
	const SupportRequestSimplify *request = (SupportRequestSimplify *)PG_GETARG_POINTER(0);

	if (!IsA(request, SupportRequestSimplify) || request->root == NULL || list_length(request->fcall->args) != 2)
		PG_RETURN_POINTER(NULL);
	PG_RETURN_POINTER(expanded(request->root, request->fcall));
}
