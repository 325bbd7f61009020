/*
 * A training's source, as a stream of pages: a table's own pages, or frames made from rows.
 */
#pragma once

#include "storage/bufmgr.h"
#include "utils/tuplestore.h"

#include "base/dana.h"
#include "rows/rows.h"
#include "source/frames.h"
#include "values/encode.h"

typedef struct dana_array_probe dana_array_probe;
typedef struct dana_assumed dana_assumed;

/* What to do with a row that has a NaN or an infinity in a used column */
typedef enum dana_nonfinite_policy
{
	DANA_NONFINITE_SKIP,
	DANA_NONFINITE_KEEP,
	DANA_NONFINITE_ERROR
} dana_nonfinite_policy;

/* How values become numbers, from the arguments of dana_train() */
typedef struct dana_cleaning
{
	dana_null_policy	  nulls;
	float				  fill; /* for DANA_NULLS_FILL */
	dana_nonfinite_policy nonfinite;
	dana_texts			  classes; /* labels in the order of their class numbers, from 0; count -1: not given */
	const char			 *weight; /* column of the rows' weights, or NULL */
} dana_cleaning;

/* The arguments that choose rows */
typedef struct dana_source_request
{
	Oid			  relation; /* InvalidOid for a query */
	char		 *query;	/* one SELECT */
	char		 *filter;	/* condition on the table's rows, or NULL; checked to be one expression */
	bool		  shuffled; /* the table's rows come in a random order that depends on `seed` */
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

/* Opens a table or a query; raises an error that names the reason where it may not or cannot be trained on */
extern dana_source *dana_source_open(const dana_source_request *request);
extern void			dana_source_close(dana_source *source);

/*
 * Takes the worker's settings: which columns it wants as frames, or (NULL) pages as they are; and its design, which says
 * which columns are in use and which classes the rule numbers a label by
 */
extern void dana_source_adopt(dana_source *source, Jsonb *stream, Jsonb *design);

/* Streams every page or row once, in the same order each time, through the ring */
extern void dana_source_stream(dana_source *source);

/* SELECT of some columns of the source's table, under its filter; numbers are attribute numbers */
extern char *dana_source_select(dana_source *source, int columns, const int *numbers);

/* A plan for a statement of the source's; connects to SPI for as long as the source is open */
extern dana_rows *dana_source_plan(dana_source *source, const char *text);
