/*
 * A function's result as a set of rows.
 */
#ifndef DANA_RESULTS_H
#define DANA_RESULTS_H

#include "fmgr.h"
#include "nodes/execnodes.h"

/* Begins a result of so many columns; rows go to its setResult with tuplestore_putvalues() */
extern ReturnSetInfo *dana_results_begin(FunctionCallInfo fcinfo, const char *function, int columns);

#endif /* DANA_RESULTS_H */
