/*
 * How an epoch ends before its last page.
 */
#include "state.h"

/* Ends the epoch; for returning from functions that say whether it goes on */
bool
sim_fault(struct sim *sim, uint32_t code, uint32_t pointer)
{
	sim->e.fault = code;
	sim->e.fault_page = (uint32_t)sim->e.pages;
	sim->e.fault_pointer = pointer & 0xffff;
	return false;
}

/* The same of a fault that the engine finds: it knows no page */
bool
sim_engine_fault(struct sim *sim, uint32_t code, uint32_t pointer)
{
	sim->e.fault = code;
	sim->e.fault_page = SIM_UNKNOWN_PAGE;
	sim->e.fault_pointer = pointer;
	return false;
}
