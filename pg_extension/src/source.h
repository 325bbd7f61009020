/*
 * What a training reads, as a stream of pages: a table's own pages, or frames made from rows.
 */
#pragma once

#include "storage/bufmgr.h"
#include "utils/tuplestore.h"

#include "values.h"

typedef struct dana_array_probe dana_array_probe;
typedef struct dana_assumed dana_assumed;
typedef struct dana_filter dana_filter;
typedef struct dana_frames dana_frames;
typedef struct dana_rows dana_rows;

/* What to do with a row that has a NaN or an infinity in a used column */
typedef enum dana_nonfinite_policy
{
	DANA_NONFINITE_SKIP,
	DANA_NONFINITE_KEEP,
	DANA_NONFINITE_ERROR
} dana_nonfinite_policy;

/* How values become numbers, as the caller of dana_train() wishes */
typedef struct dana_cleaning
{
	dana_null_policy	  nulls;
	float				  fill; /* for DANA_NULLS_FILL */
	dana_nonfinite_policy nonfinite;
	dana_texts			  classes; /* labels in the order of their numbers, from 0; count -1: none are given */
	const char			 *weight; /* column of the rows' weights, or NULL */
} dana_cleaning;

/* Features that are encoded: columns of rows, and more columns for the worker */
typedef struct dana_encoding
{
	int			  count; /* features */
	dana_encoder *encoders;
	int			 *numbers; /* of the source's columns, from 1: the features, then the weight and the labels */
	int			  labels; /* with the weight */
	int			  columns; /* that the features become */
} dana_encoding;

/* What frames look like, as the worker wishes */
typedef struct dana_frame_layout
{
	int	   attributes; /* of a tuple: one for each number of a column that is encoded */
	int	   columns; /* the last one is the label where there are classes */
	int	  *numbers; /* attributes of the rows */
	int	  *lengths; /* elements of array columns, 0 for a scalar */
	uint32 page_size;
	uint32 part; /* values of a part, where a row lies over several frames; 0: a row is a tuple */
} dana_frame_layout;

/* What the caller asks for */
typedef struct dana_source_request
{
	Oid			  relation; /* or InvalidOid, and then */
	char		 *query;	/* one SELECT */
	char		 *filter;	/* condition on the table's rows, or NULL; checked to be one expression */
	bool		  shuffled; /* the table's rows come in a random order, which `seed` chooses */
	int			  seed;
	dana_cleaning cleaning;
} dana_source_request;

typedef struct dana_source
{
	Relation	  relation; /* locked AccessShareLock until the transaction ends; NULL: a query */
	Snapshot	  snapshot;
	dana_encoding *encoding; /* or NULL: columns are numbers */
	bool		   held_out; /* these are the rows that are left out of a training */
	dana_texts	  features; /* for the worker, instead of the caller's; count -1: these */
	char		 *label_column; /* likewise, or NULL */
	BlockNumber	  pages; /* every page that the snapshot can see rows on */
	char		 *name;	 /* qualified and quoted */
	dana_source_request asked;
	bool		  heap; /* the relation's pages are its own, and heapam's */
	dana_texts	  targets;	 /* the weight and the labels, whose NULLs nothing fills */
	dana_texts	  classes_found; /* of the label, in the order of their numbers; count -1: there are none */
	int			  class_column;	 /* of the label whose classes were found, from 1; 0: they were not looked for */
	char		 *class_type;	 /* SQL's name of the label's type, or NULL */
	Jsonb		 *datetimes;		 /* by column in use the type of what is a date or a time, or NULL */
	dana_assumed *assumed; /* these classes are; NULL: all rows were looked at */
	Jsonb		 *largest;		 /* by column of categories its largest number, or NULL: nobody looked */
	dana_texts	  choosing;		 /* columns whose numbers choose rows of models */
	bool		  rows; /* rows have to be made into frames, whatever the columns */
	bool		  spi;	/* we are connected to SPI */
	dana_array_probe *probe; /* what was found of array columns, or NULL: it was not looked for */
	dana_filter	 *compiled; /* the filter, for pages */
	/* the current stream */
	dana_rows *plan; /* NULL: pages */
	dana_frame_layout layout; /* of frames; its numbers are those of the plan's columns */
	int		   streams; /* so far */
	int		   classes; /* that the rule numbers its label by, or 0 */
	Tuplestorestate *stored; /* rows to stream instead of the plan's, or NULL */
	TupleDesc		 stored_type;
} dana_source;

/* schema.c: tuples as they lie on a page that may be damaged */

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
 * Hands the rows of a heap that pass a filter (or NULL) to `take`, until that returns false or `limit` were looked at;
 * 0: all of them. Those of all pages, or of a `sample` of so many that lie far apart. Damaged tuples are refused.
 */
extern void dana_source_scan(dana_source *source, const char *filter, uint32 sample, uint64 limit,
							 bool (*take)(TupleTableSlot *row, void *context), void *context);

/* The columns of the table or of the query */
extern TupleDesc dana_source_columns(dana_source *source);

/* Looks into array columns, unless it was done; what it finds is in the current memory context */
extern void dana_source_probe(dana_source *source);

/* Appends the description for the worker, a member "relation"; probes first */
extern void dana_source_describe(dana_source *source, StringInfo to);

/* encode.c: what is done to the features of a training, and its look at the rows */

typedef struct dana_training dana_training;

/* Decides on it, looks at the rows where it must, and says what is done; for a rule of this description */
extern void dana_source_encode(dana_source *source, const dana_training *training, Jsonb *description);

/* The columns that the features become */
extern dana_texts dana_encoding_names(const dana_encoding *encoding);

/* Appends what the model's metadata keep of it: members "features", "encoded", "preprocess" */
extern void dana_encoding_append(StringInfo to, const dana_encoding *encoding);

/* frames.c: rows as synthetic pages of real and real[] columns, for what a Strider cannot read where it lies */

/* Frames for the rows of a source's plan. Adding one, as dana_rows_each() does, may wait for space in the ring. */
extern dana_frames *dana_frames_begin(const dana_source *source);
extern bool			dana_frames_add(TupleTableSlot *row, void *frames);
extern void			dana_frames_finish(dana_frames *frames);

/* labels.c: what a label's values were taken for, before all were seen */

/* That they are the whole numbers below `classes`; of an attribute that holds a number of fixed length */
extern dana_assumed *dana_assumed_begin(const dana_type *holds, int attribute, int classes);

/* Looks at the labels of a page's tuples; false: one is none of these numbers. The rows of all pages must be looked at. */
extern bool dana_assumed_look(dana_source *source, BlockNumber block, Page page, const dana_tuple_shape *shape);

/* Whether they are all these numbers, and each is there */
extern bool dana_assumed_holds(const dana_assumed *assumed);

/* toast.c: values stored out of line, read where their chunks lie one behind the other */

typedef struct dana_toast dana_toast;

/* A reader; it opens a TOAST table when a value needs it, and keeps the last one open */
extern dana_toast *dana_toast_begin(void);

/* A varlena value in line, perhaps still compressed, in the current memory context; or as it was given */
extern Datum dana_toast_fetch(dana_toast *reader, Datum value);

/* Closes what is open; after an error the transaction's end does */
extern void dana_toast_end(dana_toast *reader);

/* rows.c: rows of a query, and a condition on rows, both written by the caller of dana_train() */

/*
 * Plans a statement, which must be one SELECT. It belongs to the SPI connection that the caller made. `in_order`: rows
 * come as they lie in their tables, not as an index has them.
 */
extern dana_rows *dana_rows_plan(const char *text, const char *name, bool in_order);
extern TupleDesc dana_rows_descriptor(dana_rows *rows);

/* Whether two runs under one snapshot may differ */
extern bool dana_rows_volatile(dana_rows *rows);

/*
 * Runs the statement on the caller's snapshot with the caller's rights, and hands each row to `take`, until that
 * returns false or there were `limit`; 0: all of them
 */
extern void dana_rows_each(dana_rows *rows, uint64 limit, bool (*take)(TupleTableSlot *row, void *context),
						   void *context);

/* Raises an error unless the text is one expression, so that it may stand between parentheses in a statement */
extern void dana_filter_check(const char *text);

/* Compiles an expression over the columns of a table, with the caller's rights */
extern dana_filter *dana_filter_compile(Relation relation, const char *text);

/* Whether a tuple passes: true, not false or NULL. Call it with no buffer locked: it may run functions of users. */
extern bool dana_filter_passes(dana_filter *filter, HeapTuple tuple);
extern void dana_filter_free(dana_filter *filter);

/* source.c */

/* Opens a table or a query; raises an error that names the reason where it may not or cannot be trained on */
extern dana_source *dana_source_open(const dana_source_request *request);
extern void			dana_source_close(dana_source *source);

/*
 * Raises the errors of a SELECT that names a relation, for one that came as a number: where there is none, without USAGE
 * on its schema, and without SELECT on any column
 */
extern void dana_require_relation(Oid relation);

/* A relation's name, qualified and quoted; an error where there is none */
extern char *dana_relation_name(Oid relation);

/* Whether such a name, which may be an older one, is that relation's; no error where it is none's */
extern bool dana_relation_is(Oid relation, const char *name);

/* What a relation is whose rows have no place of their own, "view" or "foreign table"; NULL of others, and of none */
extern const char *dana_placeless(Oid relation);

/*
 * Takes the worker's wish: which columns it wants as frames, or (NULL) pages as they are; and its design, which says
 * which columns are in use and which classes the rule numbers a label by
 */
extern void dana_source_adopt(dana_source *source, Jsonb *stream, Jsonb *design);

/* Streams every page or row once, in the same order each time, through the ring */
extern void dana_source_stream(dana_source *source);

/*
 * The tuple that a line pointer points to; false where it points to none. Its bytes lie on the page. That the line
 * pointers do, PostgreSQL has checked when it read the page.
 */
extern bool dana_tuple_on_page(const dana_source *source, BlockNumber block, Page page, OffsetNumber i, HeapTuple tuple);

extern _Noreturn void dana_source_corrupt(const dana_source *source, BlockNumber block, const char *what);

/* SELECT of some columns of the source's table, under its filter; numbers are attribute numbers */
extern char *dana_source_select(dana_source *source, int columns, const int *numbers);

/* A plan for a statement of the source's; connects to SPI for as long as the source is open */
extern dana_rows *dana_source_plan(dana_source *source, const char *text);
