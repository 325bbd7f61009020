/*
 * Memory that is to be zero again.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state.h"

#define GIVEN_BACK (1 << 20) /* bytes from which on zeros are the kernel's */

/* Sets memory to zeros. Of much, whole pages are given back: the kernel has zeros for who touches them. */
void
sim_clear(void *memory, size_t size)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)memory, end = first + size;
	const uintptr_t inner = (first + page - 1) / page * page, behind = end / page * page;
	const bool given = size >= GIVEN_BACK && madvise((void *)inner, behind - inner, MADV_DONTNEED) == 0;

	memset(memory, 0, given ? inner - first : size);
	memset((void *)behind, 0, given ? end - behind : 0);
}
