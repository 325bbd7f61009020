/*
 * What every file of the extension may need: PostgreSQL's headers after postgres.h, and ours that know nothing of
 * trainings.
 */
#pragma once

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"

/* Raises an error that a code and a message say */
#define dana_error(code, ...) ereport(ERROR, (errcode(ERRCODE_##code), errmsg(__VA_ARGS__)))

/* extension.c: the extension as it is installed in this database */

/* Raises an error unless the functions of this database were made by the script that belongs to this library */
extern void dana_check_version(void);

/* A function for users, by identity: who may create in that schema can make others of its name */
extern Oid dana_extension_function(const char *name);

/* Its name for our statements, qualified and quoted; they give it exactly the types that it declares */
extern char *dana_extension_name(const char *name);

/* Raises an error unless the current user may call it */
extern void dana_require_execute(Oid function);

/* Entry point of an SQL function: each one checks first that script and library belong together */
#define DANA_FUNCTION(name) DANA_ENTRY_POINT(name, (void)0)

/* The same of one that writes */
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

/*
 * The extension's own tables. Users have no right to write them. Our statements run as the tables' owner,
 * with a fixed search_path, after the caller's right to the row was checked.
 */

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

/*
 * Runs a statement; returns the number of rows, which end with the connection; what is copied of them does not.
 * dana_read() is for a SELECT inside a query: on the query's snapshot, also in a parallel worker. dana_run_on_latest()
 * sees what other transactions committed until now, whatever the caller's isolation level.
 */
extern uint64 dana_execute(dana_statement *statement, Datum *values, const char *nulls, Snapshot snapshot,
						   bool read_only);

#define dana_run(statement, values, nulls) dana_execute(statement, values, nulls, InvalidSnapshot, false)
#define dana_read(statement, values, nulls) dana_execute(statement, values, nulls, InvalidSnapshot, true)
#define dana_run_on_latest(statement, values) dana_execute(statement, values, NULL, GetLatestSnapshot(), true)

/* Runs a statement that is not worth keeping */
extern void dana_run_once(const char *text);

/* Column `column` (from 1) of row `row` (from 0) of the last result; 0 for a NULL, which no pointer is */
extern Datum dana_value(uint64 row, int column);

/*
 * Runs in a subtransaction, in the caller's memory context and for its resource owner. Returns the error that ended it,
 * or NULL. What an attempt wrote stays only if it had no error and `keep` is set. The caller raises errors that are not
 * its own again, with ReThrowError().
 */
extern ErrorData *dana_attempt(void (*run)(void *state), void *state, bool keep);

/*
 * Reads with `read` before a training, and lets go of what it locked: a training may last for hours, and somebody may
 * want dana.model for itself. In the caller's memory context.
 */
extern void dana_peek(void (*read)(void *state), void *state);

/* Whether a role may use what belongs to `owner`, or may be used by the roles of the array `users`, too */
extern bool dana_may_use(Oid caller, Oid owner, Datum users);

/* role.c: an error where there is no such role */
extern void dana_require_role(Oid role);

extern Oid dana_catalog_table(const char *name); /* of schema dana */

/* arguments.c: the arguments of a call, by the names that its function declares; and results */

typedef struct dana_arguments
{
	Oid	   function;
	int	   count;
	char **names;
	Oid	  *types;
	Datum *values;
	bool  *nulls;
} dana_arguments;

/* Raises an error where one of the first `count` arguments of a call is NULL */
extern void dana_require_arguments(FunctionCallInfo fcinfo, int count);

extern void dana_arguments_of_call(FunctionCallInfo fcinfo, dana_arguments *arguments);

/* Those that an object's members give; the others are NULL. An error where one is no argument, or not of its type */
extern void dana_arguments_from_json(Oid function, Jsonb *object, dana_arguments *arguments);

/* Raises an error where an argument is longer than any request for a worker, before its text is read */
extern void dana_check_size(const char *name, Datum value);

/* Raises the error for an argument's value: what it must be, and what it is */
#define dana_refuse_argument(name, ...) \
	dana_error(INVALID_PARAMETER_VALUE, "argument \"" name "\" must " __VA_ARGS__)

/* Number of an argument by name, -1 where the function has none of it */
extern int dana_argument(const dana_arguments *arguments, const char *name);

/* Elements of a text[] */
typedef struct dana_texts
{
	int	   count;  /* -1: it is NULL itself */
	char **values; /* NULL where one is */
} dana_texts;

/* Those of argument `name`, of which there may be 10,000 */
extern dana_texts dana_texts_of(const char *name, Datum value);
extern bool		  dana_is_one_of(const char *text, const dana_texts *texts);

/* A hint of what there is instead of a text that is none of some: "Perhaps you meant ...", or all of them */
extern char *dana_hint_of(const char *text, const dana_texts *texts);

/* Those of an argument, of which none may be NULL */
extern dana_texts dana_argument_texts(const char *name, Datum value, bool isnull);

/* Makes the call, if the current user may; returns an array of its rows */
extern Jsonb *dana_call(const dana_arguments *arguments);

/* A function's result as a set of rows, those that the caller's statement expects; `nulls` NULL: there are none */
extern ReturnSetInfo *dana_results_begin(FunctionCallInfo fcinfo);
extern void			  dana_results_add(ReturnSetInfo *result, Datum *values, bool *nulls);

/* notices.c: what is told of a training's data; `hint` may be NULL */

/* Holds what is told back, and then tells it or forgets it */
extern void dana_notices_hold(void);
extern void dana_notices_let_go(bool tell);
extern void dana_notice(int level, const char *hint, const char *format, ...) pg_attribute_printf(3, 4);
extern void dana_notices_merge(void); /* for the rest of the statement each thing comes once */
extern void dana_notices_about(const char *model); /* what follows is of one of many; NULL: no longer */
extern void dana_notices_keep(void);  /* in this process, which is a job's */
extern Datum dana_notices_kept(void); /* text[] */

/* json.c */

/* Raises the error for what the worker did: "sent ...", "asked for ..." */
#define dana_protocol_error(...) dana_error(PROTOCOL_VIOLATION, "the dana worker " __VA_ARGS__)

/* Reads a JSON object; anything else is a protocol error */
extern Jsonb *dana_json_parse(const char *text);

/* Raises an error where an argument's JSON is nested too deeply, or has a number that no double holds */
extern void dana_json_check_argument(const char *name, Jsonb *value);

/* Members of an object: "" where a string, 0 where a number is missing or null */
extern char	 *dana_json_string(Jsonb *object, const char *key);
extern int64  dana_json_integer(Jsonb *object, const char *key);
extern double dana_json_double(Jsonb *object, const char *key);
extern bool	  dana_json_boolean(Jsonb *object, const char *key);
extern bool	  dana_json_is_null(Jsonb *object, const char *key);
extern Jsonb *dana_json_member(Jsonb *object, const char *key);
extern dana_texts dana_json_texts(Jsonb *object, const char *key); /* count -1 where it is null */
extern int dana_json_integers(Jsonb *object, const char *key, int **values); /* returns how many there are */

/* The same of what others than the worker wrote: whether there is such an array; its elements, -1 where it is none */
extern dana_texts dana_json_keys(Jsonb *object);
extern bool dana_json_are_texts(Jsonb *object, const char *key);
extern int dana_json_floats(Jsonb *object, const char *key, float **values);
extern int dana_json_objects(Jsonb *object, const char *key, Jsonb ***values); /* 0 where it is null */
extern char *dana_json_scalar(Jsonb *object, const char *key); /* a string, or a number's text */

/*
 * Writing: each appends a member of the object that is open, or with key NULL an element of the array; commas come by
 * themselves. Text is in the database's encoding. What is NULL is written as null.
 */
extern void dana_json_begin(StringInfo to); /* makes an empty text with an object that is open */
extern void dana_json_open(StringInfo to, const char *key, char bracket);
extern void dana_json_close(StringInfo to, char bracket);
extern Jsonb *dana_json_end(StringInfo to); /* closes what dana_json_begin() made, and reads it */
extern void dana_json_text(StringInfo to, const char *key, const char *value);
extern void dana_json_number(StringInfo to, const char *key, double value); /* finite; whole ones as such */
extern void dana_json_truth(StringInfo to, const char *key, bool value);
extern void dana_json_object(StringInfo to, const char *key, Jsonb *value);
extern void dana_json_list(StringInfo to, const char *key, const dana_texts *texts);
