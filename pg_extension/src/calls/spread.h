/*
 * dana_train(sync => …): a training on the rows of a table's shards.
 */
#pragma once

#include "request/training.h"

/* All of dana_train() for a training with `sync`: a row of type dana.training; `train` is that for a table here */
extern Datum dana_train_shards(dana_training *training, Datum (*train)(void *training));

/*
 * For dana_explain(): a temporary table of some rows of each shard, in the place of the table; the sizes of all shards,
 * for the worker
 */
extern Jsonb *dana_shards_sample(dana_training *training);

/* Drops that table */
extern void dana_shards_forget(const dana_training *training);
