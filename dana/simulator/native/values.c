/*
 * Values: the bytes of columns become binary32 in tuple memory (docs/machine.md, arithmetic).
 *
 * In: descriptors of the Bundle, and a page with columns that were checked to be within it. Out: rows of tuple memory.
 */
#include <stdlib.h>
#include <string.h>

#include "state.h"
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
		column->order = 0;
		column->bad = column->count == 0 || column->lane >= sim->lanes ||
					  (column->table && (sim->machine.watch_depth == 0 || column->count != 1 || column->first ||
										 column->last || column->follows));
		sim->watches = sim->watches || (column->table && !column->bad);
	}
	return true;
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

/* Numbers, one of each tuple, side by side for code. Labels are zeros as often as not, so no processor foresees a branch
 * that asks: the loop here has none. */
static void
collect(const struct sim *sim, const struct sim_column *column, const uint8_t *page, const uint32_t *at,
		uint32_t offset, int32_t tuples)
{
	float *to = sim->numbers + column->input * (sim->most + 1) + sim->e.phase.in_round;

	if (column->type == SIM_FLOAT4)
		for (int32_t k = 0; k < tuples; k++)
		{
			memcpy(&to[k], page + (uint32_t)(at[k] + offset), sizeof *to);
			to[k] = dn_flush(to[k]);
		}
	else
		sim->kernels->convert(column->type, 1, to, 1, page, at, offset, tuples);
}

/*
 * A column of tuples of one thread. Element e goes to lane (lane + e) mod lanes, (lane + e) div lanes rows on; a
 * scalar's to all lanes of row e, except for code, which has rows without gaps and
 * which reads a scalar's first.
 */
static void
convert(const struct sim *sim, const struct sim_column *column, float *row, const uint8_t *page, const uint32_t *at,
		uint32_t offset, int32_t tuples)
{
	const int32_t lanes = sim->fast ? INT32_MAX : sim->lanes, width = column->scalar && !sim->fast ? 1 : lanes;
	const ptrdiff_t step = sim->fill.stride;
	int32_t lane = column->scalar ? 0 : column->lane;

	for (int32_t k = 0, n; k < column->count; k += n, lane = 0, row += sim->fill.unit)
	{
		n = column->count - k < width - lane ? column->count - k : width - lane;
		sim->kernels->convert(column->type, n, row + lane, step, page, at, offset, tuples);
		offset += (uint32_t)(column->bytes / column->count * n);
		for (int32_t t = 0; t < tuples && column->scalar && !sim->fast; t++)
			for (int32_t l = 1; l < lanes; l++)
				row[t * step + l] = row[t * step];
	}
}

/* A column of successive tuples of the round, from page + at[k] + offset */
void
sim_copy(const struct sim *sim, const struct sim_column *column, const uint8_t *page, const uint32_t *at,
		 uint32_t offset, int32_t tuples)
{
	const struct sim_fill *fill = &sim->fill;
	float *row = sim->e.slot + (ptrdiff_t)column->row * fill->unit;
	int32_t left = fill->group - sim->e.in_slot; /* of the thread */

	if (sim->fast && column->input >= 0)
	{
		(sim->compiled.inputs[column->input].floats == 1 ? collect : point)(sim, column, page, at, offset, tuples);
		return;
	}
	for (; tuples > left; left = fill->group)
	{
		convert(sim, column, row, page, at, offset, left);
		row += sim->lanes - (fill->group - left) * fill->stride;
		at += left;
		tuples -= left;
	}
	convert(sim, column, row, page, at, offset, tuples);
}
