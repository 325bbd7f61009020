/*
 * Values of PostgreSQL's types as the machine's numbers: for frames and for dana_predict().
 */
#pragma once

#include "number_types.h"

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

/* datetimes.c: dates and times as numbers, which a training keeps the types of, in the metadata's member "datetimes" */

/* Appends the member of a column, if it is one */
extern void dana_datetimes_append(StringInfo to, Form_pg_attribute column);

/* The types of columns in the training, InvalidOid of others; NULL: it kept none */
extern Oid *dana_datetimes_read(Jsonb *metadata, const dana_texts *columns);

/* Of some columns' types the one that a given type is taken for: itself, else another one, or InvalidOid */
extern Oid dana_datetime_meant(const Oid *trained, int count, Oid given);

/* Whether a type can be read as one of the training, and by which cast, InvalidOid where it needs none */
extern bool dana_datetime_cast(Oid given, Oid trained, Oid *cast);

/* SQL for a column of a type as the training read it; an error where it cannot be */
extern char *dana_datetime_expression(Jsonb *metadata, const char *column, Oid given);

/* Refuses a column of a source that has another type than in the training of a model to start from */
extern void dana_datetime_require(Jsonb *metadata, const char *model, Form_pg_attribute column, const char *source);

/* encode.c: columns that are no numbers, or that have NULLs, as numbers */

/* What to do with a row that has a NULL in a used column */
typedef enum dana_null_policy
{
	DANA_NULLS_SKIP,
	DANA_NULLS_ERROR,
	DANA_NULLS_MEAN, /* this and what follows puts something in its place */
	DANA_NULLS_MEDIAN,
	DANA_NULLS_FILL
} dana_null_policy;

typedef enum dana_encoder_kind
{
	DANA_ENCODE_NONE, /* a number, or an array of them */
	DANA_ENCODE_ONE_HOT,
	DANA_ENCODE_PARTS
} dana_encoder_kind;

/* What is done to a feature */
typedef struct dana_encoder
{
	char			 *column;
	dana_encoder_kind kind;
	int				  width; /* numbers that it makes of a value; -1: those of an array */
	dana_texts		  categories; /* in the order of their bytes */
	bool			  other; /* the last number is for all other values */
	int				  parts[5]; /* of a date: which */
	dana_null_policy  nulls; /* of a training */
	float			 *fill; /* numbers for a NULL, one for an array's elements; or NULL */
	float			 *made; /* room for the numbers; of categories, zeros around a one */
} dana_encoder;

/* Whether an encoder takes values of a type; and, for an error, what it takes */
extern bool		   dana_encoder_type(const dana_encoder *encoder, Oid given, dana_type *found);
extern const char *dana_encoder_wants(const dana_encoder *encoder);

/*
 * Makes a feature's value ready, as dana_numbers_of(); false where it is NULL and nothing is put in its place. The
 * numbers stay until the encoder's next value.
 */
extern bool dana_encode(const dana_encoder *encoder, const dana_type *type, Datum value, bool isnull,
						dana_numbers *numbers);

/* The list in a model's metadata; NULL where it has none */
extern dana_encoder *dana_encoders_read(Jsonb *metadata, int *count);

/* texts.c: values as texts */

/* What a type's output function writes in every session, whatever the settings for dates, zones and numbers are */
extern char *dana_fixed_output(FmgrInfo *output, Oid base, Datum value);

/* SQL for the same of a column: a cast, which an index knows, where none is a user's and none has a setting */
extern char *dana_text_expression(const char *column, Oid type);

/* label_values.c: labels that a list of classes numbers, from 0; of so many classes at most */
#define DANA_MOST_CLASSES 10000

typedef struct dana_label_type
{
	Oid		  base;
	bool	  number; /* and neither a date nor a time */
	dana_type holds;
	FmgrInfo  output;
} dana_label_type;

extern void dana_label_type_of(Oid type, dana_label_type *found, MemoryContext context);

extern char *dana_label_text(dana_label_type *type, Datum value);
extern int dana_class_of_text(const dana_label_type *type, const char *text, const dana_texts *classes);
extern int dana_compare_labels(const dana_label_type *type, double a, const char *text, double b, const char *other);

/* The number of the class that a label is, and the label as `text`; -1 where it is none of them */
extern int dana_class_of(dana_label_type *type, Datum value, const dana_texts *classes, char **text);
