/*
 * Checkpoints: the state of a training on several servers after an epoch, a row of dana.checkpoint for each model. A
 * training that fails leaves nothing of its transaction, so background workers write the row, each in a transaction of
 * its own.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "libpq/pqformat.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "calls/checkpoint.h"
#include "calls/jobs.h"

PGDLLEXPORT void dana_checkpoint_main(Datum handle);

/* What a background worker writes, in shared memory */
typedef struct checkpoint_room
{
	Oid	  owner;
	int32 epoch;
	Size  name; /* bytes of the model's, and of the state behind it */
	Size  size;
	bool  written;
	char  data[FLEXIBLE_ARRAY_MEMBER];
} checkpoint_room;

/* The background worker of the last checkpoint; one at a time */
static struct
{
	BackgroundWorkerHandle *worker; /* NULL: it has ended */
	dsm_segment			   *room;
	bool					reported; /* that one was not written */
} writer;

static void
report(const char *why, const char *hint, int64 epoch)
{
	if (!writer.reported)
		ereport(WARNING, (errmsg("the checkpoint of epoch " INT64_FORMAT " was not written: %s", epoch, why),
						  errhint("%s", hint)));
	writer.reported = true;
}

static void
writer_end(void)
{
	const checkpoint_room *room = dsm_segment_address(writer.room);

	if (!room->written)
		report("an error", "The server's log has it.", room->epoch);
	dsm_detach(writer.room);
	writer.worker = NULL;
}

typedef struct checkpoint_reading
{
	const char *model;
	bytea	   *state; /* or NULL */
} checkpoint_reading;

static void
read_state(void *state)
{
	static dana_statement find =
		DANA_STATEMENT("SELECT state FROM dana.checkpoint WHERE owner = $1 AND model = $2", OIDOID, TEXTOID);
	checkpoint_reading *reading = state;
	dana_identity		before = dana_become_owner();
	Datum				values[] = {ObjectIdGetDatum(before.user), CStringGetTextDatum(reading->model)};

	if (dana_run_on_latest(&find, values) > 0)
		reading->state = DatumGetByteaPCopy(dana_value(0, 1));
	dana_become_caller(before);
}

void
dana_checkpoint_resume(const char *model)
{
	checkpoint_reading reading = {model, NULL};
	LOCKTAG			   tag;

	memset(&writer, 0, sizeof writer); /* that of a training that failed */
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, dana_catalog_table("checkpoint"),
					   hash_bytes_extended((const unsigned char *)model, strlen(model), GetUserId()), 0);
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("another training has the checkpoint of model \"%s\"", model),
						errhint("Wait until it ends, give another model, or train without resume.")));
	dana_peek(read_state, &reading);
	dana_channel_answer(DANA_MSG_RESUME, reading.state == NULL ? NULL : VARDATA(reading.state),
						reading.state == NULL ? 0 : VARSIZE(reading.state) - VARHDRSZ);
	if (reading.state != NULL)
		pfree(reading.state);
}

/* Starts the background worker; false: none is free */
static bool
writer_begin(void)
{
	const Oid		 database = MyDatabaseId;
	BackgroundWorker worker = dana_background_worker("dana_checkpoint_main");
	MemoryContext	 caller = MemoryContextSwitchTo(TopTransactionContext);
	bool			 begun;

	snprintf(worker.bgw_name, BGW_MAXLEN, "dana checkpoint");
	snprintf(worker.bgw_type, BGW_MAXLEN, "dana checkpoint");
	worker.bgw_main_arg = UInt32GetDatum(dsm_segment_handle(writer.room));
	memcpy(worker.bgw_extra, &database, sizeof database);
	begun = RegisterDynamicBackgroundWorker(&worker, &writer.worker);
	MemoryContextSwitchTo(caller);
	return begun;
}

void
dana_checkpoint_save(const char *model, const dana_reply *reply)
{
	StringInfoData	 message = {.data = reply->payload, .len = reply->length};
	uint32			 length;
	int64			 epoch;
	checkpoint_room *room;
	pid_t			 pid;

	if (writer.worker != NULL)
	{
		if (GetBackgroundWorkerPid(writer.worker, &pid) != BGWH_STOPPED)
			return;
		writer_end();
	}
	pq_copymsgbytes(&message, (char *)&length, sizeof length);
	epoch = dana_json_integer(dana_json_parse(pnstrdup(pq_getmsgbytes(&message, length), length)), "epoch");
	(void)pq_getmsgbytes(&message, -length % 4);
	length = message.len - message.cursor;
	writer.room = dsm_create(offsetof(checkpoint_room, data) + strlen(model) + length, 0);
	room = dsm_segment_address(writer.room);
	*room = (checkpoint_room){.owner = GetUserId(), .epoch = (int32)epoch, .name = strlen(model), .size = length};
	memcpy(room->data, model, room->name);
	memcpy(room->data + room->name, pq_getmsgbytes(&message, length), length);
	if (writer_begin())
		return;
	writer.worker = NULL;
	dsm_detach(writer.room);
	report("no background worker is free", "Increase max_worker_processes.", epoch);
}

void
dana_checkpoint_drop(const char *model)
{
	static dana_statement drop =
		DANA_STATEMENT("DELETE FROM dana.checkpoint WHERE owner = $1 AND model = $2", OIDOID, TEXTOID);
	dana_identity before;
	Datum		  values[2];

	if (writer.worker != NULL)
	{
		(void)WaitForBackgroundWorkerShutdown(writer.worker); /* it would write the row once more */
		writer_end();
	}
	before = dana_become_owner();
	values[0] = ObjectIdGetDatum(before.user);
	values[1] = CStringGetTextDatum(model);
	/* others have changed the row since this transaction began, which is an error where it may not see that */
	dana_execute(&drop, values, NULL, GetLatestSnapshot(), false);
	dana_become_caller(before);
}

/* Entry of the background worker */
void
dana_checkpoint_main(Datum handle)
{
	static dana_statement store = DANA_STATEMENT(
		"INSERT INTO dana.checkpoint (owner, model, epoch, state) VALUES ($1, $2, $3, $4) ON CONFLICT (owner, model) "
		"DO UPDATE SET epoch = excluded.epoch, written = excluded.written, state = excluded.state",
		OIDOID, TEXTOID, INT4OID, BYTEAOID);
	Oid				 database;
	dsm_segment		*segment;
	checkpoint_room *room;
	bytea			*state;
	dana_identity	 before;

	memcpy(&database, MyBgworkerEntry->bgw_extra, sizeof database);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	/* as the server's first superuser: the role of the training may be one that cannot log in */
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	segment = dsm_attach(DatumGetUInt32(handle));
	if (segment == NULL)
		proc_exit(0); /* the training has failed */
	dsm_pin_mapping(segment);
	room = dsm_segment_address(segment);
	PushActiveSnapshot(GetTransactionSnapshot());
	/* the training waits for this process at its end, perhaps with the row's lock */
	dana_set_for_now("lock_timeout", "1s");
	before = dana_become_owner();
	state = palloc(VARHDRSZ + room->size);
	SET_VARSIZE(state, VARHDRSZ + room->size);
	memcpy(VARDATA(state), room->data + room->name, room->size);
	dana_run(&store,
			 ((Datum[]){ObjectIdGetDatum(room->owner), PointerGetDatum(cstring_to_text_with_len(room->data, room->name)),
						Int32GetDatum(room->epoch), PointerGetDatum(state)}),
			 NULL);
	dana_become_caller(before);
	PopActiveSnapshot();
	CommitTransactionCommand();
	room->written = true;
	proc_exit(0);
}
