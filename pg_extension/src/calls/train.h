/*
 * dana_train().
 */
#pragma once

#include "models/models.h"
#include "models/rules.h"
#include "request/training.h"
#include "source/source.h"

extern void dana_notices_define(void);

/*
 * Trains a rule on an open source. What is to be stored is left in `model`, which says when the call began. False: the
 * label's classes are not those that were assumed, and nothing was trained.
 */
extern bool dana_train_model(const dana_training *training, dana_source *source, const dana_rule *rule,
							 dana_new_model *model);

/* The whole of dana_train(): a row of type dana.training */
extern Datum dana_train_and_store(dana_training *training);
