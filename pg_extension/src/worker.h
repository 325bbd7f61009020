/*
 * A backend's connection to its worker. One per backend, made when first needed, kept until the backend ends, dropped
 * when a request ends in the middle.
 */
#pragma once

#include "port.h"
#include "storage/lock.h"

#include "wire.h"

/* session.c */

extern void dana_session_define(void); /* its settings */

/* Bracket around a request: connects where need be. After an error the connection stays only if the worker sent it. */
extern void dana_request(void (*converse)(void *state), void *state);

/* Ends the session in the middle of a request, of which the answer is not wanted any more */
extern void dana_request_abandon(void);

/* Bytes behind a message's JSON */
typedef struct dana_raw
{
	char *data;
	Size  bytes;
} dana_raw;

/*
 * Sends a request, JSON in the database's encoding; raw bytes where its type has some, else NULL. Where the worker's
 * session has just ended because it idled, connects anew and sends it there.
 */
extern void dana_send(char type, StringInfo request, const dana_raw *raw);

/* The whole of a request that has one answer, JSON of this type */
extern Jsonb *dana_ask(char type, StringInfo request, char answer);

/* turns.c: places of requests */

extern const char *dana_socket_path(void);

/* Our locks that are no catalog's: 0 is the registration of jobs */
extern LOCKTAG dana_lock(uint32 number);

/* Takes a place, if one is free for this session; false: it has to wait */
extern bool dana_turn_take(bool trains, int max_runs);
extern void dana_turn_wait(bool trains, int max_runs, double predicted);
extern void dana_turn_end(void);

/* channel.c: the socket, and the messages on it */

extern pgsocket dana_channel;	  /* PGINVALID_SOCKET: not connected */
extern bool		dana_channel_busy; /* the worker owes an answer, or pages flow: an error now parts the two sides */
extern void		dana_channel_close(void);

/* Sleeps until the socket is ready, the latch is set or the time is over; handles interrupts */
extern void dana_channel_wait(int socket_events, long timeout_ms, dana_wait_reason why);

/* False, with errno set, where the worker is gone */
extern bool dana_channel_send(const char *data, size_t length);

/* Raises the error; errno 0: the worker closed the socket */
extern _Noreturn void dana_worker_gone(const char *what);

/* A message from the worker; the payload lives in the current memory context and ends with a NUL */
typedef struct dana_reply
{
	char   type; /* enum dana_message */
	uint32 length;
	char  *payload;
} dana_reply;

/*
 * Wait for the next message. Bells and notices are handled, and the worker's error is raised; dana_receive() takes only
 * the type that it is given.
 */
extern dana_reply dana_receive(char type);
extern dana_reply dana_receive_any(void);

/* One message; false where it was a bell or a notice */
extern bool dana_receive_one(dana_reply *reply, dana_wait_reason why);

/* Raises an error about a message that has no place here */
extern _Noreturn void dana_unexpected(const dana_reply *reply);

/*
 * Takes, once a second, what the worker said while pages are sent: an error, or that it is gone. To be called between
 * rows: a query or a filter may take hours for as many as fill the ring.
 */
extern void dana_channel_look(void);

extern void dana_send_bell(void); /* asks the worker to look at the ring */

/* ring.c: the producer's side of the ring of pages */

extern int	dana_ring_create(int pages);
extern void dana_ring_destroy(void);

/* A stream of pages of one size: begin once the worker asked for it; reserve, fill, commit each; finish at the end */
extern void	  dana_ring_begin(uint32 page_size);
extern uint8 *dana_ring_reserve(void);
extern void	  dana_ring_fill(uint8 *slot, const void *page, const void *later);
extern void	  dana_ring_commit(void);
extern void	  dana_ring_finish(void);
