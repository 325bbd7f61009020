/*
 * The contents of values from another server: PostgreSQL's functions trust what a type's input function has made.
 */
#pragma once

/* Whether values of a type mean the same on another server, and dana_contents_damage() can check them */
extern bool dana_contents_known(Oid type);

/*
 * What is wrong in the contents of a value of such a type, which lies within its tuple; NULL: nothing. Allocates in the
 * current memory context.
 */
extern const char *dana_contents_damage(Oid type, Datum value);
