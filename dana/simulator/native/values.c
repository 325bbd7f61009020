/*
 * Values: the bytes of columns become binary32 in tuple memory (docs/machine.md, arithmetic).
 *
 * In: descriptors of the Bundle, and a page whose columns have been checked to lie within it. Out: rows of tuple memory.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"
#include "numerics.h"

/* Takes the descriptors over from the Bundle; the table is as long as the machine's, zeros at its end */
bool
sim_columns_prepare(struct sim *sim, const struct sim_bundle *bundle)
{
	static const int32_t sizes[] = {4, 8, 2, 4, 8, 1};

	sim->columns = calloc((size_t)sim->machine.descriptor_depth, sizeof *sim->columns);
	if (sim->columns == NULL)
		return false;
	for (int32_t k = 0; k < sim->machine.descriptor_depth; k++)
	{
		struct sim_column *column = &sim->columns[k];

		if (k < bundle->n_columns)
			*column = bundle->columns[k];
		column->bad = column->count == 0 || column->type > SIM_BOOL || column->lane >= sim->lanes;
		if (column->bad)
			continue;
		column->bytes = column->count * sizes[column->type];
		column->beats = column->type == SIM_FLOAT4 && !column->scalar
							? (column->lane + column->count + sim->lanes - 1) / sim->lanes
							: column->count;
		column->place = column->row * sim->unit + (column->scalar ? 0 : column->lane);
	}
	return true;
}

static float
convert(int32_t type, const uint8_t *from)
{
	int16_t i2;
	int32_t i4;
	int64_t i8;
	float f4;
	double f8;

	switch (type)
	{
		case SIM_FLOAT4:
			memcpy(&f4, from, sizeof f4);
			return dn_from_float32(f4);
		case SIM_FLOAT8:
			memcpy(&f8, from, sizeof f8);
			return dn_from_float64(f8);
		case SIM_INT2:
			memcpy(&i2, from, sizeof i2);
			return dn_from_int16(i2);
		case SIM_INT4:
			memcpy(&i4, from, sizeof i4);
			return dn_from_int32(i4);
		case SIM_INT8:
			memcpy(&i8, from, sizeof i8);
			return dn_from_int64(i8);
		default:
			return dn_from_bool(*from);
	}
}

/* Element e goes to lane (lane + e) mod lanes, (lane + e) div lanes rows on; a scalar's to all lanes of that row */
static void
convert_column(const struct sim *sim, const struct sim_column *column, float *slot, const uint8_t *from)
{
	const int32_t size = column->bytes / column->count;
	float *row = slot + (ptrdiff_t)column->row * sim->unit;
	int32_t lane = column->lane;

	for (int32_t k = 0; k < column->count; k++, from += size)
	{
		const float value = convert(column->type, from);

		if (column->scalar)
			for (int32_t l = 0; l < sim->lanes; l++)
				row[l] = value;
		else
			row[lane] = value;
		if (++lane == sim->lanes)
		{
			lane = 0;
			row += sim->unit;
		}
	}
}

/* A column of successive tuples of the round, from page + at[k] + offset */
void
sim_copy(const struct sim *sim, const struct sim_column *column, const uint8_t *page, const uint32_t *at, uint32_t offset,
		 int32_t tuples)
{
	const struct sim_epoch *e = &sim->e;
	const struct sim_places places = {
		.first = e->slot + column->place,
		.step = sim->tuple_stride,
		.wrap = sim->lanes - sim->group * sim->tuple_stride,
		.until_wrap = sim->group - e->in_slot,
		.group = sim->group,
		.n = column->count,
		.lane = column->lane,
		.lanes = sim->lanes,
		.unit = sim->unit,
		.ahead = sim->ahead,
		.one = sim->one,
	};

	if (column->type == SIM_FLOAT4 && !column->scalar)
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

			__builtin_prefetch(from + sim->ahead);
			convert_column(sim, column, slot, from);
			if (--until_wrap == 0)
			{
				until_wrap = sim->group;
				slot += places.wrap;
			}
		}
	}
}
