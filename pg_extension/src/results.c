/*
 * A function's result as a set of rows that is built as a whole; InitMaterializedSRF() of 15 and later.
 */
#include "postgres.h"

#include "utils/tuplestore.h"

#include "dana.h"
#include "results.h"

ReturnSetInfo *
dana_results_begin(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *result = (ReturnSetInfo *)fcinfo->resultinfo;
	MemoryContext  caller;

	if (result == NULL || !IsA(result, ReturnSetInfo) || !(result->allowedModes & SFRM_Materialize))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("%s() must be called in FROM", get_func_name(fcinfo->flinfo->fn_oid))));
	caller = MemoryContextSwitchTo(result->econtext->ecxt_per_query_memory);
	result->returnMode = SFRM_Materialize;
	result->setResult = tuplestore_begin_heap(true, false, work_mem);
	result->setDesc = CreateTupleDescCopy(result->expectedDesc);
	MemoryContextSwitchTo(caller);
	return result;
}

void
dana_results_add(ReturnSetInfo *result, Datum *values, bool *nulls)
{
	static bool none[MaxTupleAttributeNumber];

	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls != NULL ? nulls : none);
}
