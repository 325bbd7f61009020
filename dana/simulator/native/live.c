/*
 * Which registers a Strider program reads later, at each of its instructions: what a path need not compute.
 */
#include "path.h"

void
sim_effects(const struct sim_strider_op *in, uint32_t *reads, uint32_t *writes)
{
	*reads = *writes = 0;
	switch (in->op)
	{
		case SIM_READB:
		case SIM_CLN:
			*reads = bit(in->a);
			*writes = bit(in->c);
			break;
		case SIM_EXTRB:
		case SIM_EXTRBI:
			*reads = *writes = bit(in->a);
			break;
		case SIM_WRITEB:
			*reads = bit(in->a);
			break;
		case SIM_INS:
			*writes = bit(in->a);
			break;
		case SIM_AD:
		case SIM_SUBTRACT:
		case SIM_MULTIPLY:
			*reads = bit(in->a) | bit(in->b);
			*writes = bit(in->c);
			break;
		case SIM_BEXIT:
			*reads = bit(in->b) | bit(in->c);
			break;
		case SIM_BEQ:
		case SIM_BNE:
		case SIM_BLT:
			*reads = bit(in->a) | bit(in->b);
			break;
		case SIM_CTL:
			if (in->a == SIM_CTL_POP)
			{
				*reads = bit(in->b);
				*writes = bit(in->c);
			}
			break;
	}
}

void
sim_find_live(struct sim *sim)
{
	const int32_t n = sim->n_strider;
	uint32_t at_heads = 1;
	bool changed = true;

	for (int pass = 0; changed; pass++)
	{
		changed = false;
		for (int32_t k = n - 1; k >= 0; k--)
		{
			const struct sim_strider_op *in = &sim->strider[k];
			const bool ends = in->op == SIM_CTL && (in->a == SIM_CTL_END || in->a == SIM_CTL_FAIL);
			uint32_t reads, writes, after = 1;

			if (in->op != SIM_JMP && !ends)
				after |= sim->live[in->next];
			if (in->op == SIM_JMP || in->op == SIM_BEQ || in->op == SIM_BNE || in->op == SIM_BLT)
				after |= sim->live[in->target];
			if (in->op == SIM_BEXIT)
				after |= at_heads;
			sim_effects(in, &reads, &writes);
			after = (after & ~writes) | reads | 1;
			if (pass > 64) /* an odd program: give up */
				after = UINT32_MAX;
			if (after != sim->live[k])
			{
				sim->live[k] = after;
				changed = true;
			}
			if (k == 0 || in->op == SIM_BENTR)
				at_heads |= sim->live[in->op == SIM_BENTR ? in->next : 0];
		}
	}
}
