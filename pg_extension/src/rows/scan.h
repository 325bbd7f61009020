/*
 * A scan of a heap's pages.
 */
#pragma once

#include "executor/tuptable.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/*
 * Passes the rows of a heap that satisfy a filter (or NULL) to `take`, until it returns false or `limit` were passed;
 * 0: all rows. Reads all pages, or a `sample` of so many evenly spaced ones of the first `pages`. A damaged tuple is an
 * error, because the executor, which trusts tuples, may read them next.
 */
extern void dana_scan(Relation table, Snapshot snapshot, const char *filter, BlockNumber pages, uint32 sample, uint64 limit,
					  bool (*take)(TupleTableSlot *row, void *context), void *context);
