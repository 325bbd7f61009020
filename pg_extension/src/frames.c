/*
 * Dense frames.
 *
 * A frame is a heap page whose tuples have a header of 24 bytes and then, each aligned to 4 bytes, one binary32 for a
 * scalar column, or a one-dimensional real[] for an array column. A row that is to be skipped is a tuple without any
 * attribute: a column that is missing at a tuple's end is NULL, and the machine skips and counts it like any other.
 *
 * A row that is longer than a frame is cut into parts, each a tuple: the part's number (int32), then its values, those of
 * all columns one after another; every part but the last has the same number of them (dana/storage/parts.py reads them).
 *
 * A frame is put together in private memory and then copied into the ring, for the sake of the caches (ring.c).
 */
#include "postgres.h"

#include "storage/bufpage.h"

#include "dana.h"
#include "channel.h"
#include "frames.h"
#include "numerics.h"
#include "progress.h"
#include "ring.h"
#include "toast.h"
#include "values.h"

#define TUPLE_DATA MAXALIGN(SizeofHeapTupleHeader)
/* a part: its number, then its values */
#define PART_DATA		(TUPLE_DATA + sizeof(int32))
#define PART_ATTRIBUTES 2
/* before the elements of an array: length, dimensions, no bitmap, type, extent, lower bound */
#define ARRAY_DATA_IN_FRAME (6 * sizeof(int32))

typedef struct frame_column
{
	const char *name;
	int			number; /* attribute of the row */
	int			length; /* elements of an array, or 0 */
	dana_type	type;
	bool		labels; /* numbered by the class list */
	FmgrInfo	output; /* for labels */
} frame_column;

struct dana_frames
{
	const char			*name; /* of what the rows come from */
	const dana_cleaning *cleaning;
	int					 classes; /* that the rule numbers its label by, or 0 */
	int					 columns;
	frame_column		*column;
	dana_numbers		*numbers; /* of the current row */
	int					 needed;  /* highest attribute number in use */
	Size				 tuple;	  /* bytes of a complete tuple */
	Size				 part;	  /* values of a part, or 0 */
	Size				 total;	  /* values of a row */
	float				*values;  /* of a row that is cut into parts */
	uint32				 page_size;
	char				*page;
	uint32				 lower;
	uint32				 upper;
	uint64				 rows;
	uint64				 pages;
	uint64				 nonfinite; /* rows with a NaN or an infinity */
	MemoryContext		 context; /* of the stream; holds all of this */
	MemoryContext		 row_context;
	dana_toast			*toast;
};

static void
set_up_column(dana_frames *frames, frame_column *column, TupleDesc descriptor, int number, int length)
{
	Form_pg_attribute attribute;

	if (number < 1 || number > descriptor->natts || length < 0)
		dana_protocol_error("asked for column %d of %s", number, frames->name);
	attribute = TupleDescAttr(descriptor, number - 1);
	column->name = NameStr(attribute->attname);
	column->number = number;
	column->length = length;
	/* the worker gives the label as the last column */
	column->labels = frames->cleaning->classes != NULL && column == &frames->column[frames->columns - 1];
	if (column->labels)
		dana_class_output(attribute->atttypid, &column->output, frames->context);
	else if (!dana_type_of(attribute->atttypid, &column->type) || column->type.array != (length > 0))
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("column \"%s\" of %s has type %s, which cannot be trained on", column->name,
							   frames->name, format_type_be(attribute->atttypid))));
	frames->total += Max(length, 1);
	frames->tuple += length > 0 ? ARRAY_DATA_IN_FRAME + sizeof(float4) * (Size)length : sizeof(float4);
	frames->needed = Max(frames->needed, number);
}

static void
start_frame(dana_frames *frames)
{
	frames->lower = SizeOfPageHeaderData;
	frames->upper = frames->page_size;
}

/* Whether a page holds the longest tuple */
static bool
frame_fits_tuple(const dana_frames *frames, uint32 page_size)
{
	Size tuple = frames->part > 0 ? PART_DATA + sizeof(float4) * frames->part : frames->tuple;

	return SizeOfPageHeaderData + sizeof(ItemIdData) + MAXALIGN(tuple) <= page_size;
}

dana_frames *
dana_frames_begin(const char *name, TupleDesc descriptor, const dana_cleaning *cleaning, const dana_frame_layout *layout,
				  int classes)
{
	const int	 columns = layout->columns;
	const uint32 page_size = layout->page_size;
	/* a training may stream for each epoch, all in one context of the caller's */
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "dana frames", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	dana_frames	 *frames = palloc0(sizeof *frames);

	frames->context = context;
	frames->name = name;
	frames->cleaning = cleaning;
	frames->classes = classes;
	frames->columns = columns;
	frames->column = palloc0(sizeof(frame_column) * Max(columns, 1));
	frames->numbers = palloc0(sizeof(dana_numbers) * Max(columns, 1));
	frames->tuple = TUPLE_DATA;
	for (int i = 0; i < columns; i++)
		set_up_column(frames, &frames->column[i], descriptor, layout->numbers[i], layout->lengths[i]);
	frames->part = layout->part;
	if (columns > MaxHeapAttributeNumber || !frame_fits_tuple(frames, page_size))
		dana_protocol_error("asked for frames that hold no row of %s", name);
	if (frames->part > 0)
		frames->values = palloc_extended(sizeof(float) * frames->total, MCXT_ALLOC_HUGE);
	frames->page_size = page_size;
	frames->page = palloc_extended(page_size, MCXT_ALLOC_ZERO);
	/* a detoasted value of 8 kB comes from the context's own block */
	frames->row_context =
		AllocSetContextCreate(context, "dana frame row", 128 * 1024, 128 * 1024, 1024 * 1024);
	frames->toast = dana_toast_begin();
	start_frame(frames);
	MemoryContextSwitchTo(caller);
	dana_ring_begin(page_size);
	return frames;
}

static void
send_frame(dana_frames *frames)
{
	PageHeader header = (PageHeader)frames->page;
	uint8	  *slot = dana_ring_reserve();

	header->pd_flags = PD_ALL_VISIBLE;
	header->pd_lower = frames->lower;
	header->pd_upper = frames->upper;
	header->pd_special = frames->page_size;
	PageSetPageSizeAndVersion((Page)frames->page, frames->page_size, PG_PAGE_LAYOUT_VERSION);
	dana_ring_fill(slot, frames->page);
	dana_ring_commit();
	dana_progress(DANA_PROGRESS_PAGE, ++frames->pages);
	start_frame(frames);
}

/* Room for a tuple of `length` bytes, its header written */
static char *
add_frame_tuple(dana_frames *frames, Size length, int attributes)
{
	HeapTupleHeader header;
	ItemId			item;

	if (frames->upper - frames->lower < MAXALIGN(length) + sizeof(ItemIdData))
		send_frame(frames);
	frames->upper -= MAXALIGN(length);
	item = (ItemId)(frames->page + frames->lower);
	frames->lower += sizeof(ItemIdData);
	ItemIdSetNormal(item, frames->upper, length);
	header = (HeapTupleHeader)(frames->page + frames->upper);
	memset(header, 0, TUPLE_DATA);
	HeapTupleHeaderSetNatts(header, attributes);
	header->t_infomask = HEAP_XMIN_FROZEN | HEAP_XMAX_INVALID | HEAP_HASVARWIDTH;
	header->t_hoff = TUPLE_DATA;
	return (char *)header + TUPLE_DATA;
}

/* The number of a label's class */
static Datum
class_number(dana_frames *frames, frame_column *column, Datum value)
{
	char *label;
	int	  number = dana_class_of(&column->output, value, frames->cleaning->classes, frames->cleaning->class_count, &label);

	if (number >= 0)
		return Int32GetDatum(number);
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 errmsg("column \"%s\" of %s holds \"%s\", which is none of the classes", column->name, frames->name, label),
			 errhint("Name every class in classes => ARRAY[...], or leave these rows out.")));
}

/* The current row, for errors */
static char *
name_row(const dana_frames *frames)
{
	return psprintf("row " UINT64_FORMAT " of %s", frames->rows + 1, frames->name);
}

/* The row's numbers for one column; false where the row is to be skipped */
static bool
take_value(dana_frames *frames, frame_column *column, dana_numbers *numbers, Datum value, bool isnull)
{
	const dana_cleaning *cleaning = frames->cleaning;

	if (isnull && cleaning->nulls == DANA_NULLS_FILL && !column->labels)
	{
		numbers->count = -1;
		return true;
	}
	if (isnull && cleaning->nulls == DANA_NULLS_ERROR)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("%s has a NULL in column \"%s\"", name_row(frames), column->name),
						errhint("Fill it in, or use nulls => 'skip' or nulls => '0'.")));
	if (isnull)
		return false;
	if (column->labels)
	{
		*numbers = (dana_numbers){.element = DANA_ELEMENT_INT4, .count = 1, .stored = 1};
		numbers->value = class_number(frames, column, value);
		return true;
	}
	if (column->length > 0)
		value = dana_toast_fetch(frames->toast, value);
	dana_numbers_of(&column->type, value, numbers);
	if (column->length > 0 && (numbers->dimensions != 1 || numbers->count != column->length))
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
						errmsg("%s has an array of %d elements in column \"%s\", not of %d", name_row(frames),
							   numbers->count, column->name, column->length),
						errhint("Give all rows one-dimensional arrays of one length.")));
	if (numbers->present != NULL && cleaning->nulls != DANA_NULLS_FILL)
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
						errmsg("%s has an array with NULL elements in column \"%s\"", name_row(frames), column->name),
						errhint("Give a number for them: nulls => '0'.")));
	return true;
}

_Noreturn void
dana_refuse_label(const char *row, const char *column, double label, int classes)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 errmsg("%s has the label %g in column \"%s\", which is none of the rule's classes 0 to %d", row, label, column,
					classes - 1),
			 errhint("Number the labels from 0, give the rule more classes with hyper => '{...}', or leave such rows out.")));
}

/*
 * Writes a complete row's attributes (its values and nothing else, where it is cut into parts), and its label to `label`;
 * returns how many numbers are NaN or infinite
 */
static int
write_columns(dana_frames *frames, char *at, float *label)
{
	unsigned mode = dn_enter();
	float	 fill = frames->cleaning->fill;
	int		 nonfinite = 0;

	for (int i = 0; i < frames->columns; i++)
	{
		frame_column *column = &frames->column[i];
		dana_numbers *numbers = &frames->numbers[i];
		int			  count = Max(column->length, 1);
		float		 *to;

		if (column->length > 0 && frames->part == 0)
		{
			int32 header[6] = {0, 1, 0, FLOAT4OID, column->length, 1};

			SET_VARSIZE(header, sizeof header + sizeof(float4) * column->length);
			memcpy(at, header, sizeof header);
			at += sizeof header;
		}
		to = (float *)at;
		if (numbers->count < 0)
			for (int k = 0; k < count; k++)
				to[k] = fill;
		else if (numbers->element == DANA_ELEMENT_FLOAT4 && numbers->values != NULL && numbers->present == NULL)
			memcpy(to, numbers->values, sizeof(float) * count); /* the machine makes them canonical */
		else
			dana_numbers_write(numbers, fill, to);
		if (frames->cleaning->nonfinite != DANA_NONFINITE_KEEP)
			for (int k = 0; k < count; k++)
				nonfinite += (dn_bits(to[k]) & DN_EXPONENT) == DN_EXPONENT;
		*label = to[0];
		at += sizeof(float) * count;
	}
	dn_leave(mode);
	return nonfinite;
}

/* A row's tuples, from its values */
static void
add_parts(dana_frames *frames)
{
	int32 number = 0;

	for (Size first = 0; first < frames->total; first += frames->part, number++)
	{
		Size  count = Min(frames->part, frames->total - first);
		char *at = add_frame_tuple(frames, PART_DATA + sizeof(float) * count, PART_ATTRIBUTES);

		memcpy(at, &number, sizeof number);
		memcpy(at + sizeof number, frames->values + first, sizeof(float) * count);
	}
}

/* Writes a complete row; returns how many numbers are NaN or infinite, and then it is there as a row to be skipped */
static int
add_complete(dana_frames *frames, float *label)
{
	int nonfinite;

	if (frames->part == 0)
	{
		nonfinite = write_columns(frames, add_frame_tuple(frames, frames->tuple, frames->columns), label);
		if (nonfinite > 0) /* the tuple that was just added becomes one without attributes */
			HeapTupleHeaderSetNatts((HeapTupleHeader)(frames->page + frames->upper), 0);
		return nonfinite;
	}
	nonfinite = write_columns(frames, (char *)frames->values, label);
	if (nonfinite > 0)
		add_frame_tuple(frames, TUPLE_DATA, 0);
	else if (dana_is_class(*label, frames->classes))
		add_parts(frames);
	return nonfinite;
}

void
dana_frames_add(dana_frames *frames, TupleTableSlot *row)
{
	MemoryContext caller = MemoryContextSwitchTo(frames->row_context);
	bool		  complete = true;
	float		  label = 0;

	dana_channel_look();
	slot_getsomeattrs(row, frames->needed);
	for (int i = 0; i < frames->columns && complete; i++)
	{
		int k = frames->column[i].number - 1;

		complete = take_value(frames, &frames->column[i], &frames->numbers[i], row->tts_values[k], row->tts_isnull[k]);
	}
	MemoryContextSwitchTo(caller);
	if (!complete)
		add_frame_tuple(frames, TUPLE_DATA, 0);
	else if (add_complete(frames, &label) > 0)
	{
		if (frames->cleaning->nonfinite == DANA_NONFINITE_ERROR)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_EXCEPTION),
					 errmsg("%s has a NaN or an infinity in a column in use", name_row(frames)),
					 errhint("Leave such rows out with nonfinite => 'skip', or keep them with nonfinite => 'keep'.")));
		frames->nonfinite++;
	}
	else if (!dana_is_class(label, frames->classes))
		dana_refuse_label(name_row(frames), frames->column[frames->columns - 1].name, label, frames->classes);
	frames->rows++;
	MemoryContextReset(frames->row_context);
}

void
dana_frames_finish(dana_frames *frames)
{
	if (frames->lower > SizeOfPageHeaderData)
		send_frame(frames);
	dana_ring_finish();
	dana_toast_end(frames->toast);
	if (frames->nonfinite > 0)
		ereport(NOTICE,
				(errmsg(UINT64_FORMAT " rows of %s were left out because of a NaN or an infinity", frames->nonfinite, frames->name)));
	MemoryContextDelete(frames->context);
}
