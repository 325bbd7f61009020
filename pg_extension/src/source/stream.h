/*
 * A training's source, as a stream of pages: a table's own pages, or frames made from rows.
 */
#pragma once

#include "source/source.h"

/* Opens a table or a query; an error if it may not or cannot be trained on */
extern dana_source *dana_source_open(const dana_source_request *request);
extern void			dana_source_close(dana_source *source);

/* Opens a table, locked AccessShareLock; an error if the caller may not read its pages, or it has none of its own */
extern Relation dana_source_heap(Oid id);

/*
 * Prepares the stream that the worker requests: frames of certain columns, or (NULL) pages as they are. Its design has
 * the columns in use and the number of classes.
 */
extern void dana_source_adopt(dana_source *source, Jsonb *stream, Jsonb *design);

/* Streams all pages or rows through the ring, in the same order each time */
extern void dana_source_stream(dana_source *source);
