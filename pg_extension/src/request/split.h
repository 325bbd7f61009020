/*
 * The rows that a training leaves out, for a test and for validation.
 */
#pragma once

#include "request/training.h"
#include "values/agreed.h"

/*
 * Leaves rows out of a training, as its arguments ask; `stratify`: each class has its share in every part, which reads the
 * labels
 */
extern void dana_split_rows(dana_training *training, bool stratify);

/*
 * Rows for a test of a table's shards, which no server has together. Each counts the rows of a class and a number; the
 * bounds follow from the counts of all, as from those of one table.
 */
typedef struct dana_drawn
{
	double class;
	double number;
	int64  count; /* of rows with this number */
} dana_drawn;

/*
 * What identifies a row of such a table, whose primary key is given, in a division for a test or for validation; it has
 * no parts yet, unless a time divides the rows
 */
extern dana_split dana_split_elsewhere(const dana_training *training, TupleDesc columns, const dana_texts *key, bool test);

/* The part of the rows that is for validation, 0: none; an error for arguments that contradict each other */
extern double dana_split_validation(const dana_training *training);

/* Sets the splits of a training that leads: the other parts divide their rows, it has none */
extern void dana_split_known(dana_training *training);

/* Sets the parts of one with a label, or a column that the caller names; classes are forgotten if there are too many numbers */
extern void dana_split_cut(dana_split *split, dana_drawn *rows, Size count, double size);

/* Leaves out all rows that do not satisfy a condition, before which none were left out for a test */
extern void dana_split_restrict(dana_training *training, const char *condition);

/*
 * SQL for the number of a row's part, from 0, of `folds` equal parts; or, without folds, for whether the row is one of
 * `test_size` of the rows, or later than `test_after`
 */
extern char *dana_split_folds(const dana_training *training, int folds);
