/*
 * Predictors: the programs that dana_predict() evaluates. dana/predictor/program.py makes them.
 *
 * Independent of PostgreSQL. A program may have been written by hand: dana_predictor_load() bounds every address in it
 * before the first evaluation, and evaluation reads and writes only `memory`.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/predictor_codes.h"

#define DANA_PREDICTOR_MAGIC		UINT32_C(0x33504e44) /* "DNP3" */
#define DANA_PREDICTOR_HEADER		8					 /* words */
#define DANA_PREDICTOR_INSTRUCTIONS 4096
#define DANA_PREDICTOR_FLOATS		(UINT32_C(1) << 28) /* of memory, and per instruction */

/* Where an instruction reads: the address of element 0 and the distance of neighbours along each axis */
typedef struct predictor_operand
{
	uint32_t start;
	uint32_t stride[3];
} predictor_operand;

/* One operation on up to three axes; SIGMA, PI and AMAX reduce the middle one */
typedef struct predictor_instruction
{
	uint32_t		  code;
	uint32_t		  out; /* dense, in scratch */
	uint32_t		  extent[3];
	predictor_operand operand[3]; /* GATHER: model, index, and in [2].start the number of rows */
} predictor_instruction;

/* Loads weights [first, first + count) into memory: those of a row that is about to be read */
struct dana_predictor;
typedef void (*dana_predictor_bring)(const struct dana_predictor *predictor, uint32_t first, uint32_t count);

/* A checked program. `memory` is: features, weights, constants, scratch, and room for one reduction */
typedef struct dana_predictor
{
	uint32_t					 inputs;
	uint32_t					 weights;
	uint32_t					 constants;
	uint32_t					 scratch;
	uint32_t					 instructions;
	uint32_t					 result;
	uint32_t					 width; /* numbers of the result: 1, or one for each class */
	uint32_t					 reduction; /* floats after scratch */
	uint64_t					 work;		/* work of one evaluation, in elements */
	const uint32_t				*words;		/* constants, then instructions */
	dana_predictor_bring		 bring;		/* for rows that are chosen; NULL: all weights are in memory */
	void						*bringing;	/* for it */
	unsigned					 mode;		/* restores the processor's mode around `load`; for it */
} dana_predictor;

/*
 * Checks a program of `length` bytes at `words`, which must outlive it. Returns NULL and fills `predictor`, or an error
 * message.
 */
extern const char *dana_predictor_load(const uint32_t *words, size_t length, dana_predictor *predictor);

/* Size in floats of the memory that it needs */
extern size_t dana_predictor_memory(const dana_predictor *predictor);

/* Puts constants and weights in place; `weights` NULL: the caller loads them */
extern void dana_predictor_prepare(const dana_predictor *predictor, float *memory, const float *weights);

/* Weights [first[k], behind[k]) that instruction `i` reads, except chosen rows; returns the number of ranges */
extern int dana_predictor_reads(const dana_predictor *predictor, uint32_t i, uint32_t first[3], uint32_t behind[3]);

/*
 * The features from which the row of a GATHER is computed: the first and the last of them; first > last if there are
 * none. `itself`: the first is the row's number. Memory is as the run that ended there left it; `needed` has room for a
 * bool for each float of scratch, all false.
 */
extern void dana_predictor_chooses(const dana_predictor *predictor, const predictor_instruction *gather,
								   const float *memory, bool *needed, uint32_t *first, uint32_t *last, bool *itself);

/*
 * Runs instructions [first, last) on memory with its features set. Returns NULL, or the GATHER with an index that is
 * not a row of its model. Called between dn_enter() and dn_leave() of numerics.h.
 */
extern const predictor_instruction *dana_predictor_run(const dana_predictor *predictor, float *memory, uint32_t first,
													   uint32_t last);
