/*
 * The encoding of a training's features.
 */
#pragma once

#include "request/training.h"
#include "source/source.h"

/* Chooses it, scans the rows if necessary, and reports it; for a rule of this description */
extern void dana_source_encode(dana_source *source, const dana_training *training, Jsonb *description);
