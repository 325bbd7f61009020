/*
 * Dense frames: rows as synthetic pages of real and real[] columns, for what a Strider cannot read where it lies.
 */
#pragma once

#include "executor/tuptable.h"

/* What to do with a row that has a NULL in a used column */
typedef enum dana_null_policy
{
	DANA_NULLS_SKIP,
	DANA_NULLS_ERROR,
	DANA_NULLS_FILL
} dana_null_policy;

/* What to do with a row that has a NaN or an infinity in a used column */
typedef enum dana_nonfinite_policy
{
	DANA_NONFINITE_KEEP,
	DANA_NONFINITE_SKIP,
	DANA_NONFINITE_ERROR
} dana_nonfinite_policy;

/* How values become numbers, as the caller of dana_train() wishes */
typedef struct dana_cleaning
{
	dana_null_policy	  nulls;
	float				  fill; /* for DANA_NULLS_FILL */
	dana_nonfinite_policy nonfinite;
	int					  class_count; /* labels in the order of their numbers, from 0 */
	char				**classes;	   /* or NULL */
} dana_cleaning;

/* Whether a label is one of the classes that a rule numbers from 0; 0 classes: any number is */
static inline bool
dana_is_class(float label, int classes)
{
	return classes == 0 || (label >= 0 && label < (float)classes && label == (float)(int)label);
}

/* Raises the error for a row's label that is none; `row` says which row of what, `column` which column */
extern _Noreturn void dana_refuse_label(const char *row, const char *column, double label, int classes);

/* What frames look like, as the worker wishes */
typedef struct dana_frame_layout
{
	int	   columns; /* the last one is the label where there are classes */
	int	  *numbers; /* attributes of the rows */
	int	  *lengths; /* elements of array columns, 0 for a scalar */
	uint32 page_size;
	uint32 part; /* values of a part, where a row lies over several frames; 0: a row is a tuple */
} dana_frame_layout;

typedef struct dana_frames dana_frames;

/* Begins frames for rows of `descriptor` */
extern dana_frames *dana_frames_begin(const char *name, TupleDesc descriptor, const dana_cleaning *cleaning,
									  const dana_frame_layout *layout, int classes);

/* Adds a row; may wait for space in the ring */
extern void dana_frames_add(dana_frames *frames, TupleTableSlot *row);

/* Sends what is left and ends the stream */
extern void dana_frames_finish(dana_frames *frames);
