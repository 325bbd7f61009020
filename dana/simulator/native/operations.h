/*
 * The engine's operations on GCC vectors of any length, in the arithmetic of numerics.h.
 *
 * OP_X(x, y, z): x and y the operands, z what the result's place holds. With hardware flushing the processor's own
 * operations serve (numerics.h, dn_enter); with DN_PORTABLE each element goes through its function.
 */
#ifndef DANA_SIMULATOR_OPERATIONS_H
#define DANA_SIMULATOR_OPERATIONS_H

#include "numerics.h"

/* x where the mask is all ones, y where it is zero */
#define SELECT(mask, x, y)                                                                                             \
	({                                                                                                                 \
		const __typeof__(mask) mask_ = (mask);                                                                         \
		(__typeof__(x))(((__typeof__(mask_))(x)&mask_) | ((__typeof__(mask_))(y) & ~mask_));                           \
	})

#define EACH(function, x, y)                                                                                           \
	({                                                                                                                 \
		__typeof__(x) p_ = (x), q_ = (y);                                                                              \
		for (size_t e_ = 0; e_ < sizeof p_ / sizeof p_[0]; e_++)                                                       \
			p_[e_] = function(p_[e_], q_[e_]);                                                                         \
		p_;                                                                                                            \
	})

#define OP_MOV(x, y, z) (x)

#ifdef DN_PORTABLE

#define EACH_OF_ONE(function, x)                                                                                       \
	({                                                                                                                 \
		__typeof__(x) p_ = (x);                                                                                        \
		for (size_t e_ = 0; e_ < sizeof p_ / sizeof p_[0]; e_++)                                                       \
			p_[e_] = function(p_[e_]);                                                                                 \
		p_;                                                                                                            \
	})
#define FLUSH(x, one) ((void)(one), EACH_OF_ONE(dn_flush, x))
#define OP_ADD(x, y, z) EACH(dn_add, x, y)
#define OP_SUB(x, y, z) EACH(dn_sub, x, y)
#define OP_MUL(x, y, z) EACH(dn_mul, x, y)
#define OP_MAX(x, y, z) EACH(dn_max, x, y)
#define OP_MIN(x, y, z) EACH(dn_min, x, y)
#define OP_LT(x, y, z)	EACH(dn_lt, x, y)
#define OP_GT(x, y, z)	EACH(dn_gt, x, y)
#define OP_LE(x, y, z)	EACH(dn_le, x, y)
#define OP_GE(x, y, z)	EACH(dn_ge, x, y)
#define OP_EQ(x, y, z)	EACH(dn_eq, x, y)
#define OP_NEG(x, y, z) EACH_OF_ONE(dn_neg, x)
#define OP_ABS(x, y, z) EACH_OF_ONE(dn_abs, x)
#define OP_COPYSIGN(x, y, z) EACH(dn_copysign, x, y)
#define OP_MOVC(x, y, z)                                                                                               \
	({                                                                                                                 \
		__typeof__(x) p_ = (x), q_ = (y), r_ = (z);                                                                    \
		for (size_t e_ = 0; e_ < sizeof p_ / sizeof p_[0]; e_++)                                                       \
			p_[e_] = dn_bits(q_[e_]) & DN_EXPONENT ? p_[e_] : r_[e_];                                                  \
		p_;                                                                                                            \
	})

#else

/* Times one flushes a subnormal; the compiler must not know that it is one */
#define FLUSH(x, one)	((x) * (one))
#define OP_ADD(x, y, z) ((x) + (y))
#define OP_SUB(x, y, z) ((x) - (y))
#define OP_MUL(x, y, z) ((x) * (y))
#define OP_NEG(x, y, z) ((__typeof__(x))((__typeof__((x) == (x)))(x) ^ INT32_MIN))
#define OP_ABS(x, y, z) ((__typeof__(x))((__typeof__((x) == (x)))(x) & INT32_MAX))

/* A NaN's sign bit may be either, and counts as clear */
#define OP_COPYSIGN(x, y, z)                                                                                           \
	({                                                                                                                 \
		const __typeof__(x) p_ = (x), q_ = (y);                                                                        \
		typedef __typeof__(p_ == q_) bits_;                                                                            \
		(__typeof__(x))(((bits_)p_ & INT32_MAX) | ((bits_)q_ & (q_ == q_) & INT32_MIN));                               \
	})

/* Zeros of both signs: their signs joined by & or |, which leaves equal numbers as they are; a NaN stays one */
#define OP_EXTREME(x, y, FIRST, JOIN)                                                                                  \
	({                                                                                                                 \
		const __typeof__(x) p_ = (x), q_ = (y);                                                                        \
		typedef __typeof__(p_ == q_) bits_;                                                                            \
		const __typeof__(x) joined_ = (__typeof__(x))((bits_)p_ JOIN(bits_) q_);                                       \
		const __typeof__(x) ordered_ = SELECT(p_ FIRST q_, p_, q_);                                                    \
		SELECT(p_ != p_, p_, SELECT(p_ == q_, joined_, ordered_));                                                     \
	})
#define OP_MAX(x, y, z) OP_EXTREME(x, y, >, &)
#define OP_MIN(x, y, z) OP_EXTREME(x, y, <, |)

#define OP_TRUTH(x, y, RELATION)                                                                                       \
	({                                                                                                                 \
		const __typeof__(x) p_ = (x), q_ = (y);                                                                        \
		(__typeof__(x))((p_ RELATION q_)&0x3f800000);                                                                  \
	})
#define OP_LT(x, y, z) OP_TRUTH(x, y, <)
#define OP_GT(x, y, z) OP_TRUTH(x, y, >)
#define OP_LE(x, y, z) OP_TRUTH(x, y, <=)
#define OP_GE(x, y, z) OP_TRUTH(x, y, >=)
#define OP_EQ(x, y, z) OP_TRUTH(x, y, ==)

/* A NaN is not a zero: != is true of it */
#define OP_MOVC(x, y, z)                                                                                               \
	({                                                                                                                 \
		const __typeof__(x) p_ = (x), q_ = (y), r_ = (z);                                                              \
		SELECT(q_ != 0.0f, p_, r_);                                                                                    \
	})

#endif
#endif
