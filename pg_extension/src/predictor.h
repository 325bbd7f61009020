/*
 * Predictors: the programs that dana_predict() evaluates. dana/compiler/predictor.py makes them.
 *
 * Knows nothing of PostgreSQL. A program is data that somebody may have written by hand: dana_predictor_load() bounds
 * every address in it before the first evaluation, and evaluation reads and writes nothing but `memory`.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define DANA_PREDICTOR_MAGIC		UINT32_C(0x31504e44) /* "DNP1" */
#define DANA_PREDICTOR_HEADER		7					 /* words */
#define DANA_PREDICTOR_INSTRUCTIONS 4096
#define DANA_PREDICTOR_FLOATS		(UINT32_C(1) << 28) /* of memory, and per instruction */

/*
 * Operations: their codes from 0 are their places in this list, and in Code of predictor.py. Those on one element each
 * say how many operands they read, and what they make of them.
 */
#define DANA_PREDICTOR_ELEMENTWISE(CODE) \
	CODE(ADD, 2, dn_add(A, B)) \
	CODE(SUB, 2, dn_sub(A, B)) \
	CODE(MUL, 2, dn_mul(A, B)) \
	CODE(DIV, 2, dn_div(A, B)) \
	CODE(NEG, 1, dn_neg(A)) \
	CODE(LT, 2, dn_lt(A, B)) \
	CODE(GT, 2, dn_gt(A, B)) \
	CODE(LE, 2, dn_le(A, B)) \
	CODE(GE, 2, dn_ge(A, B)) \
	CODE(EQ, 2, dn_eq(A, B)) \
	CODE(WHERE, 3, dn_where(A, B, C)) \
	CODE(SIGMOID, 1, dn_sigmoid(A)) \
	CODE(GAUSSIAN, 1, dn_gaussian(A)) \
	CODE(SQRT, 1, dn_sqrt(A)) \
	CODE(EXP, 1, dn_exp(A)) \
	CODE(LOG, 1, dn_log(A)) \
	CODE(ABS, 1, dn_abs(A)) \
	CODE(MAX, 2, dn_max(A, B)) \
	CODE(MIN, 2, dn_min(A, B))

#define DANA_PREDICTOR_CODE(name, operands, value) PREDICTOR_##name,
enum predictor_code
{
	DANA_PREDICTOR_ELEMENTWISE(DANA_PREDICTOR_CODE)
	PREDICTOR_SIGMA,
	PREDICTOR_PI,
	PREDICTOR_GATHER,
	PREDICTOR_CODES
};

/* Where an instruction reads: the address of element 0 and the distance of neighbours along each axis */
typedef struct predictor_operand
{
	uint32_t start;
	uint32_t stride[3];
} predictor_operand;

/* One operation on up to three axes; SIGMA and PI reduce the middle one */
typedef struct predictor_instruction
{
	uint32_t		  code;
	uint32_t		  out; /* dense, in scratch */
	uint32_t		  extent[3];
	predictor_operand operand[3]; /* GATHER: model, index, and in [2].start the number of rows */
} predictor_instruction;

/* A checked program. `memory` is: features, weights, constants, scratch, and room for one reduction */
typedef struct dana_predictor
{
	uint32_t					 inputs;
	uint32_t					 weights;
	uint32_t					 constants;
	uint32_t					 scratch;
	uint32_t					 instructions;
	uint32_t					 result;
	uint32_t					 reduction; /* floats after scratch */
	uint64_t					 work;		/* elements of one evaluation */
	const uint32_t				*words;		/* constants, then instructions */
} dana_predictor;

/*
 * Checks a program of `length` bytes at `words`, which has to stay. Returns NULL and fills `predictor`, or what is wrong.
 */
extern const char *dana_predictor_load(const uint32_t *words, size_t length, dana_predictor *predictor);

/* Floats of memory that it needs */
extern size_t dana_predictor_memory(const dana_predictor *predictor);

/* Puts the model and the constants in place */
extern void dana_predictor_prepare(const dana_predictor *predictor, float *memory, const float *weights);

/*
 * Runs instructions [first, last) on memory whose features are set. Returns NULL, or why it cannot go on. Between
 * dn_enter() and dn_leave() of numerics.h.
 */
extern const char *dana_predictor_run(const dana_predictor *predictor, float *memory, uint32_t first, uint32_t last);
