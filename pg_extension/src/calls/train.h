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
 * Trains a rule on an open source. The results are left in `model`, which has the time of the call. False: the label's
 * classes differ from the assumed ones, and nothing was trained.
 */
extern bool dana_train_model(const dana_training *training, dana_source *source, const dana_rule *rule,
							 dana_new_model *model);

/* Trains for the other parts of a training on several servers, and stores nothing */
extern void dana_train_part_of(dana_training *training);

/* All of dana_train(): a row of type dana.training */
extern Datum dana_train_and_store(dana_training *training);
