/*
 * dana_classification_metrics() and dana_regression_metrics(): aggregates over labels and predictions.
 *
 * A NaN is what it is to ORDER BY: equal to itself, above every number. Sums are long double, in which no square of a
 * double overflows.
 */
#include "postgres.h"

#include <math.h>

#include "common/shortest_dec.h"
#include "utils/float.h"

#include "dana.h"

/* binary32 has no number between 1 and 1 - 2^-24: what is predicted with certainty costs no more where it is wrong */
#define LEAST_PROBABILITY 0x1p-24

typedef struct regression
{
	int64		rows;
	long double mean;	/* of the labels */
	long double spread; /* sum of squares of their distances from it (Welford) */
	long double absolute;
	long double squared; /* sums of errors */
} regression;

typedef struct scored
{
	float8 prediction;
	float8 label;
} scored;

typedef struct classification
{
	scored *pairs;
	Size	count;
	Size	room;
	bool	zero_one; /* labels so far are 0 and 1 */
	bool	signs;	  /* labels so far are -1 and 1; neither: there is nothing more to keep */
	bool	probable; /* predictions so far lie in 0 to 1 */
	bool	has_threshold;
	float8	threshold;
} classification;

/* By the label, too: then sums are the same whatever the order of the rows was */
static inline int
compare_scored(const scored *a, const scored *b)
{
	int order = float8_cmp_internal(a->prediction, b->prediction);

	return order != 0 ? order : float8_cmp_internal(a->label, b->label);
}

#define ST_SORT sort_scored
#define ST_ELEMENT_TYPE scored
#define ST_COMPARE(a, b) compare_scored(a, b)
#define ST_SCOPE static
#define ST_CHECK_FOR_INTERRUPTS
#define ST_DEFINE
#include "lib/sort_template.h"

/* An aggregate's state, made with the first row that counts; NULL: none has */
static void *
metrics_state(FunctionCallInfo fcinfo, Size size, MemoryContext *context)
{
	if (!AggCheckCallContext(fcinfo, context))
		elog(ERROR, "a metric was called outside an aggregate");
	if (!PG_ARGISNULL(0))
		return PG_GETARG_POINTER(0);
	return PG_ARGISNULL(1) || PG_ARGISNULL(2) ? NULL : MemoryContextAllocZero(*context, size);
}

/* null where it is not known; as jsonb has it, a string where it is not finite */
static void
append_metric(StringInfo to, const char *name, bool known, double number)
{
	if (known && isfinite(number))
		dana_json_number(to, name, number);
	else
		dana_json_text(to, name, known ? double_to_shortest_decimal(number) : NULL);
}

static void
append_ratio(StringInfo to, const char *name, double part, double whole)
{
	append_metric(to, name, whole != 0, part / whole);
}

/* dana_regression_add(state, label, prediction) */
DANA_FUNCTION(dana_regression_add)
{
	MemoryContext context;
	regression	 *state = metrics_state(fcinfo, sizeof *state, &context);
	long double	  label, error, distance;

	if (state == NULL)
		PG_RETURN_NULL();
	if (PG_ARGISNULL(1) || PG_ARGISNULL(2))
		PG_RETURN_POINTER(state);
	label = PG_GETARG_FLOAT8(1);
	error = label - PG_GETARG_FLOAT8(2);
	distance = label - state->mean;
	state->mean += distance / ++state->rows;
	state->spread += distance * (label - state->mean);
	state->absolute += fabsl(error);
	state->squared += error * error;
	PG_RETURN_POINTER(state);
}

DANA_FUNCTION(dana_regression_final)
{
	const regression *state = PG_ARGISNULL(0) ? NULL : (const regression *)PG_GETARG_POINTER(0);
	StringInfoData	  made;

	if (state == NULL)
		PG_RETURN_NULL();
	dana_json_begin(&made);
	dana_json_number(&made, "rows", state->rows);
	append_metric(&made, "mae", true, state->absolute / state->rows);
	append_metric(&made, "rmse", true, sqrtl(state->squared / state->rows));
	append_metric(&made, "r2", state->spread != 0, 1 - state->squared / state->spread);
	dana_json_close(&made, '}');
	PG_RETURN_JSONB_P(dana_json_parse(made.data));
}

/* All rows have the first one's threshold: a metric has one */
static void
take_threshold(FunctionCallInfo fcinfo, classification *state)
{
	bool   given = PG_NARGS() > 3 && !PG_ARGISNULL(3);
	float8 threshold = given ? PG_GETARG_FLOAT8(3) : 0;

	if (state->room > 0 && (given != state->has_threshold || float8_ne(threshold, state->threshold)))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the threshold of dana_classification_metrics() must be the same for all rows")));
	state->has_threshold = given;
	state->threshold = threshold;
}

/* dana_classification_add(state, label, prediction [, threshold]) */
DANA_FUNCTION(dana_classification_add)
{
	MemoryContext	context;
	classification *state = metrics_state(fcinfo, sizeof *state, &context);
	scored			row;

	if (state == NULL)
		PG_RETURN_NULL();
	if (PG_ARGISNULL(1) || PG_ARGISNULL(2))
		PG_RETURN_POINTER(state);
	take_threshold(fcinfo, state);
	if (state->room == 0)
	{
		state->zero_one = state->signs = state->probable = true;
		state->room = 16;
		state->pairs = MemoryContextAlloc(context, sizeof(scored) * state->room);
	}
	row.label = PG_GETARG_FLOAT8(1);
	row.prediction = PG_GETARG_FLOAT8(2);
	state->zero_one &= row.label == 0 || row.label == 1;
	state->signs &= row.label == -1 || row.label == 1;
	state->probable &= row.prediction >= 0 && row.prediction <= 1;
	if (!state->zero_one && !state->signs)
	{
		if (state->pairs != NULL)
			pfree(state->pairs);
		state->pairs = NULL;
		PG_RETURN_POINTER(state);
	}
	if (state->count == state->room)
		state->pairs = repalloc_huge(state->pairs, sizeof(scored) * (state->room *= 2));
	state->pairs[state->count++] = row;
	PG_RETURN_POINTER(state);
}

DANA_FUNCTION(dana_classification_final)
{
	classification *state = PG_ARGISNULL(0) ? NULL : (classification *)PG_GETARG_POINTER(0);
	double			threshold;
	StringInfoData	made;
	/* of rows by their label and what was chosen: true and false positives, and negatives */
	int64		tp = 0, fp = 0, fn = 0, tn = 0;
	long double wins = 0; /* pairs of a positive and a negative row in their right order; ties are half of it */
	long double loss = 0;

	if (state == NULL || state->pairs == NULL)
		PG_RETURN_NULL();
	threshold = state->has_threshold ? state->threshold : state->zero_one ? 0.5 : 0;
	/* more rows may come, as in a window: they go behind the sorted ones */
	sort_scored(state->pairs, state->count);
	for (Size i = 0, end; i < state->count; i = end)
	{
		const float8 prediction = state->pairs[i].prediction;
		const int64	 below = fp + tn; /* of the negatives */
		int64		 positives = 0, negatives;

		CHECK_FOR_INTERRUPTS();
		for (end = i; end < state->count && float8_eq(state->pairs[end].prediction, prediction); end++)
			positives += state->pairs[end].label > 0;
		negatives = end - i - positives;
		wins += positives * (below + negatives / 2.0L);
		if (float8_ge(prediction, threshold))
		{
			tp += positives;
			fp += negatives;
		}
		else
		{
			fn += positives;
			tn += negatives;
		}
		if (state->probable)
			loss -= positives * log(Max(prediction, LEAST_PROBABILITY)) +
				negatives * log(Max(1 - prediction, LEAST_PROBABILITY));
	}
	dana_json_begin(&made);
	append_ratio(&made, "accuracy", tp + tn, state->count);
	append_ratio(&made, "precision", tp, tp + fp);
	append_ratio(&made, "recall", tp, tp + fn);
	append_ratio(&made, "f1", 2 * tp, 2 * tp + fp + fn);
	append_metric(&made, "log_loss", state->probable, loss / state->count);
	append_ratio(&made, "auc", wins, (double)(tp + fn) * (fp + tn));
	dana_json_open(&made, "confusion", '{');
	dana_json_number(&made, "tp", tp);
	dana_json_number(&made, "fp", fp);
	dana_json_number(&made, "fn", fn);
	dana_json_number(&made, "tn", tn);
	dana_json_close(&made, '}');
	dana_json_close(&made, '}');
	PG_RETURN_JSONB_P(dana_json_parse(made.data));
}
