/*
 * The simulator's core: types that its parts share.
 *
 * In: a machine and a Bundle as plain arrays (dana/simulator/native.py fills them), then pages. Out: scratchpad rows and
 * an epoch's counters, bit for bit and cycle for cycle those of docs/machine.md. No part may call Python, allocate while
 * an epoch runs, or trust a byte of a page. What is true of a loaded program (addresses within memories, targets within
 * the program) is checked once, by verify.c and record.c, so that inner loops need no checks.
 *
 *   core.c     load, rows, epochs: what is exported           strider.c  one page through the Strider
 *   verify.c   is the program one that the machine allows?    record.c   paths of the Strider's loops, as vector code
 *   engine.c   instructions                                   path.c     a loop's iterations by one path
 *   row.c      one row of an instruction, in general           index.c    rows chosen by data
 *   pipeline.c instructions whose results overlap             group.c    a loop's iterations by whichever path fits
 *   fuse.c     several instructions as one                    live.c     what a path must leave behind
 *   kernels.c  inner loops, chosen by the processor's kind    values.c   columns' bytes to tuple memory
 *   kernels.inc, exchange.inc, fused.inc, operations.h        unpack.c   when columns, tuples and pages pass
 *   portable.c kernels.inc for any processor                  rounds.c   the sequencer
 */
#ifndef DANA_SIMULATOR_CORE_H
#define DANA_SIMULATOR_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contract.h"

#define SIM_EXPORT __attribute__((visibility("default")))

/* The geometry of an engine instruction's loops, in floats; a row is `unit` floats: [thread][lane] */
struct sim_loop
{
	int32_t n;	   /* of the inner loop, a multiple of unit */
	int32_t outer;
	int32_t unit;
	int32_t flip;  /* exchanges: bit of the unit's number that differs */
	int32_t rows;  /* of the inner loop */
	ptrdiff_t d, a, b;			   /* steps of the outer loop */
	ptrdiff_t d_row, a_row, b_row; /* steps of the inner loop, of special functions only */
	const uint32_t *keep_a, *keep_b; /* [unit], all ones where the last row's operand counts; NULL: everywhere */
	uint32_t identity;
};

typedef void (*sim_kernel)(const struct sim_loop *loop, float *d, const float *a, const float *b);

enum sim_manner
{
	SIM_BY_KERNEL,
	SIM_BY_FUNCTION, /* special functions, many rows at once */
	SIM_BY_ROW,
	SIM_SET_INDEX,
	SIM_BY_INDEX,
	SIM_BY_FUSION /* stands for several instructions: fuse.c */
};

#define SIM_FOLD_ROWS	256 /* most that a fused fold takes */
#define SIM_TREE_TUPLES 256 /* most that a fused tree takes */
#define SIM_MAX_LANES	128

/* Several instructions as one; see fused.inc. In floats: steps of a, b, d from row to row and from tuple to tuple. */
struct sim_fusion
{
	int32_t unit, lanes, outer, rows;
	int32_t half;		/* fold: largest power of two below rows */
	int32_t levels;		/* tree */
	int32_t masked_row; /* in which `keep` counts; -1: none */
	int32_t flip_from, flip_to;
	ptrdiff_t a_row, b_row, d_row, a_outer, b_outer, d_outer;
	const uint32_t *keep; /* [unit] */
	uint32_t identity;
};

typedef void (*sim_fused_kernel)(const struct sim_fusion *fusion, float *d, const float *a, const float *b);

/* What verify.c found of an engine instruction */
struct sim_care
{
	bool in_order; /* rows read what earlier rows of the same instruction wrote */
	int32_t entries, entry_rows; /* its addresses have entry_rows * k added, k < entries; 1, 0 without an index */
};

/* An engine instruction, made ready */
struct sim_op
{
	sim_kernel kernel; /* of SIM_BY_KERNEL */
	struct sim_loop loop;
	sim_fused_kernel fused; /* of SIM_BY_FUSION */
	struct sim_fusion fusion;
	int64_t d, a, b;				 /* first floats */
	int64_t d_level, a_level;		 /* floats that a level adds */
	enum sim_manner manner;
	struct sim_care care;
	bool in_group; /* its tuple mask, if any, is of tuples that a whole round has */
	struct sim_instruction i;
};

struct sim_code
{
	struct sim_op *ops; /* END is not among them */
	int32_t n_ops;
	struct sim_op *fused; /* what stands for them in whole rounds; NULL: nothing */
	int32_t n_fused;
	int32_t end_wait;
	int64_t cycles; /* SECTION_START + length; 0: the program has no such section */
};

/* A Strider instruction, decoded; strider.c */
struct sim_strider_op
{
	uint8_t op, a, b, c;
	int32_t cost;
	int32_t next, target;
	uint32_t value; /* of two fields */
	uint32_t mask;
};

#define SIM_MAX_STRIDERS 64
#define SIM_MAX_QUEUE	 256
#define SIM_MAX_STAGES	 8

/* --- paths: an iteration of a Strider loop as vector code over many iterations at once, see path.c --- */

#define SIM_LANES	   32 /* iterations tried at a time */
#define SIM_PATHS		8  /* of one loop */
#define SIM_PATH_LENGTH 512 /* instructions */

enum sim_step_kind
{
	/* values */
	SIM_STEP_READ,	/* d = the page's 4 bytes at a + x, masked by y; only if all 4 are on the page */
	SIM_STEP_LOAD,	/* the same, a being 4 more in each lane */
	SIM_STEP_BITS,	/* d = (a + x) >> shift & y */
	SIM_STEP_ADD,	/* d = a + b + x */
	SIM_STEP_SUB,	/* d = a - b + x */
	SIM_STEP_MUL,	/* d = low half of (a + x) times low half of (b + y) */
	SIM_STEP_CLEAN, /* d = (a + x) & y */
	SIM_STEP_POP,	/* d = one bits of a + x */
	/* conditions */
	SIM_STEP_EQ, /* a + x == b + y */
	SIM_STEP_NE,
	SIM_STEP_LT,
	SIM_STEP_GE,
	SIM_STEP_INSIDE,  /* a + x <= y */
	SIM_STEP_READ_IS, /* as READ, and the value is z */
	SIM_STEP_BITS_IS  /* as BITS, and the value is z */
};

/* Vectors of SIM_LANES words */
struct sim_step
{
	uint8_t kind, shift;
	uint32_t x, y, z;
	uint32_t *d;
	const uint32_t *a, *b;
};

/* A value in the middle of a path: *base + offset, the base 0 where NULL */
struct sim_symbol
{
	const uint32_t *base;
	uint32_t offset;
};

/* When an entry is taken and worked on, from some beginning */
struct sim_times
{
	int32_t take, at;
};

/* A writeB of a path */
struct sim_handed
{
	const struct sim_column *column;
	struct sim_symbol address;
	int32_t gap;			/* cycles from the previous push or the iteration's start until it could push */
	int32_t push;			/* from the iteration's first push */
	struct sim_times free;	/* from the iteration's first push, where nothing that came before delays it */
	struct sim_times bound; /* from the entry before being done, where it is the unpacker that delays everything */
};

struct sim_path
{
	struct sim_step *steps;
	struct sim_step close; /* whether the loop goes on */
	struct sim_handed *handed;
	struct sim_symbol out[SIM_TEMPORARIES]; /* of the registers that it writes */
	uint32_t *memory;
	uint32_t page_size;
	uint32_t writes, reads; /* bit r: %t r */
	int32_t n_steps, n_handed;
	int32_t tuples;
	int32_t turn;		/* after the iteration, from its first push, where the queue does not delay it */
	int32_t done;		/* likewise, where nothing does */
	int32_t beats;		/* of all columns */
	int32_t bound_take, bound_at[SIM_MAX_STAGES]; /* of the entries before the iteration, the oldest first, as sim_handed.bound */
	int32_t kept;		/* iterations that the queue remembers */
	bool steady;		/* an iteration that nothing delays does not delay the next one either */
	int32_t length;		/* instructions */
	int32_t tail;	/* cycles after the last push */
	int32_t skipped;
	int32_t exit; /* instruction after the loop */
};

/* A loop's head and the paths known from it */
struct sim_head
{
	struct sim_path *paths[SIM_PATHS];
	uint32_t in[SIM_TEMPORARIES][SIM_LANES];
	uint32_t step[SIM_TEMPORARIES]; /* what an iteration adds to each register that paths write and read */
	uint32_t reads, writes;
	int32_t n_paths;
	int32_t refused;  /* recordings that gave no path */
	int32_t rest;	  /* iterations to be interpreted before paths are tried again */
	int32_t expected; /* iterations, from the last time */
};

enum sim_paths
{
	SIM_PATHS_FAULT,
	SIM_PATHS_LEFT,	  /* out of the loop */
	SIM_PATHS_UNKNOWN /* at the head: interpret the next iteration */
};

/* Where a column of successive tuples goes */
struct sim_places
{
	float *first;		  /* element 0 of the first tuple */
	ptrdiff_t step;		  /* to a thread's next tuple */
	ptrdiff_t wrap;		  /* from behind a thread's last tuple to the next thread's first */
	int32_t until_wrap;	  /* tuples of this thread */
	int32_t group;		  /* tuples of the others */
	int32_t n, lane;	  /* elements; lane of the first */
	int32_t lanes, unit;  /* floats of a thread's row, from row to row */
	ptrdiff_t ahead;	  /* bytes to what should be fetched into the cache meanwhile */
	float one;			  /* 1.0f, unknown to the compiler */
};

/* Inner loops for one kind of processor */
struct sim_kernels
{
	/* a and b step (both), a or b stands still (row_a, row_b), last row masked (tail) */
	sim_kernel both[SIM_SIGMOID], row_a[SIM_SIGMOID], row_b[SIM_SIGMOID], tail[SIM_SIGMOID];
	/* exchanges of one operand (flip) and of two (cross), which may be the same */
	sim_kernel flip[SIM_SIGMOID], flip_tail[SIM_SIGMOID], cross[SIM_SIGMOID], cross_tail[SIM_SIGMOID];
	/* fused: an operation on rows, then its results reduced over rows or over tuples; a row through several exchanges */
	sim_fused_kernel fold[SIM_SIGMOID][SIM_SIGMOID], tree[SIM_SIGMOID][SIM_SIGMOID], flips[SIM_SIGMOID];
	void (*special)(int op, size_t n, float *d, const float *a, const float *b);
	/* the first element of each `width` of rows that are `step` apart, and back to all of them */
	void (*collect)(float *to, const float *row, int rows, ptrdiff_t step, int unit, int width);
	void (*distribute)(float *row, const float *from, int rows, ptrdiff_t step, int unit, int width);
	/* whether a thread's clusters all have the same first element, bit for bit */
	bool (*alike)(const float *row, int rows, ptrdiff_t step, int unit, int lanes);
	/* a float4 column of tuples one after the other, tuple k's at page + at[k] + offset: side by side, or in all lanes */
	void (*floats)(const struct sim_places *places, const uint8_t *page, const uint32_t *at, uint32_t offset, int tuples);
	void (*spread)(const struct sim_places *places, const uint8_t *page, const uint32_t *at, uint32_t offset, int tuples);
	/* the registers at the head, in each lane */
	void (*enter)(struct sim_head *head, const uint32_t *registers);
	/* runs a path on lanes [0, 16 * halves); bits of the lanes that took it, and of those that also closed it */
	void (*path)(const struct sim_path *path, const uint8_t *page, int halves, uint32_t *took, uint32_t *closed);
};

extern const struct sim_kernels portable_kernels;
const struct sim_kernels *sim_choose_kernels(const char *name);

/* --- the whole --- */

/* What an epoch has come to. Times are cycles of docs/machine.md, section 5. */
struct sim_epoch
{
	uint64_t pages, tuples, skipped, busy, merging;
	uint64_t beats;	 /* of the unpacker */
	uint64_t waited; /* of it, for a half of tuple memory */

	/* unpacker */
	float *slot;			 /* the tuple being filled: its first row, its thread's lanes */
	int32_t half;			 /* being filled */
	int32_t in_slot;		 /* tuples of its thread before it */
	int32_t in_round;		 /* tuples that are complete */
	int32_t room;			 /* tuples that the round still takes */
	uint32_t in_batch;		 /* tuples of the batch's earlier rounds */
	uint32_t q;				 /* rounds of the batch before this one */
	bool open;				 /* a tuple has begun and not ended */
	uint32_t following;		 /* descriptor behind the last column's, where a tuple is open */
	uint32_t end_pointer;	 /* reported where the epoch ends in a tuple: of the last page's end */

	/* clocks */
	int64_t turn;				  /* of the Strider's next instruction */
	int64_t takes[SIM_MAX_QUEUE]; /* take of the page's last entries */
	uint32_t pushes;			  /* entries of the page */
	int64_t take;				  /* of the last entry */
	int64_t at[SIM_MAX_STAGES];	  /* at of the last entries, as many as there are stages */
	int32_t stage;				  /* of `at`: the oldest */
	int64_t done;				  /* of the last entry */
	int64_t requested, last;	  /* request and last beat of the page before */
	int64_t released[SIM_MAX_STRIDERS];
	int64_t end_at;				  /* at of the last page's end */
	int64_t idle;				  /* the engine, after the rounds handed over */
	int64_t half_free[2];

	uint32_t fault, fault_page, fault_pointer;
};

struct sim
{
	struct sim_machine machine;
	const struct sim_kernels *kernels;
	float one; /* 1.0f */

	/* engine */
	int32_t lanes, unit; /* floats of a thread's row, of a row */
	int32_t group, tuple_rows, round_tuples, levels;
	ptrdiff_t tuple_stride; /* floats from a tuple to its thread's next */
	uint32_t batch;
	struct sim_care *care; /* of each instruction of the Bundle */
	bool overlaps; /* results are read before they are visible: pipeline.c */
	struct sim_code sections[SIM_SECTIONS];
	struct sim_op *ops;
	uint32_t *masks; /* [lanes + 1][unit]: row t is all ones in the lanes below t */
	float *scratch;	 /* [scratch_depth][unit] */
	float *tuples;	 /* [2][group * tuple_rows][unit] */
	float *rows;	 /* room for a few rows */
	ptrdiff_t *index; /* [threads][index_depth] */
	struct sim_pending *pending;

	/* access engine */
	struct sim_strider_op *strider; /* [n_strider + 1] */
	int32_t n_strider;
	uint32_t registers[SIM_REGISTERS];
	struct sim_column *columns; /* [descriptor_depth] */
	uint32_t *live;				/* %t that are read before they are written, from each Strider instruction on */
	struct sim_head **heads;	/* of the loops, by first instruction; NULL: none yet */
	bool scalar;				/* never use paths */
	uint64_t iterations;		/* of loops that ran as paths, since the Bundle was loaded */

	ptrdiff_t ahead; /* bytes to the page that comes next; 0: unknown */

	bool loaded, begun; /* `begun`: init has run */
	struct sim_epoch e;
};

/* engine.c */
bool sim_engine_prepare(struct sim *sim, const struct sim_bundle *bundle);
void sim_engine_run(struct sim *sim, enum sim_section section, int32_t half, int32_t m, int32_t level);

/* index.c */
bool sim_index_set(struct sim *sim, const struct sim_op *op, int32_t half, int32_t m);
void sim_index_run(struct sim *sim, const struct sim_op *op, int32_t half, int32_t m, int32_t level);

/* pipeline.c */
bool sim_pipeline_prepare(struct sim *sim);
void sim_pipeline_run(struct sim *sim, const struct sim_code *code, int32_t half, int32_t m, int32_t level);

/* fuse.c */
bool sim_fuse(struct sim *sim, const struct sim_bundle *bundle);

/* verify.c */
bool sim_indexed(const struct sim_instruction *in);
bool sim_reads_b(const struct sim_instruction *in);
bool sim_crossed(const struct sim_instruction *in);
int32_t sim_levels(const struct sim_bundle *bundle, int section);
bool sim_verify(struct sim *sim, const struct sim_bundle *bundle, struct sim_problem *problem);

/* values.c */
bool sim_columns_prepare(struct sim *sim, const struct sim_bundle *bundle);
void sim_copy(const struct sim *sim, const struct sim_column *column, const uint8_t *page, const uint32_t *at,
			  uint32_t offset, int32_t tuples);

/* unpack.c */
bool sim_fault(struct sim *sim, uint32_t code, uint32_t pointer);
bool sim_column(struct sim *sim, const uint8_t *page, uint32_t descriptor, uint32_t address, int32_t gap,
				uint32_t pointer);
void sim_path_times(const struct sim *sim, struct sim_path *path);
bool sim_iterations(struct sim *sim, const uint8_t *page, const struct sim_path *path, int lane, int count);
void sim_page_begin(struct sim *sim, const uint8_t *page);
void sim_page_end(struct sim *sim, int32_t gap, uint32_t pointer);
uint64_t sim_epoch_end(struct sim *sim);

/* rounds.c */
void sim_epoch_begin(struct sim *sim);
bool sim_round(struct sim *sim, int64_t hand, bool batch_last, bool epoch_last);

/* strider.c */
bool sim_strider_prepare(struct sim *sim, const struct sim_bundle *bundle);
bool sim_page(struct sim *sim, const uint8_t *page);

/* path.c */
bool sim_paths_prepare(struct sim *sim);
void sim_paths_free(struct sim *sim);
bool sim_path_wanted(const struct sim *sim, int32_t first);
void sim_path_learn(struct sim *sim, int32_t first, const int32_t *instructions, int32_t n);
enum sim_paths sim_path_run(struct sim *sim, int32_t first, const uint8_t *page, uint32_t bound, uint32_t *executed,
							int32_t *pc);

#endif
