/*
 * The arguments of a call, by the names that its function declares; and results.
 */
#pragma once

#include "base/dana.h"

typedef struct dana_arguments
{
	Oid	   function;
	int	   count;
	char **names;
	Oid	  *types;
	Datum *values;
	bool  *nulls;
} dana_arguments;

/* Raises an error if one of the first `count` arguments of a call is NULL */
extern void dana_require_arguments(FunctionCallInfo fcinfo, int count);

extern void dana_arguments_of_call(FunctionCallInfo fcinfo, dana_arguments *arguments);

/* Takes arguments from an object's members; the others are NULL. An unknown name or a wrong type is an error */
extern void dana_arguments_from_json(Oid function, Jsonb *object, dana_arguments *arguments);

/* Raises an error if an argument is longer than any request to the worker, or a text that no client could read */
extern void dana_check_argument(const char *name, Oid type, Datum value);

/* Raises the error for an argument's value: what it must be, and what it is */
#define dana_reject_argument(name, ...) \
	dana_error(INVALID_PARAMETER_VALUE, "argument \"" name "\" must " __VA_ARGS__)

/* A text of at most so many bytes, with "..." after them if it was longer; and so for a caller's text in a message */
extern char *dana_cut(const char *text, int most);
extern char *dana_shown(const char *text);

/* The same without control characters, of what another server says: a terminal would obey them */
extern char *dana_plain(const char *text, int most);

/* Number of an argument by name, -1 if the function does not have it */
extern int dana_argument(const dana_arguments *arguments, const char *name);

/* Elements of argument `name`, at most 10,000 */
extern dana_texts dana_texts_of(const char *name, Datum value);
extern bool		  dana_is_one_of(const char *text, const dana_texts *texts);

/* A hint for an unknown name: "Perhaps you meant ...", or the list of all valid names */
extern char *dana_hint_of(const char *text, const dana_texts *texts);

/* Elements of an argument, none of them NULL */
extern dana_texts dana_argument_texts(const char *name, Datum value, bool isnull);

/* Makes the call if the current user has EXECUTE; returns an array of its rows */
extern Jsonb *dana_call(const dana_arguments *arguments);

/*
 * A function's result as a set of rows of the type that the calling statement expects; `nulls` NULL: no value is NULL
 */
extern ReturnSetInfo *dana_results_begin(FunctionCallInfo fcinfo);
extern void			  dana_results_add(ReturnSetInfo *result, Datum *values, bool *nulls);
