/*
 * Columns with numbers that choose rows of models.
 */
#pragma once

#include "models/rules.h"
#include "request/training.h"
#include "source/source.h"

/*
 * categories.c: finds the columns with numbers that choose rows of models, reports on them, and finds the largest
 * numbers that the worker asks for; called after the source's features are chosen
 */
extern void dana_categories_find(const dana_training *training, dana_source *source, const dana_rule *rule);
