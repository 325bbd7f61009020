/*
 * Connection to the worker: connect, hello, messages, waiting.
 *
 * Every wait is on the latch as well as on the socket, so that cancel, statement_timeout, terminate and the
 * postmaster's death end it at once. No buffer is pinned or locked during a wait.
 */
#include "session.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "compat.h"
#include "json.h"
#include "ring.h"

char *dana_socket_path = NULL;
int	  dana_ring_pages = 64;

static struct
{
	pgsocket socket;	 /* PGINVALID_SOCKET: not connected */
	char	*path;		 /* dana.socket_path when it was made */
	int		 ring_pages; /* dana.ring_pages when it was made */
	bool	 busy;		 /* the worker owes an answer, or pages flow */
} session = {.socket = PGINVALID_SOCKET};

static void
session_close(void)
{
	if (session.socket != PGINVALID_SOCKET)
	{
		closesocket(session.socket);
		session.socket = PGINVALID_SOCKET;
		ReleaseExternalFD();
	}
	dana_ring_destroy();
	if (session.path != NULL)
	{
		pfree(session.path);
		session.path = NULL;
	}
	session.busy = false;
}

static void
worker_gone(const char *what)
{
	int saved = errno;

	session_close();
	errno = saved;
	if (saved != 0)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("lost the dana worker while %s: %m", what),
				 errhint("The worker's log may say why. The next call connects anew.")));
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("the dana worker closed the connection while %s", what),
			 errhint("The worker's log may say why. The next call connects anew.")));
}

/* Sleeps until the socket is ready, the latch is set or the time is over; handles interrupts */
static void
wait_for(int socket_events, long timeout_ms, dana_wait why)
{
	int events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | socket_events;
	int happened;

	if (timeout_ms >= 0)
		events |= WL_TIMEOUT;
	happened = WaitLatchOrSocket(MyLatch, events, session.socket, timeout_ms, dana_wait_event(why));
	if (happened & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* False, with errno set, where the worker is gone */
static bool
send_all(const char *data, size_t length)
{
	while (length > 0)
	{
		ssize_t n = send(session.socket, data, length, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n >= 0)
		{
			data += n;
			length -= n;
		}
		else if (errno == EAGAIN || errno == EWOULDBLOCK)
			wait_for(WL_SOCKET_WRITEABLE, -1, DANA_WAIT_ANSWER);
		else if (errno != EINTR)
			return false;
	}
	return true;
}

static void
receive_all(char *data, size_t length, dana_wait why)
{
	while (length > 0)
	{
		ssize_t n = recv(session.socket, data, length, MSG_DONTWAIT);

		if (n > 0)
		{
			data += n;
			length -= n;
		}
		else if (n == 0)
		{
			errno = 0;
			worker_gone("waiting for its answer");
		}
		else if (errno == EAGAIN || errno == EWOULDBLOCK)
			wait_for(WL_SOCKET_READABLE, -1, why);
		else if (errno != EINTR)
			worker_gone("waiting for its answer");
	}
}

/* Shows a notice of the worker at its level */
static void
show_notice(Jsonb *notice)
{
	char *level = dana_json_string(notice, "level");
	char *hint = dana_json_string(notice, "hint");
	int	  elevel = NOTICE;

	if (strcmp(level, "debug") == 0)
		elevel = DEBUG1;
	else if (strcmp(level, "info") == 0)
		elevel = INFO;
	else if (strcmp(level, "warning") == 0)
		elevel = WARNING;
	ereport(elevel,
			(errmsg("%s", dana_json_string(notice, "message")),
			 *hint != '\0' ? errhint("%s", hint) : 0));
}

/* Raises the error that the worker answered with; the connection is fit for the next request */
static void
raise_error(Jsonb *error)
{
	char *sqlstate = dana_json_string(error, "sqlstate");
	char *message = dana_json_string(error, "message");
	char *detail = dana_json_string(error, "detail");
	char *hint = dana_json_string(error, "hint");
	int	  code = ERRCODE_INTERNAL_ERROR;

	if (strlen(sqlstate) == 5 && strspn(sqlstate, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5)
		code = MAKE_SQLSTATE(sqlstate[0], sqlstate[1], sqlstate[2], sqlstate[3], sqlstate[4]);
	session.busy = false;
	ereport(ERROR,
			(errcode(code),
			 errmsg("%s", message),
			 *detail != '\0' ? errdetail("%s", detail) : 0,
			 *hint != '\0' ? errhint("%s", hint) : 0));
}

/* Reads one message and handles those that may come at any time; false when it was one of them */
bool
dana_receive_one(dana_reply *reply, dana_wait why)
{
	char   header[DANA_FRAME_HEADER];
	uint32 length;

	receive_all(header, sizeof header, why);
	memcpy(&length, header, sizeof length);
	if (length > DANA_MAX_REPLY)
	{
		session_close();
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("the dana worker announced a message of %u bytes, more than the %u allowed", length, DANA_MAX_REPLY)));
	}
	reply->type = header[4];
	reply->length = length;
	reply->payload = palloc((Size)length + 1);
	receive_all(reply->payload, length, why);
	reply->payload[length] = '\0';
	switch (reply->type)
	{
		case DANA_MSG_BELL:
			pfree(reply->payload);
			return false;
		case DANA_MSG_NOTICE:
			show_notice(dana_json_parse(reply->payload));
			return false;
		case DANA_MSG_ERROR:
			raise_error(dana_json_parse(reply->payload));
			return false;
		default:
			return true;
	}
}

/* A full socket buffer holds bells enough; a broken one shows when we wait. */
void
dana_send_bell(void)
{
	static const char bell[DANA_FRAME_HEADER] = {0, 0, 0, 0, DANA_MSG_BELL};

	(void)!send(session.socket, bell, sizeof bell, MSG_NOSIGNAL | MSG_DONTWAIT);
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
	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("the dana worker sent an unexpected message of type %d", reply->type),
			 errhint("Install the extension and the worker from the same release, and restart the worker.")));
}

/* Connecting */

static void
check_peer(void)
{
	struct ucred peer;
	socklen_t	 length = sizeof peer;

	if (getsockopt(session.socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		worker_gone("asking who it is");
	if (peer.uid != geteuid())
	{
		session_close();
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("the process at dana.socket_path runs as user %u, not as the server's user %u",
						(unsigned)peer.uid, (unsigned)geteuid()),
				 errhint("Run the worker under the operating-system account of the PostgreSQL server.")));
	}
}

static void
connect_socket(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (dana_socket_path == NULL || dana_socket_path[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("dana.socket_path is not set"),
				 errhint("Set it to the socket given to \"dana worker --socket\".")));
	if (strlen(dana_socket_path) >= sizeof address.sun_path)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("dana.socket_path is longer than %d bytes", (int)sizeof address.sun_path - 1),
				 errhint("A path that does not begin with a slash is taken from the data directory.")));
	strlcpy(address.sun_path, dana_socket_path, sizeof address.sun_path);

	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("no file descriptor is left for the connection to the dana worker")));
	session.socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (session.socket == PGINVALID_SOCKET)
	{
		ReleaseExternalFD();
		ereport(ERROR, (errcode_for_socket_access(), errmsg("could not create a socket: %m")));
	}
	/* never blocks: with the worker's queue full it says EAGAIN, and a blocking connect would ignore a cancel */
	while (connect(session.socket, (struct sockaddr *)&address, sizeof address) < 0)
	{
		if (errno == EAGAIN)
			wait_for(0, 10, DANA_WAIT_CONNECT);
		else if (errno == EINTR)
			CHECK_FOR_INTERRUPTS();
		else
		{
			int saved = errno;

			session_close();
			errno = saved;
			ereport(ERROR,
					(errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
					 errmsg("could not reach the dana worker at \"%s\": %m", dana_socket_path),
					 errhint("Start it with \"dana worker --socket PATH\" and let dana.socket_path name the same path.")));
		}
	}
	check_peer();
}

/* Sends the first message together with the ring's descriptor */
static void
send_hello(int memfd)
{
	StringInfoData text;
	char		   header[DANA_FRAME_HEADER];
	uint32		   length;
	union
	{
		struct cmsghdr align;
		char		   data[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = {.iov_base = header, .iov_len = sizeof header};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.data, .msg_controllen = sizeof control.data};
	struct cmsghdr *rights;

	initStringInfo(&text);
	appendStringInfo(&text,
					 "{\"protocol\":%d,\"block_size\":%d,\"server_version\":%d,\"pid\":%d,\"encoding\":\"%s\"}",
					 DANA_PROTOCOL_VERSION, BLCKSZ, PG_VERSION_NUM, MyProcPid, GetDatabaseEncodingName());
	length = text.len;
	memcpy(header, &length, sizeof length);
	header[4] = DANA_MSG_HELLO;
	memset(&control, 0, sizeof control);
	rights = CMSG_FIRSTHDR(&message);
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(rights), &memfd, sizeof(int));
	/* five bytes into an empty socket buffer: all or an error */
	if (sendmsg(session.socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof header)
		worker_gone("greeting it");
	if (!send_all(text.data, text.len))
		worker_gone("greeting it");
	pfree(text.data);
}

static void
session_open(void)
{
	volatile int memfd = -1;

	PG_TRY();
	{
		dana_reply reply;
		Jsonb	  *welcome;

		connect_socket();
		session.path = MemoryContextStrdup(TopMemoryContext, dana_socket_path);
		session.ring_pages = dana_ring_pages;
		session.busy = true;
		memfd = dana_ring_create(dana_ring_pages);
		send_hello(memfd);
		reply = dana_receive_any();
		welcome = reply.type == DANA_MSG_WELCOME ? dana_json_parse(reply.payload) : NULL;
		if (welcome == NULL || dana_json_integer(welcome, "protocol") != DANA_PROTOCOL_VERSION)
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("the process at dana.socket_path does not speak protocol %d of the dana worker", DANA_PROTOCOL_VERSION),
					 errhint("Install the extension and the worker from the same release, and restart the worker.")));
		session.busy = false;
	}
	PG_CATCH();
	{
		if (memfd >= 0)
			close(memfd);
		session_close();
		PG_RE_THROW();
	}
	PG_END_TRY();
	close(memfd); /* the mapping stays */
}

/* Whether the worker ended this session while it was idle, or settings changed since it was made */
static bool
session_stale(void)
{
	char	header[DANA_FRAME_HEADER];
	ssize_t n;

	if (strcmp(session.path, dana_socket_path) != 0 || session.ring_pages != dana_ring_pages)
		return true;
	/* bells that came too late may lie before the end of file; nothing else does between requests */
	while ((n = recv(session.socket, header, sizeof header, MSG_DONTWAIT)) == sizeof header)
		if (header[4] != DANA_MSG_BELL)
			return true;
	return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* Waits for the first message and leaves it there; whether it says that the session had ended before our request */
static bool
ended_idle(void)
{
	char header[DANA_FRAME_HEADER];

	for (;;)
	{
		ssize_t n = recv(session.socket, header, sizeof header, MSG_PEEK | MSG_DONTWAIT);

		if (n == sizeof header)
			return header[4] == DANA_MSG_BYE;
		if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
			return false; /* gone without a word, which is found out where the answer is read */
		wait_for(WL_SOCKET_READABLE, -1, DANA_WAIT_ANSWER);
	}
}

static bool
send_request(char type, const char *payload, uint32 length)
{
	char header[DANA_FRAME_HEADER];
	int	 saved;

	memcpy(header, &length, sizeof length);
	header[4] = type;
	if (send_all(header, sizeof header) && send_all(payload, length))
		return !ended_idle();
	saved = errno;
	if (ended_idle())
		return false;
	errno = saved;
	worker_gone("sending a request");
	return false; /* not reached */
}

void
dana_send(char type, const char *payload, uint32 length)
{
	if (length > DANA_MAX_REQUEST)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the request has %u bytes, more than the %u that a worker accepts", length, DANA_MAX_REQUEST)));
	/* a session that was just made does not idle */
	if (send_request(type, payload, length))
		return;
	session_close();
	session_open();
	session.busy = true;
	(void)send_request(type, payload, length);
}

void
dana_request_begin(void)
{
	if (session.busy)
		elog(ERROR, "this session is in the middle of another request to the dana worker");
	if (session.socket != PGINVALID_SOCKET && session_stale())
		session_close();
	if (session.socket == PGINVALID_SOCKET)
		session_open();
	session.busy = true;
}

void
dana_request_end(void)
{
	session.busy = false;
}

void
dana_request_abort(void)
{
	if (session.busy)
		session_close();
}
