/*
 * The rows that a training leaves out for a test, and how to find them again.
 */
#pragma once

#include "base/dana.h"

/* SQL that is true for rows that are held out; `place` identifies rows: "ctid" or an expression */
extern char *dana_holdout_expression(const char *place, double part, int seed);

/* The columns of a table's primary key; count 0: it has no key that identifies rows */
extern dana_texts dana_key_of(Oid table);

/* SQL that is true for rows that are held out by such a key, or by ctid if it has no columns */
extern char *dana_holdout_of_key(const dana_texts *key, double part, int seed);

/* Appends the member "test_key" of the model's metadata, or "test_places" for rows that the snapshot sees */
extern void dana_places_append(StringInfo to, Oid table, const dana_texts *key, Snapshot snapshot);

/* Whether rows still have the places that they had when a model was trained */
typedef struct dana_places
{
	bool		moved; /* some do not, or this is unknown */
	const char *later; /* SQL that is true for a row that was written since, with parameters $7 and $8: */
	Datum		first; /* xid of the first transaction that is later */
	Datum		running; /* xid[] of the transactions that were running */
} dana_places;

/* SQL that is true for the rows of a table that a training left out, from the model's metadata */
extern char *dana_places_read(Jsonb *metadata, Oid table, const char *model, dana_places *places);

/* Reports that an evaluated part may differ from the training's; `later` of its rows were written since */
extern void dana_places_report(const dana_places *places, Oid table, const char *model, const char *part, int64 later,
							 int64 rows);
