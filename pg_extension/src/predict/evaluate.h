/*
 * Evaluating a model on rows: dana_evaluate(), trials that train it first, and dana_importance().
 */
#pragma once

#include "utils/tuplestore.h"

/* Rows in memory */
typedef struct dana_sample
{
	TupleDesc		 columns; /* the features, then the labels */
	int				 features;
	Tuplestorestate *stored;
} dana_sample;

/* The arguments of dana_evaluate(); NULL if not given */
typedef struct dana_evaluation
{
	char		 *model;
	Oid			  source;
	char		 *query;
	char		 *filter;
	char		 *part;
	NullableDatum threshold;
	dana_sample	 *sample; /* the rows to evaluate, without notices; NULL: those of the arguments */
} dana_evaluation;

/* The arguments of a call, which begin like those of dana_evaluate() */
extern dana_evaluation dana_evaluation_of(FunctionCallInfo fcinfo);

/*
 * The rows that an evaluation would read, in an order that `seed` and their values decide, regardless of where they lie;
 * if there are more than `most`, the first ones. Returns whether those are all.
 */
extern bool dana_evaluation_rows(const dana_evaluation *asked, int64 most, int seed, dana_sample *sample,
								 HeapTuple **rows, uint64 *count);

/* Metrics by name, on rows that `snapshot` sees or this transaction wrote; InvalidSnapshot: on the caller's snapshot */
extern Jsonb *dana_evaluate_model(const dana_evaluation *asked, Snapshot snapshot);
