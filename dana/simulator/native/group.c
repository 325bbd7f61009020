/*
 * Runs iterations of a Strider loop along known paths, up to SIM_LANES at once.
 */
#include <string.h>

#include "path.h"

#define POOR 4	/* iterations that a group should at least give */
#define REST 16 /* iterations without paths after a poor group */

struct group
{
	uint32_t took[SIM_PATHS]; /* bit k: lane k's iteration takes this path */
	uint8_t which[SIM_LANES];
	int n;	   /* iterations that are known */
	bool left; /* the last of them leaves the loop */
};

static uint32_t
below(int lane)
{
	return lane >= SIM_LANES ? UINT32_MAX : (UINT32_C(1) << lane) - 1;
}

/* Finds the paths that the next iterations take */
static void
find_paths(const struct sim *sim, const struct sim_head *head, const uint8_t *page, int halves, struct group *group)
{
	const int lanes = halves * (SIM_LANES / 2);
	uint32_t missing = below(lanes), leaving = 0;

	memset(group, 0, sizeof *group);
	for (int32_t p = 0; p < head->n_paths && missing != 0; p++)
	{
		uint32_t took, closed;

		sim->kernels->path(head->paths[p], page, halves, &took, &closed);
		took &= missing;
		missing &= ~took;
		leaving |= took & ~closed;
		group->took[p] = took;
		for (uint32_t rest = p > 0 ? took : 0; rest != 0; rest &= rest - 1)
			group->which[__builtin_ctz(rest)] = (uint8_t)p;
		if (leaving != 0) /* what comes after the first that leaves does not happen */
			missing &= (leaving & -leaving) - 1;
	}
	group->left = missing == 0 && leaving != 0;
	if (missing != 0)
		group->n = __builtin_ctz(missing);
	else
		group->n = leaving != 0 ? __builtin_ctz(leaving) + 1 : lanes;
}

/* Sets the registers as the group's last iteration left them: each as the last path that writes it did */
static void
set_registers(const struct sim_head *head, const struct group *group, uint32_t needed, uint32_t *r)
{
	uint32_t values[SIM_TEMPORARIES];
	const uint32_t written = head->writes & needed;

	for (uint32_t rest = written; rest != 0; rest &= rest - 1)
	{
		const int32_t reg = __builtin_ctz(rest);
		int32_t last = -1;

		values[reg] = r[reg];
		for (int32_t p = 0; p < head->n_paths; p++)
		{
			const uint32_t took = group->took[p] & below(group->n);
			const struct sim_symbol out = head->paths[p]->out[reg];

			if (!(head->paths[p]->writes & bit(reg)) || took == 0 || 31 - __builtin_clz(took) < last)
				continue;
			last = 31 - __builtin_clz(took);
			values[reg] = base_of(out)[last] + out.offset;
		}
	}
	for (uint32_t rest = written; rest != 0; rest &= rest - 1)
		r[__builtin_ctz(rest)] = values[__builtin_ctz(rest)];
}

/* Runs iterations from the head `first` on as long as their paths are known; *pc and *executed follow */
enum sim_paths
sim_path_run(struct sim *sim, int32_t first, const uint8_t *page, uint32_t bound, uint32_t *executed, int32_t *pc)
{
	struct sim_head *head = sim->heads[first];
	uint32_t *r = sim->registers;
	int32_t iterations = 0;

	if (head == NULL || head->n_paths == 0 || sim->e.open)
		return SIM_PATHS_UNKNOWN;
	if (head->rest > 0)
	{
		head->rest--;
		return SIM_PATHS_UNKNOWN;
	}
	for (;;)
	{
		const int halves = head->expected - iterations > SIM_LANES / 2 ? 2 : 1;
		struct group group;
		uint32_t needed = sim->live[first];

		if (*executed + (uint64_t)SIM_LANES * SIM_PATH_LENGTH > bound)
			return SIM_PATHS_UNKNOWN;
		sim->kernels->enter(head, r);
		find_paths(sim, head, page, halves, &group);
		for (int k = 0; k < group.n;)
		{
			const struct sim_path *path = head->paths[group.which[k]];
			int alike = 1;

			while (k + alike < group.n && group.which[k + alike] == group.which[k])
				alike++;
			if (!sim_iterations(sim, page, path, k, alike))
				return SIM_PATHS_FAULT;
			*executed += (uint32_t)(alike * path->length);
			sim->e.skipped += (uint64_t)(alike * path->skipped);
			k += alike;
		}
		iterations += group.n;
		sim->iterations += (uint64_t)group.n;
		if (group.left)
			needed = sim->live[head->paths[group.which[group.n - 1]]->exit];
		if (group.n > 0)
			set_registers(head, &group, needed, r);
		if (group.left)
		{
			*pc = head->paths[group.which[group.n - 1]]->exit;
			head->expected = iterations;
			return SIM_PATHS_LEFT;
		}
		if (group.n < halves * (SIM_LANES / 2))
		{
			if (group.n < POOR && !sim_path_wanted(sim, first))
				head->rest = REST;
			return SIM_PATHS_UNKNOWN;
		}
	}
}
