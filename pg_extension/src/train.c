/*
 * dana_train(): one training, from the call to the row in dana.model.
 */
#include "postgres.h"

#include "libpq/pqformat.h"
#include "portability/instr_time.h"

#include "dana.h"
#include "bounds.h"
#include "curve.h"
#include "notices.h"
#include "progress.h"
#include "rules.h"
#include "session.h"
#include "train.h"

/* Takes the RESULT message apart: JSON, weights, predictor. What is asked for beyond its end is an error. */
static void
train_read_result(const dana_reply *reply, dana_new_model *model)
{
	StringInfoData message = {.data = reply->payload, .len = reply->length};
	uint32		   length;
	int			   weights;
	int			   predictor;
	Size		   size;

	pq_copymsgbytes(&message, (char *)&length, sizeof length);
	model->result = dana_json_parse(pnstrdup(pq_getmsgbytes(&message, length), length));
	weights = dana_json_integer(model->result, "weights_bytes");
	predictor = dana_json_integer(model->result, "predictor_bytes");
	size = ARR_OVERHEAD_NONULLS(1) + (Size)weights;
	if (weights < 0 || weights % sizeof(float4) != 0 || predictor < 0)
		dana_protocol_error("sent a malformed result");
	if (!AllocSizeIsValid(size))
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("the model has %d values, more than an array holds", weights / (int)sizeof(float4))));
	model->weights = palloc0(size);
	SET_VARSIZE(model->weights, size);
	model->weights->ndim = 1;
	model->weights->elemtype = FLOAT4OID;
	ARR_DIMS(model->weights)[0] = weights / sizeof(float4);
	ARR_LBOUND(model->weights)[0] = 1;
	pq_copymsgbytes(&message, ARR_DATA_PTR(model->weights), weights);
	if (!dana_json_is_null(model->result, "predictor_bytes"))
	{
		model->predictor = palloc(VARHDRSZ + predictor);
		SET_VARSIZE(model->predictor, VARHDRSZ + predictor);
		pq_copymsgbytes(&message, VARDATA(model->predictor), predictor);
	}
	pq_getmsgend(&message);
}

/* Starts a stream as the worker wishes it; returns how many epochs there will be at most */
static int64
train_begin_stream(const dana_reply *reply, dana_source *source, dana_new_model *model)
{
	Jsonb *message = dana_json_parse(reply->payload);
	int64  epochs = dana_json_integer(message, "epochs");

	model->design = dana_json_member(message, "design");
	dana_progress(DANA_PROGRESS_EPOCHS, epochs);
	dana_progress(DANA_PROGRESS_FIRST_BEGAN, GetCurrentTimestamp());
	dana_progress(DANA_PROGRESS_PHASE, DANA_PHASE_STREAMING);
	dana_source_adopt(source, dana_json_is_null(message, "stream") ? NULL : dana_json_member(message, "stream"),
					  model->design);
	dana_source_stream(source);
	dana_progress(DANA_PROGRESS_PHASE, DANA_PHASE_TRAINING);
	return epochs;
}

static void
train_show_epoch(const dana_reply *reply, int64 epochs, int64 *cycles)
{
	Jsonb			*report = dana_json_parse(reply->payload);
	dana_curve_epoch epoch = {.epoch = dana_json_integer(report, "epoch"),
							  .tuples = dana_json_integer(report, "tuples"),
							  .skipped = dana_json_integer(report, "skipped"),
							  .cycles = dana_json_integer(report, "cycles"),
							  .loss = dana_json_double(report, "loss"),
							  .seconds = dana_json_double(report, "seconds"),
							  .has_cycles = !dana_json_is_null(report, "cycles"),
							  .has_loss = !dana_json_is_null(report, "loss")};
	int64			 bits;

	memcpy(&bits, &epoch.loss, sizeof bits);
	*cycles += epoch.cycles;
	dana_curve_add(&epoch);
	dana_progress(DANA_PROGRESS_LAST_ENDED, GetCurrentTimestamp());
	if (epoch.epoch == 1)
		dana_progress(DANA_PROGRESS_FIRST_ENDED, GetCurrentTimestamp());
	dana_progress(DANA_PROGRESS_EPOCH, epoch.epoch);
	dana_progress(DANA_PROGRESS_TUPLES, epoch.tuples);
	dana_progress(DANA_PROGRESS_CYCLES, *cycles);
	dana_progress(DANA_PROGRESS_LOSS, bits);
	dana_progress(DANA_PROGRESS_HAS_LOSS, epoch.has_loss);
	dana_notice_epoch(report, epochs);
}

/* Streams pages and collects reports until the worker has a result */
static void
train_converse(StringInfo request, dana_source *source, dana_new_model *model)
{
	StringInfoData epochs;
	dana_reply	   reply;
	int64		   most;
	int64		   cycles = 0;
	MemoryContext  caller = CurrentMemoryContext;
	MemoryContext  epoch = AllocSetContextCreate(caller, "dana epoch", ALLOCSET_DEFAULT_SIZES);

	initStringInfo(&epochs);
	appendStringInfoString(&epochs, "{\"epochs\":[");
	dana_send(DANA_MSG_TRAIN, request);
	reply = dana_receive(DANA_MSG_DESIGN);
	most = train_begin_stream(&reply, source, model);
	for (;;)
	{
		reply = dana_receive_any();
		dana_bounds_check();
		if (reply.type == DANA_MSG_RESULT)
			break;
		/* there may be a hundred thousand epochs: what one takes is gone after it */
		MemoryContextSwitchTo(epoch);
		if (reply.type == DANA_MSG_EPOCH)
		{
			train_show_epoch(&reply, most, &cycles);
			if (epochs.data[epochs.len - 1] != '[')
				appendStringInfoChar(&epochs, ',');
			appendBinaryStringInfo(&epochs, reply.payload, reply.length);
		}
		else if (reply.type == DANA_MSG_AGAIN)
		{
			dana_progress(DANA_PROGRESS_PHASE, DANA_PHASE_STREAMING);
			dana_source_stream(source);
			dana_progress(DANA_PROGRESS_PHASE, DANA_PHASE_TRAINING);
		}
		else if (reply.type == DANA_MSG_DESIGN && epochs.data[epochs.len - 1] == '[')
		{
			MemoryContextSwitchTo(caller);
			most = train_begin_stream(&reply, source, model); /* a page held a value that is not in it: rows instead */
		}
		else
			dana_unexpected(&reply);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(epoch);
		pfree(reply.payload);
	}
	MemoryContextDelete(epoch);
	appendStringInfoString(&epochs, "]}");
	model->epochs = dana_json_member(dana_json_parse(epochs.data), "epochs");
	train_read_result(&reply, model);
}

void
dana_train_model(const dana_training *training, dana_source *source, const char *rule, dana_new_model *model)
{
	instr_time	ended;
	TimestampTz started;
	StringInfo	request;
	dsm_handle	curve;

	dana_bounds_check_backend(training->backend);
	model->rule = training->rule;
	model->backend = training->backend;
	model->name = training->model;
	model->source = source->name;
	request = dana_training_request(training, rule, source);
	started = GetCurrentTimestamp();
	curve = dana_curve_begin(started);
	dana_progress_begin(training->source);
	dana_progress(DANA_PROGRESS_STARTED, started);
	dana_progress(DANA_PROGRESS_CURVE, curve);

	dana_bounds_enter();
	dana_request_begin();
	PG_TRY();
	{
		train_converse(request, source, model);
		dana_request_end();
	}
	PG_CATCH();
	{
		dana_curve_end();
		dana_request_abort();
		PG_RE_THROW();
	}
	PG_END_TRY();
	dana_bounds_leave();
	dana_curve_end();
	dana_bounds_check();

	dana_progress(DANA_PROGRESS_PHASE, DANA_PHASE_STORING);
	INSTR_TIME_SET_CURRENT(ended);
	INSTR_TIME_SUBTRACT(ended, model->started);
	model->wall_seconds = INSTR_TIME_GET_DOUBLE(ended);
	dana_notice_run(model);
}

static Datum
train_and_store(void *asked)
{
	const dana_training *training = asked;
	dana_new_model		 model = {0};
	const char			*rule;
	dana_source			*source;
	Datum				 row;

	INSTR_TIME_SET_CURRENT(model.started);
	rule = dana_rule_text(training->rule); /* first: a model without a name has the rule's */
	dana_model_check_name(training->model);
	source = dana_source_open(&training->rows);
	dana_train_model(training, source, rule, &model);
	dana_source_close(source);
	row = dana_model_store(&model);
	pgstat_progress_end_command();
	return row;
}

Datum
dana_train_and_store(dana_training *training)
{
	PreventCommandIfReadOnly("dana_train()");
	return dana_bounds_train(train_and_store, training);
}

/* dana_train(rule, source, ...): training.c has the arguments */
DANA_FUNCTION(dana_train)
{
	dana_arguments arguments;
	dana_training  training;

	dana_arguments_of_call(fcinfo, &arguments);
	dana_training_parse(&arguments, &training);
	return dana_train_and_store(&training);
}

/* dana.dana_train_rule(rule, source, training) */
DANA_FUNCTION(dana_train_rule)
{
	dana_training training;

	dana_require_execute(dana_extension_function("dana_train"));
	dana_training_from_call(fcinfo, 2, &training);
	return dana_train_and_store(&training);
}
