/*
 * The classes of a training's label.
 */
#pragma once

#include "request/training.h"
#include "source/source.h"

/*
 * classes.c: finds the classes of the label, unless they are given, for a rule with classes in its description. With
 * `assume` it may use a sample of the rows; then source->chosen.assumed is set, and must be asked whether the assumption holds
 * once all pages were streamed, or before rows are streamed as frames.
 */
extern void dana_classes_find(const dana_training *training, dana_source *source, Jsonb *description, bool assume);
extern bool dana_classes_hold(const dana_training *training, dana_source *source, Jsonb *description);
