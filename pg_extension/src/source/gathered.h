/*
 * Tables that this session gathered from shards. A training on one records in its model where the rows came from.
 */
#pragma once

#include "base/dana.h"

extern void dana_gathered_add(Oid relation, Jsonb *from);

/* What was recorded, or NULL */
extern Jsonb *dana_gathered(Oid relation);
