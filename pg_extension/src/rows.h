/*
 * Rows of a query as a stream of frames.
 */
#pragma once

#include "access/tupdesc.h"

#include "frames.h"

typedef struct dana_rows dana_rows;

/*
 * Plans a statement, which must be one SELECT. It belongs to the SPI connection that the caller made. `in_order`: rows
 * come as they lie in their tables, not as an index has them.
 */
extern dana_rows *dana_rows_plan(const char *text, const char *name, bool in_order);

/* The columns of its rows */
extern TupleDesc dana_rows_descriptor(dana_rows *rows);

/* Whether two runs under one snapshot may differ */
extern bool dana_rows_volatile(dana_rows *rows);

/*
 * For each column, the number of elements of the first one-dimensional array in it; -1 where none of the first `limit`
 * rows has one
 */
extern int *dana_rows_array_lengths(dana_rows *rows, uint64 limit);

/* Runs the statement on the caller's snapshot with the caller's rights, and adds its rows to the frames */
extern void dana_rows_stream(dana_rows *rows, dana_frames *frames);

/* Runs the statement likewise, and hands each row to `take` */
extern void dana_rows_each(dana_rows *rows, void (*take)(TupleTableSlot *row, void *context), void *context);
