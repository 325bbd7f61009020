/*
 * Tuples as they lie on a page that may be damaged.
 */
#pragma once

/* Bytes of a stored value of a type whose pg_type.typlen is `typlen`; 0 where it does not lie within `left` bytes, 1 or more */
extern Size dana_value_size(const char *at, Size left, int16 typlen);

typedef struct dana_tuple_shape dana_tuple_shape;

/* What is to be known of a table's tuples, in one piece */
extern dana_tuple_shape *dana_tuple_shape_of(TupleDesc descriptor);

/*
 * What contradicts the shape in a tuple whose t_len bytes are there; NULL: nothing does, and PostgreSQL's functions
 * find all of its values within it. What is in the values is not looked at.
 */
extern const char *dana_tuple_damage(const dana_tuple_shape *shape, HeapTuple tuple);

/* Where a column lies behind a tuple's header if no value before it is NULL; -1: that is not known beforehand */
extern int dana_column_offset(const dana_tuple_shape *shape, int column);

/*
 * The tuple that a line pointer points to; false where it points to none. Its bytes lie on the page. That the line
 * pointers do, PostgreSQL has checked when it read the page.
 */
extern bool dana_tuple_on_page(Relation table, BlockNumber block, Page page, OffsetNumber i, HeapTuple tuple);

extern _Noreturn void dana_page_corrupt(Relation table, BlockNumber block, const char *what);
