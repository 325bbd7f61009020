/*
 * NOTICEs of a training. A NOTICE reaches the client at once, so a long training can be watched from its own session.
 */
#include "postgres.h"

#include "dana.h"
#include "notices.h"

static int level;

enum
{
	NOTICES_NONE,
	NOTICES_RUN,
	NOTICES_EPOCH
};

void
dana_notices_define(void)
{
	static const struct config_enum_entry levels[] = {
		{"none", NOTICES_NONE, false}, {"run", NOTICES_RUN, false}, {"epoch", NOTICES_EPOCH, false}, {NULL, 0, false}};

	DefineCustomEnumVariable("dana.notices", "What a training tells as NOTICE: nothing, its end, or each epoch.", NULL,
							 &level, NOTICES_NONE, levels, PGC_USERSET, 0, NULL, NULL, NULL);
}

/* ", loss 0.25"; nothing for a rule without one */
static const char *
loss_of(Jsonb *report)
{
	return dana_json_is_null(report, "loss") ? "" : psprintf(", loss %.6g", dana_json_double(report, "loss"));
}

static const char *
cycles_of(Jsonb *report)
{
	return dana_json_is_null(report, "cycles") ? "" : psprintf(", " INT64_FORMAT " cycles", dana_json_integer(report, "cycles"));
}

void
dana_notice_epoch(Jsonb *epoch, int64 epochs)
{
	if (level < NOTICES_EPOCH)
		return;
	ereport(NOTICE,
			(errmsg("epoch " INT64_FORMAT " of " INT64_FORMAT "%s, " INT64_FORMAT " rows%s, %.1f ms",
					dana_json_integer(epoch, "epoch"), epochs, loss_of(epoch), dana_json_integer(epoch, "tuples"),
					cycles_of(epoch), dana_json_double(epoch, "seconds") * 1000)));
}

void
dana_notice_run(const dana_new_model *model)
{
	Jsonb *result = model->result;

	if (level < NOTICES_RUN)
		return;
	ereport(NOTICE,
			(errmsg("model \"%s\": rule \"%s\" on %s, " INT64_FORMAT " epochs%s%s, " INT64_FORMAT " rows, " INT64_FORMAT
					" skipped%s, %.1f ms",
					model->name, model->rule, model->source, dana_json_integer(result, "epochs"),
					dana_json_boolean(result, "converged") ? " (converged)" : "", loss_of(result),
					dana_json_integer(result, "tuples"), dana_json_integer(result, "skipped"), cycles_of(result),
					model->wall_seconds * 1000)));
}
