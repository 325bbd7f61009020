/*
 * The socket to the worker, and the messages on it.
 */
#pragma once

#include "port.h"
#include "wire.h"

extern pgsocket dana_channel;	  /* PGINVALID_SOCKET: not connected */
extern bool		dana_channel_busy; /* the worker owes an answer, or pages flow */
extern void		dana_channel_close(void);

/* Sleeps until the socket is ready, the latch is set or the time is over; handles interrupts */
extern void dana_channel_wait(int socket_events, long timeout_ms, dana_wait_reason why);

/* False, with errno set, if the worker is gone */
extern bool dana_channel_send(const char *data, size_t length);

/* Answers the worker with bytes; raises the error if it is gone */
extern void dana_channel_answer(char type, const char *data, uint32 length);

/* Raises the error; errno 0: the worker closed the socket */
extern _Noreturn void dana_worker_gone(const char *what);

/* A message from the worker; the payload is in the current memory context and ends with a NUL */
typedef struct dana_reply
{
	char   type; /* enum dana_message */
	uint32 length;
	char  *payload;
} dana_reply;

/*
 * Waits for the next message. Bells and notices are handled, and the worker's error is raised; dana_receive() accepts
 * only the given type.
 */
extern dana_reply dana_receive(char type);
extern dana_reply dana_receive_any(void);

/*
 * Takes DANA_MSG_EXCHANGE to the other parts of a training, and returns what they say; NULL: no training has parts. Its
 * memory is the caller's. Without a message it shows them now and then that this part is alive, and returns NULL.
 */
extern StringInfo (*dana_exchange)(const dana_reply *reply);

/* Whether the worker has said anything, which it does while it waits for an answer only to fail */
extern bool dana_channel_speaks(void);

/* One message; false if it was a bell or a notice */
extern bool dana_receive_one(dana_reply *reply, dana_wait_reason why);

/* Raises an error about an unexpected message */
extern _Noreturn void dana_unexpected(const dana_reply *reply);

/*
 * Reads, once a second while pages are sent, the worker's messages: an error, or end of file. Called between rows: a
 * query or a filter may take hours to produce as many as fill the ring.
 */
extern void dana_channel_poll(void);

extern void dana_send_bell(void); /* asks the worker to look at the ring */
