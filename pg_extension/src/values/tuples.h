/*
 * Tuples as they lie on a page that may be damaged.
 */
#pragma once

/* Size of a stored value of a type with `typlen`; 0 if it does not fit in `left` bytes, 1 or more */
extern Size dana_value_size(const char *at, Size left, int16 typlen);

typedef struct dana_tuple_shape dana_tuple_shape;

/* The attributes of a table's tuples, in one array */
extern dana_tuple_shape *dana_tuple_shape_of(TupleDesc descriptor);

/*
 * What contradicts the shape in a tuple with t_len readable bytes; NULL: nothing does, and PostgreSQL's functions find
 * all its values within it. The contents of values are not checked.
 */
extern const char *dana_tuple_damage(const dana_tuple_shape *shape, HeapTuple tuple);

/* Offset of a column behind a tuple's header if no value before it is NULL; -1: not known in advance */
extern int dana_column_offset(const dana_tuple_shape *shape, int column);

/*
 * The tuple of a line pointer; false if it has none. Its bytes lie on the page: PostgreSQL has checked the line
 * pointers when it read the page.
 */
extern bool dana_tuple_on_page(Relation table, BlockNumber block, Page page, OffsetNumber i, HeapTuple tuple);

extern _Noreturn void dana_page_corrupt(Relation table, BlockNumber block, const char *what);
