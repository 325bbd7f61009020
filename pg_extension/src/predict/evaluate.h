/*
 * Evaluating a model on rows: dana_evaluate(), and trials that train it first.
 */
#pragma once

/* The arguments of dana_evaluate(); NULL if not given */
typedef struct dana_evaluation
{
	char		 *model;
	Oid			  source;
	char		 *query;
	char		 *filter;
	char		 *part;
	NullableDatum threshold;
} dana_evaluation;

/* Metrics by name, on rows that `snapshot` sees or this transaction wrote; InvalidSnapshot: on the caller's snapshot */
extern Jsonb *dana_evaluate_model(const dana_evaluation *asked, Snapshot snapshot);
