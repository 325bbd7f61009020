/*
 * A scan of a source's columns: categories of texts, means and medians, keys. choose.c chooses the columns, features.c
 * decides how they are encoded, values/encode.c makes the list that training and prediction apply.
 */
#pragma once

#include "base/dana.h"
#include "request/training.h"
#include "source/source.h"
#include "values/encode.h"

#define DANA_MAX_CATEGORIES   32 /* default for a column, or its part of DANA_ALL_CATEGORIES where that is more */
#define DANA_ALL_CATEGORIES   500

/* A column that may be a feature */
typedef struct dana_candidate
{
	dana_encoder	 encoder;
	dana_null_policy nulls;
	double			 number;   /* of DANA_NULLS_FILL */
	int				 column;   /* of the source, from 1 */
	bool			 choose_parts;
	const char		*excluded;  /* why it cannot be a feature, or NULL */
	double			 value;	   /* the mean or the median */
	double			*means;	   /* of an array: those of its elements */
	int				 mean_count;
	bool			 has_value;
	bool			 has_hours;
	bool			 has_nulls;
	/* of its texts */
	int				 most;	   /* maximum number of categories */
	bool			 max_given; /* by the caller: then rare categories count, too */
	int64			 rows;
	int64			 values;   /* number of different texts */
	int64			 short_enough; /* of those, for a category */
	int64			 covered;  /* rows of the categories */
} dana_candidate;

/* A scan of a source */
typedef struct dana_survey
{
	const dana_training *training;
	dana_source *source;
	TupleDesc	 columns;
	bool		 single;	/* the rule's only input is one vector: a column may become several numbers */
	bool		 classes;	/* the label is a class */
	bool		 chooses;	/* numbers of a row choose rows of the rule's models */
	bool		 named;		/* the features are chosen already, by the caller or by the rule's names */
	bool		 other;		/* the choice differs from the worker's default */
	dana_texts	 labels; /* behind the weight, if there is one */
	int			 label_count;
	int			 count;
	dana_candidate *features;
	dana_candidate *current;
	bool		 numbers; /* all texts of `current` can be read as numbers */
	int			 first; /* features that a statement is about */
	int			 last;
	MemoryContext context;
} dana_survey;

/* the categories of a column's texts, and the number of rows with each */
extern void dana_survey_texts(dana_survey *survey, dana_candidate *feature);

/* means and medians to replace NULLs, and other properties of number and date columns; for so many features at most */
#define DANA_MAX_NUMBERS 400 /* a statement has four results for each */
extern void dana_survey_numbers(dana_survey *survey, int first);

/* means or medians of the elements of arrays with NULLs */
extern void dana_survey_arrays(dana_survey *survey);

/* Whether a mean or a median is to replace an array's NULLs */
static inline bool
dana_array_mean(const dana_candidate *feature)
{
	return feature->encoder.width < 0 && dana_needs_middle(feature->nulls);
}

/* excludes columns that identify rows: a primary key, or a unique identity column, of one column */
extern void dana_survey_keys(dana_survey *survey);
