/*
 * The features of one call of dana_predict(): its arguments, or columns of a row, found by their names.
 */
#pragma once

#include "access/tupdesc.h"
#include "fmgr.h"

#include "arguments.h"
#include "values.h"

typedef struct dana_inputs
{
	int		   count;
	dana_type *types;
	Datum	  *values; /* of the current call */
	bool	   reals;  /* each is one real */
	/* of a row: */
	bool	  row;
	char	**names;
	int		 *columns;	  /* numbers from 0 */
	Oid		  type;		  /* of the rows so far */
	int32	  typmod;
	TupleDesc descriptor;
	Datum	 *row_values; /* of all columns */
	bool	 *row_nulls;
} dana_inputs;

/*
 * Finds out what a call gives; refuses what is no number. `names` are the columns that the model was trained on. All
 * that is kept lives in the current memory context.
 */
extern void dana_inputs_inspect(dana_inputs *features, FunctionCallInfo fcinfo, const dana_texts *names);

/* Reads the features of this call; false where one is NULL */
extern bool dana_inputs_read(dana_inputs *features, FunctionCallInfo fcinfo, const char *model);

/* Makes them ready for dana_inputs_write(); returns how many numbers they are, or -1 where one of them is NULL */
extern int64 dana_inputs_prepare(const dana_inputs *features, dana_numbers *numbers);

/* Writes the numbers; between dn_enter() and dn_leave() */
extern void dana_inputs_write(const dana_inputs *features, const dana_numbers *numbers, float *to);
