/*
 * Permutation importance (Breiman 2001): what a model's metrics lose when one feature's values are permuted among rows.
 *
 * Rows are read once, with the caller's rights, and kept in memory; all metrics are of the same ones.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "common/hashfn.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/notices.h"
#include "predict/evaluate.h"

/* Rows of an evaluation, and one with another row's value for a feature */
typedef struct permuted_rows
{
	dana_sample sample;
	HeapTuple  *rows;
	uint64		count;
	uint64	   *order; /* the row that a row has its value from */
	Datum	   *values;
	bool	   *nulls;
} permuted_rows;

/* A uniform permutation (Fisher and Yates) */
static void
permute(permuted_rows *of, uint64 seed)
{
	for (uint64 i = 0; i < of->count; i++)
	{
		const uint64 j = hash_bytes_extended((unsigned char *)&i, sizeof i, seed) % (i + 1);

		of->order[i] = of->order[j];
		of->order[j] = i;
	}
}

/* Stores the rows, with values of a feature in the permuted order; -1: as they are */
static void
store(permuted_rows *of, int feature)
{
	TupleDesc columns = of->sample.columns;

	of->sample.stored = tuplestore_begin_heap(false, false, work_mem);
	for (uint64 i = 0; i < of->count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		heap_deform_tuple(of->rows[i], columns, of->values, of->nulls);
		if (feature >= 0)
			of->values[feature] = heap_getattr(of->rows[of->order[i]], feature + 1, columns, &of->nulls[feature]);
		tuplestore_putvalues(of->sample.stored, columns, of->values, of->nulls);
	}
}

/* Adds the metrics of the rows as stored to the results */
static void
measure(const dana_evaluation *asked, permuted_rows *of, int feature, ReturnSetInfo *results)
{
	MemoryContext own = AllocSetContextCreate(CurrentMemoryContext, "dana importance", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(own);
	Datum		  values[2];
	bool		  nulls[2] = {feature < 0, false};

	store(of, feature);
	if (feature >= 0)
		values[0] = CStringGetTextDatum(NameStr(TupleDescAttr(of->sample.columns, feature)->attname));
	values[1] = JsonbPGetDatum(dana_evaluate_model(asked, InvalidSnapshot));
	dana_results_add(results, values, nulls);
	tuplestore_end(of->sample.stored);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(own);
}

/*
 * dana.dana_permuted(model, source, query, filter, part, threshold, repeats, rows, seed): the metrics of the rows, then of
 * the rows with each feature permuted, as often as repeats says
 */
DANA_FUNCTION(dana_permuted)
{
	dana_evaluation asked = dana_evaluation_of(fcinfo);
	const int		repeats = PG_GETARG_INT32(6), most = PG_GETARG_INT32(7), seed = PG_GETARG_INT32(8);
	ReturnSetInfo  *results = dana_results_begin(fcinfo);
	permuted_rows	of = {0};

	if (repeats < 1)
		dana_reject_argument("repeats", "be at least 1, not %d", repeats);
	if (most < 1)
		dana_reject_argument("rows", "be at least 1, not %d", most);
	if (!dana_evaluation_rows(&asked, most, seed, &of.sample, &of.rows, &of.count))
		dana_notice(NOTICE, "Increase rows for smaller deviations.",
					"the importance of features is measured on %d rows, a pseudo-random sample", most);
	of.order = MemoryContextAllocHuge(CurrentMemoryContext, sizeof(uint64) * Max(of.count, 1));
	of.values = palloc(sizeof(Datum) * of.sample.columns->natts);
	of.nulls = palloc(sizeof(bool) * of.sample.columns->natts);
	asked.sample = &of.sample;
	measure(&asked, &of, -1, results);
	for (int feature = 0; feature < of.sample.features; feature++)
		for (int repeat = 0; repeat < repeats; repeat++)
		{
			permute(&of, hash_combine64(hash_combine64((uint64)seed, feature + 1), repeat + 1));
			measure(&asked, &of, feature, results);
		}
	return (Datum)0;
}
