/*
 * JSON objects: the messages between the extension and the worker, and what callers pass.
 */
#pragma once

#include "base/dana.h"

/* Raises the error for what the worker did: "sent ...", "asked for ..." */
#define dana_protocol_error(...) dana_error(PROTOCOL_VIOLATION, "the dana worker " __VA_ARGS__)

/*
 * In a PG_CATCH block: raises an error about the data that the worker sent as the protocol error that it is, and any other
 * error again
 */
extern _Noreturn void dana_json_blame_worker(MemoryContext caller);

/* Reads a JSON object; anything else is a protocol error */
extern Jsonb *dana_json_parse(const char *text);

/* Members of an object: "" for a missing string, 0 for a missing or null number */
extern char	 *dana_json_string(Jsonb *object, const char *key);
extern int64  dana_json_integer(Jsonb *object, const char *key);
extern double dana_json_double(Jsonb *object, const char *key);
extern bool	  dana_json_boolean(Jsonb *object, const char *key);
extern bool	  dana_json_is_null(Jsonb *object, const char *key);
extern Jsonb *dana_json_member(Jsonb *object, const char *key);
extern dana_texts dana_json_texts(Jsonb *object, const char *key); /* count -1 where it is null */
extern int dana_json_integers(Jsonb *object, const char *key, int **values); /* returns how many there are */

/* The same for JSON that the worker did not write: whether there is such an array; its elements, -1 if there is none */
extern dana_texts dana_json_keys(Jsonb *object);
extern bool dana_json_are_texts(Jsonb *object, const char *key);
extern int dana_json_doubles(Jsonb *object, const char *key, double **values);
extern int dana_json_objects(Jsonb *object, const char *key, Jsonb ***values); /* 0 if it is null */
extern char *dana_json_scalar(Jsonb *object, const char *key); /* a string, or a number's text */

/*
 * Writing: each function appends a member to the open object or, with key NULL, an element to the open array; commas
 * are added automatically. Text is in the database's encoding. NULL is written as null.
 */
extern void dana_json_begin(StringInfo to); /* creates a text with an open object */
extern void dana_json_open(StringInfo to, const char *key, char bracket);
extern void dana_json_close(StringInfo to, char bracket);
extern Jsonb *dana_json_end(StringInfo to); /* closes the object of dana_json_begin(), and reads it */
extern void dana_json_text(StringInfo to, const char *key, const char *value);
extern void dana_json_number(StringInfo to, const char *key, double value); /* finite; integers as such */
extern void dana_json_truth(StringInfo to, const char *key, bool value);
extern void dana_json_object(StringInfo to, const char *key, Jsonb *value);
extern void dana_json_list(StringInfo to, const char *key, const dana_texts *texts);
