/*
 * The classes of a training's label.
 */
#pragma once

#include "request/training.h"
#include "source/source.h"

/*
 * classes.c: finds the classes of the label, unless they are given, for a rule that has some by its description. With
 * `assume` it may take them from some of the rows; then source->assumed says so, and whether that holds is to be asked
 * once all were streamed, or before rows are streamed as frames.
 */
extern void dana_classes_find(const dana_training *training, dana_source *source, Jsonb *description, bool assume);
extern bool dana_classes_hold(const dana_training *training, dana_source *source, Jsonb *description);
