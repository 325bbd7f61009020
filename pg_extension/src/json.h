/*
 * Reading and writing JSON.
 */
#pragma once

#include "lib/stringinfo.h"
#include "utils/jsonb.h"

/* Raises the error for what the worker did: "sent ...", "asked for ..." */
#define dana_protocol_error(...) \
	ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION), errmsg("the dana worker " __VA_ARGS__)))

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

/*
 * Writing: each appends a member of the object that is open, or with key NULL an element of the array; commas come by
 * themselves. Text is in the database's encoding. What is NULL is written as null.
 */
extern void dana_json_begin(StringInfo to); /* makes an empty text with an object that is open */
extern void dana_json_open(StringInfo to, const char *key, char bracket);
extern void dana_json_close(StringInfo to, char bracket);
extern void dana_json_text(StringInfo to, const char *key, const char *value);
extern void dana_json_number(StringInfo to, const char *key, double value); /* finite; whole ones as such */
extern void dana_json_truth(StringInfo to, const char *key, bool value);
extern void dana_json_object(StringInfo to, const char *key, Jsonb *value);
