/*
 * A backend's connection to its worker. One per backend, made when first needed, kept until the backend ends, dropped
 * when a request ends in the middle.
 */
#ifndef DANA_SESSION_H
#define DANA_SESSION_H

#include "postgres.h"

#include "lib/stringinfo.h"

#include "compat.h"
#include "wire.h"

extern char *dana_socket_path;
extern int	 dana_ring_pages;

/* A message from the worker; the payload lives in the current memory context and ends with a NUL */
typedef struct dana_reply
{
	char   type; /* enum dana_message */
	uint32 length;
	char  *payload;
} dana_reply;

/* Starts a request: connects where there is no connection */
extern void dana_request_begin(void);

/* Ends a request: the connection stays for the next one */
extern void dana_request_end(void);

/* Ends a request that failed, from PG_CATCH: the connection stays only if the worker itself answered with an error */
extern void dana_request_abort(void);

/*
 * Sends a request; `payload` must be UTF-8. Where the worker's session has just ended because it idled, connects anew and
 * sends it there.
 */
extern void dana_send(char type, const char *payload, uint32 length);

/*
 * Wait for the next message. Bells and notices are handled, and the worker's error is raised; dana_receive() takes only
 * the type that it is given.
 */
extern dana_reply dana_receive(char type);
extern dana_reply dana_receive_any(void);

/* One message; false where it was a bell or a notice */
extern bool dana_receive_one(dana_reply *reply, dana_wait why);

/* Raises an error about a message that has no place here */
extern _Noreturn void dana_unexpected(const dana_reply *reply);

/* Asks the worker to look at the ring */
extern void dana_send_bell(void);

#endif /* DANA_SESSION_H */
