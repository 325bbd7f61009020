/*
 * Code shared by the aggregates over labels and predictions.
 */
#pragma once

/*
 * Whether a row counts; and an aggregate's state, created for the first row that does. NULL, as the result: no row did
 */
extern bool dana_metrics_row(FunctionCallInfo fcinfo, Size size, void *state, MemoryContext *context);

/* null if it is not known; a string, as in jsonb, if it is not finite */
extern void dana_append_metric(StringInfo to, const char *name, bool known, double number);
extern void dana_append_ratio(StringInfo to, const char *name, double part, double whole);
