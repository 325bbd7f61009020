/*
 * A training in parts that this session leads: it carries what the parts say to each other. dana/cluster/relay.py does
 * the same for a client that leads.
 *
 * It reads no message but for its first byte, the leader's introduction and reports. Merges go to all shards as they
 * came, and are joined there. A wait looks for interrupts, at the worker, and at each shard's last sign of life.
 */
#include "postgres.h"

#if PG_VERSION_NUM >= 170000

#include <poll.h>

#include "mb/pg_wchar.h"
#include "storage/pmsignal.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/json.h"
#include "base/notices.h"
#include "calls/relay.h"
#include "limits/bounds.h"
#include "limits/progress.h"
#include "worker/channel.h"

/* How long a wait is before interrupts are looked for again, and the shard that is waited for is shown */
#define LOOK_MS 100

/* Most reports of a shard, and most bytes of one */
#define MAX_REPORTS 1000
#define MAX_REPORT	16384

static dana_relay *relay;

/* Reports what a shard says about its rows; its server may have made it up, and need not come to an end */
static void
report(int i, const char *text, int length)
{
	const dana_shard *shard = &relay->shards[i];
	Jsonb			 *said;
	const char		 *hint;
	ErrorContextCallback frame = {
		.previous = error_context_stack, .callback = dana_shard_context, .arg = &relay->shards[i]};

	if (length > MAX_REPORT || relay->reports[i]++ == MAX_REPORTS)
		dana_shard_error(ERRCODE_PROTOCOL_VIOLATION, shard, "it reports more than %d times, or more than %d bytes",
						 MAX_REPORTS, MAX_REPORT);
	error_context_stack = &frame;
	said = dana_json_parse(pg_any_to_server(pnstrdup(text, length), length, PG_UTF8));
	error_context_stack = frame.previous;
	hint = dana_json_string(said, "hint");
	dana_notice(dana_json_boolean(said, "warns") ? WARNING : NOTICE, *hint != '\0' ? dana_plain(hint, MAX_REPORT) : NULL,
				"%s: %s", shard->label, dana_plain(dana_json_string(said, "message"), MAX_REPORT));
}

/* Takes a shard's next message, if it has come, and those before it that are for this session alone */
static void
take(int i, TimestampTz *heard)
{
	dana_shard *shard = &relay->shards[i];

	for (;;)
	{
		const int length = relay->lengths[i] = dana_shard_receive(shard, &relay->messages[i]);

		CHECK_FOR_INTERRUPTS(); /* a shard may send such messages without end */
		if (length <= 0)
			return;
		*heard = GetCurrentTimestamp();
		if (relay->messages[i][0] == DANA_PART_NOTICE)
			report(i, relay->messages[i] + 1, length - 1);
		else if (relay->messages[i][0] != DANA_PART_ALIVE)
			return;
	}
}

/* Waits until each part has sent a message, or ended; false: the worker has said something before */
static bool
collect(void)
{
	struct pollfd *ready = palloc(sizeof *ready * (relay->count + 1));
	int			  *waited = palloc(sizeof *waited * relay->count);
	bool		  *speaks = palloc(sizeof *speaks * relay->count);
	TimestampTz	  *heard = palloc(sizeof *heard * relay->count);
	TimestampTz	   now = GetCurrentTimestamp();
	int			   shown = 0;

	for (int i = 0; i < relay->count; i++)
	{
		heard[i] = now;
		/* its socket is known once it was read; then it has answered before, and answers only what it was told since */
		speaks[i] = relay->lengths[i] == 0;
		if (relay->lengths[i] > 0)
			relay->lengths[i] = 0;
	}
	for (;;)
	{
		int missing = 0, found;

		for (int i = 0; i < relay->count; i++)
		{
			const dana_shard *shard = &relay->shards[i];

			if (relay->lengths[i] == 0 && speaks[i])
				take(i, &heard[i]);
			if (relay->lengths[i] != 0)
				continue;
			if (TimestampDifferenceExceeds(heard[i], now, shard->timeout))
				dana_shard_error(ERRCODE_CONNECTION_FAILURE, shard, "no message within %g s", shard->timeout / 1000.0);
			waited[missing] = i;
			ready[missing++] = (struct pollfd){.fd = shard->socket, .events = POLLIN};
		}
		if (missing == 0)
			break;
		ready[missing] = (struct pollfd){.fd = dana_channel, .events = POLLIN};
		found = poll(ready, missing + 1, LOOK_MS);
		if (found == 0 && shown != relay->shards[waited[0]].number)
			dana_progress_set(DANA_PROGRESS_SHARD, shown = relay->shards[waited[0]].number);
		CHECK_FOR_INTERRUPTS();
		dana_bounds_check();
		if (!PostmasterIsAlive())
			ereport(FATAL, (errcode(ERRCODE_ADMIN_SHUTDOWN), errmsg("the server ended")));
		if (ready[missing].revents != 0 && dana_channel_speaks())
			return false;
		now = GetCurrentTimestamp();
		/* libpq may have read more than it was asked for */
		for (int k = 0; k < missing; k++)
			speaks[waited[k]] = found <= 0 || ready[k].revents != 0;
	}
	if (shown != 0)
		dana_progress_set(DANA_PROGRESS_SHARD, 0);
	return true;
}

static void
send_all(const char *message, Size length)
{
	for (int i = 0; i < relay->count; i++)
		dana_shard_send(&relay->shards[i], message, length);
}

/* What a shard's message is; that of one that has ended is an answer */
static int
kind_of(int i)
{
	return relay->lengths[i] < 0 ? DANA_PART_ANSWER : relay->messages[i][0];
}

static int
length_of(int i)
{
	return relay->lengths[i] - 1;
}

/* The first shard with the most frequent value */
static int
usual(int (*of)(int i))
{
	int found = 0, most = 0;

	for (int i = 0; i < relay->count; i++)
	{
		int alike = 0;

		for (int k = 0; k < relay->count; k++)
			alike += of(k) == of(i);
		if (alike > most)
		{
			most = alike;
			found = i;
		}
	}
	return found;
}

/* Raises an error that names a shard with another value than most; `format` takes both values */
static void
require_alike(int (*of)(int i), const char *format)
{
	for (int i = 1; i < relay->count; i++)
	{
		int like;

		if (of(i) == of(0))
			continue;
		like = usual(of);
		for (i = 0; of(i) == of(like);)
			i++;
		dana_shard_error(ERRCODE_PROTOCOL_VIOLATION, &relay->shards[i], format, of(i), relay->shards[like].label, of(like));
	}
}

/* Whether all that was collected are merges, which go to all shards; those that are not must be answers */
static bool
exchange_merges(void)
{
	StringInfoData all;

	require_alike(kind_of, "the parts of the training are out of step: it sent a message '%c', %s '%c'");
	if (kind_of(0) == DANA_PART_ANSWER)
		return false;
	if (kind_of(0) != DANA_PART_MERGES)
		dana_shard_error(ERRCODE_PROTOCOL_VIOLATION, &relay->shards[0],
						 "the parts of the training are out of step: it sent a message '%c'", kind_of(0));
	require_alike(length_of, "its sums have %d bytes, those of %s %d");
	initStringInfo(&all);
	for (int i = 0; i < relay->count; i++)
		appendBinaryStringInfo(&all, relay->messages[i] + 1, length_of(i));
	send_all(all.data, all.len);
	return true;
}

/* Collects the parts' answers, and appends each with its length; false: the worker has said something before */
static bool
append_answers(StringInfo to)
{
	MemoryContext caller = MemoryContextSwitchTo(relay->context);
	bool		  all = true;

	do
		MemoryContextReset(relay->context);
	while ((all = collect()) && exchange_merges());
	MemoryContextSwitchTo(caller);
	for (int i = 0; i < relay->count && all; i++)
	{
		const uint64 length = Max(relay->lengths[i] - 1, 0);

		appendBinaryStringInfo(to, (const char *)&length, sizeof length); /* little-endian, as the worker's processor is */
		if (length > 0)
			appendBinaryStringInfo(to, relay->messages[i] + 1, length);
	}
	return all;
}

/* Begins the parts, once the leader knows the columns; each answers that it is ready */
static void
begin(const char *text)
{
	Jsonb *introduction = dana_json_parse(text);

	for (int i = 0; i < relay->count; i++)
		dana_shard_exchange(&relay->shards[i], relay->follows(relay, &relay->shards[i], introduction));
	relay->begun = true;
}

static StringInfo
exchange(const dana_reply *reply)
{
	StringInfo answer;

	if (reply == NULL)
		return NULL;
	if (reply->length < 1 || reply->payload[0] != (relay->begun ? DANA_PART_COMMAND : DANA_PART_INTRODUCTION))
		dana_unexpected(reply);
	answer = makeStringInfo();
	if (relay->begun)
		send_all(reply->payload + 1, reply->length - 1);
	else
	{
		StringInfoData ready;

		begin(reply->payload + 1);
		initStringInfo(&ready);
		if (!append_answers(&ready))
			return NULL;
		for (int i = 0; i < relay->count; i++)
			if (relay->lengths[i] < 0)
				dana_shard_error(ERRCODE_PROTOCOL_VIOLATION, &relay->shards[i], "its part of the training ended before it began");
		return answer;
	}
	return append_answers(answer) ? answer : NULL;
}

Datum
dana_relay_run(dana_relay *over, Datum (*lead)(void *state), void *state)
{
	volatile Datum result = (Datum)0;

	relay = over;
	relay->context = AllocSetContextCreate(CurrentMemoryContext, "messages of shards", ALLOCSET_DEFAULT_SIZES);
	relay->messages = palloc0(sizeof *relay->messages * relay->count);
	relay->lengths = palloc0(sizeof *relay->lengths * relay->count);
	relay->reports = palloc0(sizeof *relay->reports * relay->count);
	dana_exchange = exchange;
	PG_TRY();
	{
		result = lead(state);
	}
	PG_FINALLY();
	{
		dana_exchange = NULL;
		relay = NULL;
	}
	PG_END_TRY();
	return result;
}

#endif
