/*
 * Is a rule's own code right? The first pages go both ways, and what comes of it is compared.
 */
#include <stdlib.h>
#include <string.h>

#include "state.h"
#include "numerics.h"

/* An epoch of a few pages, by code as fast as it goes, or instruction by instruction; false: a fault */
static bool
run_pages(struct sim *sim, bool fast, const uint8_t *pages, size_t n_pages, uint64_t *cycles)
{
	const bool plain = sim->plain;

	sim_choose_path(sim, fast);
	sim->plain = plain || !fast;
	sim_epoch_begin(sim);
	for (size_t k = 0; k < n_pages && sim->e.fault == SIM_FAULT_NONE; k++)
		(void)sim_page(sim, pages + k * (size_t)sim->machine.page_size);
	if (sim->e.fault == SIM_FAULT_NONE)
		*cycles = sim_epoch_end(sim);
	sim->plain = plain;
	return sim->e.fault == SIM_FAULT_NONE;
}

/* Whether code has of a symbol what the engine left of it in a scratchpad, lanes past a vector's end aside */
static bool
same(const struct sim *sim, const struct sim_compiled_symbol *symbol, const float *scratch)
{
	const int32_t rows = sim_compiled_of_vector(sim, symbol), lanes = sim_compiled_in_row(sim, symbol);
	float own[16 * SIM_CLUSTER]; /* of as many clusters as there may be */

	for (int32_t r = 0; r < symbol->leading * rows; r++)
	{
		const float *row = scratch + (symbol->row + (ptrdiff_t)r) * sim->unit;

		sim_compiled_give_row(sim, symbol, r, lanes, own);
		for (int32_t e = 0; e < lanes && r % rows * lanes + e < symbol->last; e++)
			if (dn_bits(dn_canonical(dn_flush(row[e]))) != dn_bits(dn_canonical(own[e])))
				return false;
	}
	return true;
}

/*
 * Has the first pages run as the hardware does, instruction by instruction, and by walk and code, each from the scratchpad
 * as it is, and compares what comes of it and when: so that neither a wrong program, which would be exported, nor wrong
 * code goes unseen. Scratchpad and records are as before.
 */
void
sim_compiled_prove(struct sim *sim, const uint8_t *pages, size_t n_pages)
{
	const size_t size = sizeof(float) * (size_t)sim->machine.scratch_depth * (size_t)sim->unit;
	const struct sim_observer observer = sim->observer; /* these pages will come again */
	const struct sim_join join = sim->join; /* the other parts prove pages of their own */
	const bool counts = sim->counts;
	uint64_t expected, cycles = 0;
	bool proved = false;

	if (sim->named_columns > 0 && !sim_journal_open(sim, n_pages))
		return; /* no memory: the next epoch is asked again */
	memcpy(sim->unproved, sim->scratch, size);
	sim->counts = true;
	sim->join.exchange = NULL;
	memset(&sim->observer, 0, sizeof sim->observer);
	if (run_pages(sim, false, pages, n_pages, &expected) && sim->e.tuples > 0)
	{
		float *scratch = sim->unproved; /* the scratchpad as it was */

		sim->unproved = sim->scratch;
		sim->scratch = scratch;
		sim_journal_swap(sim);
		proved = true;
		sim->differs = !run_pages(sim, true, pages, n_pages, &cycles) || cycles != expected;
		sim_compiled_end_losses(sim);
		sim->plain = sim->plain || cycles != expected;
		sim->counted = sim->counted && cycles == expected;
		for (int32_t k = 0; k < sim->compiled.n_symbols && !sim->differs; k++)
			sim->differs = sim->compiled.symbols[k].out && !same(sim, &sim->compiled.symbols[k], sim->unproved);
		sim->differs = !sim_journal_settle(sim) || sim->differs;
	}
	else
	{
		memcpy(sim->scratch, sim->unproved, size);
		sim_journal_swap(sim);
	}
	sim_journal_free(sim);
	if (proved)
	{
		free(sim->unproved);
		sim->unproved = NULL;
	}
	if (sim->differs)
		sim->compiled.state = NULL;
	sim->observer = observer;
	sim->join = join;
	sim->counts = counts || (sim->again && !sim->counted);
	sim->begun = false;
	sim_choose_path(sim, !sim->differs);
}
