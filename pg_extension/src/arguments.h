/*
 * The arguments of a call, by the names that its function declares: from SQL, or from a JSON object.
 */
#pragma once

#include "fmgr.h"
#include "utils/jsonb.h"

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

/* Those of the call that is being made */
extern void dana_arguments_of_call(FunctionCallInfo fcinfo, dana_arguments *arguments);

/* Those that the members of an object give; the others are NULL. An error where a member is no argument, or none of its type. */
extern void dana_arguments_from_json(Oid function, Jsonb *object, dana_arguments *arguments);

/* Number of an argument by name, -1 where the function has none of it */
extern int dana_argument(const dana_arguments *arguments, const char *name);

/* Elements of a text[] */
typedef struct dana_texts
{
	int	   count;  /* -1: it is NULL itself */
	char **values; /* NULL where one is */
} dana_texts;

extern dana_texts dana_texts_of(Datum array);

/* Those of an argument, of which none may be NULL */
extern dana_texts dana_argument_texts(const char *name, Datum value, bool isnull);

/* Makes the call, if the current user may; returns an array of its rows */
extern Jsonb *dana_call(const dana_arguments *arguments);
