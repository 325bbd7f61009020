/*
 * Access to the extension's own tables.
 *
 * Users have no right to write them. Our statements run as the tables' owner, with a fixed search_path, after the
 * caller's right to the row was checked.
 */
#pragma once

#include "executor/spi.h"

#define DANA_MAX_ARGUMENTS 10

/* A fixed statement; planned once per session */
typedef struct dana_statement
{
	const char *text;
	int			arguments;
	Oid			types[DANA_MAX_ARGUMENTS];
	SPIPlanPtr	plan;
} dana_statement;

/* Its text, and the types of its parameters */
#define DANA_STATEMENT(text, ...) {text, lengthof(((Oid[]){__VA_ARGS__})), {__VA_ARGS__}, NULL}

/* Who we were before we became the tables' owner */
typedef struct dana_identity
{
	Oid user;
	int security;
	int guc_level;
} dana_identity;

/* Sets a user's setting until AtEOXact_GUC() ends the level that NewGUCNestLevel() began, or the transaction */
extern void dana_set_for_now(const char *name, const char *value);

/* Connects to SPI, as SPI_connect(), and stays in the caller's memory context; SPI_finish() ends it */
extern void dana_connect(void);

/* Bracket around statements, connected; an error in between needs no clean-up, the transaction's abort does it */
extern dana_identity dana_become_owner(void);
extern void			 dana_become_caller(dana_identity before);

/* Runs a statement; returns the number of rows, which end with the connection; what is copied of them does not */
extern uint64 dana_run(dana_statement *statement, Datum *values, const char *nulls);

/* The same for a SELECT inside a query: on the query's snapshot, also in a parallel worker */
extern uint64 dana_read(dana_statement *statement, Datum *values, const char *nulls);

/* The same, seeing what other transactions committed until now, whatever the caller's isolation level */
extern uint64 dana_run_on_latest(dana_statement *statement, Datum *values);

/* Runs a statement that is not worth keeping */
extern void dana_run_once(const char *text);

/* Column `column` (from 1) of row `row` (from 0) of the last result; 0 for a NULL, which no pointer is */
extern Datum dana_value(uint64 row, int column);

/*
 * Reads with `read` before a training, and lets go of what it locked: a training may last for hours, and somebody may want
 * dana.model for itself. In the caller's memory context.
 */
extern void dana_peek(void (*read)(void *state), void *state);

/* Whether a role may use what belongs to `owner`, or may be used by the roles of the array `users`, too */
extern bool dana_may_use(Oid caller, Oid owner, Datum users);

/* OID of a table of schema dana */
extern Oid dana_catalog_table(const char *name);
