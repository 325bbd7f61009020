/*
 * The columns of a source, and a scan of its rows.
 */
#pragma once

#include "source/source.h"

typedef struct dana_array_probe dana_array_probe;

/*
 * Hands the rows of a heap that pass a filter (or NULL) to `take`, until that returns false or `limit` were looked at;
 * 0: all of them. Those of all pages, or of a `sample` of so many that lie far apart. Damaged tuples are refused.
 */
extern void dana_source_scan(dana_source *source, const char *filter, uint32 sample, uint64 limit,
							 bool (*take)(TupleTableSlot *row, void *context), void *context);

/* The columns of the table or of the query */
extern TupleDesc dana_source_columns(dana_source *source);

/* Looks into array columns, unless it was done; what it finds is in the current memory context */
extern void dana_source_probe(dana_source *source);

/* Appends the description for the worker, a member "relation"; probes first */
extern void dana_source_describe(dana_source *source, StringInfo to);
