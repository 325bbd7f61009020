/*
 * A condition on rows, written by the caller of dana_train(): the text checked, and the expression evaluated.
 */
#pragma once

#include "access/htup.h"
#include "utils/relcache.h"

typedef struct dana_filter dana_filter;

/* Raises an error unless the text is one expression, so that it may stand between parentheses in a statement */
extern void dana_filter_check(const char *text);

/* Compiles an expression over the columns of a table, with the caller's rights */
extern dana_filter *dana_filter_compile(Relation relation, const char *text);

/* Whether a tuple passes: true, not false or NULL. Call it with no buffer locked: it may run functions of users. */
extern bool dana_filter_passes(dana_filter *filter, HeapTuple tuple);

extern void dana_filter_free(dana_filter *filter);
