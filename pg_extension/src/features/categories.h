/*
 * Columns whose numbers choose rows of models.
 */
#pragma once

#include "models/rules.h"
#include "request/training.h"
#include "source/source.h"

/*
 * categories.c: the columns whose numbers choose rows of models, what is to be told of them, and their largest numbers
 * where the worker wants to know them; once the source's features are chosen
 */
extern void dana_categories_find(const dana_training *training, dana_source *source, const dana_rule *rule);
