/*
 * The rows that a training leaves out for a test, and how to find them again.
 */
#pragma once

#include "base/dana.h"

/* The number of all classes without parts of their own; the numbers of others are from 0 to 1 */
#define DANA_OTHER_CLASSES 2.0

/* Numbers of rows and of classes are whole multiples of this */
#define DANA_DRAW_UNIT 0x1p-53

/* How rows are divided into parts; part 0 is held out */
typedef struct dana_split
{
	dana_texts	key;   /* columns that identify a row; count 0: all of its columns do, or its place */
	const char *row;   /* SQL for all columns of a row, if they identify it; or NULL */
	int			seed;
	const char *parts; /* float8[][]: a class's number, then the bounds of its parts; sorted, last all other classes */
	const char *label; /* column of these classes, or NULL */
	const char *time;  /* column, if the rows later than a value are held out; or NULL */
	Oid			time_type;
	const char *after; /* that value */
} dana_split;

/* A number in [0, 1) that a seed and the values of a key give; a domain's type is its base type */
extern double dana_draw(int seed, const Oid *types, const NullableDatum *key, int count);

/* The number of a class */
extern double dana_draw_of_class(Oid type, NullableDatum label);

/* The columns of a table's primary key; count 0: it has none */
extern dana_texts dana_key_of(Oid table);

/* SQL for the number of a row's part, from 0; and SQL that is true for rows that are held out */
extern char *dana_split_part(const dana_split *split);
extern char *dana_split_condition(const dana_split *split);

/* Appends to a model's metadata what dana_split_read() needs, for rows of a table or a query that the snapshot sees */
extern void dana_split_append(StringInfo to, const dana_split *split, TupleDesc columns, Oid table, Snapshot snapshot);

/* Whether rows still have the places that they had when a model was trained */
typedef struct dana_places
{
	bool		moved; /* some do not, or this is unknown */
	const char *later; /* SQL that is true for a row that was written since, with parameters $7 and $8: */
	Datum		first; /* xid of the first transaction that is later */
	Datum		running; /* xid[] of the transactions that were running */
} dana_places;

/* Whether a training left rows out for a test, from the model's metadata */
extern bool dana_split_exists(Jsonb *metadata);

/*
 * SQL that is true for the rows that a training left out, from the model's metadata, for rows of a table or (InvalidOid)
 * of a query; `row` is SQL for all columns of one
 */
extern char *dana_split_read(Jsonb *metadata, TupleDesc columns, const char *row, Oid table, const char *model,
							 dana_places *places);

/* Reports that an evaluated part may differ from the training's; `later` of its rows were written since */
extern void dana_places_report(const dana_places *places, Oid table, const char *model, const char *part, int64 later,
							 int64 rows);
