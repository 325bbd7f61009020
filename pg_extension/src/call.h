/*
 * Calls of the extension's SQL functions with arguments from a JSON object.
 */
#ifndef DANA_CALL_H
#define DANA_CALL_H

#include "postgres.h"

#include "utils/jsonb.h"
#include "utils/snapshot.h"

/*
 * Calls a function of the extension, which is in `schema`, with the rights of the caller and named arguments; those that
 * are not there have their defaults. Returns an array of its rows. It sees what `snapshot` sees, and what this transaction
 * wrote; InvalidSnapshot: what a new statement sees.
 */
extern Jsonb *dana_call(const char *schema, const char *function, Jsonb *arguments, Snapshot snapshot);

/* Raises the error that such a call would: there is no such function, or no such argument */
extern void dana_call_check(const char *schema, const char *function, Jsonb *arguments);

/* The one row of such an array */
extern Jsonb *dana_call_row(Jsonb *rows);

/* The arguments with the argument "model", "name@version", beside them */
extern Jsonb *dana_call_with_model(Jsonb *arguments, const char *name, int64 version);

#endif /* DANA_CALL_H */
