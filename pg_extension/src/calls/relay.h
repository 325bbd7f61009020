/*
 * Carries the messages of a training in parts that this session leads, to the servers of its shards and back.
 */
#pragma once

#include "calls/map.h"
#include "values/agreed.h"

/* What a message is that no part of a training sent: a report, for the session that leads */
#define DANA_PART_NOTICE 'N'

typedef struct dana_relay
{
	dana_shard *shards; /* connected */
	int			count;
	/* the statement that trains a shard's part, given what the leader says of the columns */
	char *(*follows)(struct dana_relay *relay, const dana_shard *shard, Jsonb *introduction);
	const void *state; /* of that function */
	/* the relay's own */
	MemoryContext context; /* of a round of messages */
	char		**messages;
	int			 *lengths; /* 0: it has none yet; -1: its part has ended */
	int			 *reports; /* that each has made */
	bool		  begun;
} dana_relay;

/* Runs `lead`, during which what the worker says to the other parts goes to the shards */
extern Datum dana_relay_run(dana_relay *relay, Datum (*lead)(void *state), void *state);
