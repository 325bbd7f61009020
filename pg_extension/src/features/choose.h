/*
 * The features, the weight and the labels of a training.
 */
#pragma once

#include "base/dana.h"
#include "features/look.h"

/*
 * choose.c: the features, and the weight and the labels, chosen as dana/compiler/binding/columns.py does, for a rule of
 * this description; false where the worker is to say what is wrong with them
 */
extern bool dana_choose_columns(dana_look *look, Jsonb *description);

/* Refuses an array beside other columns, where nobody named them: either is meant */
extern void dana_refuse_array_among_others(const dana_look *look);

/* Whether names are those of columns, and are some; and one more feature, from 1 */
extern bool dana_look_has(const dana_look *look, const dana_texts *names);
extern void dana_look_add(dana_look *look, int column);
