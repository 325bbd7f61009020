/*
 * A training's source: what its owners fill in, one struct each.
 */
#pragma once

#include "storage/bufmgr.h"
#include "utils/tuplestore.h"

#include "base/dana.h"
#include "rows/rows.h"
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
	double				  fill; /* for DANA_NULLS_FILL */
	dana_nonfinite_policy nonfinite;
	dana_texts			  classes; /* labels in the order of their class numbers, from 0; count -1: not given */
	const char			 *weight; /* column of the rows' weights, or NULL */
} dana_cleaning;

/* The arguments that choose rows */
typedef struct dana_source_request
{
	Oid			  relation; /* InvalidOid for a query */
	Oid			  given;	/* the table that the caller named; `relation` may have rows of its shards */
	char		 *query;	/* one SELECT */
	char		 *filter;	/* condition on the table's rows, or NULL; checked to be one expression */
	dana_cleaning cleaning;
} dana_source_request;

/* What features/ and request/ decide about the columns, before the worker is asked; filled by these folders */
typedef struct dana_choices
{
	dana_encoding *encoding; /* or NULL: columns are numbers */
	dana_texts	   features; /* for the worker, in place of the caller's; count -1: the caller's */
	char		  *label;	 /* for the worker, in place of the caller's, or NULL */
	dana_texts	   targets;	 /* the weight and the labels, where a NULL is never replaced */
	dana_texts	   classes;	 /* of the label, in the order of their numbers; count -1: there are none */
	dana_assumed  *assumed;	 /* the classes are, from a sample; NULL: all rows were scanned */
	int			   class_column; /* number, from 1, of the label with these classes; 0: not looked for */
	const char	  *class_type;	 /* SQL's name of the label's type, or NULL */
	Jsonb		  *types;		 /* of the columns in use, or NULL */
	dana_texts	   choosing;	 /* columns with numbers that choose rows of models */
	Jsonb		  *largest;		 /* largest number of each such column, or NULL: not needed */
} dana_choices;

/* Layout of frames, as the worker requests it */
typedef struct dana_frame_layout
{
	int	   attributes; /* columns of a tuple: one for each number of an encoded column */
	int	   columns; /* the last one is the label if there are classes */
	int	  *numbers; /* attributes of the rows */
	int	  *lengths; /* elements of array columns, 0 for a scalar */
	uint32 page_size;
	uint32 part; /* values in a part, if a row is longer than a frame; 0: a row is a tuple */
	double *centres; /* to subtract from the values of a row, or NULL */
} dana_frame_layout;

/* The current stream; filled by dana_source_adopt(), and by dana_train_groups() for rows that it stores */
typedef struct dana_stream
{
	dana_rows		 *plan;	  /* NULL: pages */
	dana_frame_layout layout; /* of frames; its numbers are those of the plan's columns */
	int				  count;  /* of streams so far */
	bool			  reported; /* rows that are left out, once for a training */
	int				  classes; /* number of classes in the rule, or 0 */
	Tuplestorestate	 *stored;  /* rows to stream instead of the plan's, or NULL */
	TupleDesc		  row_type; /* of stored rows */
} dana_stream;

/* A table or a query; filled by dana_source_open() */
typedef struct dana_source
{
	dana_source_request asked;
	Relation	  relation; /* locked AccessShareLock until the transaction ends; NULL: a query */
	Snapshot	  snapshot;
	char		 *name;		/* of the table that the caller named, for messages; qualified and quoted */
	char		 *from;		/* of the relation, for statements and metadata */
	bool		  heap;		/* a heap with pages of its own */
	BlockNumber	  pages;	/* all pages with rows that the snapshot can see */
	dana_filter	 *compiled; /* the filter, for pages */
	bool		  held_out; /* the rows that are left out of a training */
	bool		  shard;	/* a part of a training's rows, which may have none */
	bool		  rows;		/* always streamed as frames */
	bool		  spi;		/* connected to SPI */
	dana_array_probe *probe; /* properties of array columns, or NULL: not examined yet */
	dana_choices chosen;
	dana_stream	 stream;
} dana_source;
