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

/* Runs the statement on the caller's snapshot with the caller's rights, and adds its rows to the frames */
extern void dana_rows_stream(dana_rows *rows, dana_frames *frames);

/* Runs it likewise, and hands each row to `take`, until that returns false or there were `limit`; 0: all of them */
extern void dana_rows_each(dana_rows *rows, uint64 limit, bool (*take)(TupleTableSlot *row, void *context),
						   void *context);
