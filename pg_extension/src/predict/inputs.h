/*
 * The features of one call of a function that predicts.
 */
#define DANA_INPUTS_H
#pragma once

#include "base/dana.h"
#include "values/encode.h"
#include "values/values.h"

/* The features of a call: its arguments, or columns of a row, which may be arguments themselves (expand.c) */
typedef struct dana_inputs
{
	int		   count;
	dana_type *types;
	Datum	  *values; /* of the current call */
	bool	  *nulls;	/* the same for NULLs, if there are encoders */
	Oid		  *literals; /* the type that a literal without one is read as, or InvalidOid */
	Oid		  *trained; /* dates and times in the training, by the names of columns; or NULL */
	FmgrInfo  *casts;	/* to these, if fn_oid is set */
	bool	   reals;  /* each is one real, and has no centre */
	double	  *centres; /* to subtract from the numbers, or NULL */
	dana_encoder *encoders; /* or NULL: features are numbers */
	/* of a row: */
	bool	  row;
	bool	  expanded; /* its columns are arguments */
	dana_texts names;
	int		 *columns;	  /* numbers from 0 */
	Oid		  type;		  /* of the rows so far */
	int32	  typmod;
	TupleDesc descriptor;
	Datum	 *row_values; /* of all columns */
	bool	 *row_nulls;
} dana_inputs;

extern _Noreturn void dana_reject_count(const char *model, uint32 wanted, int64 given);

/*
 * Determines the types of a call's features; a type that is not numeric is an error. `names` are the columns that the
 * model was trained on. `centres`: of the numbers, or NULL. Allocates in the current memory context.
 */
extern void dana_inputs_inspect(dana_inputs *features, FunctionCallInfo fcinfo, const char *reference,
								const dana_texts *names, dana_encoder *encoders, double *centres, Jsonb *metadata);

/* Reads the features of this call; false if one is NULL without a replacement */
extern bool dana_inputs_read(dana_inputs *features, FunctionCallInfo fcinfo, const char *model);

/* Prepares them for dana_inputs_write(); returns how many numbers they are, or -1 if one of them is NULL */
extern int64 dana_inputs_prepare(const dana_inputs *features, dana_numbers *numbers);

/* The feature that number `at` of the written ones belongs to, and the position in that feature: from 0, or -1 */
extern int dana_inputs_at(const dana_inputs *features, const dana_numbers *numbers, uint32 at, int *element);

/* Writes the numbers; between dn_enter() and dn_leave() */
extern void dana_inputs_write(const dana_inputs *features, const dana_numbers *numbers, float *to);
