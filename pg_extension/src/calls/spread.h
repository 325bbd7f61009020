/*
 * dana_train(sync => …): a training on the rows of a table's shards.
 */
#pragma once

#include "request/training.h"

/* All of dana_train() for a training with `sync`: a row of type dana.training; `train` is that for a table here */
extern Datum dana_train_shards(dana_training *training, Datum (*train)(void *training));

/* What it would do, for dana_explain() */
extern char *dana_shards_explain(const dana_training *training);
