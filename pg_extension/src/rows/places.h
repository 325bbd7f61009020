/*
 * The rows that a training leaves out for a test, and where to find them again.
 */
#pragma once

#include "base/dana.h"

/* SQL that is true of rows that are held out; `place`: what tells them apart, "ctid" or an expression */
extern char *dana_holdout_expression(const char *place, double part, int seed);

/* The columns of a table's primary key; count 0: it has none that rows are chosen by */
extern dana_texts dana_key_of(Oid table);

/* SQL that is true of rows that are held out by such a key, or by ctid where it has no columns */
extern char *dana_holdout_of_key(const dana_texts *key, double part, int seed);

/* Appends what the model's metadata keep of it: member "test_key", or "test_places" for rows that the snapshot sees */
extern void dana_places_append(StringInfo to, Oid table, const dana_texts *key, Snapshot snapshot);

/* Whether rows are still where they were when a model was trained */
typedef struct dana_places
{
	bool		moved; /* some of them are not, or nobody knows */
	const char *later; /* SQL that is true of a row that was written since, by parameters $7 and $8: */
	Datum		first; /* xid of the first transaction that is later */
	Datum		running; /* xid[] of those that ran then */
} dana_places;

/* SQL that is true of the rows of a table that a training left out, by the model's metadata */
extern char *dana_places_read(Jsonb *metadata, Oid table, const char *model, dana_places *places);

/* Says of an evaluated part that it may be another one; `later` of its rows were written since */
extern void dana_places_tell(const dana_places *places, Oid table, const char *model, const char *part, int64 later,
							 int64 rows);
