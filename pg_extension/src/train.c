/*
 * dana_train(): one training, from the call to the row in dana.model.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#include "compat.h"
#include "json.h"
#include "models.h"
#include "rules.h"
#include "session.h"
#include "source.h"

#include <sched.h>

PG_FUNCTION_INFO_V1(dana_train);

#define MAX_EPOCHS 100000 /* each is a row of dana.epoch */

enum argument
{
	UDF,
	SOURCE,
	MODEL,
	FEATURES,
	LABEL,
	EPOCHS,
	HYPER,
	BACKEND,
	DESIGN
};

static char *
text_argument(FunctionCallInfo fcinfo, enum argument number, const char *name)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"%s\" must not be NULL", name)));
	return text_to_cstring(PG_GETARG_TEXT_PP(number));
}

/* A JSON object as given, an empty one for NULL */
static char *
object_argument(FunctionCallInfo fcinfo, enum argument number, const char *name)
{
	Jsonb *value;

	if (PG_ARGISNULL(number))
		return "{}";
	value = PG_GETARG_JSONB_P(number);
	if (!JB_ROOT_IS_OBJECT(value))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" must be a JSON object", name),
				 errhint("For instance '{\"lr\": 0.01}'.")));
	return JsonbToCString(NULL, &value->root, VARSIZE(value));
}

/* Appends an array of column names, null where none was given */
static void
append_features(StringInfo to, FunctionCallInfo fcinfo)
{
	Datum *names;
	bool  *nulls;
	int	   count;

	if (PG_ARGISNULL(FEATURES))
	{
		appendStringInfoString(to, "null");
		return;
	}
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(FEATURES), TEXTOID, -1, false, TYPALIGN_INT, &names, &nulls, &count);
	appendStringInfoChar(to, '[');
	for (int i = 0; i < count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"features\" must not contain NULL")));
		if (i > 0)
			appendStringInfoChar(to, ',');
		dana_json_append(to, TextDatumGetCString(names[i]));
	}
	appendStringInfoChar(to, ']');
}

/* The TRAIN message */
static StringInfo
build_request(FunctionCallInfo fcinfo, const char *udf, const char *rule, const char *backend, dana_source *source)
{
	StringInfo request = makeStringInfo();
	char	  *utf8;

	appendStringInfoString(request, "{\"rule\":");
	dana_json_append(request, udf);
	appendStringInfoString(request, ",\"source\":");
	dana_json_append(request, rule);
	appendStringInfoString(request, ",\"relation\":");
	dana_source_describe(source, request);
	appendStringInfoString(request, ",\"features\":");
	append_features(request, fcinfo);
	appendStringInfoString(request, ",\"label\":");
	if (PG_ARGISNULL(LABEL))
		appendStringInfoString(request, "null");
	else
		dana_json_append(request, text_to_cstring(PG_GETARG_TEXT_PP(LABEL)));
	if (PG_ARGISNULL(EPOCHS))
		appendStringInfoString(request, ",\"epochs\":null");
	else
		appendStringInfo(request, ",\"epochs\":%d", PG_GETARG_INT32(EPOCHS));
	appendStringInfoString(request, ",\"backend\":");
	dana_json_append(request, backend);
	utf8 = dana_json_utf8(object_argument(fcinfo, HYPER, "hyper"));
	appendStringInfo(request, ",\"hyper\":%s", utf8);
	utf8 = dana_json_utf8(object_argument(fcinfo, DESIGN, "design"));
	appendStringInfo(request, ",\"design\":%s", utf8);
	/* the worker keeps off this CPU while we stream */
	appendStringInfo(request, ",\"nulls\":\"skip\",\"cpu\":%d}", sched_getcpu());
	return request;
}

/* Takes the RESULT message apart: JSON, weights, predictor */
static void
read_result(const dana_reply *reply, dana_new_model *model)
{
	uint32 json_length;
	char  *json;
	int64  weights;
	int64  predictor;
	char  *raw;

	if (reply->length < sizeof json_length)
		goto malformed;
	memcpy(&json_length, reply->payload, sizeof json_length);
	if (json_length > reply->length - sizeof json_length)
		goto malformed;
	json = pnstrdup(reply->payload + sizeof json_length, json_length);
	raw = reply->payload + sizeof json_length + json_length;
	model->result = dana_json_parse(json);
	weights = dana_json_integer(model->result, "weights_bytes");
	predictor = dana_json_integer(model->result, "predictor_bytes");
	if (weights < 0 || predictor < 0 || weights % sizeof(float4) != 0 ||
		(uint64)weights + (uint64)predictor != reply->length - sizeof json_length - json_length)
		goto malformed;

	{
		int	 count = weights / sizeof(float4);
		Size size = ARR_OVERHEAD_NONULLS(1) + weights;

		if (!AllocSizeIsValid(size))
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("the model has %d values, more than an array holds", count)));
		model->weights = palloc0(size);
		SET_VARSIZE(model->weights, size);
		model->weights->ndim = 1;
		model->weights->elemtype = FLOAT4OID;
		ARR_DIMS(model->weights)[0] = count;
		ARR_LBOUND(model->weights)[0] = 1;
		memcpy(ARR_DATA_PTR(model->weights), raw, weights);
	}
	if (!dana_json_is_null(model->result, "predictor_bytes"))
	{
		model->predictor = palloc(VARHDRSZ + predictor);
		SET_VARSIZE(model->predictor, VARHDRSZ + predictor);
		memcpy(VARDATA(model->predictor), raw + weights, predictor);
	}
	return;

malformed:
	ereport(ERROR, (errcode(ERRCODE_PROTOCOL_VIOLATION), errmsg("the dana worker sent a malformed result")));
}

/* Streams pages and collects reports until the worker has a result */
static void
converse(StringInfo request, dana_source *source, dana_new_model *model)
{
	StringInfoData epochs;
	dana_reply	   reply;

	initStringInfo(&epochs);
	appendStringInfoString(&epochs, "{\"epochs\":[");
	dana_send(DANA_MSG_TRAIN, request->data, request->len);
	reply = dana_receive(DANA_MSG_DESIGN);
	model->design = dana_json_member(dana_json_parse(reply.payload), "design");
	dana_source_stream(source);
	for (;;)
	{
		reply = dana_receive_any();
		if (reply.type == DANA_MSG_RESULT)
			break;
		else if (reply.type == DANA_MSG_EPOCH)
		{
			if (epochs.data[epochs.len - 1] != '[')
				appendStringInfoChar(&epochs, ',');
			appendBinaryStringInfo(&epochs, reply.payload, reply.length);
		}
		else if (reply.type == DANA_MSG_AGAIN)
			dana_source_stream(source);
		else
			dana_unexpected(&reply);
		pfree(reply.payload);
	}
	appendStringInfoString(&epochs, "]}");
	model->epochs = dana_json_member(dana_json_parse(epochs.data), "epochs");
	read_result(&reply, model);
}

/* dana_train(udf, source, model, features, label, epochs, hyper, backend, design) */
Datum
dana_train(PG_FUNCTION_ARGS)
{
	instr_time	   started;
	instr_time	   ended;
	dana_new_model model = {0};
	dana_source	  *source;
	StringInfo	   request;
	TupleDesc	   training;

	INSTR_TIME_SET_CURRENT(started);
	PreventCommandIfReadOnly("dana_train()");
	if (get_call_result_type(fcinfo, NULL, &training) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "dana_train() must return a row");
	model.udf = text_argument(fcinfo, UDF, "udf");
	model.backend = text_argument(fcinfo, BACKEND, "backend");
	model.name = PG_ARGISNULL(MODEL) ? model.udf : text_argument(fcinfo, MODEL, "model");
	if (PG_ARGISNULL(SOURCE))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("argument \"source\" must not be NULL")));
	if (!PG_ARGISNULL(EPOCHS) && (PG_GETARG_INT32(EPOCHS) < 1 || PG_GETARG_INT32(EPOCHS) > MAX_EPOCHS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"epochs\" must be from 1 to %d, not %d", MAX_EPOCHS, PG_GETARG_INT32(EPOCHS))));
	source = dana_source_open(PG_GETARG_OID(SOURCE));
	model.source = source->name;
	dana_model_check(model.name);
	request = build_request(fcinfo, model.udf, dana_rule_source(model.udf), model.backend, source);

	dana_request_begin();
	PG_TRY();
	{
		converse(request, source, &model);
		dana_request_end();
	}
	PG_CATCH();
	{
		dana_request_abort();
		PG_RE_THROW();
	}
	PG_END_TRY();

	dana_source_close(source);
	INSTR_TIME_SET_CURRENT(ended);
	INSTR_TIME_SUBTRACT(ended, started);
	model.wall_seconds = INSTR_TIME_GET_DOUBLE(ended);
	PG_RETURN_DATUM(dana_model_store(&model, training));
}
