/*
 * Values as texts, the same in every session.
 */
#pragma once

/* What a type's output function writes in every session, whatever the settings for dates, zones and numbers are */
extern char *dana_fixed_output(FmgrInfo *output, Oid base, Datum value);

/* SQL for the same of a column: a cast, which an index knows, where none is a user's and none has a setting */
extern char *dana_text_expression(const char *column, Oid type);
