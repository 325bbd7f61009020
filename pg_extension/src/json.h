/*
 * Reading the worker's JSON, writing ours.
 */
#ifndef DANA_JSON_H
#define DANA_JSON_H

#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/jsonb.h"

/* Reads a JSON object; anything else is a protocol error */
extern Jsonb *dana_json_parse(const char *text);

/* Members of an object: "" where a string, 0 where a number is missing or null */
extern char	 *dana_json_string(Jsonb *object, const char *key);
extern int64  dana_json_integer(Jsonb *object, const char *key);
extern double dana_json_double(Jsonb *object, const char *key);
extern bool	  dana_json_boolean(Jsonb *object, const char *key);
extern bool	  dana_json_is_null(Jsonb *object, const char *key);
/* Reads an array of integers or of texts; returns how many there are */
extern int dana_json_integers(Jsonb *object, const char *key, int **values);
extern int dana_json_strings(Jsonb *object, const char *key, char ***values);

extern Jsonb *dana_json_member(Jsonb *object, const char *key);

/* Appends a JSON string, in UTF-8 whatever the database's encoding */
extern void dana_json_append(StringInfo to, const char *text);

/* `text` in UTF-8; itself where the database is in UTF-8 */
extern char *dana_json_utf8(char *text);

#endif /* DANA_JSON_H */
