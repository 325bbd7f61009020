/* Operations of dana/predictor/program.py. Written by python -m dana.generated. */
#pragma once

enum predictor_code
{
	PREDICTOR_ADD = 0,
	PREDICTOR_SUB = 1,
	PREDICTOR_MUL = 2,
	PREDICTOR_DIV = 3,
	PREDICTOR_NEG = 4,
	PREDICTOR_LT = 5,
	PREDICTOR_GT = 6,
	PREDICTOR_LE = 7,
	PREDICTOR_GE = 8,
	PREDICTOR_EQ = 9,
	PREDICTOR_WHERE = 10,
	PREDICTOR_SIGMOID = 11,
	PREDICTOR_GAUSSIAN = 12,
	PREDICTOR_SQRT = 13,
	PREDICTOR_EXP = 14,
	PREDICTOR_LOG = 15,
	PREDICTOR_ABS = 16,
	PREDICTOR_MAX = 17,
	PREDICTOR_MIN = 18,
	PREDICTOR_SIGMA = 19,
	PREDICTOR_PI = 20,
	PREDICTOR_AMAX = 21,
	PREDICTOR_GATHER = 22,
	PREDICTOR_TANH = 23,
	PREDICTOR_CODES = 24
};

/* On one element each, of operands A, B, C */
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
	CODE(MIN, 2, dn_min(A, B)) \
	CODE(TANH, 1, dn_tanh(A))

/* Operands of the others */
#define DANA_PREDICTOR_OTHERS(CODE) \
	CODE(SIGMA, 1) \
	CODE(PI, 1) \
	CODE(AMAX, 1) \
	CODE(GATHER, 2)
