/*
 * dana_prune(): removes old versions of models, runs and jobs.
 *
 * What is younger than `older_than`, or among the `keep` newest of its kind, stays: of the models of one name its
 * versions, of a model's runs, and of a role's jobs.
 */
#include "postgres.h"

#include "dana.h"
#include "results.h"

/* $1: caller, $2: age, $3: how many */
#define MAY_GO(time) " AND pg_has_role($1, owner, 'USAGE') AND " time " < coalesce(now() - $2, 'infinity')"
#define PRUNE(text)	 DANA_STATEMENT(text, OIDOID, INTERVALOID, INT4OID)

/* dana_prune(older_than, keep) */
DANA_COMMAND(dana_prune)
{
	static dana_statement prune[] = {
		/* neither the version in use nor the highest, which names the next one */
		PRUNE("DELETE FROM dana.model AS m USING (SELECT owner AS o, name AS n, version AS v, "
		 " row_number() OVER (PARTITION BY owner, name ORDER BY version DESC) AS place FROM dana.model) AS r "
		 "WHERE (owner, name, version) = (o, n, v) AND place > greatest($3, 1) AND NOT active" MAY_GO("created")),
		PRUNE("DELETE FROM dana.run AS u USING (SELECT id AS i, "
		 " row_number() OVER (PARTITION BY owner, model ORDER BY id DESC) AS place FROM dana.run) AS r "
		 "WHERE id = i AND place > coalesce($3, 0)" MAY_GO("started")),
		/* over, or lost: nobody holds its lock, and it is not of a transaction that goes on */
		PRUNE("DELETE FROM dana.job_log AS j USING (SELECT id AS i, "
		 " row_number() OVER (PARTITION BY owner ORDER BY id DESC) AS place FROM dana.job_log) AS r "
		 "WHERE id = i AND place > coalesce($3, 0) AND created < now() AND (ended IS NOT NULL OR NOT EXISTS "
		 " (SELECT FROM pg_locks AS l WHERE l.locktype = 'object' AND l.classid = 'dana.job_log'::regclass "
		 "  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
		 "  AND l.objid = (id & 4294967295)::oid AND l.mode = 'ExclusiveLock' AND l.granted))" MAY_GO("coalesce(ended, created)"))};
	ReturnSetInfo *result;
	Datum		   counts[lengthof(prune)];
	Datum		   values[] = {0, PG_ARGISNULL(0) ? (Datum)0 : PG_GETARG_DATUM(0), PG_ARGISNULL(1) ? (Datum)0 : PG_GETARG_DATUM(1)};
	char		   given[] = {' ', PG_ARGISNULL(0) ? 'n' : ' ', PG_ARGISNULL(1) ? 'n' : ' ', '\0'};
	dana_identity  before;

	if (PG_ARGISNULL(0) && PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("give argument \"older_than\", argument \"keep\", or both"),
				 errhint("For instance dana_prune('30 days', keep => 3): what is older than that, except the 3 newest of each.")));
	if (!PG_ARGISNULL(0) && DatumGetBool(DirectFunctionCall2(interval_lt, values[1], IntervalPGetDatum(&(Interval){0}))))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("argument \"older_than\" must not be negative")));
	if (!PG_ARGISNULL(1) && PG_GETARG_INT32(1) < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("argument \"keep\" must be a number from 0, not %d", PG_GETARG_INT32(1))));
	result = dana_results_begin(fcinfo);
	before = dana_become_owner();
	values[0] = ObjectIdGetDatum(before.user);
	for (int i = 0; i < lengthof(prune); i++)
		counts[i] = Int64GetDatum((int64)dana_run(&prune[i], values, given));
	dana_become_caller(before);
	dana_results_add(result, counts, NULL);
	return (Datum)0;
}
