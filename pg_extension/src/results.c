/*
 * A function's result as a set of rows that is built as a whole; InitMaterializedSRF() of 15 and later.
 */
#include "postgres.h"

#include "utils/tuplestore.h"

#include "dana.h"
#include "results.h"

ReturnSetInfo *
dana_results_begin(FunctionCallInfo fcinfo, const char *function, int columns)
{
	ReturnSetInfo *result = (ReturnSetInfo *)fcinfo->resultinfo;
	MemoryContext  caller;
	TupleDesc	   descriptor;

	if (result == NULL || !IsA(result, ReturnSetInfo) || !(result->allowedModes & SFRM_Materialize))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("%s must be called in FROM", function)));
	caller = MemoryContextSwitchTo(result->econtext->ecxt_per_query_memory);
	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE || descriptor->natts != columns)
		elog(ERROR, "%s must return rows of %d columns", function, columns);
	result->returnMode = SFRM_Materialize;
	result->setResult = tuplestore_begin_heap(true, false, work_mem);
	result->setDesc = descriptor;
	MemoryContextSwitchTo(caller);
	return result;
}
