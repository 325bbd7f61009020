/*
 * The rows that a training leaves out, for a test and for validation.
 */
#pragma once

#include "request/training.h"

/*
 * Leaves rows out of a training, as its arguments ask; `stratify`: each class has its share in every part, which reads the
 * labels
 */
extern void dana_split_rows(dana_training *training, bool stratify);

/* Leaves out all rows that do not satisfy a condition, before which none were left out for a test */
extern void dana_split_restrict(dana_training *training, const char *condition);

/*
 * SQL for the number of a row's part, from 0, of `folds` equal parts; or, without folds, for whether the row is one of
 * `test_size` of the rows, or later than `test_after`
 */
extern char *dana_split_folds(const dana_training *training, int folds);
