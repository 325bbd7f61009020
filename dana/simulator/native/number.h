/* An element of a column, from its bytes on a page; no other place reads a page as numbers. */
#ifndef DANA_SIMULATOR_NUMBER_H
#define DANA_SIMULATOR_NUMBER_H

#include <stdlib.h>
#include <string.h>

#include "contract.h"
#include "numerics.h"

static inline float
sim_number(int32_t type, const uint8_t *from)
{
	switch (type)
	{
#define CONVERT(NAME, c_type, conversion) \
		case SIM_##NAME: \
		{ \
			c_type x; \
\
			memcpy(&x, from, sizeof x); \
			return conversion(x); \
		}
		SIM_COLUMN_TYPES(CONVERT)
#undef CONVERT
	}
	abort(); /* a descriptor of no such type is bad, and never comes here */
}

#endif
