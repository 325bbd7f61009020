/*
 * dana_predict(): evaluates a model's predictor in this backend, without a worker.
 *
 * A model is looked up once per query, also where each row of the query names another one: they are kept. A row of
 * dana.model is data like any other: its predictor is checked when it is loaded.
 */
#include "postgres.h"

#include "utils/hsearch.h"

#include "dana.h"
#include "arguments.h"
#include "inputs.h"
#include "models.h"
#include "numerics.h"
#include "predictor.h"
#include "values.h"

/* A program with more elements than this per row is interrupted between instructions, a shorter one between rows */
#define UNINTERRUPTED_WORK 1000000

/* An owner, a model's name, a version, and the end of the string: no longer text names a model */
#define NAME_ROOM 400

/* What a query keeps of models at most */
#define KEPT_MODELS 10000
#define KEPT_BYTES (64 * 1024 * 1024)

/*
 * Who looked, and what they saw of the database. fn_extra lives as long as a query, and in PL/pgSQL as long as the
 * transaction: there the next call may be another role's, or come after a training.
 */
typedef struct view
{
	Oid				 user;
	SubTransactionId subtransaction; /* one that was rolled back took its models with it */
	CommandId		 command;
	TransactionId	 xmin; /* of the snapshot, like the two that follow: another transaction's end changes one of them */
	TransactionId	 xmax;
	uint32			 running;
} view;

/* A loaded model */
typedef struct loaded_model
{
	char			*name; /* as in the call */
	dana_predictor	 program;
	float			*memory;
	dana_inputs	 features;
	dana_numbers	*numbers; /* of the features */
} loaded_model;

/* The models of a query; lives in fn_extra */
typedef struct loaded_models
{
	MemoryContext context; /* holds the models and their table */
	view		  view;	   /* from which they were loaded */
	loaded_model *last;
	HTAB		 *table; /* by name */
} loaded_models;

typedef struct named_model
{
	char		  name[NAME_ROOM]; /* key */
	loaded_model *model;
} named_model;

static view
current_view(void)
{
	view	 now = {.user = GetUserId(), .subtransaction = GetCurrentSubTransactionId()};
	Snapshot snapshot = ActiveSnapshotSet() ? GetActiveSnapshot() : NULL;

	if (snapshot != NULL)
	{
		now.command = snapshot->curcid;
		now.xmin = snapshot->xmin;
		now.xmax = snapshot->xmax;
		now.running = snapshot->xcnt;
	}
	return now;
}

/* What dana.model has of a model */
typedef struct stored_model
{
	bytea	  *predictor;
	ArrayType *weights;
	dana_texts features; /* columns that it was trained on */
} stored_model;

/* Reads the model's row */
static void
read_model(const char *reference, stored_model *stored)
{
	static dana_statement find =
		DANA_MODEL_FIND("predictor, weights, ARRAY(SELECT jsonb_array_elements_text(CASE jsonb_typeof(metadata -> 'features') "
						" WHEN 'array' THEN metadata -> 'features' ELSE '[]' END))");
	dana_identity before = dana_become_owner();
	Datum		  program;

	dana_model_find(&find, reference, before.user, dana_read);
	program = dana_value(0, DANA_MODEL_COLUMNS + 1);
	if (DatumGetPointer(program) == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("model \"%s\" cannot predict", reference),
						errhint("Add setPrediction(...) to its rule and train again.")));
	stored->predictor = DatumGetByteaPCopy(program);
	stored->weights = DatumGetArrayTypePCopy(dana_value(0, DANA_MODEL_COLUMNS + 2));
	stored->features = dana_texts_of(dana_value(0, DANA_MODEL_COLUMNS + 3));
	dana_become_caller(before);
}

/* Loads the model that the call names, into the current memory context */
static loaded_model *
load_model(FunctionCallInfo fcinfo, const char *reference)
{
	loaded_model *model = palloc0(sizeof *model);
	stored_model  stored;
	uint32		 *words;
	const char	 *wrong;
	int			  count;

	read_model(reference, &stored);
	words = palloc(Max(VARSIZE_ANY_EXHDR(stored.predictor), 1)); /* aligned, which a bytea's data need not be */
	memcpy(words, VARDATA_ANY(stored.predictor), VARSIZE_ANY_EXHDR(stored.predictor));
	wrong = dana_predictor_load(words, VARSIZE_ANY_EXHDR(stored.predictor), &model->program);
	if (wrong != NULL)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
						errmsg("the predictor of model \"%s\" is damaged: %s", reference, wrong),
						errhint("Train the model again.")));
	count = ArrayGetNItems(ARR_NDIM(stored.weights), ARR_DIMS(stored.weights));
	if (ARR_ELEMTYPE(stored.weights) != FLOAT4OID || ARR_HASNULL(stored.weights) || count != model->program.weights)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("model \"%s\" has %d weights, but its predictor needs %u", reference, count, model->program.weights),
				 errhint("Train the model again.")));
	model->memory = MemoryContextAllocHuge(CurrentMemoryContext, dana_predictor_memory(&model->program) * sizeof(float));
	dana_predictor_prepare(&model->program, model->memory, (float *)ARR_DATA_PTR(stored.weights));
	pfree(stored.weights);
	pfree(stored.predictor);
	dana_inputs_inspect(&model->features, fcinfo, &stored.features);
	model->numbers = palloc(sizeof(dana_numbers) * Max(model->features.count, 1));
	model->name = pstrdup(reference);
	return model;
}

/* Forgets the models of a query, to load them as they are now */
static void
predict_forget(loaded_models *models)
{
	HASHCTL control = {.keysize = NAME_ROOM, .entrysize = sizeof(named_model), .hcxt = models->context};

	MemoryContextReset(models->context);
	models->last = NULL;
	models->table = hash_create("dana models", 32, &control, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	models->view = current_view();
}

/* The model that the call names and that is not the last one */
static loaded_model *
find_model(FunctionCallInfo fcinfo, const char *reference)
{
	loaded_models *models = fcinfo->flinfo->fn_extra;
	named_model	  *entry;
	MemoryContext  caller;

	if (models == NULL)
	{
		models = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof *models);
		models->context = AllocSetContextCreate(fcinfo->flinfo->fn_mcxt, "dana models", ALLOCSET_DEFAULT_SIZES);
		predict_forget(models);
		fcinfo->flinfo->fn_extra = models;
	}
	else if (hash_get_num_entries(models->table) >= KEPT_MODELS ||
			 MemoryContextMemAllocated(models->context, true) > KEPT_BYTES)
		predict_forget(models);
	entry = hash_search(models->table, reference, HASH_FIND, NULL);
	if (entry == NULL)
	{
		loaded_model *model;

		caller = MemoryContextSwitchTo(models->context);
		model = load_model(fcinfo, reference);
		MemoryContextSwitchTo(caller);
		entry = hash_search(models->table, reference, HASH_ENTER, NULL);
		entry->model = model;
	}
	return models->last = entry->model;
}

/*
 * Runs the program: a short one as a whole, so that the processor's mode is set and restored once; a long one
 * instruction by instruction, with interrupts handled in between, in the processor's usual mode.
 */
static void
predict_run(const loaded_model *model)
{
	const uint32 end = model->program.instructions;
	const uint32 step = model->program.work <= UNINTERRUPTED_WORK ? end : 1;
	unsigned	 mode = dn_enter();

	dana_inputs_write(&model->features, model->numbers, model->memory);
	for (uint32 i = 0;;)
	{
		const char *wrong = dana_predictor_run(&model->program, model->memory, i, i + step);

		dn_leave(mode);
		if (wrong != NULL)
			ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
							errmsg("model \"%s\" cannot predict: %s", model->name, wrong)));
		i += step;
		if (i >= end)
			return;
		CHECK_FOR_INTERRUPTS();
		mode = dn_enter();
	}
}

/* dana_predict(model, features ...), or dana_predict(model, row) */
DANA_FUNCTION(dana_predict)
{
	text		 *reference = PG_GETARG_TEXT_PP(0);
	loaded_models *models = fcinfo->flinfo->fn_extra;
	loaded_model *model = NULL;
	int64		  features;

	if (models != NULL)
	{
		const view now = current_view();

		if (memcmp(&models->view, &now, sizeof now) != 0) /* six numbers of four bytes */
			predict_forget(models);
		model = models->last;
	}
	if (model == NULL || strlen(model->name) != VARSIZE_ANY_EXHDR(reference) ||
		memcmp(model->name, VARDATA_ANY(reference), VARSIZE_ANY_EXHDR(reference)) != 0)
		model = find_model(fcinfo, text_to_cstring(reference));
	if (!dana_inputs_read(&model->features, fcinfo, model->name))
		PG_RETURN_NULL();
	features = dana_inputs_prepare(&model->features, model->numbers);
	if (features < 0)
		PG_RETURN_NULL();
	if (features != model->program.inputs)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("model \"%s\" takes %u features, not " INT64_FORMAT, model->name, model->program.inputs, features),
				 errhint("Give the columns that it was trained on in their order; dana.model.metadata has their names. "
						 "A whole row of the table does, too.")));
	predict_run(model);
	PG_RETURN_FLOAT4(dn_canonical(model->memory[model->program.result]));
}
