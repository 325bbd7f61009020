/* kernels.inc with the arithmetic that needs no mode of the processor, for any of them. */
#define DN_PORTABLE
#include <string.h>

#include "core.h"
#include "operations.h"

#define VW		4
#define NAME(x) portable_##x
#include "kernels.inc"
