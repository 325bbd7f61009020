/*
 * What a training reads, as a stream of pages: a table's own pages, or frames made from rows.
 */
#pragma once

#include "lib/stringinfo.h"
#include "storage/block.h"
#include "utils/jsonb.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"
#include "utils/tuplestore.h"

#include "filter.h"
#include "frames.h"
#include "label.h"
#include "rows.h"

/* What the caller asks for */
typedef struct dana_source_request
{
	Oid			  relation; /* or InvalidOid, and then */
	const char	 *query;	/* one SELECT */
	const char	 *filter;	/* condition on the table's rows, or NULL; checked to be one expression */
	dana_cleaning cleaning;
} dana_source_request;

typedef struct dana_array_probe dana_array_probe;

typedef struct dana_source
{
	Relation	  relation; /* locked AccessShareLock until the transaction ends; NULL: a query */
	Snapshot	  snapshot;
	BlockNumber	  pages; /* every page that the snapshot can see rows on */
	char		 *name;	 /* qualified and quoted */
	const char	 *query;
	const char	 *filter;
	dana_cleaning cleaning;
	bool		  rows; /* rows have to be made into frames, whatever the columns */
	bool		  spi;	/* we are connected to SPI */
	dana_array_probe *probe; /* what was found of array columns, or NULL: it was not looked for */
	dana_filter	 *compiled; /* the filter, for pages */
	/* the current stream */
	dana_rows *plan; /* NULL: pages */
	dana_frame_layout layout; /* of frames; its numbers are those of the plan's columns */
	int		   streams; /* so far */
	int		   classes; /* that the rule numbers its label by, or 0 */
	dana_label *label;	/* of the pages' tuples, or NULL; frames have it as their last column */
	Tuplestorestate *stored; /* rows to stream instead of the plan's, or NULL */
	TupleDesc		 stored_type;
} dana_source;

/* Opens a table or a query; raises an error that names the reason where it may not or cannot be trained on */
extern dana_source *dana_source_open(const dana_source_request *request);
extern void			dana_source_close(dana_source *source);

/* A relation's name, qualified and quoted; an error where there is none */
extern char *dana_relation_name(Oid relation);

/* Looks into array columns, unless it was done; what it finds is in the current memory context */
extern void dana_source_probe(dana_source *source);

/* Appends the description for the worker, a member "relation"; probes first */
extern void dana_source_describe(dana_source *source, StringInfo to);

/*
 * Takes the worker's wish: which columns it wants as frames, or (NULL) pages as they are; and its design, which says
 * which columns are in use and which classes the rule numbers a label by
 */
extern void dana_source_adopt(dana_source *source, Jsonb *stream, Jsonb *design);

/* Streams every page or row once, in the same order each time, through the ring */
extern void dana_source_stream(dana_source *source);

/* Raises the error for a page that is damaged */
extern _Noreturn void dana_source_corrupt(const dana_source *source, BlockNumber block, const char *what);

/* SELECT of some columns of the source's table, under its filter; numbers are attribute numbers */
extern char *dana_source_select(dana_source *source, int columns, const int *numbers);

/* A plan for a statement of the source's; connects to SPI for as long as the source is open */
extern dana_rows *dana_source_plan(dana_source *source, const char *text);
