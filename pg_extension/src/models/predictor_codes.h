/* Operations of dana/predictor/program.py. Written by python -m dana.generated. */
#pragma once

enum predictor_code
{
	PREDICTOR_ADD = 2,
	PREDICTOR_SUB = 3,
	PREDICTOR_MUL = 4,
	PREDICTOR_DIV = 37,
	PREDICTOR_NEG = 12,
	PREDICTOR_LT = 7,
	PREDICTOR_GT = 8,
	PREDICTOR_LE = 9,
	PREDICTOR_GE = 10,
	PREDICTOR_EQ = 11,
	PREDICTOR_SIGMOID = 32,
	PREDICTOR_TANH = 38,
	PREDICTOR_SINPI = 39,
	PREDICTOR_GAUSSIAN = 33,
	PREDICTOR_SQRT = 36,
	PREDICTOR_EXP = 34,
	PREDICTOR_LOG = 35,
	PREDICTOR_ABS = 13,
	PREDICTOR_MAX = 5,
	PREDICTOR_MIN = 6,
	PREDICTOR_COPYSIGN = 19,
	PREDICTOR_BFLOAT16 = 20,
	PREDICTOR_SIGMA = 64,
	PREDICTOR_PI = 65,
	PREDICTOR_AMAX = 66,
	PREDICTOR_GATHER = 67,
	PREDICTOR_WHERE = 68,
	PREDICTOR_CODES = 69
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
	CODE(SIGMOID, 1, dn_sigmoid(A)) \
	CODE(TANH, 1, dn_tanh(A)) \
	CODE(SINPI, 1, dn_sinpi(A)) \
	CODE(GAUSSIAN, 1, dn_gaussian(A)) \
	CODE(SQRT, 1, dn_sqrt(A)) \
	CODE(EXP, 1, dn_exp(A)) \
	CODE(LOG, 1, dn_log(A)) \
	CODE(ABS, 1, dn_abs(A)) \
	CODE(MAX, 2, dn_max(A, B)) \
	CODE(MIN, 2, dn_min(A, B)) \
	CODE(COPYSIGN, 2, dn_copysign(A, B)) \
	CODE(BFLOAT16, 1, dn_bfloat16(A)) \
	CODE(WHERE, 3, dn_where(A, B, C))

/* Operands of the others */
#define DANA_PREDICTOR_OTHERS(CODE) \
	CODE(SIGMA, 1) \
	CODE(PI, 1) \
	CODE(AMAX, 1) \
	CODE(GATHER, 2)
