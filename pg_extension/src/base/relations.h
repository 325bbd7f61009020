/*
 * Relations by name, and which of them have rows with a place of their own.
 */
#pragma once

/*
 * Raises the errors of a SELECT that names a relation, for one that came as a number: where there is none, without USAGE
 * on its schema, and without SELECT on any column
 */
extern void dana_require_relation(Oid relation);

/* A relation's name, qualified and quoted; an error where there is none */
extern char *dana_relation_name(Oid relation);

/* Whether such a name, which may be an older one, is that relation's; no error where it is none's */
extern bool dana_relation_is(Oid relation, const char *name);

/* What a relation is whose rows have no place of their own, "view" or "foreign table"; NULL of others, and of none */
extern const char *dana_placeless(Oid relation);
