/*
 * dana_train(): one training, from the call to the row in dana.model. NOTICEs reach the client immediately, so a long
 * training can be watched from its own session.
 */
#include "postgres.h"

#include "libpq/pqformat.h"
#include "portability/instr_time.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/notices.h"
#include "calls/checkpoint.h"
#include "calls/spread.h"
#include "calls/train.h"
#include "features/categories.h"
#include "features/classes.h"
#include "features/features.h"
#include "limits/bounds.h"
#include "limits/progress.h"
#include "limits/turns.h"
#include "models/models.h"
#include "models/rules.h"
#include "models/weights.h"
#include "request/split.h"
#include "request/training.h"
#include "source/stream.h"
#include "worker/channel.h"
#include "worker/session.h"

/* The text of a run's epochs before the first */
#define EPOCHS_BEGIN "{\"epochs\":["

static int notices;

enum
{
	NOTICES_NONE,
	NOTICES_RUN,
	NOTICES_EPOCH
};

void
dana_notices_define(void)
{
	static const struct config_enum_entry levels[] = {
		{"none", NOTICES_NONE, false}, {"run", NOTICES_RUN, false}, {"epoch", NOTICES_EPOCH, false}, {NULL, 0, false}};

	DefineCustomEnumVariable("dana.notices", "NOTICEs of a training: none, at its end, or for each epoch.", NULL,
							 &notices, NOTICES_NONE, levels, PGC_USERSET, 0, NULL, NULL, NULL);
}

/* ", loss 0.25, validation loss 0.26"; empty for a rule without a loss */
static const char *
loss_of(Jsonb *report)
{
	const char *loss = "";

	if (!dana_json_is_null(report, "loss"))
		loss = psprintf(", loss %.6g", dana_json_double(report, "loss"));
	if (!dana_json_is_null(report, "validation_loss"))
		loss = psprintf("%s, validation loss %.6g", loss, dana_json_double(report, "validation_loss"));
	return loss;
}

static const char *
cycles_of(Jsonb *report)
{
	return dana_json_is_null(report, "cycles") ? "" : psprintf(", " INT64_FORMAT " cycles", dana_json_integer(report, "cycles"));
}

/* The optimisers that ran, "" if the rule's text takes its own steps */
static const char *
method_of(Jsonb *metadata)
{
	dana_texts	   optimizers = dana_json_texts(metadata, "optimizers");
	StringInfoData method;

	initStringInfo(&method);
	for (int i = 0; i < optimizers.count; i++)
		appendStringInfo(&method, "%s%s", i == 0 ? " of " : ", ", optimizers.values[i]);
	return method.data;
}

/* Why the training ended, unless its epochs were over */
static const char *
end_of(Jsonb *metadata)
{
	const char *ended = dana_json_string(metadata, "ended");

	return ended[0] == '\0' || strcmp(ended, "epochs") == 0 ? "" : psprintf(" (%s)", ended);
}

static void
train_notice_epoch(Jsonb *epoch, int64 epochs)
{
	if (notices < NOTICES_EPOCH)
		return;
	ereport(NOTICE,
			(errmsg("epoch " INT64_FORMAT " of " INT64_FORMAT "%s, " INT64_FORMAT " rows%s, %.1f ms",
					dana_json_integer(epoch, "epoch"), epochs, loss_of(epoch), dana_json_integer(epoch, "tuples"),
					cycles_of(epoch), dana_json_double(epoch, "seconds") * 1000)));
}

static void
train_notice_run(const dana_new_model *model)
{
	Jsonb *result = model->result, *metadata;

	if (notices < NOTICES_RUN)
		return;
	metadata = dana_json_member(result, "metadata");
	ereport(NOTICE,
			(errmsg("model \"%s\": rule \"%s\" on %s, " INT64_FORMAT " epochs%s%s%s, " INT64_FORMAT " rows, " INT64_FORMAT
					" skipped%s, %.1f ms",
					model->name, model->rule, model->source, dana_json_integer(result, "epochs"), method_of(metadata),
					end_of(metadata), loss_of(result),
					dana_json_integer(result, "tuples"), dana_json_integer(result, "skipped"), cycles_of(result),
					model->wall_seconds * 1000)));
}

/*
 * Splits the RESULT message: JSON, weights, predictor. A length beyond its end is an error. Weights may be hundreds of
 * megabytes: they become an array in place, and its header overwrites the end of the JSON.
 */
static void
train_read_result(const dana_reply *reply, dana_new_model *model)
{
	StringInfoData message = {.data = reply->payload, .len = reply->length};
	uint32		   length;
	int			   weights;
	int			   predictor;
	const char	  *values;
	Size		   size;

	pq_copymsgbytes(&message, (char *)&length, sizeof length);
	model->result = dana_json_parse(pnstrdup(pq_getmsgbytes(&message, length), length));
	(void)pq_getmsgbytes(&message, -length % 4);
	weights = dana_json_integer(model->result, "weights_bytes");
	predictor = dana_json_integer(model->result, "predictor_bytes");
	size = ARR_OVERHEAD_NONULLS(1) + (Size)weights;
	if (weights < 0 || weights % sizeof(float4) != 0 || predictor < 0)
		dana_protocol_error("sent a malformed result");
	if (!AllocSizeIsValid(size))
		dana_error(PROGRAM_LIMIT_EXCEEDED, "the model has %d values, more than an array holds",
				   weights / (int)sizeof(float4));
	values = pq_getmsgbytes(&message, weights);
	if (!dana_json_is_null(model->result, "predictor_bytes"))
	{
		model->predictor = palloc(VARHDRSZ + predictor);
		SET_VARSIZE(model->predictor, VARHDRSZ + predictor);
		pq_copymsgbytes(&message, VARDATA(model->predictor), predictor);
	}
	pq_getmsgend(&message);
	if (values < reply->payload + ARR_OVERHEAD_NONULLS(1))
		dana_protocol_error("sent a malformed result");
	model->weights = dana_weights_array((char *)values - ARR_OVERHEAD_NONULLS(1), weights / sizeof(float4));
}

typedef struct conversation
{
	StringInfo		 request;
	dana_raw		 weights; /* the model that it starts from */
	const dana_training *training;
	dana_source		*source;
	const dana_rule *rule;
	dana_new_model	*model;
	int64			 most; /* epochs */
} conversation;

/* Whether the label's classes agree with the assumed ones, if any */
static bool
train_labels_hold(const conversation *of)
{
	dana_source *source = of->source;

	if (source->chosen.assumed == NULL)
		return true;
	if (!dana_classes_hold(of->training, source, of->rule->description))
		return false;
	source->chosen.assumed = NULL;
	dana_notices_let_go(true);
	return true;
}

/* Starts a stream as the worker requests it; false: the assumed labels were wrong */
static bool
train_begin_stream(const dana_reply *reply, conversation *of)
{
	dana_source	   *source = of->source;
	dana_new_model *model = of->model;
	Jsonb		   *message = dana_json_parse(reply->payload);

	of->most = dana_json_integer(message, "epochs");
	model->design = dana_json_member(message, "design");
	dana_progress_set(DANA_PROGRESS_EPOCHS, of->most);
	dana_progress_set(DANA_PROGRESS_FIRST_BEGAN, GetCurrentTimestamp());
	dana_progress_set(DANA_PROGRESS_PHASE, DANA_PHASE_STREAMING);
	dana_source_adopt(source, dana_json_is_null(message, "stream") ? NULL : dana_json_member(message, "stream"),
					  model->design);
	if (source->stream.plan != NULL && !train_labels_hold(of))
		return false;
	source->shard = of->training->part != NULL;
	if (!of->training->leads)
		dana_source_stream(source);
	dana_progress_set(DANA_PROGRESS_PHASE, DANA_PHASE_TRAINING);
	return train_labels_hold(of);
}

/* Streams the rows that are left out of a training, as frames; encoded as the others */
static void
train_stream_held_out(const dana_training *training, const dana_source *others, const dana_reply *reply)
{
	Jsonb			   *message = dana_json_parse(reply->payload);
	dana_source_request rows = training->rows;
	dana_source		   *source;

	if (training->held_out == NULL || dana_json_is_null(message, "stream"))
		dana_unexpected(reply);
	*(rows.query != NULL ? &rows.query : &rows.filter) = training->held_out;
	rows.cleaning = others->asked.cleaning; /* with the classes that were found */
	source = dana_source_open(&rows);
	source->chosen.encoding = others->chosen.encoding;
	source->held_out = true;
	source->shard = training->part != NULL;
	dana_source_adopt(source, dana_json_member(message, "stream"), dana_json_member(message, "design"));
	dana_progress_set(DANA_PROGRESS_PHASE, DANA_PHASE_STREAMING);
	dana_source_stream(source);
	dana_source_close(source);
}

/*
 * Messages before the epochs: the rows left out, if the worker asks for them, then the first stream; false: labels were
 * wrong
 */
static bool
train_begin(dana_reply *reply, conversation *of)
{
	while (reply->type == DANA_MSG_HELD_OUT)
	{
		train_stream_held_out(of->training, of->source, reply);
		*reply = dana_receive_any();
	}
	if (reply->type != DANA_MSG_DESIGN)
		dana_unexpected(reply);
	if (train_begin_stream(reply, of))
		return true;
	dana_request_abandon();
	return false;
}

/* Streams pages and collects reports until the worker has a result */
static void
train_converse(void *state)
{
	conversation  *of = state;
	dana_source	  *source = of->source;
	dana_new_model *model = of->model;
	StringInfoData epochs;
	dana_reply	   reply;
	Jsonb		  *report;
	MemoryContext  caller = CurrentMemoryContext;
	MemoryContext  epoch = AllocSetContextCreate(caller, "dana epoch", ALLOCSET_DEFAULT_SIZES);

	initStringInfo(&epochs);
	appendStringInfoString(&epochs, EPOCHS_BEGIN);
	dana_send(DANA_MSG_TRAIN, of->request, &of->weights);
	if (of->weights.data != NULL)
		pfree(of->weights.data);
	reply = dana_receive_any();
	if (!train_begin(&reply, of))
		return;
	for (;;)
	{
		reply = dana_receive_any();
		dana_bounds_check();
		if (reply.type == DANA_MSG_RESULT)
			break;
		/* there may be a hundred thousand epochs: each frees its memory */
		MemoryContextSwitchTo(epoch);
		if (reply.type == DANA_MSG_EPOCH)
		{
			report = dana_json_parse(reply.payload);
			dana_progress_epoch(report);
			train_notice_epoch(report, of->most);
			if (epochs.data[epochs.len - 1] != '[')
				appendStringInfoChar(&epochs, ',');
			appendBinaryStringInfo(&epochs, reply.payload, reply.length);
		}
		else if (reply.type == DANA_MSG_AGAIN)
		{
			dana_progress_set(DANA_PROGRESS_PHASE, DANA_PHASE_STREAMING);
			dana_source_stream(source);
			dana_progress_set(DANA_PROGRESS_PHASE, DANA_PHASE_TRAINING);
		}
		else if (reply.type == DANA_MSG_RESUME && of->training->leads)
		{
			model->checkpoints = true;
			dana_checkpoint_resume(model->name);
		}
		else if (reply.type == DANA_MSG_CHECKPOINT && model->checkpoints)
			dana_checkpoint_save(model->name, &reply);
		else
		{
			/* a page has a value out of line, or columns need centres: use frames instead, from the first epoch */
			MemoryContextSwitchTo(caller);
			if (epochs.data[epochs.len - 1] != '[')
				dana_progress_begin(of->training->rows.given);
			resetStringInfo(&epochs);
			appendStringInfoString(&epochs, EPOCHS_BEGIN);
			if (!train_begin(&reply, of))
				return;
		}
		MemoryContextSwitchTo(caller);
		MemoryContextReset(epoch);
		pfree(reply.payload);
	}
	MemoryContextDelete(epoch);
	appendStringInfoString(&epochs, "]}");
	model->epochs = dana_json_member(dana_json_parse(epochs.data), "epochs");
	train_read_result(&reply, model);
}

bool
dana_train_model(const dana_training *training, dana_source *source, const dana_rule *rule, dana_new_model *model)
{
	conversation of = {.training = training, .source = source, .rule = rule, .model = model};
	instr_time	 ended;

	dana_bounds_check_machine(training->machine);
	source->stream.reported = false;
	model->name = training->model;
	model->rule = training->rule;
	model->machine = training->machine;
	model->query = training->whole_query;
	model->unnamed = training->unnamed && training->group == NULL;
	model->source = source->from;
	of.request = dana_training_request(training, rule->text, source, &of.weights);
	dana_progress_begin(training->rows.given);

	dana_bounds_enter(&(dana_awaited){training->rule, source->name, training->epochs});
	PG_TRY();
	{
		dana_request(train_converse, &of);
	}
	PG_FINALLY();
	{
		dana_progress_end_epochs();
	}
	PG_END_TRY();
	dana_turn_end();
	dana_bounds_check();
	if (model->result == NULL)
		return false;

	dana_progress_set(DANA_PROGRESS_PHASE, DANA_PHASE_STORING);
	INSTR_TIME_SET_CURRENT(ended);
	INSTR_TIME_SUBTRACT(ended, model->started);
	model->wall_seconds = INSTR_TIME_GET_DOUBLE(ended);
	train_notice_run(model);
	return true;
}

/* Trains on assumed classes, if possible; false: they were wrong, and nothing was reported */
static bool
train_once(const dana_training *training, const dana_rule *rule, dana_new_model *model, bool assume)
{
	dana_source  *source = dana_source_open(&training->rows);
	MemoryContext caller = CurrentMemoryContext;
	volatile bool trained = false;

	dana_progress_begin(training->rows.given);
	dana_progress_set(DANA_PROGRESS_PHASE, DANA_PHASE_LOOKING);
	dana_classes_find(training, source, rule->description, assume);
	if (source->chosen.assumed != NULL)
		dana_notices_hold();
	PG_TRY();
	{
		dana_source_encode(source, training, rule->description);
		dana_categories_find(training, source, rule);
		trained = dana_train_model(training, source, rule, model);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(caller);
		dana_notices_let_go(true);
		PG_RE_THROW();
	}
	PG_END_TRY();
	dana_notices_let_go(false);
	dana_source_close(source);
	return trained;
}

static Datum
train_and_store(void *asked)
{
	const dana_training *training = asked;
	dana_new_model		 model = {0};
	dana_rule			 rule;
	Datum				 row;

	INSTR_TIME_SET_CURRENT(model.started);
	rule = dana_training_rule(training); /* first: a model without a name is named after its rule */
	dana_model_check_name(training->model);
	if (!train_once(training, &rule, &model, true))
		(void)train_once(training, &rule, &model, false);
	row = dana_model_store(&model);
	if (model.checkpoints)
		dana_checkpoint_drop(model.name);
	pgstat_progress_end_command();
	return row;
}

static Datum
train_alone(void *asked)
{
	const dana_training *training = asked;
	dana_new_model		 model = {0};
	dana_rule			 rule = dana_training_rule(training);

	INSTR_TIME_SET_CURRENT(model.started);
	(void)train_once(training, &rule, &model, false);
	pgstat_progress_end_command();
	return (Datum)0;
}

void
dana_train_part_of(dana_training *training)
{
	(void)dana_bounds_train(train_alone, training);
}

Datum
dana_train_and_store(dana_training *training)
{
	PreventCommandIfReadOnly("dana_train()");
	return dana_bounds_train(train_and_store, training);
}

static Datum
train_shards(void *training)
{
	return dana_train_shards(training, train_and_store);
}

static Datum
train_here_or_there(dana_training *training)
{
	if (training->sync != NULL)
	{
		PreventCommandIfReadOnly("dana_train()");
		return dana_bounds_train(train_shards, training);
	}
	dana_split_rows(training, true);
	return dana_train_and_store(training);
}

/* dana_train(rule, source, ...): training.c describes the arguments */
DANA_FUNCTION(dana_train)
{
	dana_arguments arguments;
	dana_training  training;

	dana_arguments_of_call(fcinfo, &arguments);
	dana_training_parse(&arguments, &training);
	return train_here_or_there(&training);
}

/* dana.dana_train_rule(rule, source, training) */
DANA_FUNCTION(dana_train_rule)
{
	dana_training training;

	dana_require_execute(dana_extension_function("dana_train"));
	dana_training_from_call(fcinfo, 2, &training);
	return train_here_or_there(&training);
}
