/*
 * Reading a relation's blocks in order, through the buffer manager.
 */
#pragma once

#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "compat.h"

/*
 * Reads a block and pins it. `hint` is the buffer that may hold it, or InvalidBuffer: a relation that was loaded in
 * order mostly lies in neighbouring buffers, and trying the next one saves the look-up in the buffer table, two cache
 * misses and two locks per page.
 */
static inline Buffer
dana_read_block(Relation relation, BlockNumber block, Buffer hint, BufferAccessStrategy strategy)
{
	if (hint > 0 && hint <= NBuffers && ReadRecentBuffer(dana_relation_locator(relation), MAIN_FORKNUM, block, hint))
	{
		pgstat_count_buffer_read(relation);
		pgstat_count_buffer_hit(relation);
		return hint;
	}
	return ReadBufferExtended(relation, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
}

/* Has the processor fetch the page of the buffer after this one, which is a guess and does no harm */
static inline void
dana_prefetch_after(Buffer buffer)
{
	if (buffer > 0 && buffer < NBuffers)
	{
		const char *page = BufferGetBlock(buffer) + BLCKSZ;

		for (int i = 0; i < BLCKSZ; i += PG_CACHE_LINE_SIZE / 2)
			__builtin_prefetch(page + i);
	}
}
