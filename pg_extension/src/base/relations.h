/*
 * Relations and types by name, and kinds of relations: only some have rows with a place of their own.
 */
#pragma once

/*
 * Raises the errors that a SELECT raises for a relation by name: if it does not exist, or without USAGE on its schema
 * or SELECT on any column
 */
extern void dana_require_relation(Oid relation);

extern Oid dana_relation_owner(Oid relation);

/* The columns on which the caller has no SELECT, for an error; NULL: there are none */
extern char *dana_denied_columns(Oid relation);

/* A relation's name, qualified and quoted; an error if it does not exist */
extern char *dana_relation_name(Oid relation);

/* A type's name, the same in every session: qualified unless it is in pg_catalog, whatever the search_path hides */
extern const char *dana_type_name(Oid type);

/* Whether a name, which may be out of date, refers to that relation; no error if it refers to none */
extern bool dana_relation_is(Oid relation, const char *name);

/* Whether rows of a relation have a place of their own: not those of a view, or of a foreign table or partition */
extern bool dana_has_places(Oid relation);
