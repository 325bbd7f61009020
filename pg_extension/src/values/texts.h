/*
 * Values as texts, the same in every session.
 */
#pragma once

/* Output of a type's output function, regardless of the settings for dates, zones and numbers */
extern char *dana_fixed_output(FmgrInfo *output, Oid base, Datum value);

/* SQL for the same of a column: a cast, which an index matches, unless it is user-defined or depends on a setting */
extern char *dana_text_expression(const char *column, Oid type);
