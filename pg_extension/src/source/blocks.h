/*
 * Blocks of a relation, one after another.
 */
#pragma once

#include "storage/bufmgr.h"

/*
 * Reads a block and pins it. `hint` is the buffer that may hold it, or InvalidBuffer: a relation that was loaded in
 * order is mostly in neighbouring buffers, and trying the next one saves the look-up in the buffer table, two cache
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
