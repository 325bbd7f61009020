/*
 * The session with the worker: connecting, greeting, one request after another, and its end.
 */
#include "postgres.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "mb/pg_wchar.h"
#include "storage/fd.h"

#include "base/dana.h"
#include "base/json.h"
#include "limits/bounds.h"
#include "limits/turns.h"
#include "worker/channel.h"
#include "worker/ring.h"
#include "worker/session.h"

/* How long to wait for a worker that ended: its service manager restarts it, and it loads for a second */
#define RETURN_TENTHS 100

static int	 ring_pages;

static struct
{
	char *path;		  /* dana.socket_path when it was made */
	int	  ring_pages; /* dana.ring_pages when it was made */
} session;

void
dana_session_define(void)
{
	/* not for users to set: the socket decides which process reads the pages */
	DefineCustomStringVariable("dana.socket_path",
							   "Unix socket of the worker; a path without a leading slash is taken from the data directory.",
							   NULL, &dana_socket_path, "dana/worker.sock", PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("dana.ring_pages", "Pages of shared memory between a session and its worker.",
							"Made when a session first trains, and kept.", &ring_pages, 1024, 16, 8192, PGC_SUSET, 0, NULL,
							NULL, NULL);
}

static void
session_close(void)
{
	dana_channel_close();
	dana_ring_destroy();
	if (session.path != NULL)
	{
		pfree(session.path);
		session.path = NULL;
	}
}

static void
session_check_peer(void)
{
	struct ucred peer;
	socklen_t	 length = sizeof peer;

	if (getsockopt(dana_channel, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		dana_worker_gone("identifying it");
	if (peer.uid != geteuid())
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("the process at dana.socket_path runs as user %u, not as the server's user %u",
							   (unsigned)peer.uid, (unsigned)geteuid()),
						errhint("Run the worker under the operating-system account of the PostgreSQL server.")));
}

/* Whether a worker listened at the path and was killed: a worker that exits normally removes its socket */
static bool
session_left_behind(void)
{
	struct stat found;

	return errno == ECONNREFUSED && stat(dana_socket_path, &found) == 0 && S_ISSOCK(found.st_mode);
}

static void
session_connect(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int				   waited = 0;

	if (dana_socket_path[0] == '\0')
		ereport(ERROR, (errcode(ERRCODE_CONFIG_FILE_ERROR), errmsg("dana.socket_path is not set"),
						errhint("Set it to the socket given to \"dana worker --socket\".")));
	if (strlen(dana_socket_path) >= sizeof address.sun_path)
		ereport(ERROR, (errcode(ERRCODE_CONFIG_FILE_ERROR),
						errmsg("dana.socket_path is longer than %d bytes", (int)sizeof address.sun_path - 1),
						errhint("A path that does not begin with a slash is taken from the data directory.")));
	strlcpy(address.sun_path, dana_socket_path, sizeof address.sun_path);

	if (!AcquireExternalFD())
		dana_error(INSUFFICIENT_RESOURCES, "no file descriptor is left for the connection to the dana worker");
	dana_channel = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (dana_channel == PGINVALID_SOCKET)
	{
		ReleaseExternalFD();
		ereport(ERROR, (errcode_for_socket_access(), errmsg("could not create a socket: %m")));
	}
	/* never blocks: if the worker's queue is full it returns EAGAIN, and a blocking connect would ignore a cancel */
	while (connect(dana_channel, (struct sockaddr *)&address, sizeof address) < 0)
	{
		if (errno == EAGAIN)
			dana_channel_wait(0, 10, DANA_WAIT_CONNECT);
		else if (errno == EINTR)
			CHECK_FOR_INTERRUPTS();
		/* the next worker removes the socket of a killed one before it creates its own */
		else if (waited < RETURN_TENTHS && (session_left_behind() || (waited > 0 && errno == ENOENT)))
		{
			dana_channel_wait(0, 100, DANA_WAIT_CONNECT);
			waited++;
		}
		else
			ereport(ERROR, (errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
							errmsg("could not reach the dana worker at \"%s\": %m", dana_socket_path),
							waited > 0 ? errdetail("It ended without being asked to, and did not come back within %d seconds.",
												   RETURN_TENTHS / 10) : 0,
							waited > 0 ? errhint("Its log, or that of what starts it, may say why; start it with \"dana "
												 "worker --socket PATH\".")
									   : errhint("Start it with \"dana worker --socket PATH\" and let dana.socket_path "
												 "name the same path.")));
	}
	session_check_peer();
}

static void
session_make_header(char *header, char type, uint32 length)
{
	memcpy(header, &length, sizeof length);
	header[4] = type;
}

/* Sends the first message together with the ring's descriptor */
static void
session_send_hello(int memfd)
{
	StringInfoData text;
	char		   header[DANA_FRAME_HEADER];
	union
	{
		struct cmsghdr align;
		char		   data[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = {.iov_base = header, .iov_len = sizeof header};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.data, .msg_controllen = sizeof control.data};
	struct cmsghdr *rights;

	dana_json_begin(&text);
	dana_json_text(&text, "release", DANA_VERSION);
	dana_json_number(&text, "block_size", BLCKSZ);
	dana_json_number(&text, "server_version", PG_VERSION_NUM);
	dana_json_number(&text, "pid", MyProcPid);
	dana_json_text(&text, "encoding", GetDatabaseEncodingName());
	dana_json_close(&text, '}');
	session_make_header(header, DANA_MSG_HELLO, text.len);
	memset(&control, 0, sizeof control);
	rights = CMSG_FIRSTHDR(&message);
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(rights), &memfd, sizeof(int));
	/* five bytes into an empty socket buffer: all or an error */
	if (sendmsg(dana_channel, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof header ||
		!dana_channel_send(text.data, text.len))
		dana_worker_gone("greeting it");
	pfree(text.data);
}

static void
session_open(void)
{
	volatile int memfd = -1;

	PG_TRY();
	{
		char *release;

		session_connect();
		session.path = MemoryContextStrdup(TopMemoryContext, dana_socket_path);
		session.ring_pages = ring_pages;
		dana_channel_busy = true;
		memfd = dana_ring_create(ring_pages);
		session_send_hello(memfd);
		release = dana_json_string(dana_json_parse(dana_receive(DANA_MSG_WELCOME).payload), "release");
		if (strcmp(release, DANA_VERSION) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("the dana worker is of release \"%s\", and this extension of " DANA_VERSION, release),
					 errhint("Install the extension and the worker from the same release, and restart the worker.")));
		dana_channel_busy = false;
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

	if (strcmp(session.path, dana_socket_path) != 0 || session.ring_pages != ring_pages)
		return true;
	/* late bells may precede the end of file; nothing else arrives between requests */
	while ((n = recv(dana_channel, header, sizeof header, MSG_DONTWAIT)) == sizeof header)
		if (header[4] != DANA_MSG_BELL)
			return true;
	return n >= 0 || (errno != EAGAIN && errno != EINTR);
}

/* Waits for the first message without reading it; returns whether the session had ended before the request */
static bool
session_ended_idle(void)
{
	char header[DANA_FRAME_HEADER];

	for (;;)
	{
		ssize_t n = recv(dana_channel, header, sizeof header, MSG_PEEK | MSG_DONTWAIT);

		if (n == sizeof header)
			return header[4] == DANA_MSG_BYE;
		if (n >= 0 || (errno != EAGAIN && errno != EINTR))
			return false; /* the connection is gone, which reading the answer reports */
		dana_channel_wait(WL_SOCKET_READABLE, -1, DANA_WAIT_ANSWER);
	}
}

/* A JSON request; `raw`: bytes behind it, or NULL */
static bool
session_send_request(char type, const char *json, uint32 length, const dana_raw *raw)
{
	static const char zeros[3] = {0};
	const uint32	  filling = -length % 4;
	char			  header[DANA_FRAME_HEADER];
	int				  saved;
	bool			  sent;

	if (raw == NULL)
	{
		session_make_header(header, type, length);
		sent = dana_channel_send(header, sizeof header) && dana_channel_send(json, length);
	}
	else
	{
		session_make_header(header, type, sizeof length + length + filling + raw->bytes);
		sent = dana_channel_send(header, sizeof header) && dana_channel_send((char *)&length, sizeof length) &&
			dana_channel_send(json, length) && dana_channel_send(zeros, filling) &&
			dana_channel_send(raw->data, raw->bytes);
	}
	if (sent)
		return !session_ended_idle();
	saved = errno;
	if (session_ended_idle())
		return false;
	errno = saved;
	dana_worker_gone("sending a request");
}

void
dana_send(char type, StringInfo request, const dana_raw *raw)
{
	char  *payload = pg_server_to_any(request->data, request->len, PG_UTF8); /* as JSON is */
	size_t length = payload == request->data ? request->len : strlen(payload);

	if (length > DANA_MAX_REQUEST)
		dana_error(PROGRAM_LIMIT_EXCEEDED, "the request has %zu bytes, more than the %u that a worker accepts", length,
				   DANA_MAX_REQUEST);
	if (raw != NULL && raw->bytes > DANA_MAX_MESSAGE - DANA_MAX_REQUEST)
		dana_error(PROGRAM_LIMIT_EXCEEDED, "a training can start from a model of at most %u values, not %zu",
				   (DANA_MAX_MESSAGE - DANA_MAX_REQUEST) / (unsigned)sizeof(float4), raw->bytes / sizeof(float4));
	/* a new session is not idle */
	if (session_send_request(type, payload, length, raw))
		return;
	session_close();
	session_open();
	dana_channel_busy = true;
	(void)session_send_request(type, payload, length, raw);
}

static void
session_check_free(void)
{
	if (dana_channel_busy)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot ask the dana worker while this session waits for its answer"),
				 errdetail("The call comes from the query or the filter that rows for the worker are read with, or a "
						   "function in them."),
				 errhint("Call one after the other.")));
}

void
dana_request(void (*converse)(void *state), void *state)
{
	session_check_free();
	if (dana_channel == PGINVALID_SOCKET || session_stale())
	{
		session_close();
		session_open();
	}
	dana_channel_busy = true;
	PG_TRY();
	{
		converse(state);
	}
	PG_CATCH();
	{
		if (dana_channel_busy || dana_channel == PGINVALID_SOCKET)
			session_close();
		PG_RE_THROW();
	}
	PG_END_TRY();
	dana_channel_busy = false;
}

void
dana_request_abandon(void)
{
	session_close();
}

typedef struct question
{
	char	   type;
	StringInfo request;
	char	   answer;
	Jsonb	  *answered;
} question;

static void
session_ask(void *state)
{
	question *asked = state;

	dana_send(asked->type, asked->request, NULL);
	asked->answered = dana_json_parse(dana_receive(asked->answer).payload);
}

Jsonb *
dana_ask(char type, StringInfo request, char answer)
{
	question asked = {type, request, answer, NULL};

	session_check_free();
	dana_bounds_enter(NULL);
	dana_request(session_ask, &asked);
	dana_turn_end();
	return asked.answered;
}
