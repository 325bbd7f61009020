/*
 * Roles that are granted something, and the type of columns that name roles: a regrole that survives dump and restore.
 *
 * A dropped role is dumped as its number, which might be another role's where the dump is restored. This type reads
 * such a number as a role that does not exist.
 */
#include "postgres.h"

#include "utils/syscache.h"

#include "base/dana.h"
#include "base/role.h"

/* Marks numbers that were read: PostgreSQL assigns OIDs of roles from below */
#define NO_ROLE (UINT32_C(1) << 31)

void
dana_require_role(Oid role)
{
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role)))
		dana_error(UNDEFINED_OBJECT, "role with OID %u does not exist", role);
}

/* Dumps of any release call the type's functions, so they do not check the version */
PG_FUNCTION_INFO_V1(dana_role_in);
PG_FUNCTION_INFO_V1(dana_role_out);

Datum
dana_role_in(PG_FUNCTION_ARGS)
{
	const char *text = PG_GETARG_CSTRING(0);

	if (*text != '\0' && text[strspn(text, "0123456789")] == '\0')
		PG_RETURN_OID(DatumGetObjectId(DirectFunctionCall1(oidin, CStringGetDatum(text))) | NO_ROLE);
	return DirectFunctionCall1(regrolein, CStringGetDatum(text));
}

Datum
dana_role_out(PG_FUNCTION_ARGS)
{
	return DirectFunctionCall1(regroleout, PG_GETARG_DATUM(0));
}
