/*
 * Pages for another server: the tuples that a snapshot sees, and nothing else of the page that they come from.
 */
#pragma once

#include "storage/bufpage.h"

/*
 * Copies a tuple to line pointer `i` of a page that PageInit() has cleared, or that has had tuples with lower numbers.
 * The copy is frozen: it names no transaction, and every snapshot sees it. False if it does not fit.
 */
extern bool dana_pack(Page page, OffsetNumber i, HeapTuple tuple);
