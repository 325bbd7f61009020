/*
 * The extension as it is installed in this database: which version, in which schema, and its functions by identity.
 */
#pragma once

#include "fmgr.h"

/* Raises an error unless the functions of this database were made by the script that belongs to this library */
extern void dana_check_version(void);

/*
 * A function for users. By identity: others who may create in that schema can make functions of the same name, which
 * a call by its name could take.
 */
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
