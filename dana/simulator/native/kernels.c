/*
 * kernels.inc for the processors that there are; the best is chosen when a Bundle is loaded.
 *
 * The 256-bit and 512-bit kernels are compiled for their processors by pragma, so that one library serves all of them.
 */
#include <string.h>

#include "state.h"
#include "numerics.h"

#ifndef DN_PORTABLE

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,prefer-vector-width=512")
#define NAME(x) avx512_##x
#include "kernels.inc"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2")
#define NAME(x) avx2_##x
#include "kernels.inc"
#pragma GCC pop_options

#define NAME(x) sse2_##x
#include "kernels.inc"

/* The kernels of that name, or the best for this processor where it is NULL; NULL if it has none such. */
const struct sim_kernels *
sim_choose_kernels(const char *name)
{
	const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
							__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");

	if (has_avx512 && (name == NULL || strcmp(name, "avx512") == 0))
		return &avx512_kernels;
	if (__builtin_cpu_supports("avx2") && (name == NULL || strcmp(name, "avx2") == 0))
		return &avx2_kernels;
	if (name == NULL || strcmp(name, "sse2") == 0)
		return &sse2_kernels;
	if (strcmp(name, "portable") == 0)
		return &portable_kernels;
	return NULL;
}

#else

const struct sim_kernels *
sim_choose_kernels(const char *name)
{
	return name == NULL || strcmp(name, "portable") == 0 ? &portable_kernels : NULL;
}

#endif
