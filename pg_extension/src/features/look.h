/*
 * A scan of a source's columns: categories of texts, means and medians, keys. choose.c chooses the columns,
 * features.c decides what is done to them, values/encode.c makes the list that training and prediction apply.
 */
#pragma once

#include "base/dana.h"
#include "request/training.h"
#include "source/source.h"
#include "values/encode.h"

#define DANA_MAX_CATEGORIES   32 /* of a column, where nobody says how many */
#define DANA_MAX_COLUMNS	   1600 /* of rows that are encoded */

/* A column that may be a feature */
typedef struct dana_candidate
{
	dana_encoder	 encoder;
	dana_null_policy nulls;
	float			 number;   /* of DANA_NULLS_FILL */
	int				 column;   /* of the source, from 1 */
	bool			 choose_parts;
	const char		*refused;  /* why it is no feature, or NULL */
	double			 value;	   /* the mean or the median */
	bool			 has_value;
	bool			 has_hours;
	bool			 has_nulls;
	/* of its texts */
	int				 most;	   /* categories at most */
	bool			 most_said; /* by the caller: then the rare ones count, too */
	int64			 rows;
	int64			 values;   /* that differ */
	int64			 covered;  /* rows of the categories */
} dana_candidate;

/* A look at a source */
typedef struct dana_look
{
	const dana_training *training;
	dana_source *source;
	TupleDesc	 columns;
	bool		 single;	/* the rule has one vector and nothing else to fill: a column may become several */
	bool		 chooses;	/* numbers of a row choose rows of the rule's models */
	bool		 named;		/* the features are chosen already, by the caller or by the rule's names */
	bool		 other;		/* others than the worker would choose */
	dana_texts	 labels; /* behind the weight, if there is one */
	int			 label_count;
	int			 count;
	dana_candidate *features;
	dana_candidate *current;
	int			 first; /* features that a statement is about */
	int			 last;
	MemoryContext context;
} dana_look;

/* the categories of a column's texts, and how many rows have them */
extern void dana_look_at_texts(dana_look *look, dana_candidate *feature);

/* means and medians for NULLs, and what else columns of numbers and dates tell; of so many features at most */
#define DANA_MAX_NUMBERS 400 /* a statement has four results for each */
extern void dana_look_at_numbers(dana_look *look, int first);

/* refuses arrays with NULLs where these are to become a mean or a median, which arrays do not have */
extern void dana_look_at_arrays(dana_look *look);

/* Whether a mean or a median is wished for an array's NULLs */
static inline bool
dana_array_mean(const dana_candidate *feature)
{
	return feature->encoder.width < 0 && (feature->nulls == DANA_NULLS_MEAN || feature->nulls == DANA_NULLS_MEDIAN);
}

/* refuses columns that tell rows apart: a primary key, or a unique identity column, of one column */
extern void dana_look_for_keys(dana_look *look);
