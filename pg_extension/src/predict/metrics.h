/*
 * What aggregates over labels and predictions have in common.
 */
#pragma once

/* Whether a row counts; and an aggregate's state, made with the first one that does. NULL, as the result: none has */
extern bool dana_metrics_row(FunctionCallInfo fcinfo, Size size, void *state, MemoryContext *context);

/* null where it is not known; as jsonb has it, a string where it is not finite */
extern void dana_append_metric(StringInfo to, const char *name, bool known, double number);
extern void dana_append_ratio(StringInfo to, const char *name, double part, double whole);
