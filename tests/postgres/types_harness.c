/* Prints the rows of number_types.h: OID, length, alignment, and how a value lies in memory; "-": it is converted. */
#include <stdio.h>

#include "catalog/pg_type_d.h"

#include "values/number_types.h"

#define STORED(type, length, align, element) printf("%u %d %c %s\n", type, length, align, #element);
#define CONVERTED(type, length, align, number) printf("%u %d %c -\n", type, length, align);

int
main(void)
{
	DANA_TYPES(STORED, CONVERTED)
	return 0;
}
