/*
 * Paths: iterations of a Strider loop as vector code, run for many iterations at once.
 *
 * In: the instructions that the interpreter went through from a loop's head back to it. Out: steps over vectors, a lane
 * for each of the next iterations. Lanes are independent because what one iteration hands to the next is known
 * beforehand: every register that any path of the loop reads from before the iteration is either left alone by all
 * paths, or advanced by the same constant in all of them (`step`). A branch becomes a condition that a lane must meet,
 * with the outcome that was recorded; lanes that do not meet it try the loop's other paths, and the first lane that has
 * none ends the group, to be interpreted. Only whole tuples within the page count as meeting the conditions.
 *
 * Values are kept as base + offset, so that adding constants and copying costs no step; registers that nobody reads
 * afterwards (`live`, from the program's flow) need not be computed.
 */
#include <stdlib.h>
#include <string.h>

#include "path.h"

#define REFUSALS 32 /* of one loop, then nothing is recorded any more */

bool
sim_paths_prepare(struct sim *sim)
{
	sim->live = calloc((size_t)sim->n_strider + 1, sizeof *sim->live);
	sim->heads = calloc((size_t)sim->n_strider + 1, sizeof *sim->heads);
	if (sim->live == NULL || sim->heads == NULL)
		return false;
	sim->live[sim->n_strider] = 1;
	sim_find_live(sim);
	return true;
}

static void
free_path(struct sim_path *path)
{
	if (path == NULL)
		return;
	free(path->steps);
	free(path->handed);
	free(path->memory);
	free(path);
}

void
sim_paths_free(struct sim *sim)
{
	for (int32_t k = 0; sim->heads != NULL && k <= sim->n_strider; k++)
	{
		for (int32_t p = 0; sim->heads[k] != NULL && p < sim->heads[k]->n_paths; p++)
			free_path(sim->heads[k]->paths[p]);
		free(sim->heads[k]);
	}
	free(sim->heads);
	free(sim->live);
	sim->heads = NULL;
	sim->live = NULL;
}

/* The count of a value's uses; NULL: it is no value of the path */
static uint16_t *
uses_of(const struct sim_path *path, const uint32_t *base, uint16_t *uses)
{
	return is_value(path, base) ? &uses[(base - path->memory) / SIM_LANES] : NULL;
}

/* Notes that a base is read: a value of the path, or a register at the head */
static void
use(struct sim_path *path, const struct sim_head *head, const uint32_t *base, uint16_t *uses)
{
	uint16_t *count = uses_of(path, base, uses);

	if (count != NULL)
		++*count;
	else if (base >= head->in[0] && base < head->in[SIM_TEMPORARIES])
		path->reads |= bit((int32_t)((base - head->in[0]) / SIM_LANES));
}

/* Conditions are, and so are reads: they must be on the page */
static bool
is_needed(const struct sim_path *path, const struct sim_step *step, uint16_t *uses)
{
	return step->d == NULL || step->kind == SIM_STEP_READ || *uses_of(path, step->d, uses) > 0;
}

/* How often each value of a path is used, and which registers it reads from before it */
static void
count_uses(struct sim_path *path, const struct sim_head *head, uint32_t needed, uint16_t *uses)
{
	path->reads = 0;
	use(path, head, path->close.a, uses);
	use(path, head, path->close.b, uses);
	for (int32_t k = 0; k < path->n_handed; k++)
		use(path, head, path->handed[k].address.base, uses);
	for (int32_t reg = 0; reg < SIM_TEMPORARIES; reg++)
		if (path->writes & needed & bit(reg))
			use(path, head, base_of(path->out[reg]), uses);
	for (int32_t k = path->n_steps - 1; k >= 0; k--)
	{
		const struct sim_step *step = &path->steps[k];

		if (!is_needed(path, step, uses))
			continue;
		use(path, head, step->a, uses);
		use(path, head, step->b, uses);
	}
}

/* A value that is only compared with a constant: one step for both; returns whether `test` is such a test of `of` */
static bool
join(struct sim_step *of, const struct sim_step *test)
{
	if (test->kind != SIM_STEP_EQ || test->a != of->d || test->b != sim_zeros)
		return false;
	of->z = test->y - test->x;
	of->kind = of->kind == SIM_STEP_READ ? SIM_STEP_READ_IS : SIM_STEP_BITS_IS;
	of->d = NULL;
	return true;
}

/* Drops steps that nobody needs */
static void
prune(struct sim_path *path, const struct sim_head *head, uint32_t needed)
{
	uint16_t uses[SIM_PATH_LENGTH] = {0};
	bool done[SIM_PATH_LENGTH] = {false}; /* by the step that it was joined to */
	int32_t kept = 0;

	count_uses(path, head, needed, uses);
	for (int32_t k = 0; k < path->n_steps; k++)
	{
		struct sim_step step = path->steps[k];

		if (done[k] || !is_needed(path, &step, uses))
			continue;
		if ((step.kind == SIM_STEP_READ || step.kind == SIM_STEP_BITS) && *uses_of(path, step.d, uses) == 1)
			for (int32_t j = k + 1; j < path->n_steps && step.d != NULL; j++)
				done[j] |= join(&step, &path->steps[j]);
		path->steps[kept++] = step;
	}
	path->n_steps = kept;
}

/* Translates a recording that ends with the bexit that stayed in the loop; NULL: it cannot be had */
static struct sim_path *
build(struct sim *sim, struct sim_head *head, int32_t first, const int32_t *instructions, int32_t n)
{
	const struct sim_strider_op *last = &sim->strider[instructions[n - 1]];
	struct sim_path *path = calloc(1, sizeof *path);
	struct sim_builder b = {.sim = sim, .path = path};
	int32_t gap = 0;
	bool fits = last->op == SIM_BEXIT;

	if (path == NULL)
		return NULL;
	path->steps = calloc((size_t)n + 1, sizeof *path->steps);
	path->handed = calloc((size_t)n, sizeof *path->handed);
	/* aligned for whole vectors */
	path->memory = aligned_alloc(64, sizeof(uint32_t) * SIM_LANES * SIM_PATH_LENGTH);
	if (path->steps == NULL || path->handed == NULL || path->memory == NULL)
	{
		free_path(path);
		return NULL;
	}
	path->page_size = (uint32_t)sim->machine.page_size;
	path->length = n;
	for (int32_t reg = 0; reg < SIM_TEMPORARIES; reg++)
	{
		b.r[reg].base = head->in[reg];
		b.r[SIM_TEMPORARIES + reg].offset = sim->registers[SIM_TEMPORARIES + reg];
	}
	for (int32_t k = 0; fits && k < n - 1; k++)
	{
		uint32_t reads, writes;

		sim_effects(&sim->strider[instructions[k]], &reads, &writes);
		path->writes |= writes;
		fits = sim_translate(&b, &sim->strider[instructions[k]], instructions[k + 1], &gap);
	}
	if (fits && !b.open)
	{
		static const enum sim_step_kind stays[] = {
			[SIM_COND_EQ] = SIM_STEP_NE, [SIM_COND_NE] = SIM_STEP_EQ, [SIM_COND_LT] = SIM_STEP_GE, [SIM_COND_GE] = SIM_STEP_LT};

		path->close = (struct sim_step){.kind = (uint8_t)stays[last->a],
										.a = base_of(b.r[last->b]),
										.b = base_of(b.r[last->c]),
										.x = b.r[last->b].offset,
										.y = b.r[last->c].offset};
		path->tail = gap + last->cost;
		path->exit = last->next;
		memcpy(path->out, b.r, sizeof path->out);
		prune(path, head, sim->live[first] | sim->live[path->exit]);
		sim_path_times(sim, path);
		return path;
	}
	free_path(path);
	return NULL;
}

/* A read at a register that goes on by four bytes loads a whole vector */
static void
find_load(const struct sim_head *head, struct sim_step *step)
{
	if (step->kind != SIM_STEP_READ && step->kind != SIM_STEP_LOAD)
		return;
	step->kind = SIM_STEP_READ;
	if (step->a >= head->in[0] && step->a < head->in[SIM_TEMPORARIES] &&
		head->step[(step->a - head->in[0]) / SIM_LANES] == sizeof(uint32_t))
		step->kind = SIM_STEP_LOAD;
}

/* Whether the head's paths still agree on what an iteration hands to the next; fills its masks and steps */
static bool
agree(struct sim_head *head)
{
	head->reads = head->writes = 0;
	for (int32_t p = 0; p < head->n_paths; p++)
	{
		head->reads |= head->paths[p]->reads;
		head->writes |= head->paths[p]->writes;
	}
	for (int32_t reg = 0; reg < SIM_TEMPORARIES; reg++)
	{
		head->step[reg] = 0;
		for (int32_t p = 0; p < head->n_paths && (head->reads & head->writes & bit(reg)); p++)
		{
			const struct sim_path *path = head->paths[p];
			const bool writes = path->writes & bit(reg);
			const uint32_t step = writes ? path->out[reg].offset : 0;

			if ((writes && path->out[reg].base != head->in[reg]) || (p > 0 && step != head->step[reg]))
				return false;
			head->step[reg] = step;
		}
	}
	for (int32_t p = 0; p < head->n_paths; p++)
		for (int32_t k = 0; k < head->paths[p]->n_steps; k++)
			find_load(head, &head->paths[p]->steps[k]);
	return true;
}

/* Whether an iteration from this head should be recorded */
bool
sim_path_wanted(const struct sim *sim, int32_t first)
{
	const struct sim_head *head = sim->heads[first];

	return head == NULL || (head->n_paths < SIM_PATHS && head->refused < REFUSALS);
}

/* Makes a path of n recorded instructions, from the head `first` back to it */
void
sim_path_learn(struct sim *sim, int32_t first, const int32_t *instructions, int32_t n)
{
	struct sim_head *head = sim->heads[first];
	struct sim_path *path;

	if (!sim_path_wanted(sim, first) || n < 1)
		return;
	if (head == NULL)
	{
		head = aligned_alloc(64, (sizeof *head + 63) / 64 * 64);
		if (head == NULL)
			return;
		memset(head, 0, sizeof *head);
		sim->heads[first] = head;
	}
	path = build(sim, head, first, instructions, n);
	if (path != NULL)
	{
		head->paths[head->n_paths++] = path;
		if (agree(head))
			return;
		head->paths[--head->n_paths] = NULL;
		free_path(path);
		(void)agree(head);
	}
	head->refused++;
}
