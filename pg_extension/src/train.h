/*
 * One training.
 */
#ifndef DANA_TRAIN_H
#define DANA_TRAIN_H

#include "models.h"
#include "request.h"
#include "source.h"

/*
 * Trains a rule, of which `rule` is the text, on an open source. What is to be stored is left in `model`, which says when
 * the call began.
 */
extern void dana_train_model(const dana_train_call *call, dana_source *source, const char *rule, dana_new_model *model);

#endif /* DANA_TRAIN_H */
