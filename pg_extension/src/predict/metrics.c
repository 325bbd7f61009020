/*
 * dana_classification_metrics(): aggregates over labels and predictions of classes; and code shared by all metrics.
 *
 * Predictions that are not finite are counted, and have no metrics.
 */
#include "postgres.h"

#include <math.h>

#include "common/shortest_dec.h"
#include "utils/float.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "predict/metric_names.h"
#include "predict/metrics.h"
#include "values/label_values.h"

/* binary32 has no number between 1 and 1 - 2^-24: the log loss of a certain but wrong prediction is limited to this */
#define LEAST_PROBABILITY 0x1p-24

typedef struct scored
{
	float8 prediction;
	float8 label;
} scored;

/* Rows of several classes */
typedef struct tally
{
	int	   width;
	int64 *labelled; /* by their label */
	int64 *chosen;	 /* by the predicted class */
	int64 *right;	 /* both */
	int64 *confusion; /* by label and predicted class; NULL: there are too many classes to show */
} tally;

typedef struct classification
{
	scored *pairs;
	Size	count;
	Size	room;
	bool	zero_one; /* labels so far are 0 and 1 */
	bool	signs;	  /* labels so far are -1 and 1 */
	bool	whole;	  /* both so far are class numbers; if none of the three holds, nothing is kept */
	bool	probable; /* predictions so far are in 0 to 1 */
	bool	has_threshold;
	float8	threshold;
	int64	not_finite; /* predictions that are not finite */
	int			width;	   /* of predictions that are arrays; 0: they are numbers */
	dana_texts	names;
	tally	   *tally; /* of more than two classes */
	double		loss; /* sums over rows; not long double: palloc() aligns to 8 bytes */
	double		squared; /* errors of the probabilities */
} classification;

/* Limits of class numbers that are recognised as integers only, and of classes in a confusion matrix */
#define MAX_NUMBERS  1000
#define SHOWN_CLASSES 100

/* Tolerance for the sum of a row's probabilities */
#define ROUNDING 1e-3

#define ST_SORT sort_scored
#define ST_ELEMENT_TYPE scored
#define ST_COMPARE(a, b) float8_cmp_internal((a)->prediction, (b)->prediction)
#define ST_SCOPE static
#define ST_CHECK_FOR_INTERRUPTS
#define ST_DEFINE
#include "lib/sort_template.h"

bool
dana_metrics_row(FunctionCallInfo fcinfo, Size size, void *state, MemoryContext *context)
{
	const bool counts = !PG_ARGISNULL(1) && !PG_ARGISNULL(2);
	void	 **of = state;

	if (!AggCheckCallContext(fcinfo, context))
		elog(ERROR, "a metric was called outside an aggregate");
	*of = !PG_ARGISNULL(0) ? PG_GETARG_POINTER(0) : counts ? MemoryContextAllocZero(*context, size) : NULL;
	fcinfo->isnull = *of == NULL;
	return counts;
}

void
dana_append_metric(StringInfo to, const char *name, bool known, double number)
{
	if (known && isfinite(number))
		dana_json_number(to, name, number);
	else
		dana_json_text(to, name, known ? double_to_shortest_decimal(number) : NULL);
}

void
dana_append_ratio(StringInfo to, const char *name, double part, double whole)
{
	dana_append_metric(to, name, whole != 0, part / whole);
}

/* All rows must have the same threshold */
static void
take_threshold(FunctionCallInfo fcinfo, classification *state, int argument)
{
	bool   given = PG_NARGS() > argument && !PG_ARGISNULL(argument);
	float8 threshold = given ? PG_GETARG_FLOAT8(argument) : 0;

	if (state->room > 0 && (given != state->has_threshold || float8_ne(threshold, state->threshold)))
		dana_error(INVALID_PARAMETER_VALUE,
				   "the threshold of dana_classification_metrics() must be the same for all rows");
	state->has_threshold = given;
	state->threshold = threshold;
}

static inline bool
is_class_number(float8 number)
{
	return number >= 0 && number < MAX_NUMBERS && number == floor(number);
}

/* In the current memory context */
static tally *
tally_begin(int width)
{
	tally *made = palloc0(sizeof *made);

	made->width = width;
	made->labelled = palloc0(sizeof(int64) * width);
	made->chosen = palloc0(sizeof(int64) * width);
	made->right = palloc0(sizeof(int64) * width);
	if (width <= SHOWN_CLASSES)
		made->confusion = palloc0(sizeof(int64) * width * width);
	return made;
}

static void
tally_add(tally *to, int label, int chosen)
{
	to->labelled[label]++;
	to->chosen[chosen]++;
	to->right[label] += label == chosen;
	if (to->confusion != NULL)
		to->confusion[label * to->width + chosen]++;
}

/* Keeps a row with a prediction that is one number, unless the labels are not classes */
static void
keep_pair(classification *state, scored row, MemoryContext context)
{
	if (!isfinite(row.prediction))
	{
		state->not_finite++;
		return;
	}
	if (state->room == 0)
	{
		state->zero_one = state->signs = state->probable = true;
		state->whole = state->width == 0;
		state->room = 16;
		state->pairs = MemoryContextAlloc(context, sizeof(scored) * state->room);
	}
	state->zero_one &= row.label == 0 || row.label == 1;
	state->signs &= row.label == -1 || row.label == 1;
	state->whole &= is_class_number(row.label) && is_class_number(row.prediction);
	state->probable &= row.prediction >= 0 && row.prediction <= 1;
	if (!state->zero_one && !state->signs && !state->whole)
	{
		if (state->pairs != NULL)
			pfree(state->pairs);
		state->pairs = NULL;
		return;
	}
	if (state->count == state->room)
		state->pairs = repalloc_huge(state->pairs, sizeof(scored) * (state->room *= 2));
	state->pairs[state->count++] = row;
}

/* dana_classification_add(state, label, prediction [, threshold]) */
DANA_FUNCTION(dana_classification_add)
{
	MemoryContext	context;
	classification *state;

	if (dana_metrics_row(fcinfo, sizeof *state, &state, &context))
	{
		take_threshold(fcinfo, state, 3);
		keep_pair(state, (scored){PG_GETARG_FLOAT8(2), PG_GETARG_FLOAT8(1)}, context);
	}
	PG_RETURN_POINTER(state);
}

/* Counts a row with a number for each class */
static void
count_scores(classification *state, float8 label, const float4 *scores)
{
	int	   chosen = 0;
	double sum = 0;

	for (int i = 0; i < state->width; i++)
	{
		if (!isfinite(scores[i]))
		{
			state->not_finite++;
			return;
		}
		if (scores[i] > scores[chosen])
			chosen = i;
		state->probable &= scores[i] >= 0;
		sum += scores[i];
	}
	if (!(label >= 0 && label < state->width && label == floor(label)))
		return; /* not a class of the model */
	state->probable &= fabs(sum - 1) < ROUNDING;
	tally_add(state->tally, label, chosen);
	state->loss -= log(Max(scores[(int)label], LEAST_PROBABILITY));
	for (int i = 0; i < state->width; i++)
		state->squared += ((i == label) - (double)scores[i]) * ((i == label) - (double)scores[i]);
	state->count++;
}

/* dana_classification_add_each(state, label, scores [, classes, threshold]): a number, or one for each class */
DANA_FUNCTION(dana_classification_add_each)
{
	MemoryContext	context;
	classification *state;
	ArrayType	   *array;
	const float4   *scores;
	int				width;

	if (!dana_metrics_row(fcinfo, sizeof *state, &state, &context))
		PG_RETURN_POINTER(state);
	take_threshold(fcinfo, state, 4);
	array = PG_GETARG_ARRAYTYPE_P(2);
	width = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	if (width < 1 || width > DANA_MAX_CLASSES || ARR_HASNULL(array) || (state->width > 0 && state->width != width))
		dana_error(INVALID_PARAMETER_VALUE, "predictions must have a number for each of the same 1 to %d classes",
				   DANA_MAX_CLASSES);
	if (state->width == 0)
	{
		MemoryContext caller = MemoryContextSwitchTo(context);

		state->names = PG_NARGS() > 3 && !PG_ARGISNULL(3) ? dana_texts_of("classes", PG_GETARG_DATUM(3)) : (dana_texts){.count = -1};
		state->width = width;
		if (width > 2)
		{
			state->tally = tally_begin(width);
			state->probable = true;
		}
		MemoryContextSwitchTo(caller);
	}
	scores = (const float4 *)ARR_DATA_PTR(array);
	if (width > 2)
		count_scores(state, PG_GETARG_FLOAT8(1), scores);
	else if (width == 1)
		keep_pair(state, (scored){scores[0], PG_GETARG_FLOAT8(1)}, context);
	else
	{
		bool likely = scores[0] >= 0 && scores[1] >= 0 && fabs((double)scores[0] + scores[1] - 1) < ROUNDING;

		keep_pair(state, (scored){likely ? scores[1] : (double)scores[1] - scores[0], PG_GETARG_FLOAT8(1)}, context);
	}
	PG_RETURN_POINTER(state);
}

/*
 * Metrics of any number of classes, each against the others; with `known`, those of probabilities, too. Means are over
 * classes that occur.
 */
static Datum
of_tally(const tally *counted, const classification *state, bool known)
{
	const int	   width = counted->width;
	StringInfoData made;
	StringInfoData each;
	int64		   right = 0, rows = 0;
	int			   occurring = 0;
	double		   precision = 0, recall = 0, f1 = 0;

	dana_json_begin(&made);
	initStringInfo(&each);
	dana_json_open(&each, NULL, '[');
	for (int i = 0; i < width; i++)
	{
		const int64 hits = counted->right[i], labelled = counted->labelled[i], chosen = counted->chosen[i];

		right += hits;
		rows += labelled;
		if (labelled + chosen > 0)
		{
			occurring++;
			precision += (double)hits / Max(chosen, 1);
			recall += (double)hits / Max(labelled, 1);
			f1 += 2.0 * hits / (labelled + chosen);
		}
		dana_json_open(&each, NULL, '{');
		dana_json_text(&each, "class", i < state->names.count ? state->names.values[i] : psprintf("%d", i));
		dana_json_number(&each, "rows", labelled);
		dana_append_ratio(&each, METRIC_PRECISION, hits, chosen);
		dana_append_ratio(&each, METRIC_RECALL, hits, labelled);
		dana_append_ratio(&each, METRIC_F1, 2 * hits, labelled + chosen);
		dana_json_close(&each, '}');
	}
	dana_json_close(&each, ']');
	dana_json_number(&made, "rows", rows);
	dana_append_ratio(&made, METRIC_ACCURACY, right, rows);
	dana_append_ratio(&made, METRIC_PRECISION, precision, occurring);
	dana_append_ratio(&made, METRIC_RECALL, recall, occurring);
	dana_append_ratio(&made, METRIC_F1, f1, occurring);
	dana_append_metric(&made, METRIC_LOG_LOSS, known && rows > 0, state->loss / Max(rows, 1));
	dana_append_metric(&made, METRIC_BRIER, known && rows > 0, state->squared / Max(rows, 1));
	dana_json_number(&made, METRIC_NOT_FINITE, state->not_finite);
	appendStringInfo(&made, ",\"" METRIC_CLASSES "\":%s", each.data);
	if (counted->confusion != NULL)
	{
		dana_json_open(&made, METRIC_CONFUSION, '[');
		for (int i = 0; i < width; i++)
		{
			dana_json_open(&made, NULL, '[');
			for (int k = 0; k < width; k++)
				dana_json_number(&made, NULL, counted->confusion[i * width + k]);
			dana_json_close(&made, ']');
		}
		dana_json_close(&made, ']');
	}
	return JsonbPGetDatum(dana_json_end(&made));
}

/* The same for rows whose predictions are numbers of classes */
static Datum
of_numbers(classification *state, int width)
{
	tally *counted = tally_begin(width);

	state->names.count = -1;
	for (Size i = 0; i < state->count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		tally_add(counted, state->pairs[i].label, state->pairs[i].prediction);
	}
	return of_tally(counted, state, false);
}

/* Intervals of a probability in the calibration table */
#define INTERVALS 10

/* Rows with a probability in an interval */
typedef struct interval
{
	int64	rows;
	int64	positives;
	double	sum; /* of the probabilities */
} interval;

/* The interval of a probability: its upper bound belongs to it, as in scikit-learn */
static int
interval_of(float8 probability)
{
	return Min(Max((int)ceil(probability * INTERVALS) - 1, 0), INTERVALS - 1);
}

/* Mean probability and share of positive rows in each interval that has rows */
static void
append_calibration(StringInfo to, const interval *intervals)
{
	dana_json_open(to, METRIC_CALIBRATION, '[');
	for (int i = 0; i < INTERVALS; i++)
		if (intervals[i].rows > 0)
		{
			dana_json_open(to, NULL, '{');
			dana_json_number(to, "rows", intervals[i].rows);
			dana_append_ratio(to, "predicted", intervals[i].sum, intervals[i].rows);
			dana_append_ratio(to, "observed", intervals[i].positives, intervals[i].rows);
			dana_json_close(to, '}');
		}
	dana_json_close(to, ']');
}

DANA_FUNCTION(dana_classification_final)
{
	classification *state = (classification *)PG_GETARG_POINTER(0);
	double			threshold;
	StringInfoData	made;
	/* of rows by their label and predicted class: true and false positives, and negatives */
	int64		tp = 0, fp = 0, fn = 0, tn = 0;
	int64		all = 0; /* positive rows */
	interval	intervals[INTERVALS] = {0};
	int			width = 0; /* number of classes, if labels and predictions are class numbers */
	long double wins = 0; /* correctly ordered pairs of a positive and a negative row; a tie counts half */
	long double precision = 0; /* sum over positive rows of the precision at their prediction */
	long double loss = 0, squared = 0;

	for (Size i = 0; i < state->count && state->whole; i++)
	{
		CHECK_FOR_INTERRUPTS();
		width = Max(width, (int)Max(state->pairs[i].label, state->pairs[i].prediction) + 1);
	}
	if (state->tally != NULL)
		PG_RETURN_DATUM(of_tally(state->tally, state, state->probable));
	if (width > 2)
		PG_RETURN_DATUM(of_numbers(state, width));
	if (state->room > 0 && state->pairs == NULL)
		PG_RETURN_NULL();
	threshold = state->has_threshold ? state->threshold : state->zero_one ? 0.5 : 0;
	/* more rows may come, as in a window: they are appended to the sorted ones */
	sort_scored(state->pairs, state->count);
	for (Size i = 0; i < state->count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		all += state->pairs[i].label > 0;
	}
	for (Size i = 0, end; i < state->count; i = end)
	{
		const float8 prediction = state->pairs[i].prediction;
		const int64	 below = fp + tn; /* of the negatives */
		const int64	 right = all - tp - fn; /* positives from this prediction on */
		int64		 positives = 0, negatives;

		for (end = i; end < state->count && float8_eq(state->pairs[end].prediction, prediction); end++)
		{
			CHECK_FOR_INTERRUPTS();
			positives += state->pairs[end].label > 0;
		}
		negatives = end - i - positives;
		wins += positives * (below + negatives / 2.0L);
		precision += positives * ((long double)right / (state->count - i));
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
		{
			interval *of = &intervals[interval_of(prediction)];

			loss -= positives * log(Max(prediction, LEAST_PROBABILITY)) +
				negatives * log(Max(1 - prediction, LEAST_PROBABILITY));
			squared += positives * (1 - prediction) * (1 - prediction) + negatives * prediction * prediction;
			of->rows += end - i;
			of->positives += positives;
			of->sum += (end - i) * prediction;
		}
	}
	dana_json_begin(&made);
	dana_json_number(&made, "rows", state->count);
	if (state->names.count == 2)
		dana_json_text(&made, "positive", state->names.values[1]);
	dana_append_ratio(&made, METRIC_ACCURACY, tp + tn, state->count);
	dana_append_ratio(&made, METRIC_PRECISION, tp, tp + fp);
	dana_append_ratio(&made, METRIC_RECALL, tp, tp + fn);
	dana_append_ratio(&made, METRIC_F1, 2 * tp, 2 * tp + fp + fn);
	dana_append_metric(&made, METRIC_LOG_LOSS, state->probable && state->count > 0, loss / Max(state->count, 1));
	dana_append_metric(&made, METRIC_BRIER, state->probable && state->count > 0, squared / Max(state->count, 1));
	dana_append_ratio(&made, METRIC_AUC, wins, (double)(tp + fn) * (fp + tn));
	dana_append_ratio(&made, METRIC_AVERAGE_PRECISION, precision, all);
	if (state->probable && state->count > 0)
		append_calibration(&made, intervals);
	dana_json_open(&made, METRIC_CONFUSION, '{');
	dana_json_number(&made, "tp", tp);
	dana_json_number(&made, "fp", fp);
	dana_json_number(&made, "fn", fn);
	dana_json_number(&made, "tn", tn);
	dana_json_close(&made, '}');
	dana_json_number(&made, METRIC_NOT_FINITE, state->not_finite);
	PG_RETURN_JSONB_P(dana_json_end(&made));
}
