/*
 * Evaluating a model on rows: dana_evaluate(), and trials that train it before.
 */
#pragma once

/* What dana_evaluate() is asked; NULL where nothing was said */
typedef struct dana_evaluation
{
	char		 *model;
	Oid			  source;
	char		 *query;
	char		 *filter;
	char		 *part;
	NullableDatum threshold;
} dana_evaluation;

/* Metrics by name, on what `snapshot` sees and this transaction wrote; InvalidSnapshot: what the caller's query sees */
extern Jsonb *dana_evaluate_model(const dana_evaluation *asked, Snapshot snapshot);
