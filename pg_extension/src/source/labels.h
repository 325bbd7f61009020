/*
 * What a label's values were assumed to be, checked as pages are streamed.
 */
#pragma once

#include "source/source.h"
#include "values/tuples.h"
#include "values/values.h"

typedef struct dana_assumed dana_assumed;

/* That they are the whole numbers below `classes`; of an attribute that holds a number of fixed length */
extern dana_assumed *dana_assumed_begin(const dana_type *holds, int attribute, int classes);

/* Looks at the labels of a page's tuples; false: one is none of these numbers. The rows of all pages must be looked at. */
extern bool dana_assumed_look(dana_source *source, BlockNumber block, Page page, const dana_tuple_shape *shape);

/* Whether they are all these numbers, and each is there */
extern bool dana_assumed_holds(const dana_assumed *assumed);
