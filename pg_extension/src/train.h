/*
 * One training.
 */
#pragma once

#include "models.h"
#include "source.h"
#include "training.h"

/*
 * Trains a rule, of which `rule` is the text, on an open source. What is to be stored is left in `model`, which says when
 * the call began.
 */
extern void dana_train_model(const dana_training *training, dana_source *source, const char *rule, dana_new_model *model);

/* The whole of dana_train(): a row of type dana.training */
extern Datum dana_train_and_store(dana_training *training);
