/*
 * Dense frames.
 *
 * A frame is a heap page of tuples with a header of 24 bytes and then, each aligned to 4 bytes, one binary32 for a
 * scalar column, or a one-dimensional real[] for an array column. A row to be skipped is a tuple without attributes: a
 * column missing at a tuple's end is NULL, and the machine skips and counts the row like any other.
 *
 * A row longer than a frame is cut into parts, each a tuple: the part's number (int32), then the values of all columns
 * in sequence; every part but the last has the same number of values (dana/storage/parts.py reads them).
 *
 * A frame is assembled in private memory and then copied into the ring, for the sake of the caches (ring.c).
 */
#include "postgres.h"

#include <math.h>

#include "storage/bufpage.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/json.h"
#include "base/notices.h"
#include "limits/progress.h"
#include "rows/rows.h"
#include "source/frames.h"
#include "source/source.h"
#include "source/toast.h"
#include "values/encode.h"
#include "values/label_values.h"
#include "values/values.h"
#include "worker/channel.h"
#include "worker/ring.h"
#include "numerics.h"

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
	int			count;	/* numbers of a value */
	dana_type	type;
	const dana_encoder *encoder; /* or NULL */
	bool		labels; /* numbered by the class list */
	bool		weight; /* of the rows */
	bool		target; /* the weight, or a label, where a NULL is never replaced */
	dana_label_type label;
	uint64		nonfinite; /* rows that are left out because of this column */
	uint64		beyond;	   /* rows left out because a number is too large for real */
	uint64		nulls;	   /* rows left out because a number is infinite or NaN */
} frame_column;

struct dana_frames
{
	const dana_source	*source;
	frame_column		*column;
	dana_numbers		*numbers; /* of the current row */
	int					 needed;  /* highest attribute number in use */
	Size				 tuple;	  /* bytes of a complete tuple */
	Size				 total;	  /* values of a row */
	float				*values;  /* of a row that is cut into parts */
	char				*page;
	uint32				 lower;
	uint32				 upper;
	uint64				 rows;
	uint64				 complete; /* of these, trained on */
	uint64				 pages;
	MemoryContext		 context; /* of the stream; holds all of this */
	MemoryContext		 row_context;
	dana_toast			*toast;
};

static void
set_up_column(dana_frames *frames, int i)
{
	const dana_source *source = frames->source;
	const int		   number = source->stream.layout.numbers[i];
	const int		   length = source->stream.layout.lengths[i];
	TupleDesc		   descriptor = dana_rows_descriptor(source->stream.plan);
	frame_column	  *column = &frames->column[i];
	Form_pg_attribute  attribute;

	if (number < 1 || number > descriptor->natts || length < 0)
		dana_protocol_error("asked for column %d of %s", number, frames->source->name);
	attribute = TupleDescAttr(descriptor, number - 1);
	column->name = NameStr(attribute->attname);
	column->weight = source->asked.cleaning.weight != NULL && strcmp(column->name, source->asked.cleaning.weight) == 0;
	column->target = dana_is_one_of(column->name, &source->chosen.targets);
	column->number = number;
	column->length = length;
	column->count = Max(length, 1);
	if (source->chosen.encoding != NULL && i < source->chosen.encoding->count)
		column->encoder = &source->chosen.encoding->encoders[i];
	if (column->encoder != NULL && length == 0)
		column->count = column->encoder->width;
	/* the worker gives the label as the last column */
	column->labels = source->asked.cleaning.classes.count > 0 && i == source->stream.layout.columns - 1;
	if (column->labels)
		dana_label_type_of(attribute->atttypid, &column->label, frames->context);
	else if (column->encoder != NULL
				 ? !dana_encoder_type(column->encoder, attribute->atttypid, &column->type)
				 : !dana_type_of(attribute->atttypid, &column->type) || column->type.array != (length > 0))
		dana_error(DATATYPE_MISMATCH, "column \"%s\" of %s has type %s, which cannot be trained on", column->name,
				   frames->source->name, format_type_be(attribute->atttypid));
	frames->total += column->count;
	frames->tuple += (length > 0 ? ARRAY_DATA_IN_FRAME : 0) + sizeof(float4) * (Size)column->count;
	frames->needed = Max(frames->needed, number);
}

static void
start_frame(dana_frames *frames)
{
	frames->lower = SizeOfPageHeaderData;
	frames->upper = frames->source->stream.layout.page_size;
}

dana_frames *
dana_frames_begin(const dana_source *source)
{
	const dana_frame_layout *layout = &source->stream.layout;
	/* a training may stream once for each epoch, all in one context of the caller */
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "dana frames", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	dana_frames	 *frames = palloc0(sizeof *frames);
	Size		  longest;

	frames->context = context;
	frames->source = source;
	frames->column = palloc0(sizeof(frame_column) * Max(layout->columns, 1));
	frames->numbers = palloc0(sizeof(dana_numbers) * Max(layout->columns, 1));
	frames->tuple = TUPLE_DATA;
	for (int i = 0; i < layout->columns; i++)
		set_up_column(frames, i);
	longest = layout->part > 0 ? PART_DATA + sizeof(float4) * layout->part : frames->tuple;
	if (layout->attributes > MaxHeapAttributeNumber)
		ereport(ERROR, (errcode(ERRCODE_TOO_MANY_COLUMNS),
						errmsg("%s has %d columns, a row of a training has at most %d", source->name,
							   layout->attributes, MaxHeapAttributeNumber),
						errhint("Put the features into one array: query => 'SELECT ARRAY[...]::real[] AS x, ...'.")));
	if (SizeOfPageHeaderData + sizeof(ItemIdData) + MAXALIGN(longest) > layout->page_size)
		dana_protocol_error("asked for frames that hold no row of %s", source->name);
	if (layout->part > 0)
		frames->values = palloc_extended(sizeof(float) * frames->total, MCXT_ALLOC_HUGE);
	frames->page = palloc_extended(layout->page_size, MCXT_ALLOC_ZERO);
	/* a detoasted value of 8 kB comes from the context's own block */
	frames->row_context =
		AllocSetContextCreate(context, "dana frame row", 128 * 1024, 128 * 1024, 1024 * 1024);
	frames->toast = dana_toast_begin();
	start_frame(frames);
	MemoryContextSwitchTo(caller);
	dana_ring_begin(layout->page_size);
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
	header->pd_special = frames->source->stream.layout.page_size;
	PageSetPageSizeAndVersion((Page)frames->page, frames->source->stream.layout.page_size, PG_PAGE_LAYOUT_VERSION);
	dana_ring_fill(slot, frames->page, frames->page);
	dana_ring_commit();
	dana_progress_set(DANA_PROGRESS_PAGE, ++frames->pages);
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

/* The number of a label's class; a number that is not finite has no class, and is handled elsewhere */
static float4
class_number(dana_frames *frames, frame_column *column, Datum value)
{
	char *label;
	int	  number = dana_class_of(&column->label, value, &frames->source->asked.cleaning.classes, &label);

	if (number >= 0)
		return number;
	if (column->label.number && !isfinite(dana_number_of(&column->label.holds, value)))
		return NAN;
	ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
					errmsg("column \"%s\" of %s holds \"%s\", which is none of the classes", column->name,
						   frames->source->name, dana_shown(label)),
					errhint("Name every class in classes => ARRAY[...], or leave these rows out.")));
}

/* The current row, for errors */
static char *
name_row(const dana_frames *frames)
{
	return psprintf("row " UINT64_FORMAT " of %s", frames->rows + 1, frames->source->name);
}

static _Noreturn void
reject_null(const dana_frames *frames, const frame_column *column, const char *what)
{
	ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					errmsg("%s has %s in column \"%s\"", name_row(frames), what, column->name),
					column->target ? errhint("Leave such rows out, with nulls => 'skip' or a filter.")
								   : errhint("Fill it in, or use nulls => 'skip' or nulls => '0'.")));
}

/* The row's numbers for one column; false if the row is to be skipped */
static bool
take_value(dana_frames *frames, frame_column *column, dana_numbers *numbers, Datum value, bool isnull)
{
	const dana_encoder	  *encoder = column->encoder;
	const dana_null_policy nulls = encoder != NULL ? encoder->nulls : frames->source->asked.cleaning.nulls;

	if (isnull && encoder != NULL && encoder->fill != NULL && column->length > 0)
	{
		numbers->count = -1;
		return true;
	}
	if (isnull && nulls == DANA_NULLS_ERROR && (encoder == NULL || encoder->fill == NULL))
		reject_null(frames, column, "a NULL");
	if (encoder != NULL && column->length == 0 && (!isnull || encoder->fill != NULL))
		return dana_encode(encoder, &column->type, value, isnull, numbers);
	if (isnull)
	{
		column->nulls++;
		return false;
	}
	if (column->labels)
	{
		*numbers = (dana_numbers){.element = DANA_ELEMENT_FLOAT4, .count = 1, .stored = 1};
		numbers->value = Float4GetDatum(class_number(frames, column, value));
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
	if (numbers->present == NULL)
		return true;
	if (encoder != NULL && encoder->fill != NULL)
	{
		numbers->fill = encoder->fill;
		numbers->fills = encoder->fills;
		return true;
	}
	if (nulls == DANA_NULLS_ERROR)
		reject_null(frames, column, "an array with NULL elements");
	column->nulls++;
	return false;
}

/* Whether a row's label is one of the rule's classes; true for a rule without classes */
static bool
is_class(const dana_frames *frames, float label)
{
	const int classes = frames->source->stream.classes;

	return classes == 0 || (label >= 0 && label < (float)classes && label == (float)(int)label);
}

/*
 * Writes a complete row's attributes (only the values, if it is cut into parts), and its label to `label`; returns how
 * many numbers are NaN or infinite
 */
static int
write_columns(dana_frames *frames, char *at, float *label)
{
	unsigned mode = dn_enter();
	int		 nonfinite = 0;
	const double *centres = frames->source->stream.layout.centres;
	const frame_column *negative = NULL;

	for (int i = 0; i < frames->source->stream.layout.columns; i++)
	{
		frame_column *column = &frames->column[i];
		dana_numbers *numbers = &frames->numbers[i];
		int			  count = column->count;
		float		 *to;

		if (column->length > 0 && frames->source->stream.layout.part == 0)
		{
			int32 header[6] = {0, 1, 0, FLOAT4OID, column->length, 1};

			SET_VARSIZE(header, sizeof header + sizeof(float4) * column->length);
			memcpy(at, header, sizeof header);
			at += sizeof header;
		}
		to = (float *)at;
		if (numbers->count < 0)
			for (int k = 0; k < count; k++)
				to[k] = dn_from_float64(column->encoder->fill[Min(k, column->encoder->fills - 1)] -
										(centres != NULL ? centres[k] : 0));
		else if (numbers->element == DANA_ELEMENT_FLOAT4 && numbers->values != NULL && numbers->present == NULL &&
				 centres == NULL)
			memcpy(to, numbers->values, sizeof(float) * count); /* the machine makes them canonical */
		else
			dana_numbers_write(numbers, centres, to);
		if (centres != NULL)
			centres += count;
		if (frames->source->asked.cleaning.nonfinite != DANA_NONFINITE_KEEP)
		{
			int bad = 0;

			for (int k = 0; k < count; k++)
				bad += (dn_bits(to[k]) & DN_EXPONENT) == DN_EXPONENT;
			column->nonfinite += bad > 0;
			column->beyond += bad > 0 && dana_numbers_beyond_real(numbers);
			nonfinite += bad;
		}
		if (column->weight && to[0] < 0)
			negative = column;
		*label = to[0];
		at += sizeof(float) * count;
	}
	dn_leave(mode);
	if (negative != NULL && nonfinite == 0)
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
						errmsg("%s has a negative weight in column \"%s\"", name_row(frames), negative->name),
						errhint("Weights are numbers of at least 0. Leave such rows out with a filter.")));
	return nonfinite;
}

/* A row's tuples, from its values */
static void
add_parts(dana_frames *frames)
{
	int32 number = 0;

	for (Size first = 0; first < frames->total; first += frames->source->stream.layout.part, number++)
	{
		Size  count = Min(frames->source->stream.layout.part, frames->total - first);
		char *at = add_frame_tuple(frames, PART_DATA + sizeof(float) * count, PART_ATTRIBUTES);

		memcpy(at, &number, sizeof number);
		memcpy(at + sizeof number, frames->values + first, sizeof(float) * count);
	}
}

/* Writes a complete row; returns how many numbers are NaN or infinite; such a row is written as a row to be skipped */
static int
add_complete(dana_frames *frames, float *label)
{
	int nonfinite;

	if (frames->source->stream.layout.part == 0)
	{
		char *at = add_frame_tuple(frames, frames->tuple, frames->source->stream.layout.attributes);

		nonfinite = write_columns(frames, at, label);
		if (nonfinite > 0) /* the tuple that was just added becomes one without attributes */
			HeapTupleHeaderSetNatts((HeapTupleHeader)(frames->page + frames->upper), 0);
		return nonfinite;
	}
	nonfinite = write_columns(frames, (char *)frames->values, label);
	if (nonfinite > 0)
		add_frame_tuple(frames, TUPLE_DATA, 0);
	else if (is_class(frames, *label))
		add_parts(frames);
	return nonfinite;
}

/* Smallest double that rounds to an infinity in binary32; PostgreSQL sorts NaN above it */
#define BEYOND_REAL "3.4028235677973366e38"

/* Raises the error for the first row with a number that is not finite */
static _Noreturn void
reject_nonfinite(const dana_frames *frames)
{
	const frame_column *column = frames->column;
	const char		   *name, *found;

	while (column->nonfinite == 0)
		column++;
	name = quote_identifier(column->name);
	if (column->beyond == 0)
		found = psprintf("concat(%s) ~* 'nan|inf'", name);
	else if (column->length > 0)
		found = psprintf("EXISTS (SELECT FROM unnest(%s) AS e WHERE abs(e) >= " BEYOND_REAL ")", name);
	else
		found = psprintf("abs(%s) >= " BEYOND_REAL, name);
	ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
					errmsg(column->beyond > 0 ? "%s has a number beyond the range of real in column \"%s\""
											  : "%s has a NaN or an infinity in column \"%s\"",
						   name_row(frames), column->name),
					frames->source->relation != NULL
						? errhint("SELECT ctid, * FROM %s WHERE %s finds such rows: fill them in, or leave them out with "
								  "nonfinite => 'skip'.", frames->source->name, found)
						: errhint("Fill such rows in, or leave them out with nonfinite => 'skip'.")));
}

bool
dana_frames_add(TupleTableSlot *row, void *to)
{
	dana_frames	 *frames = to;
	MemoryContext caller = MemoryContextSwitchTo(frames->row_context);
	bool		  complete = true;
	float		  label = 0;

	dana_channel_poll();
	slot_getsomeattrs(row, frames->needed);
	for (int i = 0; i < frames->source->stream.layout.columns; i++)
	{
		frame_column *column = &frames->column[i];
		int			  k = column->number - 1;

		if (complete)
			complete = take_value(frames, column, &frames->numbers[i], row->tts_values[k], row->tts_isnull[k]);
		else
			column->nulls += row->tts_isnull[k] && (column->encoder == NULL || column->encoder->fill == NULL);
	}
	MemoryContextSwitchTo(caller);
	if (!complete)
		add_frame_tuple(frames, TUPLE_DATA, 0);
	else if (add_complete(frames, &label) > 0)
	{
		complete = false;
		if (frames->source->asked.cleaning.nonfinite == DANA_NONFINITE_ERROR)
			reject_nonfinite(frames);
	}
	else if (!is_class(frames, label))
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
						errmsg("%s has the label %g in column \"%s\", which is none of the rule's classes 0 to %d",
							   name_row(frames), label, frames->column[frames->source->stream.layout.columns - 1].name,
							   frames->source->stream.classes - 1),
						errhint("The label changed after the classes were determined: rows are modified while they are read.")));
	frames->rows++;
	frames->complete += complete;
	MemoryContextReset(frames->row_context);
	return true;
}

/* A hint for a column without any value, when no row is left; NULL: there is none */
static char *
hint_of_empty(const frame_column *column)
{
	if (column->weight)
		return psprintf("Column \"%s\" is the weight of the rows: leave that out, or name another column.", column->name);
	if (column->target)
		return psprintf("Column \"%s\" is the label: name another one.", column->name);
	return psprintf("Leave column \"%s\" out, by naming the others with features => ARRAY[...].", column->name);
}

/* Reports the columns that made rows be left out */
static void
report_left_out(const dana_frames *frames)
{
	StringInfoData text;
	const char	  *hint = NULL;
	const frame_column *empty = NULL;

	initStringInfo(&text);
	for (int i = 0; i < frames->source->stream.layout.columns; i++)
	{
		const frame_column *column = &frames->column[i];

		if (column->nulls == frames->rows && (empty == NULL || empty->target))
			empty = column;
		/* categories have no mean, and a label's NULL is never replaced */
		if (column->nulls > 0 && !column->target && !dana_is_one_of(column->name, &frames->source->chosen.choosing))
			hint = "With nulls => 'mean' a NULL counts as the mean of its column.";
		if (column->nulls > 0)
			appendStringInfo(&text, ", \"%s\" is null (" UINT64_FORMAT ")", column->name, column->nulls);
		if (column->nonfinite > 0)
			appendStringInfo(&text, ", \"%s\" is %s (" UINT64_FORMAT ")", column->name,
							 column->beyond == 0				   ? "NaN or infinite"
							 : column->beyond == column->nonfinite ? "beyond the range of real"
																   : "NaN, infinite or beyond the range of real",
							 column->nonfinite);
	}
	if (frames->complete == 0 && empty != NULL)
		hint = hint_of_empty(empty);
	if (frames->complete == 0 && text.len > 0 && !frames->source->shard)
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
						errmsg("%s has no row to train on: of " UINT64_FORMAT " rows %s", frames->source->name, frames->rows,
							   text.data + 2),
						hint != NULL ? errhint("%s", hint) : 0));
	if (text.len > 0)
		/* a model of few of its rows is hardly that of the table */
		dana_notice(frames->complete < frames->rows / 2 ? WARNING : NOTICE, hint,
					UINT64_FORMAT " of " UINT64_FORMAT " rows of %s are left out: %s",
					frames->rows - frames->complete, frames->rows, frames->source->name, text.data + 2);
}

void
dana_frames_finish(dana_frames *frames, bool report)
{
	if (frames->lower > SizeOfPageHeaderData)
		send_frame(frames);
	dana_ring_finish();
	dana_toast_end(frames->toast);
	if (report)
		report_left_out(frames);
	MemoryContextDelete(frames->context);
}
