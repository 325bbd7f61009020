/*
 * The arguments of a call, by the names that its function declares: from SQL, or from a JSON object.
 */
#ifndef DANA_ARGUMENTS_H
#define DANA_ARGUMENTS_H

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

/* Those of the call that is being made */
extern void dana_arguments_of_call(FunctionCallInfo fcinfo, dana_arguments *arguments);

/* Those that the members of an object give; the others are NULL. An error where a member is no argument, or none of its type. */
extern void dana_arguments_from_json(Oid function, Jsonb *object, dana_arguments *arguments);

/* Number of an argument by name, -1 where the function has none of it */
extern int dana_argument(const dana_arguments *arguments, const char *name);

/* Elements of a text[], none of them NULL; returns how many, -1 for NULL */
extern int dana_argument_texts(const char *name, Datum value, bool isnull, char ***texts);

/* Makes the call, if the current user may; returns an array of its rows */
extern Jsonb *dana_call(const dana_arguments *arguments);

#endif /* DANA_ARGUMENTS_H */
