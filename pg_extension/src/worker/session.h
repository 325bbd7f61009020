/*
 * A backend's connection to its worker. One per backend, made when first needed, kept until the backend ends,
 * dropped when a request ends in the middle.
 */
#pragma once

#include "wire.h"

extern void dana_session_define(void); /* its settings */

/*
 * Bracket around a request: connects if necessary. After an error the connection stays only if the worker sent the
 * error.
 */
extern void dana_request(void (*converse)(void *state), void *state);

/* Ends the session in the middle of a request: its answer is no longer wanted */
extern void dana_request_abandon(void);

/* Bytes behind a message's JSON */
typedef struct dana_raw
{
	char *data;
	Size  bytes;
} dana_raw;

/*
 * Sends a request, JSON in the database's encoding; raw bytes if its type has some, else NULL. If the worker has just
 * ended an idle session, connects again and sends it there.
 */
extern void dana_send(char type, StringInfo request, const dana_raw *raw);

/* A whole request with one answer, JSON of this type */
extern Jsonb *dana_ask(char type, StringInfo request, char answer);

