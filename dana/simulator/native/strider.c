/*
 * The Strider: one page through its program, instruction by instruction (hwgen/spec/strider.py, docs/machine.md section 4).
 *
 * In: a page, which may contain any bytes. Out: columns and the page's end for the unpacker, rows skipped, faults. At
 * the head of a loop walk.c may run the rest of the page at once; what it gives is what the loop below would have given.
 */
#include <stdlib.h>
#include <string.h>

#include "walk.h"

/* Whether all operands of an instruction exist: a mistake in the decoded form must not reach other memory */
static bool
is_within(const struct sim *sim, const struct sim_strider_instruction *in, int32_t n)
{
	const bool shifts = in->op == SIM_EXTRB || in->op == SIM_EXTRBI;

	return (uint32_t)in->a < SIM_REGISTERS && (uint32_t)in->b < SIM_REGISTERS && (uint32_t)in->c < SIM_REGISTERS &&
		(uint32_t)in->next < (uint32_t)n && (uint32_t)in->target < (uint32_t)n && (!shifts || in->b < 32) &&
		(in->op != SIM_WRITEB || (uint32_t)in->value < (uint32_t)sim->machine.descriptor_depth);
}

/* Takes the program over from the Bundle, what is not within it as no instruction */
bool
sim_strider_prepare(struct sim *sim, const struct sim_bundle *bundle)
{
	const size_t size = sizeof *sim->strider * (size_t)bundle->n_strider;

	sim->strider = malloc(size);
	if (sim->strider == NULL)
		return false;
	memcpy(sim->strider, bundle->strider, size);
	for (int32_t k = 0; k < bundle->n_strider; k++)
		if (!is_within(sim, &sim->strider[k], bundle->n_strider))
			sim->strider[k] = (struct sim_strider_instruction){.op = SIM_NO_OPCODE};
	memcpy(sim->registers + SIM_TEMPORARIES, bundle->constants, sizeof(uint32_t) * (SIM_REGISTERS - SIM_TEMPORARIES));
	return true;
}

/* --- execution --------------------------------------------------------------------------------------------------- */

static uint32_t
read_bytes(const uint8_t *from, uint32_t n)
{
	uint32_t value = 0;

	for (uint32_t k = 0; k < n; k++)
		value |= (uint32_t)from[k] << 8 * k;
	return value;
}

static inline bool
holds(uint32_t condition, uint32_t x, uint32_t y)
{
	switch (condition)
	{
		case SIM_COND_EQ:
			return x == y;
		case SIM_COND_NE:
			return x != y;
		case SIM_COND_LT:
			return x < y;
		default:
			return x >= y;
	}
}

/* --- beginnings -------------------------------------------------------------------------------------------------- */

/* Whether a page begins with the bits that the program was seen to look at before its loop */
static bool
begins_alike(const struct sim_beginning *known, const uint8_t *page)
{
	uint64_t differ = 0, bytes;

	for (int32_t k = 0; k < SIM_BEGINNING; k++)
	{
		memcpy(&bytes, page + k * (int32_t)sizeof bytes, sizeof bytes);
		differ |= (bytes ^ known->bytes[k]) & known->masks[k];
	}
	return known->pc > 0 && differ == 0;
}

/* A load before the loop; false: of bytes that are not compared */
static bool
note_load(struct sim_beginning *known, const uint8_t *page, uint32_t at, uint32_t n)
{
	if (at + n > sizeof known->bytes)
		return false;
	memset((uint8_t *)known->masks + at, UINT8_MAX, n);
	memcpy(known->bytes, page, sizeof known->bytes);
	return true;
}

/* Has the page come near, from its first line upwards, as the processor foresees: tuples lie, and are read, downwards */
static void
touch(const uint8_t *page, uint32_t page_size)
{
	for (uint32_t k = 0; k < page_size; k += CACHE_LINE)
		(void)*(const volatile uint8_t *)(page + k);
}

/* Runs the program on the epoch's next page; false: a fault */
bool
sim_page(struct sim *sim, const uint8_t *page)
{
	const uint32_t page_size = (uint32_t)sim->machine.page_size;
	const uint32_t bound = (uint32_t)sim->machine.strider_bound * page_size;
	uint32_t *r = sim->registers;
	uint32_t executed = 0;
	int32_t pc = 0, head = 0;
	int32_t gap = 0; /* cycles since the clock's `turn` */
	int32_t recorded = -1, record[SIM_PATH_LENGTH]; /* of a row, for walk.c; -1: nothing is recorded */
	struct sim_beginning *known = &sim->beginning;
	const bool alike = !sim->plain && begins_alike(known, page);
	bool noted = !alike; /* nothing but bits of the page's first bytes has been looked at, and nothing done */

	if (!sim->walk->pattern.known) /* else it was asked for while others were read: pattern.c */
		touch(page, page_size);
	if (alike)
	{
		memcpy(r, known->registers, sizeof known->registers);
		pc = known->pc;
		gap = known->gap;
		executed = known->executed;
	}
	else
	{
		memset(r, 0, sizeof(uint32_t) * SIM_TEMPORARIES);
		memset(known, 0, sizeof *known);
	}
	for (;;)
	{
		const struct sim_strider_instruction *in = &sim->strider[pc];
		const uint32_t a = r[in->a], b = r[in->b];

		if (executed++ == bound)
			return sim_fault(sim, SIM_FAULT_RUNAWAY, r[0]);
		if (recorded >= 0)
		{
			if (recorded < SIM_PATH_LENGTH)
				record[recorded++] = pc;
			else
				recorded = -1;
		}
		gap += in->cost;
		pc = in->next;
		switch (in->op)
		{
			case SIM_READB:
				if ((uint64_t)a + in->b > page_size)
					return sim_fault(sim, SIM_FAULT_OUT_OF_PAGE, r[0]);
				r[in->c] = read_bytes(page + a, in->b);
				noted = noted && note_load(known, page, a, in->b);
				break;
			case SIM_EXTRB:
			case SIM_EXTRBI:
				r[in->a] = a >> in->b & in->mask;
				break;
			case SIM_WRITEB:
				noted = false;
				if (a >= page_size)
					return sim_fault(sim, SIM_FAULT_OUT_OF_PAGE, r[0]);
				if (!sim_column(sim, page, in->value, a, gap - 1, r[0]))
					return false;
				gap = 0;
				break;
			case SIM_CLN:
				r[in->c] = (a + in->mask) & ~in->mask;
				break;
			case SIM_INS:
				r[in->a] = in->value;
				break;
			case SIM_AD:
				r[in->c] = a + b;
				break;
			case SIM_SUBTRACT:
				r[in->c] = a - b;
				break;
			case SIM_MULTIPLY:
				r[in->c] = (a & 0xffff) * (b & 0xffff);
				break;
			case SIM_BEQ:
				if (a == b)
					pc = in->target;
				break;
			case SIM_BNE:
				if (a != b)
					pc = in->target;
				break;
			case SIM_BLT:
				if (a < b)
					pc = in->target;
				break;
			case SIM_JMP:
				pc = in->target;
				break;
			case SIM_BENTR:
				if (noted)
				{
					known->pc = (int32_t)(in - sim->strider);
					known->gap = gap - in->cost;
					known->executed = executed - 1;
					memcpy(known->registers, r, sizeof known->registers);
				}
				noted = false;
				head = pc;
				recorded = -1;
				switch (sim_walk(sim, page, head, gap, executed))
				{
					case SIM_WALKED:
						return true;
					case SIM_WALK_FAULT:
						return false;
					case SIM_WALK_NOT:
						recorded = sim_walk_wanted(sim, head) ? 0 : -1;
				}
				break;
			case SIM_BEXIT:
				if (recorded >= 0)
					sim_walk_learn(sim, head, record, recorded);
				recorded = -1;
				if (holds(in->a, b, r[in->c]))
					break;
				pc = head;
				recorded = sim_walk_wanted(sim, head) ? 0 : -1;
				break;
			case SIM_CTL:
				noted = noted && in->a == SIM_CTL_POP;
				switch (in->a)
				{
					case SIM_CTL_END:
						sim_clock_page_end(sim, gap - 1);
						sim_page_end(sim, r[0]);
						return true;
					case SIM_CTL_SKIP:
						sim->e.skipped++;
						break;
					case SIM_CTL_FAIL:
						return sim_fault(sim, in->value, r[0]);
					case SIM_CTL_POP:
						r[in->c] = (uint32_t)__builtin_popcount(b);
						break;
				}
				break;
			default:
				return sim_fault(sim, SIM_FAULT_BAD_INSTRUCTION, r[0]);
		}
	}
}
