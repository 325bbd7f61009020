/*
 * Tables that this session gathered from shards. A training on one records in its model where the rows came from.
 */
#pragma once

#include "base/dana.h"

/* `key`: columns that certainly have no two rows alike, without an index of them; or none */
extern void dana_gathered_add(Oid relation, Jsonb *from, const dana_texts *key);

/* What was recorded, or NULL */
extern Jsonb *dana_gathered(Oid relation);

/* The key of its rows without an index, or no columns */
extern dana_texts dana_gathered_key(Oid relation);
