/*
 * Reads records of a length and as many bytes, and looks at each as a tuple in memory of just that size, as
 * dana_tuple_damage() does; prints how many are sound. For the address sanitizer, which sees a look beyond the end.
 */
#include "values/tuples.c"

#include <stdio.h>

#undef printf /* the server's */

char *
psprintf(const char *format, ...)
{
	return "damaged";
}

int
main(void)
{
	/* int4, text, "char", float8, cstring: length and alignment, as in the test */
	static const column_shape columns[] = {{4, 4, 0}, {-1, 4, 4}, {1, 1}, {8, 8}, {-2, 1}};
	dana_tuple_shape		 *shape = malloc(sizeof *shape + sizeof columns);
	uint32					  length;
	int						  sound = 0;

	shape->count = lengthof(columns);
	shape->fixed = 1;
	memcpy(shape->columns, columns, sizeof columns);
	while (fread(&length, sizeof length, 1, stdin) == 1)
	{
		HeapTupleData tuple = {.t_len = length, .t_data = malloc(length)};

		if (fread(tuple.t_data, 1, length, stdin) == length)
			sound += dana_tuple_damage(shape, &tuple) == NULL;
		free(tuple.t_data);
	}
	free(shape);
	printf("%d", sound);
	return 0;
}
