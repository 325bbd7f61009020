/*
 * One operation on a row of lanes.
 */
#include "state.h"

/* Bit of a unit's number in which partners differ */
int32_t
sim_partner_bit(const struct sim *sim, const struct sim_instruction *in)
{
	return in->source == SIM_LANE_XOR ? 1 << in->distance : sim->lanes << in->distance;
}

/* The operation on a row with ready operands, or on several(); the result may lie where an operand does */
void
sim_row_apply(const struct sim *sim, const struct sim_instruction *in, int32_t rows, float *d, const float *a,
			  const float *b)
{
	const int32_t unit = sim->unit, bit = sim_partner_bit(sim, in);
	float *x = sim->rows + 3 * unit, *y = x + unit;

	if (in->source != SIM_MEMORY)
	{
		sim->kernels->cross(unit, bit, a, b, x, y);
		if (in->op == SIM_LOW || in->op == SIM_HIGH)
			for (int32_t u = 0; u < unit; u++)
				d[u] = (in->op == SIM_LOW) == !(u & bit) ? x[u] : y[u];
		else
			sim->kernels->apply(in->op, (size_t)unit, d, x, y);
	}
	else if (!in->scalar || !sim_is(SIM_SPECIAL, in->op))
		sim->kernels->apply(in->op, (size_t)rows * (size_t)unit, d, a, b);
	else
	{
		for (int32_t k = 0; k < unit / SIM_CLUSTER; k++)
		{
			x[k] = a[k * SIM_CLUSTER];
			y[k] = b[k * SIM_CLUSTER];
		}
		sim->kernels->apply(in->op, (size_t)(unit / SIM_CLUSTER), x, x, y);
		for (int32_t u = 0; u < unit; u++)
			d[u] = x[u / SIM_CLUSTER];
	}
}
