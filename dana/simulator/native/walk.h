/* Pages that are processed as a whole: walk.c and its helpers; clock.c reads what the times of a page depend on. */
#ifndef DANA_SIMULATOR_WALK_H
#define DANA_SIMULATOR_WALK_H

#include "state.h"

#define SIM_ROWS		8 /* rows that steps take are a multiple of this */
#define SIM_WAYS		8
#define SIM_PATH_LENGTH 512 /* instructions of a row */
#define SIM_RUNS 8
#define SIM_ALIKE SIM_WAYS /* index of the count of rows like the pattern, after those of ways */

/* What a row of a page can be: a way through the loop's body */
struct sim_way
{
	struct sim_step *steps;
	struct sim_handed *handed;
	int32_t *path; /* the instructions */
	uint32_t *values;
	uint32_t *cursors; /* of the rows that it is run on */
	uint32_t reads, writes; /* bit r: %t r, from before the row; of rows after it */
	int32_t n_steps, n_values, n_handed;
	int32_t tuples, skipped;
	int32_t length; /* instructions */
	int32_t tail;	/* cycles after the last push */
};

/* A tuple lies n and what is in the register from the page's first byte, at least or at most */
struct sim_bound
{
	int64_t n;
	uint8_t reg;
	bool least;
};

#define SIM_BOUNDS	 8
#define SIM_PIECE	 16 /* bytes that are compared at a time */
#define SIM_COMPARED 64 /* of a tuple, from its first byte on */

/* What rows of one way are like where they are alike: pattern.c */
struct sim_pattern
{
	bool known;
	int32_t way;
	uint32_t line, bits, line_mask; /* the line pointer: bytes from the cursor, its bits, those that are compared */
	uint32_t shift, mask;			/* where its tuple lies: bits >> shift & mask */
	uint32_t hole_bits, hole_mask;	/* a line pointer with other bits than these is a hole; no bits: none is known */
	int32_t hole;					/* its way */
	int32_t first, pieces;			/* of a tuple, that are compared */
	uint8_t bytes[SIM_COMPARED + SIM_PIECE], masks[SIM_COMPARED + SIM_PIECE];
	int32_t n_bounds;
	struct sim_bound bounds[SIM_BOUNDS];
	struct sim_handed handed[SIM_PATH_LENGTH];
};

/* Columns of tuples of several ways; some share an address: mixed.c */
struct sim_mixed
{
	int32_t n_addresses; /* of a tuple; 0: not known of the ways and the pattern that there are now */
	struct sim_origin
	{
		const uint32_t *address;
		uint32_t plus;
	} *origins;					/* [SIM_WAYS + 1][n_addresses] */
	uint32_t *addresses;		/* [n_addresses][spacing] */
	struct sim_handed *handed;
	int32_t n_handed;
};

struct sim_walk
{
	struct sim_way *ways[SIM_WAYS];
	int32_t n_ways, refused;
	int32_t longest;   /* of the ways, in instructions */
	int32_t favourite; /* the way that all rows of a page had */
	int32_t head; /* the loop's first instruction; -1: none yet */
	int32_t cursor, limit; /* registers: the loop ends when the one has come to the other */
	uint32_t step;		   /* that a row adds to the cursor */
	int32_t most;		   /* rows that there is room for */
	int32_t rest;		   /* pages to be interpreted before the next is tried */
	int32_t poor;		   /* pages in vain, one after the other */
	int32_t spacing;	   /* from a way's value to the next one's: a few more than rows, for the cache's sake */
	struct sim_pattern pattern;
	uint32_t unlike;	   /* pages that were not like the pattern */
	uint32_t *tuples;	   /* [most]: where those of rows alike lie */
	int32_t *others, n_others; /* [most]: rows that are neither alike nor holes */
	uint8_t *which;		   /* [most]: the rows' ways, or SIM_ALIKE */
	const int32_t *at;	   /* [most]: their places among the rows with addresses found together */
	int32_t *places, *same; /* [most] `at`; 0, 1, ... */
	struct sim_mixed mixed;
	uint32_t *zeros, *ok; /* [most] */
	uint64_t rows; /* since the Bundle was loaded */
};

/* What a page's times depend on */
struct sim_shape
{
	int32_t before, after; /* cycles before the loop, and at the end */
	int32_t rows, runs;	   /* of rows alike; more than SIM_RUNS: not recorded */
	int32_t counts[SIM_RUNS];
	uint8_t ways[SIM_RUNS];
};

/* way.c */
struct sim_way *sim_way_build(struct sim *sim, const int32_t *path, int32_t n);
void sim_way_free(struct sim_way *way);
void sim_way_run(const struct sim_way *way, const uint32_t *registers, const uint8_t *page, uint32_t page_size,
				 int32_t rows, uint32_t *ok);

/* mixed.c */
const struct sim_way *sim_way_of(const struct sim_walk *walk, int32_t which);
const struct sim_handed *sim_handed_of(const struct sim_walk *walk, int32_t which);
void sim_mixed_free(struct sim_walk *walk);
int32_t sim_mixed_gather(struct sim_walk *walk, int32_t rows);

/* pattern.c */
void sim_pattern_learn(struct sim *sim, int32_t number, const uint8_t *page, int32_t row);
bool sim_pattern_hole(const struct sim_pattern *pattern, const uint8_t *line);
int32_t sim_pattern_run(struct sim *sim, const uint8_t *page, int32_t rows);

/* walk.c */
enum sim_walked
{
	SIM_WALKED,
	SIM_WALK_FAULT,
	SIM_WALK_NOT /* interpret the page */
};
bool sim_walk_prepare(struct sim *sim);
void sim_walk_free(struct sim *sim);
enum sim_walked sim_walk(struct sim *sim, const uint8_t *page, int32_t head, int32_t gap, uint32_t executed);
bool sim_walk_wanted(const struct sim *sim, int32_t head);
void sim_walk_learn(struct sim *sim, int32_t head, const int32_t *path, int32_t n);

#endif
