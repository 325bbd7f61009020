/*
 * A function's result as a set of rows.
 */
#pragma once

#include "nodes/execnodes.h"

/* Begins a result; its rows are those that the caller's statement expects */
extern ReturnSetInfo *dana_results_begin(FunctionCallInfo fcinfo);

/* Adds a row; `nulls` NULL: there are none */
extern void dana_results_add(ReturnSetInfo *result, Datum *values, bool *nulls);
