/*
 * Assumed classes of a label, checked as pages are streamed.
 */
#pragma once

#include "source/source.h"
#include "values/tuples.h"
#include "values/values.h"

typedef struct dana_assumed dana_assumed;

/* Begins a check that labels are the integers below `classes`; for an attribute that holds a number of fixed length */
extern dana_assumed *dana_assumed_begin(const dana_type *holds, int attribute, int classes);

/* Checks the labels of a page's tuples; false: one is not such an integer. Must be called for the rows of all pages. */
extern bool dana_assumed_check(dana_source *source, BlockNumber block, Page page, const dana_tuple_shape *shape);

/* Whether labels are such integers, and each occurs */
extern bool dana_assumed_holds(const dana_assumed *assumed);
