/* numerics.h over arrays, for ctypes: each operation as a loop that the compiler may vectorise. */
#include <stddef.h>

#include "numerics.h"

#define UNARY(name)                                                                          \
    void map_##name(const float *a, const float *b, const float *c, float *out, size_t n)    \
    {                                                                                        \
        (void)b, (void)c;                                                                    \
        unsigned before = dn_enter();                                                        \
        for (size_t i = 0; i < n; ++i)                                                       \
            out[i] = dn_##name(a[i]);                                                        \
        dn_leave(before);                                                                    \
    }
#define BINARY(name)                                                                         \
    void map_##name(const float *a, const float *b, const float *c, float *out, size_t n)    \
    {                                                                                        \
        (void)c;                                                                             \
        unsigned before = dn_enter();                                                        \
        for (size_t i = 0; i < n; ++i)                                                       \
            out[i] = dn_##name(a[i], b[i]);                                                  \
        dn_leave(before);                                                                    \
    }
#define CONVERSION(name, type)                                                               \
    void convert_##name(const type *a, float *out, size_t n)                                 \
    {                                                                                        \
        unsigned before = dn_enter();                                                        \
        for (size_t i = 0; i < n; ++i)                                                       \
            out[i] = dn_##name(a[i]);                                                   \
        dn_leave(before);                                                                    \
    }

OPERATIONS /* a line of UNARY or BINARY for each of tests/oracles/operations.py */
CONVERSIONS /* a line of CONVERSION for each of hwgen/spec/columns.py */

void map_where(const float *a, const float *b, const float *c, float *out, size_t n)
{
    unsigned before = dn_enter();
    for (size_t i = 0; i < n; ++i)
        out[i] = dn_where(a[i], b[i], c[i]);
    dn_leave(before);
}

/*
 * The largest error of a function over every stride-th bit pattern from `first`, against libm in double: in ulp of the
 * exact result where that is a normal number, or absolute. Where the exact result is not a normal number (and not
 * within an ulp of being one) the two must agree in being zero, infinite or NaN; `wrong` counts those that do not.
 */
static double ulp_of(double y)
{
    int e;
    frexp(y, &e);
    return ldexp(1.0, e - 24);
}

#define SWEEP(name, exact, absolute)                                                          \
    double sweep_##name(uint64_t first, uint64_t stride, uint64_t *wrong)                      \
    {                                                                                          \
        double worst = 0;                                                                      \
        *wrong = 0;                                                                            \
        for (uint64_t bits = first; bits < 1ull << 32; bits += stride) {                       \
            float in = dn_canonical(dn_float((uint32_t)bits));                                 \
            double x = in, y = exact, got = dn_##name(in);                                     \
            if (y != y || got != got) {                                                        \
                *wrong += !(y != y && got != got);                                             \
            } else if (absolute) {                                                             \
                worst = fmax(worst, fabs(got - y));                                            \
            } else if (fabs(y) > 0x1.fffff8p127 || fabs(got) > 0x1.fffff8p127) {               \
                *wrong += !(fabs(y) > 0x1.fffff8p127 && fabs(got) >= 0x1.fffff0p127 && y * got > 0); \
            } else if (fabs(y) < 0x1.00001p-126) {                                             \
                *wrong += fabs(got) > 0x1.00002p-126;                                          \
            } else {                                                                           \
                worst = fmax(worst, fabs(got - y) / ulp_of(y));                                \
            }                                                                                  \
        }                                                                                      \
        return worst;                                                                          \
    }

#define FUNCTION(name, exact, absolute) UNARY(name) SWEEP(name, exact, absolute)
FUNCTIONS /* a line of FUNCTION for each of tests/oracles/functions.py */

/*
 * How many of every stride-th bit patterns have another root, or as an integer another binary32, than the value in double
 * rounded once: a double has more than twice the digits, so its root rounds to the right one.
 */
uint64_t wrong_sqrt(uint64_t first, uint64_t stride)
{
    uint64_t wrong = 0;
    unsigned before = dn_enter();
    for (uint64_t bits = first; bits < 1ull << 32; bits += stride) {
        float in = dn_canonical(dn_float((uint32_t)bits));
        float want = dn_canonical((float)sqrt((double)in)), got = dn_canonical(dn_sqrt(in));
        wrong += dn_bits(want) != dn_bits(got);
    }
    dn_leave(before);
    return wrong;
}

uint64_t wrong_from_int32(uint64_t first, uint64_t stride)
{
    uint64_t wrong = 0;
    for (uint64_t bits = first; bits < 1ull << 32; bits += stride) {
        int32_t in = (int32_t)(uint32_t)bits;
        wrong += dn_bits((float)(double)in) != dn_bits(dn_from_int32(in));
    }
    return wrong;
}
