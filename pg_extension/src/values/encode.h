/*
 * Columns that are not numbers, or that have NULLs, as numbers.
 */
#pragma once

#include "base/dana.h"
#include "values/values.h"

#define DANA_MAX_COLUMNS 1600 /* of encoded rows */

/* What to do with a row that has a NULL in a used column */
typedef enum dana_null_policy
{
	DANA_NULLS_SKIP,
	DANA_NULLS_ERROR,
	DANA_NULLS_MEAN, /* this and the following ones replace the NULL */
	DANA_NULLS_MEDIAN,
	DANA_NULLS_INDICATOR, /* by the mean; one more number is 1 for a NULL */
	DANA_NULLS_FILL
} dana_null_policy;

typedef enum dana_encoder_kind
{
	DANA_ENCODE_NONE, /* a number, or an array of them */
	DANA_ENCODE_ONE_HOT,
	DANA_ENCODE_PARTS
} dana_encoder_kind;

/* Whether the policy needs the column's mean or median */
static inline bool
dana_needs_middle(dana_null_policy nulls)
{
	return nulls >= DANA_NULLS_MEAN && nulls <= DANA_NULLS_INDICATOR;
}

/* How a feature is encoded */
typedef struct dana_encoder
{
	char			 *column;
	dana_encoder_kind kind;
	int				  width; /* numbers that it makes of a value; -1: those of an array */
	dana_texts		  categories; /* in the order of their bytes */
	bool			  other; /* one more number is for all other values */
	int				  buckets; /* or categories are numbered by a hash, below this number; 0: they are listed */
	bool			  indicator; /* one more number, at the end, is 1 for a NULL, else 0 */
	int				  parts[5]; /* of a date: which */
	dana_null_policy  nulls; /* of a training */
	double			 *fill; /* replacements for a NULL, of an array one for all elements, or one for each; or NULL */
	int				  fills; /* their number */
	float			 *made; /* the encoded numbers; for categories, zeros around a one */
	double			 *pair; /* the same of a number with an indicator */
} dana_encoder;

/* Whether an encoder accepts values of a type; and, for an error, what it accepts */
extern bool		   dana_encoder_type(const dana_encoder *encoder, Oid given, dana_type *found);
extern const char *dana_encoder_wants(const dana_encoder *encoder);

/*
 * Prepares a feature's value for dana_numbers_of(); false if it is NULL and nothing replaces it. The numbers are valid
 * until the encoder's next value.
 */
extern bool dana_encode(const dana_encoder *encoder, const dana_type *type, Datum value, bool isnull,
						dana_numbers *numbers);

/* Whether encoded numbers are those of a category that the training did not have, and that is not among others */
static inline bool
dana_is_unseen(const dana_encoder *encoder, const dana_numbers *numbers)
{
	return encoder->kind == DANA_ENCODE_ONE_HOT && numbers->values == (const char *)(encoder->made + encoder->width);
}

/*
 * The centres of a model's features in its metadata, one for each of its numbers, or NULL if they have none; returns
 * that of its label
 */
extern double dana_centres_read(Jsonb *metadata, int64 numbers, const char *model, double **centres);

/* The list in a model's metadata; NULL if it has none */
extern dana_encoder *dana_encoders_read(Jsonb *metadata, int *count);

/* Features that are encoded: fewer columns in rows than for the worker */
typedef struct dana_encoding
{
	int			  count; /* features */
	dana_encoder *encoders;
	int			 *numbers; /* numbers of the source's columns, from 1: the features, then the weight and the labels */
	int			  labels; /* with the weight */
	int			  columns; /* columns after encoding */
} dana_encoding;

/* The columns that the features become */
extern dana_texts dana_encoding_names(const dana_encoding *encoding);

/* Appends members "features", "encoded", "preprocess" of the model's metadata */
extern void dana_encoding_append(StringInfo to, const dana_encoding *encoding);

extern const char *const dana_part_names[];

/* A type that has parts: a day or a moment */
typedef struct dana_date_type
{
	Oid	  type;
	int64 unit; /* microseconds */
	bool (*infinite)(Datum value);
	int64 (*units)(Datum value); /* since 2000-01-01 00:00 */
} dana_date_type;

/* NULL if a type has no parts */
extern const dana_date_type *dana_find_date_type(Oid type);

/* Types that are encoded as categories by default; enums are ANYENUMOID */
extern bool dana_is_text_type(Oid type);
extern bool dana_is_integer_type(Oid type);

/* An encoder's view of a type: the base type of a domain, ANYENUMOID for an enum */
extern Oid dana_encoded_type(Oid type);

/* Writes the parts of a moment, in the type's units since 2000-01-01 */
extern void dana_write_parts(const dana_encoder *encoder, const dana_date_type *type, int64 units);

/* Completes an encoder that has all members but `made` */
extern void dana_encoder_finish(dana_encoder *encoder);

/* Sets the parts that words name; false if one is unknown or occurs twice */
extern bool dana_encoder_set_parts(dana_encoder *encoder, const dana_texts *words);
