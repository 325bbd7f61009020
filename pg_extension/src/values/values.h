/*
 * Values of PostgreSQL's types as the machine's numbers: for frames and for dana_predict().
 */
#pragma once

#include "values/number_types.h"

#define DANA_ELEMENT_NAME(name, ...) DANA_ELEMENT_##name,
typedef enum dana_element
{
	DANA_ELEMENTS(DANA_ELEMENT_NAME)
	DANA_ELEMENT_CONVERTED
} dana_element;

/* A row of DANA_TYPES */
typedef struct dana_number_type
{
	Oid			 oid;
	int16		 length;
	char		 align;
	dana_element element;
	double (*convert)(Datum value); /* of DANA_ELEMENT_CONVERTED */
} dana_number_type;

/* What a column or an argument holds: one number, or an array of them */
typedef struct dana_type
{
	const dana_number_type *number; /* domains resolved */
	bool					array;
	bool					vector; /* an array in the layout of pgvector's type vector */
	Oid						encoded; /* for an encoder of categories or parts: its type; enums are ANYENUMOID */
} dana_type;

/* Numbers of one value, prepared: no later step can raise an error */
typedef struct dana_numbers
{
	dana_element element; /* not DANA_ELEMENT_CONVERTED */
	int			 count;	 /* of the value, including NULLs in it */
	int			 stored; /* without the NULLs */
	Datum		 value;	 /* of a scalar */
	const char	*values; /* of an array, dense */
	const uint8 *present; /* bitmap where an array holds a NULL, or NULL */
	int			 dimensions; /* of an array */
	const double *fill;	/* for NULLs in it: one for all elements, or one for each */
	int			 fills;
} dana_numbers;

/* Describes a type; false if it is not numeric, even if it is an array of something else */
extern bool dana_type_of(Oid type, dana_type *found);

/* Elements of a one-dimensional value of such a type; -1 if it has another number of dimensions */
extern int dana_array_length(Oid type, Datum value);

/* The number of a scalar value of such a type, not rounded to binary32 */
extern double dana_number_of(const dana_type *type, Datum value);

/* Prepares a value; allocates in the current memory context */
extern void dana_numbers_of(const dana_type *type, Datum value, dana_numbers *numbers);

/*
 * Writes a value's numbers, and those for NULLs in it, less their centres, which are subtracted in double precision
 * before the numbers are rounded; `centres` NULL: there are none. Called between dn_enter() and dn_leave().
 */
extern void dana_numbers_write(const dana_numbers *numbers, const double *centres, float *to);

/* Whether one of the numbers is finite and too large for real */
extern bool dana_numbers_beyond_real(const dana_numbers *numbers);
