/*
 * A part of a training on several servers. The client relays what the parts say to each other, on the connection of this
 * call, by the messages of streaming replication: the extension opens no connection, and needs no port.
 */
#include "postgres.h"

#include <poll.h>

#include "access/parallel.h"

/* headers of these libraries need not be installed, and what is read of a connection is the same without them */
#undef ENABLE_GSS
#undef USE_OPENSSL
#include "libpq/libpq-be.h"
#include "libpq/libpq.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "storage/pmsignal.h"
#include "tcop/tcopprot.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/notices.h"
#include "calls/relay.h"
#include "calls/train.h"
#include "limits/bounds.h"
#include "request/split.h"
#include "rows/rows.h"
#include "worker/channel.h"
#include "worker/ring.h"

/* How long a wait for the client, or the worker's error, is at most before interrupts are looked for again */
#define LOOK_MS 100

/* How often a part that has nothing to say shows that it is alive */
#define ALIVE_MS 1000

/* Waits until the client says something; false: the worker did before */
static bool
wait_for_client(unsigned char *type)
{
	for (;;)
	{
		struct pollfd ready[] = {{.fd = MyProcPort->sock, .events = POLLIN}, {.fd = dana_channel, .events = POLLIN}};
		int			  got;

		CHECK_FOR_INTERRUPTS();
		if (!PostmasterIsAlive())
			ereport(FATAL, (errcode(ERRCODE_ADMIN_SHUTDOWN), errmsg("the server ended")));
		/* it answers what it was just told, so that nothing is there yet; if something is, it waits for LOOK_MS */
		if (poll(ready, lengthof(ready), LOOK_MS) > 0 && ready[1].revents != 0 && dana_channel_speaks())
			return false;
		pq_startmsgread();
		if (ready[0].revents != 0 && !MyProcPort->ssl_in_use)
		{
			/* with the rest of the message, in one read; encrypted, what there is may be no message */
			const int byte = pq_getbyte();

			*type = (unsigned char)byte;
			got = byte == EOF ? EOF : 1;
		}
		else
			got = pq_getbyte_if_available(type);
		if (got > 0)
			return true;
		pq_endmsgread();
		if (got < 0)
			ereport(FATAL, (errcode(ERRCODE_CONNECTION_FAILURE), errmsg("the client of a part of a training left")));
	}
}

/*
 * Shows that it is at work, at most once in ALIVE_MS, while the worker's process runs; libpq would hide an empty message
 * from the relay
 */
static void
say_alive(void)
{
	static TimestampTz said;
	StringInfoData	   message;

	if (!TimestampDifferenceExceeds(said, GetCurrentTimestamp(), ALIVE_MS) || !dana_ring_beats())
		return;
	said = GetCurrentTimestamp();
	pq_beginmessage(&message, 'd');
	pq_sendbyte(&message, DANA_PART_ALIVE);
	pq_endmessage(&message);
	(void)pq_flush_if_writable();
}

static StringInfo
exchange(const dana_reply *reply)
{
	StringInfo	   answer;
	StringInfoData message;
	unsigned char  type;

	if (reply == NULL)
	{
		say_alive();
		return NULL;
	}
	answer = makeStringInfo();
	pq_beginmessage(&message, 'd');
	pq_sendbytes(&message, reply->payload, reply->length);
	pq_endmessage(&message);
	if (pq_flush() != 0 || !wait_for_client(&type))
		return NULL;
	if (pq_getmessage(answer, PQ_LARGE_MESSAGE_LIMIT) != 0)
		ereport(FATAL, (errcode(ERRCODE_CONNECTION_FAILURE), errmsg("the client of a part of a training left")));
	if (type != 'd')
		dana_error(QUERY_CANCELED, "the client ended a training on several servers");
	return answer;
}

/* A report for a server that leads: its libpq would write it into a log */
static void
tell(int level, const char *hint, const char *message)
{
	StringInfoData text, sent;
	char		  *converted;

	dana_json_begin(&text);
	dana_json_truth(&text, "warns", level == WARNING);
	dana_json_text(&text, "message", message);
	dana_json_text(&text, "hint", hint);
	dana_json_close(&text, '}');
	converted = pg_server_to_any(text.data, text.len, PG_UTF8); /* as JSON is */
	pq_beginmessage(&sent, 'd');
	pq_sendbyte(&sent, DANA_PART_NOTICE);
	pq_sendbytes(&sent, converted, strlen(converted));
	pq_endmessage(&sent);
	(void)pq_flush_if_writable();
}

/* Runs a part, and returns the row of the model that the leader stored */
static Datum
run_part(dana_training *training, bool reports)
{
	StringInfoData message;
	volatile Datum row = (Datum)0;

	pq_beginmessage(&message, 'W');
	pq_sendbyte(&message, 1);
	pq_sendint16(&message, 0);
	pq_endmessage(&message);
	(void)pq_flush();
	dana_exchange = exchange;
	if (reports)
		dana_notices_to = tell;
	PG_TRY();
	{
		if (training->leads)
			row = dana_train_and_store(training);
		else
			dana_train_part_of(training);
	}
	PG_FINALLY();
	{
		dana_exchange = NULL;
		dana_notices_to = NULL;
	}
	PG_END_TRY();
	pq_putemptymessage('c');
	return row;
}

/* dana.dana_train_part(rule, source, training, part, text, result) */
DANA_FUNCTION(dana_train_part)
{
	static const char *const ours[] = {"reports", "known"}; /* not for the worker */
	dana_training training;
	TupleDesc	  columns;
	Datum		  value;
	bool		  isnull, reports;

	dana_require_execute(dana_extension_function("dana_train"));
	dana_require_arguments(fcinfo, 4);
	/* a parallel worker has no client of its own, though its output is remote */
	if (MyProcPort == NULL || IsParallelWorker() || whereToSendOutput != DestRemote ||
		get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE)
		dana_error(FEATURE_NOT_SUPPORTED, "dana_train_part() is for the Python client, which relays its messages");
	dana_bounds_require_idle(); /* before the client is to relay messages */
	dana_training_from_call(fcinfo, 2, &training);
	dana_training_reject_sync(&training);
	training.part = PG_GETARG_JSONB_P(3);
	if (!JB_ROOT_IS_OBJECT(training.part))
		dana_reject_argument("part", "be a JSON object");
	reports = dana_json_boolean(training.part, "reports"); /* of its reports, as messages to the server that leads */
	training.known = dana_json_is_null(training.part, "known") ? NULL : dana_json_member(training.part, "known");
	if (training.known != NULL && !JB_ROOT_IS_OBJECT(training.known))
		dana_reject_argument("part", "have an object \"known\"");
	for (int i = 0; i < lengthof(ours); i++)
		training.part = DatumGetJsonbP(
			DirectFunctionCall2(jsonb_delete, JsonbPGetDatum(training.part), CStringGetTextDatum(ours[i])));
	training.leads = dana_json_integer(training.part, "number") == 0;
	if (training.known != NULL && training.leads)
		dana_split_known(&training);
	else if (training.known != NULL && !dana_json_is_null(training.known, "held_out"))
	{
		training.held_out = dana_json_string(training.known, "held_out");
		dana_filter_check(training.held_out);
	}
	training.text = PG_ARGISNULL(4) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(4));
	value = run_part(&training, reports);
	isnull = value == (Datum)0;
	if (!isnull)
		value = DirectFunctionCall1(row_to_json, value);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(columns, &value, &isnull)));
}
