/*
 * Roles that are granted something, and the type of columns that name roles: a regrole of which pg_dump writes what it can read again.
 *
 * Of a role that was dropped a regrole is a number, and where that is restored it would stand for whoever has the number
 * there. Read as one of these it stands for nobody.
 */
#include "postgres.h"

#include "utils/syscache.h"

#include "base/dana.h"
#include "base/role.h"

/* Of numbers that were read: PostgreSQL counts roles from below */
#define NOBODY (UINT32_C(1) << 31)

void
dana_require_role(Oid role)
{
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role)))
		dana_error(UNDEFINED_OBJECT, "role with OID %u does not exist", role);
}

/* As part of a type they are called by dumps of any release of the script, too: neither asks for its version */
PG_FUNCTION_INFO_V1(dana_role_in);
PG_FUNCTION_INFO_V1(dana_role_out);

Datum
dana_role_in(PG_FUNCTION_ARGS)
{
	const char *text = PG_GETARG_CSTRING(0);

	if (*text != '\0' && text[strspn(text, "0123456789")] == '\0')
		PG_RETURN_OID(DatumGetObjectId(DirectFunctionCall1(oidin, CStringGetDatum(text))) | NOBODY);
	return DirectFunctionCall1(regrolein, CStringGetDatum(text));
}

Datum
dana_role_out(PG_FUNCTION_ARGS)
{
	return DirectFunctionCall1(regroleout, PG_GETARG_DATUM(0));
}
