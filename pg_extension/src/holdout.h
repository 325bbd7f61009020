/*
 * Parts of the rows, for statements of our own: SQL expressions. `place` is an expression of type tid or text.
 */
#pragma once

/* Whether a row is in the part that is left out */
extern char *dana_holdout_expression(const char *place, double part, int seed);

/* The number of a row's fold, from 1 */
extern char *dana_fold_expression(const char *place, int folds, int seed);
