/*
 * Pages from other servers, appended to a temporary table after a check of each value.
 */
#ifndef DANA_CALLS_SHARD_H
#define DANA_CALLS_SHARD_H

#include "utils/relcache.h"

#include "base/dana.h"

/* A table that takes pages; an error unless no other session sees it, and an abort removes it */
typedef struct dana_taking dana_taking;

/* `key`: columns to compare for duplicates, or NULL */
extern dana_taking *dana_taking_begin(Oid relation, const dana_texts *key);
extern int64		dana_taking_add(dana_taking *taking, const char *pages, Size size); /* whole pages, at any address; how many rows */

/* Whether it is certain that no two rows have the same key, which was given */
extern bool dana_taking_distinct(dana_taking *taking);
extern void dana_taking_end(dana_taking *taking);

#endif
