/*
 * The columns of a source, and the statements that read them.
 */
#pragma once

#include "source/source.h"

typedef struct dana_array_probe dana_array_probe;

/* The columns of the table or of the query */
extern TupleDesc dana_source_columns(dana_source *source);

/* Examines array columns, unless that is done; the result is in the current memory context */
extern void dana_source_probe(dana_source *source);

/* Appends the description for the worker, a member "relation"; probes first */
extern void dana_source_describe(dana_source *source, StringInfo to);

/* SELECT of some columns of the source's table, under its filter; numbers are attribute numbers */
extern char *dana_source_select(dana_source *source, int columns, const int *numbers);

/* A plan for a statement on the source; connects to SPI until the source is closed */
extern dana_rows *dana_source_plan(dana_source *source, const char *text);
