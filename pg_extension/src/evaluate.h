/*
 * How good a model is on some rows.
 */
#pragma once

#include "utils/jsonb.h"
#include "utils/snapshot.h"

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

/* Metrics by name, on what `snapshot` sees and this transaction wrote; InvalidSnapshot: what the caller's statement sees */
extern Jsonb *dana_evaluate_model(const dana_evaluation *asked, Snapshot snapshot);
