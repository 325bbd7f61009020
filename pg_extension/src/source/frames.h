/*
 * Rows as synthetic pages of real and real[] columns, for values that a Strider cannot read from the table's pages.
 */
#pragma once

typedef struct dana_frames dana_frames;
typedef struct dana_source dana_source;

/* Layout of frames, as the worker requests it */
typedef struct dana_frame_layout
{
	int	   attributes; /* columns of a tuple: one for each number of an encoded column */
	int	   columns; /* the last one is the label if there are classes */
	int	  *numbers; /* attributes of the rows */
	int	  *lengths; /* elements of array columns, 0 for a scalar */
	uint32 page_size;
	uint32 part; /* values in a part, if a row is longer than a frame; 0: a row is a tuple */
} dana_frame_layout;

/* Frames for the rows of a source's plan. Adding one, as dana_rows_each() does, may wait for space in the ring. */
extern dana_frames *dana_frames_begin(const dana_source *source);
extern bool			dana_frames_add(TupleTableSlot *row, void *frames);
extern void			dana_frames_finish(dana_frames *frames);
