/*
 * What the parts of the paths share: record.c translates recorded instructions to steps, path.c makes paths of steps,
 * group.c runs them, live.c says which registers matter.
 */
#ifndef SIM_PATH_H
#define SIM_PATH_H

#include "core.h"

/* The base of constants: zero in every lane */
extern const uint32_t sim_zeros[SIM_LANES];

/* A path while recorded instructions are translated */
struct sim_builder
{
	const struct sim *sim;
	struct sim_path *path;
	struct sim_symbol r[SIM_REGISTERS];
	uint32_t largest[SIM_PATH_LENGTH]; /* of each value of the path */
	int32_t n_values;
	bool open; /* a tuple has begun and not ended */
};

/* The registers that an instruction reads and writes */
void sim_effects(const struct sim_strider_op *in, uint32_t *reads, uint32_t *writes);

/* Fills sim->live: backwards through the program until nothing changes. %t0 is reported with faults: always live. */
void sim_find_live(struct sim *sim);

/* Translates one recorded instruction; false: such a path cannot be had */
bool sim_translate(struct sim_builder *b, const struct sim_strider_op *in, int32_t following, int32_t *gap);

/* The bit of a register in masks of temporaries */
static inline uint32_t
bit(int32_t reg)
{
	return reg < SIM_TEMPORARIES ? UINT32_C(1) << reg : 0;
}

static inline const uint32_t *
base_of(struct sim_symbol s)
{
	return s.base != NULL ? s.base : sim_zeros;
}

static inline struct sim_symbol
constant(uint32_t value)
{
	return (struct sim_symbol){.offset = value};
}

/* Whether a base is a value of the path, and no register at the head and no constant */
static inline bool
is_value(const struct sim_path *path, const uint32_t *base)
{
	return base >= path->memory && base < path->memory + (size_t)SIM_PATH_LENGTH * SIM_LANES;
}

#endif /* SIM_PATH_H */
