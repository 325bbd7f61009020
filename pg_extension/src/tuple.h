/*
 * Tuples as they lie on a page that may be damaged.
 */
#pragma once

#include "access/htup.h"
#include "access/tupdesc.h"

/* Bytes of a stored value of a type whose pg_type.typlen is `typlen`; 0 where it does not lie within `left` bytes */
extern Size dana_value_size(const char *at, Size left, int16 typlen);

typedef struct dana_tuple_shape dana_tuple_shape;

/* What is to be known of a table's tuples, in one piece */
extern dana_tuple_shape *dana_tuple_shape_of(TupleDesc descriptor);

/*
 * What contradicts the shape in a tuple whose t_len bytes are there; NULL: nothing does, and PostgreSQL's functions find
 * all of its values within it. What is in the values is not looked at.
 */
extern const char *dana_tuple_damage(const dana_tuple_shape *shape, HeapTuple tuple);
