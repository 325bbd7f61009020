/*
 * dana_regression_metrics(): aggregates over labels and predictions that are numbers, one or several in a row.
 *
 * Predictions that are not finite are counted, and have no metrics. Sums are long double: no square of a double
 * overflows.
 */
#include "postgres.h"

#include <math.h>

#include "utils/float.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "predict/metric_names.h"
#include "predict/metrics.h"

typedef struct regression
{
	int64		rows;
	long double mean;	/* of the labels */
	long double spread; /* sum of squared deviations from it (Welford) */
	long double absolute;
	long double squared; /* sums of errors */
	long double poisson;
	long double gamma; /* sums of deviances; NaN: a row has none */
	bool		has_quantile;
	float8		quantile;
	long double pinball;
	int64		not_finite;
} regression;

/* Rows with several labels and as many predictions */
typedef struct regressions
{
	int			count;
	int64		not_finite; /* rows */
	regression *each;
} regressions;

static void
add_error(regression *state, long double label, long double prediction)
{
	const long double error = label - prediction;
	const long double distance = label - state->mean;
	const bool	positive = label > 0 && prediction > 0;
	const long double ratio = positive ? logl(label / prediction) : 0;

	state->mean += distance / ++state->rows;
	state->spread += distance * (label - state->mean);
	state->absolute += fabsl(error);
	state->squared += error * error;
	state->pinball += error * (state->quantile - (error < 0));
	state->poisson += positive || (label == 0 && prediction > 0) ? 2 * (label * ratio - error) : NAN;
	state->gamma += positive ? 2 * (error / prediction - ratio) : NAN;
}

/* In the order of the result */
enum
{
	MAE,
	RMSE,
	R2,
	METRICS_OF_EACH, /* rows with several labels have those above */
	POISSON_DEVIANCE = METRICS_OF_EACH,
	GAMMA_DEVIANCE,
	METRICS_WITHOUT_QUANTILE,
	PINBALL_LOSS = METRICS_WITHOUT_QUANTILE,
	METRICS_WITH_QUANTILE
};

static const char *const names[] = {
	[MAE] = METRIC_MAE,
	[RMSE] = METRIC_RMSE,
	[R2] = METRIC_R2,
	[POISSON_DEVIANCE] = METRIC_POISSON_DEVIANCE,
	[GAMMA_DEVIANCE] = METRIC_GAMMA_DEVIANCE,
	[PINBALL_LOSS] = METRIC_PINBALL_LOSS,
};

/* NaN: there is no such metric for these rows */
static void
compute(const regression *state, long double *metrics)
{
	const long double rows = state->rows > 0 ? state->rows : NAN;

	metrics[MAE] = state->absolute / rows;
	metrics[RMSE] = sqrtl(state->squared / rows);
	metrics[R2] = state->spread != 0 ? 1 - state->squared / state->spread : NAN;
	metrics[POISSON_DEVIANCE] = state->poisson / rows;
	metrics[GAMMA_DEVIANCE] = state->gamma / rows;
	metrics[PINBALL_LOSS] = state->pinball / rows;
}

/* The first `wanted` metrics of several regressions: the means over those that have them */
static void
append_regressions(StringInfo to, const regression *each, int count, int wanted)
{
	long double metrics[lengthof(names)], sums[lengthof(names)] = {0};
	int			known[lengthof(names)] = {0};

	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		compute(&each[i], metrics);
		for (int k = 0; k < wanted; k++)
			if (!isnan(metrics[k]))
			{
				known[k]++;
				sums[k] += metrics[k];
			}
	}
	for (int k = 0; k < wanted; k++)
		dana_append_ratio(to, names[k], sums[k], known[k]);
}

/* All rows must have the same quantile; NULL: none */
static void
take_quantile(FunctionCallInfo fcinfo, regression *state)
{
	const bool	 given = PG_NARGS() > 3 && !PG_ARGISNULL(3);
	const float8 quantile = given ? PG_GETARG_FLOAT8(3) : 0;

	if (given && !(quantile > 0 && quantile < 1))
		dana_reject_argument("quantile", "be between 0 and 1, not %g", quantile);
	if (state->rows + state->not_finite > 0 && (given != state->has_quantile || float8_ne(quantile, state->quantile)))
		dana_error(INVALID_PARAMETER_VALUE, "the quantile of dana_regression_metrics() must be the same for all rows");
	state->has_quantile = given;
	state->quantile = quantile;
}

/* dana_regression_add(state, label, prediction [, quantile]) */
DANA_FUNCTION(dana_regression_add)
{
	MemoryContext context;
	regression	 *state;

	if (!dana_metrics_row(fcinfo, sizeof *state, &state, &context))
		PG_RETURN_POINTER(state);
	take_quantile(fcinfo, state);
	if (isfinite(PG_GETARG_FLOAT8(1)) && isfinite(PG_GETARG_FLOAT8(2)))
		add_error(state, PG_GETARG_FLOAT8(1), PG_GETARG_FLOAT8(2));
	else
		state->not_finite++;
	PG_RETURN_POINTER(state);
}

DANA_FUNCTION(dana_regression_final)
{
	const regression *state = (const regression *)PG_GETARG_POINTER(0);
	StringInfoData	  made;

	dana_json_begin(&made);
	dana_json_number(&made, "rows", state->rows);
	append_regressions(&made, state, 1, state->has_quantile ? METRICS_WITH_QUANTILE : METRICS_WITHOUT_QUANTILE);
	dana_json_number(&made, METRIC_NOT_FINITE, state->not_finite);
	PG_RETURN_JSONB_P(dana_json_end(&made));
}

/* The numbers of a real[] argument without NULLs; -1 if it has some */
static int
reals_of(FunctionCallInfo fcinfo, int argument, const float4 **numbers)
{
	ArrayType *array = PG_GETARG_ARRAYTYPE_P(argument);

	*numbers = (const float4 *)ARR_DATA_PTR(array);
	return array_contains_nulls(array) ? -1 : ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
}

/* Labels of a row at most: the result has a JSON object for each, which PostgreSQL reads without checking for interrupts */
#define MAX_OUTPUTS 10000

/* dana_regression_add_each(state, labels, predictions) */
DANA_FUNCTION(dana_regression_add_each)
{
	MemoryContext context;
	regressions	 *state;
	const float4 *labels, *predictions;
	bool		  finite = true;
	int			  count, predicted;

	if (!dana_metrics_row(fcinfo, sizeof *state, &state, &context))
		PG_RETURN_POINTER(state);
	count = reals_of(fcinfo, 1, &labels);
	predicted = reals_of(fcinfo, 2, &predictions);
	if (count < 0 || predicted < 0)
		dana_error(NULL_VALUE_NOT_ALLOWED, "an array of labels or predictions must not hold a NULL");
	if (count == 0)
		dana_error(INVALID_PARAMETER_VALUE, "a row must have at least one label");
	if (state->count > 0 && state->count != count)
		dana_error(INVALID_PARAMETER_VALUE, "each row must have as many labels as the first, %d, not %d", state->count, count);
	if (count != predicted)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("a row must have as many predictions as labels, not %d predictions and %d labels", predicted,
							   count),
						errhint("Compare one prediction with one label: "
								"dana_regression_metrics(label, (dana_predict_array(model, ...))[1]).")));
	if (count > MAX_OUTPUTS)
		dana_error(PROGRAM_LIMIT_EXCEEDED, "a row has %d labels, more than %d", count, MAX_OUTPUTS);
	if (state->count == 0)
	{
		state->count = count;
		state->each = MemoryContextAllocZero(context, sizeof(regression) * count);
	}
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		finite &= isfinite(labels[i]) && isfinite(predictions[i]);
	}
	for (int i = 0; i < count && finite; i++)
	{
		CHECK_FOR_INTERRUPTS();
		add_error(&state->each[i], labels[i], predictions[i]);
	}
	state->not_finite += !finite;
	PG_RETURN_POINTER(state);
}

DANA_FUNCTION(dana_regression_final_each)
{
	const regressions *state = (const regressions *)PG_GETARG_POINTER(0);
	StringInfoData	   made;

	dana_json_begin(&made);
	dana_json_number(&made, "rows", state->each[0].rows);
	append_regressions(&made, state->each, state->count, METRICS_OF_EACH);
	dana_json_number(&made, METRIC_NOT_FINITE, state->not_finite);
	dana_json_open(&made, METRIC_OUTPUTS, '[');
	for (int i = 0; i < state->count; i++)
	{
		dana_json_open(&made, NULL, '{');
		append_regressions(&made, &state->each[i], 1, METRICS_OF_EACH);
		dana_json_close(&made, '}');
	}
	dana_json_close(&made, ']');
	PG_RETURN_JSONB_P(dana_json_end(&made));
}
