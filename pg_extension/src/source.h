/*
 * A table as a stream of pages: what may be streamed, what it looks like, and the streaming.
 */
#ifndef DANA_SOURCE_H
#define DANA_SOURCE_H

#include "postgres.h"

#include "lib/stringinfo.h"
#include "storage/block.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

typedef struct dana_source
{
	Relation	relation; /* locked AccessShareLock until the transaction ends */
	Snapshot	snapshot;
	BlockNumber pages;	  /* every page that the snapshot can see rows on */
	char	   *name;	  /* qualified and quoted */
} dana_source;

/* Opens a table for streaming; raises an error that names the reason where it may not or cannot be streamed */
extern dana_source *dana_source_open(Oid relation_id);
extern void			dana_source_close(dana_source *source);

/* Appends the table's description for the worker, a JSON object */
extern void dana_source_describe(dana_source *source, StringInfo to);

/* Streams every page once, in heap order, through the ring */
extern void dana_source_stream(dana_source *source);

#endif /* DANA_SOURCE_H */
