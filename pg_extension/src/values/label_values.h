/*
 * Labels that a list of classes numbers from 0, and the maximum number of classes.
 */
#pragma once

#include "base/dana.h"
#include "values/values.h"

/* labels that a list of classes numbers, from 0; of so many classes at most */
#define DANA_MAX_CLASSES 10000

typedef struct dana_label_type
{
	Oid		  base;
	bool	  number; /* and neither a date nor a time */
	dana_type holds;
	FmgrInfo  output;
} dana_label_type;

extern void dana_label_type_of(Oid type, dana_label_type *found, MemoryContext context);

extern char *dana_label_text(dana_label_type *type, Datum value);
extern int dana_class_of_text(const dana_label_type *type, const char *text, const dana_texts *classes);
extern int dana_compare_labels(const dana_label_type *type, double a, const char *text, double b, const char *other);

/* The class index of a label, and the label as `text`; -1 if it is not one of the classes */
extern int dana_class_of(dana_label_type *type, Datum value, const dana_texts *classes, char **text);
