/*
 * The extension as it is installed in this database, and statements on its own tables.
 */
#pragma once

/* Raises an error unless the functions of this database were made by the script that belongs to this library */
extern void dana_check_version(void);

/* A function for users, by identity: any role with CREATE on that schema can make others of its name */
extern Oid dana_extension_function(const char *name);

/* Its name for the extension's statements, qualified and quoted; they pass exactly the declared types */
extern char *dana_extension_name(const char *name);

/* Raises an error unless the current user has EXECUTE */
extern void dana_require_execute(Oid function);

/* Entry point of an SQL function, which first checks that script and library belong together */
#define DANA_FUNCTION(name) DANA_ENTRY_POINT(name, (void)0)

/* The same for a function that writes */
#define DANA_COMMAND(name) DANA_ENTRY_POINT(name, PreventCommandIfReadOnly(#name "()"))

#define DANA_ENTRY_POINT(name, check) \
	static Datum name##_checked(PG_FUNCTION_ARGS); \
	PG_FUNCTION_INFO_V1(name); \
	Datum name(PG_FUNCTION_ARGS) \
	{ \
		dana_check_version(); \
		check; \
		return name##_checked(fcinfo); \
	} \
	static Datum name##_checked(PG_FUNCTION_ARGS)

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

/* The identity to restore after statements run as the tables' owner */
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

/*
 * Runs a statement and returns the number of rows, which live until the connection ends. dana_read() is for a SELECT
 * inside a query: it uses the query's snapshot, also in a parallel worker. dana_run_on_latest() sees what other
 * transactions have committed until now, regardless of the caller's isolation level.
 */
extern uint64 dana_execute(dana_statement *statement, Datum *values, const char *nulls, Snapshot snapshot,
						   bool read_only);

#define dana_run(statement, values, nulls) dana_execute(statement, values, nulls, InvalidSnapshot, false)
#define dana_read(statement, values, nulls) dana_execute(statement, values, nulls, InvalidSnapshot, true)
#define dana_run_on_latest(statement, values) dana_execute(statement, values, NULL, GetLatestSnapshot(), true)

/* Runs a statement without keeping its plan */
extern void dana_run_once(const char *text);

/* Column `column` (from 1) of row `row` (from 0) of the last result; 0 for a NULL, which no pointer is */
extern Datum dana_value(uint64 row, int column);

/*
 * Runs in a subtransaction, in the caller's memory context and resource owner. Returns the error that ended it, or
 * NULL. Its writes are kept only if there was no error and `keep` is set. The caller re-raises other errors with
 * ReThrowError().
 */
extern ErrorData *dana_attempt(void (*run)(void *state), void *state, bool keep);

/*
 * Calls `read` before a training and releases the locks that it took: a training may last for hours, and another
 * session may need an exclusive lock on dana.model. Runs in the caller's memory context.
 */
extern void dana_peek(void (*read)(void *state), void *state);

/* Whether a role may use the objects of `owner`, or of the roles in the array `users` */
extern bool dana_may_use(Oid caller, Oid owner, Datum users);

extern Oid dana_catalog_table(const char *name); /* in schema dana */
