/*
 * Dense frames: rows as synthetic pages of real and real[] columns, for what a Strider cannot read where it lies.
 */
#ifndef DANA_FRAMES_H
#define DANA_FRAMES_H

#include "postgres.h"

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

/* Raises the error for a row's label that is none; `row` says which row, `column` which column */
extern _Noreturn void dana_refuse_label(const char *row, const char *name, const char *column, double label, int classes);

typedef struct dana_frames dana_frames;

/*
 * Begins frames of `page_size` bytes for rows of `descriptor`. Column i of a frame comes from attribute numbers[i];
 * lengths[i] is the number of elements of its arrays, 0 for a scalar. The last one is the label where there are classes.
 */
extern dana_frames *dana_frames_begin(const char *name, TupleDesc descriptor, const dana_cleaning *cleaning, int columns,
									  const int *numbers, const int *lengths, int classes, uint32 page_size);

/* Adds a row; may wait for space in the ring */
extern void dana_frames_add(dana_frames *frames, TupleTableSlot *row);

/* Sends what is left and ends the stream; returns the number of frames */
extern uint64 dana_frames_finish(dana_frames *frames);

#endif /* DANA_FRAMES_H */
