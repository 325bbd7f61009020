/*
 * dana_predict(): evaluates a model's predictor in this backend, without a worker.
 *
 * The model is looked up once per query. A row of dana.model is data like any other: its predictor is checked when it
 * is loaded.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "catalog.h"
#include "compat.h"
#include "models.h"
#include "numerics.h"
#include "predictor.h"
#include "values.h"

PG_FUNCTION_INFO_V1(dana_predict);

/* A program with more elements than this per row is interrupted between instructions, a shorter one between rows */
#define UNINTERRUPTED_WORK 1000000

/* A loaded model; lives in fn_extra, so as long as the query */
typedef struct loaded_model
{
	MemoryContext	 context; /* holds all of it */
	char			*name;	  /* as in the call */
	dana_predictor	 program;
	float			*memory;
	int				 arguments;
	dana_type		 argument[FUNC_MAX_ARGS];
} loaded_model;

/* Reads the model's row; the results are in the caller's memory context */
static void
read_model(const char *reference, bytea **predictor, ArrayType **weights)
{
	static dana_statement find = {
		"SELECT predictor, weights, owner, users FROM dana.model WHERE name = $1 AND ($2 = 0 OR version = $2) "
		"ORDER BY active DESC, version DESC LIMIT 1",
		2,
		{TEXTOID, INT4OID},
		NULL};
	MemoryContext context = CurrentMemoryContext;
	dana_identity before;
	MemoryContext ours;
	Datum		  values[2];
	Datum		  program;
	int			  version;
	char		 *name = dana_model_split(reference, &version);
	bool		  no_predictor;
	bool		  no_users;
	Datum		  users;
	bool		  isnull;
	Oid			  owner;

	before = dana_become_owner();
	values[0] = CStringGetTextDatum(name);
	values[1] = Int32GetDatum(version);
	if (dana_read(&find, values, NULL) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("model \"%s\" does not exist", reference),
				 errhint("SELECT name, version FROM dana.model lists the models; dana_train() makes one.")));
	owner = DatumGetObjectId(dana_value(0, 3, &isnull));
	users = dana_value(0, 4, &no_users);
	dana_model_require_use(before.user, owner, users, no_users, name);
	program = dana_value(0, 1, &no_predictor);
	if (no_predictor)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("model \"%s\" cannot predict", reference),
				 errhint("Add setPrediction(...) to its rule and train again.")));
	ours = MemoryContextSwitchTo(context);
	*predictor = DatumGetByteaPCopy(program);
	*weights = DatumGetArrayTypePCopy(dana_value(0, 2, &isnull));
	MemoryContextSwitchTo(ours);
	dana_become_caller(before);
}

/* Which arguments there are; refuses types that are no numbers */
static void
inspect_arguments(FunctionCallInfo fcinfo, loaded_model *model)
{
	model->arguments = PG_NARGS() - 1;
	for (int i = 0; i < model->arguments; i++)
	{
		Oid type = get_fn_expr_argtype(fcinfo->flinfo, i + 1);

		if (!dana_type_of(type, &model->argument[i]))
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("feature %d of dana_predict() has type %s, which is not a number", i + 1, format_type_be(type)),
					 errhint("Cast it to real, or to real[].")));
	}
}

/* Loads the model that the call names into fn_extra */
static loaded_model *
load_model(FunctionCallInfo fcinfo, const char *reference)
{
	MemoryContext context = AllocSetContextCreate(fcinfo->flinfo->fn_mcxt, "dana model", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	loaded_model *model = palloc0(sizeof *model);
	loaded_model *before = fcinfo->flinfo->fn_extra;
	bytea		 *predictor;
	ArrayType	 *weights;
	uint32		 *words;
	const char	 *wrong;
	int			  count;

	read_model(reference, &predictor, &weights);
	words = palloc(Max(VARSIZE_ANY_EXHDR(predictor), 1)); /* aligned, which a bytea's data need not be */
	memcpy(words, VARDATA_ANY(predictor), VARSIZE_ANY_EXHDR(predictor));
	wrong = dana_predictor_load(words, VARSIZE_ANY_EXHDR(predictor), &model->program);
	if (wrong != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the predictor of model \"%s\" is damaged: %s", reference, wrong),
				 errhint("Train the model again.")));
	count = ArrayGetNItems(ARR_NDIM(weights), ARR_DIMS(weights));
	if (ARR_ELEMTYPE(weights) != FLOAT4OID || ARR_HASNULL(weights) || count != model->program.weights)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("model \"%s\" has %d weights, but its predictor needs %u", reference, count, model->program.weights),
				 errhint("Train the model again.")));
	model->memory = MemoryContextAllocHuge(CurrentMemoryContext, dana_predictor_memory(&model->program) * sizeof(float));
	dana_predictor_prepare(&model->program, model->memory, (float *)ARR_DATA_PTR(weights));
	pfree(weights);
	pfree(predictor);
	inspect_arguments(fcinfo, model);
	model->name = pstrdup(reference);
	model->context = context;
	fcinfo->flinfo->fn_extra = model;
	if (before != NULL)
		MemoryContextDelete(before->context);
	MemoryContextSwitchTo(caller);
	return model;
}

/* Runs the whole program, or one instruction of a long one; sets and restores the processor's mode around it */
static void
evaluate(const loaded_model *model, uint32 first, uint32 last)
{
	unsigned	mode = dn_enter();
	const char *wrong = dana_predictor_run(&model->program, model->memory, first, last);

	dn_leave(mode);
	if (wrong != NULL)
		ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION), errmsg("model \"%s\" cannot predict: %s", model->name, wrong)));
}

/* dana_predict(model, features ...) */
Datum
dana_predict(PG_FUNCTION_ARGS)
{
	text		  *reference = PG_GETARG_TEXT_PP(0);
	loaded_model  *model = fcinfo->flinfo->fn_extra;
	dana_numbers   ready[FUNC_MAX_ARGS];
	uint64		   features = 0;
	float		  *to;
	unsigned	   mode;

	if (model == NULL || strlen(model->name) != VARSIZE_ANY_EXHDR(reference) ||
		memcmp(model->name, VARDATA_ANY(reference), VARSIZE_ANY_EXHDR(reference)) != 0)
		model = load_model(fcinfo, text_to_cstring(reference));

	for (int i = 0; i < model->arguments; i++)
	{
		dana_numbers_of(&model->argument[i], PG_GETARG_DATUM(i + 1), &ready[i]);
		if (ready[i].present != NULL)
			PG_RETURN_NULL();
		features += ready[i].count;
	}
	if (features != model->program.inputs)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("model \"%s\" takes %u features, not " UINT64_FORMAT, model->name, model->program.inputs, features),
				 errhint("Give the columns that it was trained on in their order; dana.model.metadata has their names.")));

	to = model->memory;
	mode = dn_enter();
	for (int i = 0; i < model->arguments; i++)
	{
		dana_numbers_write(&ready[i], 0, to);
		to += ready[i].count;
	}
	dn_leave(mode);

	if (model->program.work <= UNINTERRUPTED_WORK)
		evaluate(model, 0, model->program.instructions);
	else
		for (uint32 i = 0; i < model->program.instructions; i++)
		{
			CHECK_FOR_INTERRUPTS();
			evaluate(model, i, i + 1);
		}
	PG_RETURN_FLOAT4(dn_canonical(model->memory[model->program.result]));
}
