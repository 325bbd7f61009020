/*
 * The socket to the worker: bytes, waiting, messages.
 *
 * Every wait is on the latch as well as on the socket, so that cancel, statement_timeout, terminate and the
 * postmaster's death end it immediately. No buffer is pinned or locked during a wait. After an error session.c, which
 * made the socket, closes it.
 */
#include "postgres.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "storage/fd.h"
#include "storage/pmsignal.h"
#include "utils/wait_event.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/json.h"
#include "base/notices.h"
#include "worker/channel.h"

pgsocket dana_channel = PGINVALID_SOCKET;
bool	 dana_channel_busy = false;
StringInfo (*dana_exchange)(const dana_reply *reply) = NULL;

void
dana_channel_close(void)
{
	if (dana_channel != PGINVALID_SOCKET)
	{
		closesocket(dana_channel);
		dana_channel = PGINVALID_SOCKET;
		ReleaseExternalFD();
	}
	dana_channel_busy = false;
}

void
dana_worker_gone(const char *what)
{
	const bool closed = errno == 0;

	ereport(ERROR, (errcode(ERRCODE_CONNECTION_FAILURE),
					closed ? errmsg("the dana worker closed the connection while %s", what)
						   : errmsg("lost the dana worker while %s: %m", what),
					errhint("The worker's log may say why. The next call connects anew.")));
}

/* How long a wait of a part of a training is before interrupts are looked for again, if no signal ends it */
#define LOOK_MS 100

/* The same for a part of a training, which waits in each round: a latch costs five more calls of the system */
static void
wait_in_round(int socket_events, long timeout_ms, dana_wait_reason why)
{
	struct pollfd ready = {.fd = dana_channel, .events = (socket_events & WL_SOCKET_WRITEABLE) != 0 ? POLLOUT : POLLIN};

	(void)dana_exchange(NULL);
	CHECK_FOR_INTERRUPTS();
	if (!PostmasterIsAlive())
		ereport(FATAL, (errcode(ERRCODE_ADMIN_SHUTDOWN), errmsg("the server ended")));
	pgstat_report_wait_start(dana_wait_event(why));
	(void)poll(&ready, 1, timeout_ms < 0 ? LOOK_MS : Min(timeout_ms, LOOK_MS));
	pgstat_report_wait_end();
	CHECK_FOR_INTERRUPTS();
}

void
dana_channel_wait(int socket_events, long timeout_ms, dana_wait_reason why)
{
	int events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | socket_events;
	int happened;

	if (dana_exchange != NULL && socket_events != 0)
	{
		wait_in_round(socket_events, timeout_ms, why);
		return;
	}
	if (timeout_ms >= 0)
		events |= WL_TIMEOUT;
	happened = WaitLatchOrSocket(MyLatch, events, dana_channel, timeout_ms, dana_wait_event(why));
	if (happened & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

bool
dana_channel_send(const char *data, size_t length)
{
	while (length > 0)
	{
		ssize_t n = send(dana_channel, data, length, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n >= 0)
		{
			data += n;
			length -= n;
		}
		else if (errno == EAGAIN)
			dana_channel_wait(WL_SOCKET_WRITEABLE, -1, DANA_WAIT_ANSWER);
		else if (errno != EINTR)
			return false;
	}
	return true;
}

static void
channel_receive_all(char *data, size_t length, dana_wait_reason why)
{
	while (length > 0)
	{
		ssize_t n = recv(dana_channel, data, length, MSG_DONTWAIT);

		if (n > 0)
		{
			data += n;
			length -= n;
		}
		else if (n < 0 && errno == EAGAIN)
			dana_channel_wait(WL_SOCKET_READABLE, -1, why);
		else if (n == 0 || errno != EINTR)
		{
			errno = n == 0 ? 0 : errno;
			dana_worker_gone("waiting for its answer");
		}
	}
}

/* Maximum number of bytes of a worker's message: it may quote an argument */
#define MAX_MESSAGE 2000

/* Reports a notice of the worker at its level, or raises the error that it answered with */
static void
channel_report(Jsonb *report, bool is_error)
{
	char *level = dana_json_string(report, "level");
	char *sqlstate = dana_json_string(report, "sqlstate");
	char *detail = dana_json_string(report, "detail");
	char *hint = dana_json_string(report, "hint");
	int	  code = ERRCODE_PROTOCOL_VIOLATION;
	int	  elevel = NOTICE;

	if (strlen(sqlstate) == 5 && strspn(sqlstate, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5)
		code = MAKE_SQLSTATE(sqlstate[0], sqlstate[1], sqlstate[2], sqlstate[3], sqlstate[4]);
	if (is_error)
		dana_channel_busy = false; /* the connection is fit for the next request */
	else if (strcmp(level, "debug") == 0)
		elevel = DEBUG1;
	else if (strcmp(level, "info") == 0)
		elevel = INFO;
	else if (strcmp(level, "warning") == 0)
		elevel = WARNING;
	if (!is_error)
		return dana_notice(elevel, *hint != '\0' ? hint : NULL, "%s", dana_json_string(report, "message"));
	ereport(ERROR, (errcode(code), errmsg("%s", dana_cut(dana_json_string(report, "message"), MAX_MESSAGE)),
					 *detail != '\0' ? errdetail("%s", detail) : 0, *hint != '\0' ? errhint("%s", hint) : 0));
}

bool
dana_channel_speaks(void)
{
	char header[DANA_FRAME_HEADER];

	while (recv(dana_channel, header, sizeof header, MSG_PEEK | MSG_DONTWAIT) == sizeof header)
	{
		if (header[4] != DANA_MSG_BELL)
			return true;
		(void)recv(dana_channel, header, sizeof header, MSG_DONTWAIT);
	}
	return errno != EAGAIN && errno != EINTR;
}

void
dana_channel_answer(char type, const char *data, uint32 length)
{
	char		 first[8192]; /* a small message is one write, which wakes the worker once */
	const uint32 taken = Min(length, sizeof first - DANA_FRAME_HEADER);

	memcpy(first, &length, sizeof length);
	first[4] = type;
	memcpy(first + DANA_FRAME_HEADER, data, taken);
	if (!dana_channel_send(first, DANA_FRAME_HEADER + taken) || !dana_channel_send(data + taken, length - taken))
		dana_worker_gone("answering it");
}

/* Answers the worker with what the other parts say */
static void
channel_exchange(const dana_reply *reply)
{
	StringInfo answer;

	if (dana_exchange == NULL)
		dana_unexpected(reply);
	answer = dana_exchange(reply);
	if (answer == NULL) /* it reports an error instead, which is read next */
		return;
	dana_channel_answer(DANA_MSG_EXCHANGE, answer->data, answer->len);
	pfree(answer->data);
	pfree(answer);
}

bool
dana_receive_one(dana_reply *reply, dana_wait_reason why)
{
	char   header[DANA_FRAME_HEADER];
	uint32 length;

	channel_receive_all(header, sizeof header, why);
	memcpy(&length, header, sizeof length);
	if (length > DANA_MAX_MESSAGE)
		dana_protocol_error("announced a message of %u bytes, more than the %u allowed", length, DANA_MAX_MESSAGE);
	reply->type = header[4];
	reply->length = length;
	reply->payload = palloc((Size)length + 1);
	channel_receive_all(reply->payload, length, why);
	reply->payload[length] = '\0';
	switch (reply->type)
	{
		case DANA_MSG_BELL:
			pfree(reply->payload);
			return false;
		case DANA_MSG_NOTICE:
		case DANA_MSG_ERROR:
			channel_report(dana_json_parse(reply->payload), reply->type == DANA_MSG_ERROR);
			return false;
		case DANA_MSG_EXCHANGE:
			channel_exchange(reply);
			pfree(reply->payload);
			return false;
		default:
			return true;
	}
}

void
dana_channel_poll(void)
{
	static time_t	looked;
	struct pollfd	ready = {.fd = dana_channel, .events = POLLIN};
	struct timespec now;
	dana_reply		reply;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	if (now.tv_sec == looked)
		return;
	looked = now.tv_sec;
	if (dana_exchange != NULL)
		(void)dana_exchange(NULL);
	if (poll(&ready, 1, 0) > 0 && dana_receive_one(&reply, DANA_WAIT_RING))
		dana_unexpected(&reply);
}

/* a full socket buffer contains a bell already; a broken connection shows when we wait */
void
dana_send_bell(void)
{
	static const char bell[DANA_FRAME_HEADER] = {0, 0, 0, 0, DANA_MSG_BELL};

	(void)!send(dana_channel, bell, sizeof bell, MSG_NOSIGNAL | MSG_DONTWAIT);
}

dana_reply
dana_receive_any(void)
{
	dana_reply reply;

	while (!dana_receive_one(&reply, DANA_WAIT_ANSWER))
		;
	return reply;
}

dana_reply
dana_receive(char type)
{
	dana_reply reply = dana_receive_any();

	if (reply.type != type)
		dana_unexpected(&reply);
	return reply;
}

void
dana_unexpected(const dana_reply *reply)
{
	ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION),
					errmsg("the dana worker sent an unexpected message of type %d", reply->type),
					errhint("Install the extension and the worker from the same release, and restart the worker.")));
}
