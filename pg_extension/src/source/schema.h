/*
 * The columns of a source, and a scan of its rows.
 */
#pragma once

#include "source/source.h"

typedef struct dana_array_probe dana_array_probe;

/*
 * Passes the rows of a heap that satisfy a filter (or NULL) to `take`, until it returns false or `limit` were passed;
 * 0: all rows. Reads all pages, or a `sample` of so many evenly spaced ones. A damaged tuple is an error.
 */
extern void dana_source_scan(dana_source *source, const char *filter, uint32 sample, uint64 limit,
							 bool (*take)(TupleTableSlot *row, void *context), void *context);

/* The columns of the table or of the query */
extern TupleDesc dana_source_columns(dana_source *source);

/* Examines array columns, unless that is done; the result is in the current memory context */
extern void dana_source_probe(dana_source *source);

/* Appends the description for the worker, a member "relation"; probes first */
extern void dana_source_describe(dana_source *source, StringInfo to);
