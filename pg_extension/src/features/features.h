/*
 * What is done to the features of a training.
 */
#pragma once

#include "request/training.h"
#include "source/source.h"

/* Decides on it, looks at the rows where it must, and says what is done; for a rule of this description */
extern void dana_source_encode(dana_source *source, const dana_training *training, Jsonb *description);
