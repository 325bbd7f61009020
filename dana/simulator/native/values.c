/*
 * Values: the bytes of columns become binary32 in tuple memory (docs/machine.md, arithmetic).
 *
 * In: descriptors of the Bundle, and a page whose columns have been checked to lie within it. Out: rows of tuple memory.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "number.h"

/* Takes the descriptors over from the Bundle; the table is as long as the machine's, zeros at its end */
bool
sim_columns_prepare(struct sim *sim, const struct sim_bundle *bundle)
{
	sim->columns = calloc((size_t)sim->machine.descriptor_depth, sizeof *sim->columns);
	if (sim->columns == NULL)
		return false;
	for (int32_t k = 0; k < sim->machine.descriptor_depth; k++)
	{
		struct sim_column *column = &sim->columns[k];

		if (k < bundle->n_columns)
			*column = bundle->columns[k];
		column->input = -1;
		column->bad = column->count == 0 || column->lane >= sim->lanes ||
					  (column->table && (sim->machine.watch_depth == 0 || column->count != 1 || column->first ||
										 column->last || column->follows));
		sim->watches = sim->watches || (column->table && !column->bad);
	}
	return true;
}

/* Elements to floats one behind the other */
static void
convert(int32_t type, const uint8_t *from, float *restrict to, int32_t n)
{
	switch (type)
	{
#define CONVERT(NAME, c_type, conversion) \
		case SIM_##NAME: \
			for (int32_t k = 0; k < n; k++) \
			{ \
				c_type x; \
\
				memcpy(&x, from + (size_t)k * sizeof x, sizeof x); \
				to[k] = conversion(x); \
			} \
			break;
		SIM_COLUMN_TYPES(CONVERT)
#undef CONVERT
	}
}

/* Element e goes to lane (lane + e) mod lanes, (lane + e) div lanes rows on; a scalar's to all lanes of that row, but for
 * code, whose rows are no further from one another than they are long, and which reads a scalar's first */
static void
convert_column(const struct sim *sim, const struct sim_column *column, float *slot, const uint8_t *from)
{
	const int32_t size = column->bytes / column->count;
	float *row = slot + (ptrdiff_t)column->row * sim->fill.unit;
	int32_t lane = column->lane;

	if (sim->fast)
	{
		convert(column->type, from, row + (column->scalar ? 0 : lane), column->count);
		return;
	}
	for (int32_t k = 0; k < column->count; k++, from += size)
	{
		const float value = sim_number(column->type, from);

		if (column->scalar)
			for (int32_t l = 0; l < sim->lanes; l++)
				row[l] = value;
		else
			row[lane] = value;
		if (++lane == sim->lanes)
		{
			lane = 0;
			row += sim->fill.unit;
		}
	}
}

/* Code reads a column where it lies; not where it could read more than there is */
static void
point(const struct sim *sim, const struct sim_column *column, const uint8_t *page, const uint32_t *at, uint32_t offset,
	  int32_t tuples)
{
	const struct sim_compiled *code = &sim->compiled;
	const struct sim_compiled_input *input = &code->inputs[column->input];
	const uint8_t *last = sim->until - sizeof(float) * (size_t)input->floats;
	const float **place = sim->places + sim->e.phase.in_round * code->n_inputs + column->input;

	for (int32_t k = 0; k < tuples; k++)
		place[k * code->n_inputs] = (const float *)(page + (uint32_t)(at[k] + offset));
	for (int32_t k = 0; k < tuples && page + sim->machine.page_size > last; k++, place += code->n_inputs)
		if ((const uint8_t *)*place > last)
			*place = memcpy(sim->e.slot + k * sim->fill.stride + input->first, *place, (size_t)column->bytes);
}

/* Numbers, one of each tuple, side by side for code */
static void
collect(const struct sim *sim, const struct sim_column *column, const uint8_t *page, const uint32_t *at, uint32_t offset,
		int32_t tuples)
{
	float *to = sim->numbers + column->input * (sim->most + 1) + sim->e.phase.in_round;

	if (column->type == SIM_FLOAT4)
		for (int32_t k = 0; k < tuples; k++)
		{
			memcpy(&to[k], page + (uint32_t)(at[k] + offset), sizeof *to);
			to[k] = dn_flush(to[k]);
		}
	else
		for (int32_t k = 0; k < tuples; k++)
			to[k] = sim_number(column->type, page + (uint32_t)(at[k] + offset));
}

/* A column of successive tuples of the round, from page + at[k] + offset */
void
sim_copy(const struct sim *sim, const struct sim_column *column, const uint8_t *page, const uint32_t *at, uint32_t offset,
		 int32_t tuples)
{
	const struct sim_epoch *e = &sim->e;
	const struct sim_places places = {
		.first = e->slot + (ptrdiff_t)column->row * sim->fill.unit + (column->scalar ? 0 : column->lane),
		.step = sim->fill.stride,
		.wrap = sim->lanes - sim->fill.group * sim->fill.stride,
		.until_wrap = sim->fill.group - e->in_slot,
		.group = sim->fill.group,
		.n = column->count,
		.lane = column->lane,
		.lanes = sim->lanes,
		.unit = sim->fill.unit,
		.one = sim->one,
	};

	if (sim->fast && column->input >= 0)
		(sim->compiled.inputs[column->input].floats == 1 ? collect : point)(sim, column, page, at, offset, tuples);
	else if (column->type == SIM_FLOAT4 && !column->scalar)
		sim->kernels->floats(&places, page, at, offset, tuples);
	else if (column->type == SIM_FLOAT4 && column->count == 1)
		sim->kernels->spread(&places, page, at, offset, tuples);
	else
	{
		float *slot = e->slot;
		int32_t until_wrap = places.until_wrap;

		for (int32_t k = 0; k < tuples; k++, slot += places.step)
		{
			const uint8_t *from = page + (uint32_t)(at[k] + offset);

			convert_column(sim, column, slot, from);
			if (--until_wrap == 0)
			{
				until_wrap = sim->fill.group;
				slot += places.wrap;
			}
		}
	}
}
