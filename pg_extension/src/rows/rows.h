/*
 * Rows of a query, and a condition on rows, both passed by the caller of dana_train().
 */
#pragma once

typedef struct dana_filter dana_filter;
typedef struct dana_rows dana_rows;

/*
 * Plans a statement, which must be one SELECT, in the caller's SPI connection. `in_order`: rows come in the order of
 * their tables, not of an index.
 */
extern dana_rows *dana_rows_plan(const char *text, const char *name, bool in_order);
extern TupleDesc dana_rows_descriptor(dana_rows *rows);

/* Whether two runs under one snapshot may differ */
extern bool dana_rows_volatile(dana_rows *rows);

/*
 * Runs the statement on the caller's snapshot with the caller's rights, and passes each row to `take` until it returns
 * false or `limit` rows were passed; 0: all rows
 */
extern void dana_rows_each(dana_rows *rows, uint64 limit, bool (*take)(TupleTableSlot *row, void *context),
						   void *context);

/* Raises an error unless the text is one expression, so that it may be put between parentheses in a statement */
extern void dana_filter_check(const char *text);

/*
 * The same for another server that has the table: PostgreSQL's own text of the expression. An error unless it has only
 * functions that do the same there, and nothing but that
 */
extern char *dana_filter_elsewhere(Relation relation, const char *text);

/* Compiles an expression over the columns of a table, with the caller's rights */
extern dana_filter *dana_filter_compile(Relation relation, const char *text);

/* Whether a tuple passes: true, not false or NULL. Called with no buffer locked: it may run user-defined functions. */
extern bool dana_filter_passes(dana_filter *filter, HeapTuple tuple);
extern void dana_filter_free(dana_filter *filter);
