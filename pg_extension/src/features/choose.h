/*
 * The features, the weight and the labels of a training.
 */
#pragma once

#include "base/dana.h"
#include "features/survey.h"

/*
 * choose.c: the features, the weight and the labels, chosen as in dana/compiler/binding/columns.py for a rule of this
 * description; false if the worker is to report what is wrong with them
 */
extern bool dana_choose_columns(dana_survey *survey, Jsonb *description);

/* Raises an error if columns were not named and an array is among them: the choice is ambiguous */
extern void dana_reject_array_among_others(const dana_survey *survey);

/* Whether all names are columns, and there are some; and one more feature, from 1 */
extern bool dana_survey_has(const dana_survey *survey, const dana_texts *names);
extern void dana_survey_add(dana_survey *survey, int column);
