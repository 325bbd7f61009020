/*
 * What the parts of a look at a source's columns share: choose.c chooses them, features.c says what is done to them,
 * look.c reads the rows, encode.c makes the list that training and prediction apply.
 */
#ifndef DANA_ENCODE_H
#define DANA_ENCODE_H

#include "training.h"

#define DANA_MOST_CATEGORIES   32 /* of a column, where nobody says how many */
#define DANA_MOST_COLUMNS	   1600 /* of rows that are encoded */

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

/*
 * choose.c: the features, and the weight and the labels, chosen as dana/compiler/binding/columns.py does, for a rule of
 * this description; false where the worker is to say what is wrong with them
 */
extern bool dana_choose_columns(dana_look *look, Jsonb *description);

/* Refuses an array beside other columns, where nobody named them: either is meant */
extern void dana_refuse_array_among_others(const dana_look *look);

/* Whether names are those of columns, and are some; and one more feature, from 1 */
extern bool dana_look_has(const dana_look *look, const dana_texts *names);
extern void dana_look_add(dana_look *look, int column);

extern const char *const dana_part_names[];

/* A type that has parts: a day or a moment */
typedef struct dana_date_type
{
	Oid	  type;
	int64 unit; /* microseconds */
	bool (*infinite)(Datum value);
	int64 (*units)(Datum value); /* since 2000-01-01 00:00 */
} dana_date_type;

/* NULL where a type has no parts */
extern const dana_date_type *dana_find_date_type(Oid type);

/* Types whose values may be categories without being told so; enums are ANYENUMOID */
extern bool dana_is_text_type(Oid type);
extern bool dana_is_integer_type(Oid type);

/* What a type is to an encoder: of domains their base, of enums ANYENUMOID */
extern Oid dana_encoded_type(Oid type);

/* Writes the parts of a moment, in the type's units since 2000-01-01 */
extern void dana_write_parts(const dana_encoder *encoder, const dana_date_type *type, int64 units);

/* Makes an encoder ready, whose members but `made` are set */
extern void dana_encoder_finish(dana_encoder *encoder);

/* Sets the parts that words name; whether they are some, each once */
extern bool dana_encoder_set_parts(dana_encoder *encoder, const dana_texts *words);

/* look.c: the categories of a column's texts, and how many rows have them */
extern void dana_look_at_texts(dana_look *look, dana_candidate *feature);

/* look.c: means and medians for NULLs, and what else columns of numbers and dates tell; of so many features at most */
#define DANA_MOST_NUMBERS 400 /* a statement has four results for each */
extern void dana_look_at_numbers(dana_look *look, int first);

/* look.c: refuses arrays with NULLs where these are to become a mean or a median, which arrays do not have */
extern void dana_look_at_arrays(dana_look *look);

/* Whether a mean or a median is wished for an array's NULLs */
static inline bool
dana_array_mean(const dana_candidate *feature)
{
	return feature->encoder.width < 0 && (feature->nulls == DANA_NULLS_MEAN || feature->nulls == DANA_NULLS_MEDIAN);
}

/* look.c: refuses columns that tell rows apart: a primary key, or a unique identity column, of one column */
extern void dana_look_for_keys(dana_look *look);

#endif
