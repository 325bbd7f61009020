/* kernels.inc with the arithmetic that needs no mode of the processor, for any of them. */
#define DN_PORTABLE
#include "state.h"
#include "numerics.h"

#define NAME(x) portable_##x
#include "kernels.inc"
