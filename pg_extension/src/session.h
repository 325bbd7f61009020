/*
 * A backend's connection to its worker. One per backend, made when first needed, kept until the backend ends, dropped
 * when a request ends in the middle.
 */
#pragma once

#include "lib/stringinfo.h"
#include "utils/jsonb.h"

#include "channel.h"

/* Its settings */
extern void dana_session_define(void);

/* Starts a request: connects where there is no connection */
extern void dana_request_begin(void);

/* Ends a request: the connection stays for the next one */
extern void dana_request_end(void);

/* Ends a request that failed, from PG_CATCH: the connection stays only if the worker itself answered with an error */
extern void dana_request_abort(void);

/*
 * Sends a request, JSON in the database's encoding. Where the worker's session has just ended because it idled, connects
 * anew and sends it there.
 */
extern void dana_send(char type, StringInfo request);

/* The whole of a request that has one answer, JSON of this type */
extern Jsonb *dana_ask(char type, StringInfo request, char answer);
