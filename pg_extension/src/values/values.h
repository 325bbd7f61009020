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
	bool					vector; /* an array as pgvector's type vector lays it out */
	Oid						encoded; /* for an encoder of categories or parts: of what; enums are ANYENUMOID */
} dana_type;

/* Numbers of one value, ready: nothing that follows can raise an error */
typedef struct dana_numbers
{
	dana_element element; /* not DANA_ELEMENT_CONVERTED */
	int			 count;	 /* of the value, NULLs in it included */
	int			 stored; /* of these, without the NULLs */
	Datum		 value;	 /* of a scalar */
	const char	*values; /* of an array, dense */
	const uint8 *present; /* bitmap where an array holds a NULL, or NULL */
	int			 dimensions; /* of an array */
} dana_numbers;

/* Finds out what a type holds; false where that is no number, even if it is an array of something else */
extern bool dana_type_of(Oid type, dana_type *found);

/* Elements of a value of such a type that has one dimension; -1 where it has another number of them */
extern int dana_array_length(Oid type, Datum value);

/* The number that a scalar value of such a type stands for, not rounded to binary32 */
extern double dana_number_of(const dana_type *type, Datum value);

/* Makes a value ready; what it needs is in the current memory context */
extern void dana_numbers_of(const dana_type *type, Datum value, dana_numbers *numbers);

/* Writes a value's numbers, `fill` for NULLs in it; call between dn_enter() and dn_leave() */
extern void dana_numbers_write(const dana_numbers *numbers, float fill, float *to);

/* Whether one of the numbers is finite and too large for real */
extern bool dana_numbers_beyond_real(const dana_numbers *numbers);
