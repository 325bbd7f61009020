/*
 * The machine's arithmetic in C11: the same bits as hwgen.spec.numerics and as the RTL.
 *
 * In and out: float. Two ways, chosen when compiled:
 *
 *   hardware flushing   on x86-64: the caller brackets its loops with dn_enter() and dn_leave(), which set FTZ and DAZ;
 *                       add, sub, mul, div, sqrt and comparisons are then single instructions. Keep the brackets in
 *                       another function than the arithmetic, or loops over memory between them: to gcc a floating-
 *                       point operation does not depend on the mode.
 *   DN_PORTABLE         defined by the user, or any other processor: subnormals are flushed by hand, and no mode of the
 *                       processor is read or written (in a PostgreSQL backend, say).
 *
 * A NaN may carry any payload between operations; dn_canonical() makes it 0x7fc00000 where bits become visible.
 * Everything is branch-free, so that a loop over arrays vectorises (-O3, -fno-math-errno; AVX-512DQ for dn_log).
 * Never compile this with -ffast-math, nor without -ffp-contract=off: each operation is rounded on its own.
 */
#ifndef DANA_NUMERICS_H
#define DANA_NUMERICS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "coefficients.h"

#if !defined(DN_PORTABLE) && !(defined(__x86_64__) && defined(__SSE2__))
#define DN_PORTABLE
#endif
#if defined(__FAST_MATH__)
#error "numerics.h needs IEEE arithmetic: compile without -ffast-math"
#endif
#ifndef DN_PORTABLE
#include <xmmintrin.h>
#endif

#define DN_SIGN 0x80000000u
#define DN_EXPONENT 0x7f800000u
#define DN_HIDDEN 0x00800000u
#define DN_QUIET_NAN 0x7fc00000u
#define DN_ONE (1 << DN_C0_FRACTION)

/* Subnormals from here on are zeros; returns what dn_leave() restores. */
static inline unsigned dn_enter(void)
{
#ifdef DN_PORTABLE
    return 0;
#else
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u); /* FTZ, DAZ */
    return before;
#endif
}

static inline void dn_leave(unsigned before)
{
#ifdef DN_PORTABLE
    (void)before;
#else
    _mm_setcsr(before);
#endif
}

static inline uint32_t dn_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float dn_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Subnormals to zero of the same sign. */
static inline float dn_flush(float x)
{
    uint32_t bits = dn_bits(x);
    return dn_float(bits & DN_EXPONENT ? bits : bits & DN_SIGN);
}

/* Flushed, and any NaN the canonical one. */
static inline float dn_canonical(float x)
{
    uint32_t bits = dn_bits(dn_flush(x));
    return dn_float((bits & ~DN_SIGN) > DN_EXPONENT ? DN_QUIET_NAN : bits);
}

#ifdef DN_PORTABLE

/* What rounds up to the smallest normal number, 2**-126, is not tiny: 2**-126 - 2**-151 and more. */
static inline float dn_rounded(double exact)
{
    double tiny_below = 0x1p-126 - 0x1p-151;
    return (exact < 0 ? -exact : exact) < tiny_below ? (float)(exact * 0.0) : (float)exact;
}

static inline float dn_add(float a, float b) { return dn_flush(dn_flush(a) + dn_flush(b)); }
static inline float dn_sub(float a, float b) { return dn_flush(dn_flush(a) - dn_flush(b)); }
static inline float dn_mul(float a, float b) { return dn_rounded((double)dn_flush(a) * (double)dn_flush(b)); }
static inline float dn_div(float a, float b) { return dn_rounded((double)dn_flush(a) / (double)dn_flush(b)); }
static inline float dn_sqrt(float x) { return sqrtf(dn_flush(x)); }
#define DN_OPERAND(x) dn_flush(x)

#else

static inline float dn_rounded(double exact) { return (float)exact; }
static inline float dn_add(float a, float b) { return a + b; }
static inline float dn_sub(float a, float b) { return a - b; }
static inline float dn_mul(float a, float b) { return a * b; }
static inline float dn_div(float a, float b) { return a / b; }
static inline float dn_sqrt(float x) { return sqrtf(x); }
#define DN_OPERAND(x) (x)

#endif

static inline float dn_neg(float x) { return dn_float(dn_bits(dn_flush(x)) ^ DN_SIGN); }
static inline float dn_abs(float x) { return dn_float(dn_bits(dn_flush(x)) & ~DN_SIGN); }

/* |a| with the sign of b. A NaN has none: between two operations its bit may be either. */
static inline float dn_copysign(float a, float b)
{
    return dn_float(dn_bits(dn_abs(a)) | (b != b ? 0 : dn_bits(b) & DN_SIGN));
}

/* x, rounded to bfloat16. The carry out of a significand of ones makes the next power of two, and infinity. */
static inline float dn_bfloat16(float x)
{
    uint32_t bits = dn_bits(dn_flush(x));
    uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
    return dn_float(x != x ? DN_QUIET_NAN : rounded);
}

static inline float dn_lt(float a, float b) { return DN_OPERAND(a) < DN_OPERAND(b) ? 1.0f : 0.0f; }
static inline float dn_gt(float a, float b) { return DN_OPERAND(a) > DN_OPERAND(b) ? 1.0f : 0.0f; }
static inline float dn_le(float a, float b) { return DN_OPERAND(a) <= DN_OPERAND(b) ? 1.0f : 0.0f; }
static inline float dn_ge(float a, float b) { return DN_OPERAND(a) >= DN_OPERAND(b) ? 1.0f : 0.0f; }
static inline float dn_eq(float a, float b) { return DN_OPERAND(a) == DN_OPERAND(b) ? 1.0f : 0.0f; }

/* a where c is not a zero (a NaN is not), else b. */
static inline float dn_where(float c, float a, float b)
{
    return dn_flush(dn_bits(c) & DN_EXPONENT ? a : b);
}

/* The bits of the larger or smaller; equal numbers have equal bits but for zeros, whose signs `same` has joined. */
static inline float dn_pick(float a, float b, int first, uint32_t same)
{
    uint32_t p = dn_bits(a), q = dn_bits(b);
    uint32_t bits = a == b ? same : (first ? p : q);
    bits = a != a || b != b ? DN_QUIET_NAN : bits;
    return dn_float(bits);
}

/* NaN if either is; +0 of two zeros. */
static inline float dn_max(float a, float b)
{
    a = dn_flush(a);
    b = dn_flush(b);
    return dn_pick(a, b, a > b, dn_bits(a) & dn_bits(b));
}

/* NaN if either is; -0 of two zeros. */
static inline float dn_min(float a, float b)
{
    a = dn_flush(a);
    b = dn_flush(b);
    return dn_pick(a, b, a < b, dn_bits(a) | dn_bits(b));
}

/* Column types: one rounding, to nearest even. */
static inline float dn_from_float32(float x) { return dn_canonical(x); }
static inline float dn_from_float64(double x) { return dn_canonical(dn_rounded(x)); }
static inline float dn_from_int16(int16_t x) { return (float)x; }
static inline float dn_from_int32(int32_t x) { return (float)x; }
static inline float dn_from_int64(int64_t x) { return (float)x; }
/* by a mask: gcc would make a jump of a conditional expression, which half of all rows take */
static inline float dn_from_bool(uint8_t x) { return dn_float((0u - (uint32_t)(x != 0)) & dn_bits(1.0f)); }

/*
 * The table-and-polynomial functions; layout.py states the formats, functions.py the definition in the same order.
 * Selection is by masks: gcc would make branches of conditional expressions here, and not vectorise.
 */

static inline uint32_t dn_select(int condition, uint32_t yes, uint32_t no)
{
    return no ^ ((yes ^ no) & (0u - (uint32_t)condition));
}

/* The row's quadratic at t, signed 18 bits, in 2**-28. Shifting both factors up leaves the product in the high word. */
static inline int32_t dn_polynomial(uint32_t row, int32_t t)
{
    int32_t packed = dn_c1_c2[row];
    int32_t c1 = packed >> 14, c2 = (int32_t)((uint32_t)packed << 18) >> 18;
    int32_t inner = (c2 * t >> DN_INNER_SHIFT) + c1;
    return dn_c0[row] + (int32_t)(((int64_t)(inner * 4096) * (int64_t)(t * 128)) >> (DN_OUTER_SHIFT + 19));
}

static inline int32_t dn_exponent(float x) { return dn_bits(x) >> 23 & 255; }

/* With the hidden bit; 0 for a zero and for what counts as one. */
static inline uint32_t dn_significand(float x)
{
    uint32_t bits = dn_bits(x);
    return dn_select(bits & DN_EXPONENT ? 1 : 0, (bits & (DN_HIDDEN - 1)) | DN_HIDDEN, 0);
}

static inline int dn_negative(float x) { return dn_bits(x) >> 31; }

/* These bits, or the canonical NaN if x is a NaN. */
static inline float dn_unless_nan(float x, uint32_t bits)
{
    return dn_float(dn_select((dn_bits(x) & ~DN_SIGN) > DN_EXPONENT, DN_QUIET_NAN, bits));
}

/* Shifts by more than 31 give 0, by less than none shift by none. */
static inline int32_t dn_clamp(int32_t by)
{
    by = by < 0 ? 0 : by;
    return by > 31 ? 31 : by;
}

/* The binary32 nearest to y * 2**-28, for 0 <= y <= 2**30, as bits. */
static inline uint32_t dn_scaled(int32_t y)
{
    return dn_select(y != 0, dn_bits((float)y) - ((uint32_t)DN_C0_FRACTION << 23), 0);
}

/* Where a magnitude is in sigmoid's rows: row and 18 bits of position. */
static inline uint32_t dn_sigmoid_place(int32_t exponent, uint32_t significand)
{
    uint32_t fraction = significand & (DN_HIDDEN - 1);
    uint32_t place = (significand << 1) >> dn_clamp(128 - exponent);
    place = dn_select(exponent == 129, (128u << 18) + (fraction << 1), place);
    place = dn_select(exponent == 130, (192u << 18) + fraction, place);
    return dn_select(exponent >= 131, (224u << 18) + fraction, place);
}

/* 1 / (1 + exp(-x)); absolute error below 2**-22. */
static inline float dn_sigmoid(float x)
{
    int32_t exponent = dn_exponent(x);
    uint32_t place = dn_sigmoid_place(exponent, dn_significand(x));
    int32_t y = dn_polynomial(place >> 18, (int32_t)(place & 0x3ffff) - 0x20000);
    y = (int32_t)dn_select(exponent >= 132, DN_ONE, (uint32_t)y);
    y = (int32_t)dn_select(dn_negative(x), (uint32_t)(DN_ONE - y), (uint32_t)y);
    return dn_unless_nan(x, dn_scaled(y));
}

/* Hyperbolic tangent, within 4 ulp: of 2x, x times a ratio from the first 48 rows, 2 * sigmoid - 1 from the others. */
static inline float dn_tanh(float x)
{
    int32_t exponent = dn_exponent(x);
    uint32_t significand = dn_significand(x), place = dn_sigmoid_place(exponent + 1, significand), row = place >> 18;
    int near = row < 48;
    uint32_t first = dn_select(row < 16, DN_TANH_ROWS_0, dn_select(row < 32, DN_TANH_ROWS_1, DN_TANH_ROWS_2));
    int32_t y = dn_polynomial(dn_select(near, first + (row & 15), row), (int32_t)(place & 0x3ffff) - 0x20000);
    int32_t far = (int32_t)dn_select(exponent >= 131, DN_ONE, (uint32_t)(2 * y - DN_ONE));
    int64_t product = (int64_t)significand * (y >> (DN_C0_FRACTION - DN_RATIO_FRACTION)) >> 1;
    uint32_t bits = dn_bits((float)product) + (uint32_t)(exponent - 126 - DN_LOG_FRACTION) * DN_HIDDEN;
    bits = dn_select(near, dn_select(exponent != 0, bits, 0), dn_scaled(far));
    return dn_unless_nan(x, bits | (dn_bits(x) & DN_SIGN));
}

/* sin(pi x), within 4 ulp: of |x| modulo 2, folded to [0, 1/2], times a ratio; below 1/2 of x itself, exactly. */
static inline float dn_sinpi(float x)
{
    int32_t exponent = dn_exponent(x), small = exponent < 126;
    uint32_t significand = dn_significand(x);
    uint32_t place = significand << dn_clamp(exponent - 125) >> dn_clamp(125 - exponent);
    uint32_t folded = ((place ^ (0u - (place >> 24 & 1))) + (place >> 24 & 1)) & 0x1ffffff;
    int32_t zero = (int32_t)dn_select(small, exponent == 0, folded == 0);
    int32_t y = dn_polynomial(DN_SINPI_BASE + (folded >> 18 & 63), (int32_t)(folded & 0x3ffff) - 0x20000);
    uint32_t m = dn_select(small, significand, folded >> 1);
    int64_t product = (int64_t)m * (y >> (DN_C0_FRACTION - DN_RATIO_FRACTION)) >> 1;
    uint32_t scale = dn_select(small, (uint32_t)(exponent - 124), 2);
    uint32_t bits = dn_bits((float)product) + (scale - DN_LOG_FRACTION) * DN_HIDDEN;
    bits = dn_select(folded == 1 << 24, 127 * DN_HIDDEN, bits);
    bits = dn_select(zero, 0, bits) | ((dn_bits(x) ^ (place << 6 & (0u - (uint32_t)!zero))) & DN_SIGN);
    return dn_unless_nan(x, dn_select(exponent == 255, DN_QUIET_NAN, bits));
}

/* Bits of exp(±magnitude): `coarse` has it in 2**-8, `low` its lowest 32 bits in 2**-31; `flip` is -1 for the minus. */
static inline uint32_t dn_exp_bits(uint32_t coarse, uint32_t low, int32_t flip)
{
    int32_t n = (int32_t)((coarse * DN_LOG2E + (1u << 22)) >> 23);
    int32_t r = (int32_t)(low - (uint32_t)n * DN_LN2) ^ flip;
    uint32_t row = (uint32_t)(DN_EXP_BASE + 64 + (r >> 24));
    int32_t y = dn_polynomial(row, (r >> 6 & 0x3ffff) - 0x20000);
    uint32_t bits = dn_scaled(y) + (uint32_t)((n ^ flip) - flip) * DN_HIDDEN;
    /* beyond 2**31 it is too large if n was positive, and below zero if it was negative */
    uint32_t under = dn_select((int32_t)bits < (int32_t)DN_HIDDEN, 0, bits);
    uint32_t over = dn_select(bits > DN_EXPONENT, DN_EXPONENT, bits);
    return dn_select(flip & 1, under, over);
}

/* e**x, within 2 ulp. */
static inline float dn_exp(float x)
{
    uint32_t significand = dn_significand(x);
    int32_t exponent = dn_exponent(x), negative = dn_negative(x);
    /* the magnitude is significand << 24 >> by, of which only 32 bits at a time are looked at */
    int32_t by = 143 - exponent;
    uint32_t coarse = significand << 1 >> dn_clamp(by);
    uint32_t low = significand << dn_clamp(24 - by) >> dn_clamp(by - 24);
    uint32_t bits = dn_exp_bits(coarse, low, -negative);
    bits = dn_select(exponent >= 134, dn_select(negative, 0, DN_EXPONENT), bits);
    return dn_unless_nan(x, bits);
}

/* exp(-x * x), within 2 ulp: of the square only that of its lowest six bits is left out. */
static inline float dn_gaussian(float x)
{
    uint64_t upper = dn_significand(x) >> 6, lower = dn_significand(x) & 63;
    uint64_t square = (upper * upper << 12) + (upper * lower << 7);
    int32_t exponent = dn_exponent(x), by = 269 - 2 * exponent;
    by = by < 0 ? 0 : by;
    by = by > 63 ? 63 : by;
    uint64_t magnitude = square >> by;
    uint32_t bits = dn_exp_bits((uint32_t)(magnitude >> 23) & 0xffff, (uint32_t)magnitude, -1);
    return dn_unless_nan(x, dn_select(exponent >= 131, 0, bits));
}

/* Natural logarithm, within 2 ulp. */
static inline float dn_log(float x)
{
    int32_t significand = (int32_t)dn_significand(x), exponent = dn_exponent(x);
    int32_t halved = significand >> 16 >= DN_LOG_SPLIT;
    int32_t m = (significand - (int32_t)DN_HIDDEN) * (2 - halved) - halved * (int32_t)DN_HIDDEN;
    m = (int32_t)dn_select(exponent != 0, (uint32_t)m, 0);
    uint32_t row = (uint32_t)(DN_LOG_BASE + 64 + (m >> 17));
    int32_t ratio = dn_polynomial(row, (m & 0x1ffff) * 2 - 0x20000) >> (DN_C0_FRACTION - DN_RATIO_FRACTION);
    int32_t e = exponent - 127 + halved, e_sign = e >> 31, m_sign = m >> 31;
    int64_t from_e = (int64_t)((e ^ e_sign) - e_sign) * ((int64_t)DN_LN2 << (DN_LOG_FRACTION - 31));
    int64_t from_m = (int64_t)((m ^ m_sign) - m_sign) * ratio >> (24 + DN_RATIO_FRACTION - DN_LOG_FRACTION);
    int64_t flip = -(int64_t)((e != 0) & (e_sign != m_sign));
    int64_t total = from_e + (from_m ^ flip) - flip;
    uint32_t minus = (uint32_t)(e_sign | (m_sign & -(e == 0))) & DN_SIGN;
    uint32_t bits = dn_bits((float)total);
    bits = dn_select(total != 0, bits - ((uint32_t)DN_LOG_FRACTION << 23), 0) | minus;
    bits = dn_select(exponent == 255, DN_EXPONENT, bits);
    bits = dn_select(dn_negative(x), DN_QUIET_NAN, bits);
    bits = dn_select(exponent != 0, bits, DN_SIGN | DN_EXPONENT);
    return dn_unless_nan(x, bits);
}

#endif
