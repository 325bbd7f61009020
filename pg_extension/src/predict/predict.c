/*
 * dana_predict(), dana_predict_array(), dana_classify() and dana_probabilities(): evaluate a model's predictor in this
 * backend, without a worker.
 *
 * The features of a call (inputs.c) are encoded as in the training (encode.c). A NULL without a replacement makes the
 * prediction NULL.
 *
 * A model is looked up once per query; loaded models are kept, also if each row of the query names another one. A row
 * of dana.model is untrusted data: its predictor is checked when it is loaded.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/namespace.h"
#include "utils/datum.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/hsearch.h"

#include "base/arguments.h"
#include "base/dana.h"
#include "base/extension.h"
#include "base/json.h"
#include "base/notices.h"
#include "models/models.h"
#include "models/predictor.h"
#include "models/weights.h"
#include "predict/inputs.h"
#include "values/encode.h"
#include "values/values.h"
#include "numerics.h"

/* A program with more elements than this per row is interrupted between instructions, a shorter one between rows */
#define UNINTERRUPTED_WORK 1000000

/* An owner, a model's name, a version, and the end of the string: a longer text cannot be a reference */
#define NAME_ROOM 400

/* Maximum memory for the models of a query */
#define CACHED_MODELS 10000
#define CACHED_BYTES (64 * 1024 * 1024)

/* The models */

/*
 * The role that looked a model up, and its view of the database. fn_extra lives as long as a query, and in PL/pgSQL as
 * long as the transaction: there the next call may come from another role, or after a training.
 */
typedef struct view
{
	Oid				 user;
	SubTransactionId subtransaction; /* the rollback of a subtransaction removes its models */
	CommandId		 command;
	TransactionId	 xmin; /* of the snapshot, like the next two: any transaction end changes one */
	TransactionId	 xmax;
	uint32			 running;
} view;

/* What a model's weighted sums are made of, from the metadata */
typedef struct weighted_sums
{
	int		sums;
	int		terms;
	double *bases;	/* of each sum: its value for a row of means */
	double *means;	/* of each number that the predictor reads */
	double *values; /* coefficients, [sums][terms] */
} weighted_sums;

/* A loaded model */
typedef struct loaded_model
{
	char			 name[NAME_ROOM]; /* as in the call; key */
	dana_predictor	 program;
	dana_weights	*weights;
	float			*memory;
	dana_inputs	 features;
	dana_numbers	*numbers; /* of the features */
	dana_texts		 classes; /* of the rule's label; count -1: it is a number */
	bool			 probable; /* predictions are probabilities of them */
	bool			 several; /* predictions are several numbers without classes */
	bool			 finite; /* the training left out rows with NaN or an infinity in a feature */
	weighted_sums	*sums; /* NULL: not read yet */
	bool			 reported; /* a row with an unseen category */
	double			 centre; /* of the label, which is added to a prediction */
} loaded_model;

/* The models of a query; lives in fn_extra */
typedef struct loaded_models
{
	MemoryContext context; /* holds the models and their table */
	view		  view;	   /* source of the loaded models */
	loaded_model *last;
	HTAB		 *table; /* by name */
} loaded_models;

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

/* Reads the model's row, including the encoding of its columns; returns the parts of its weights */
static int
read_model(const char *reference, bytea **predictor, Datum **weights, Jsonb **metadata)
{
	dana_identity before = dana_become_owner();
	int			  parts;

	dana_model_find(reference, before.user, true);
	if (DatumGetPointer(dana_value(0, DANA_MODEL_PREDICTOR)) == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("model \"%s\" cannot predict", reference),
						errhint("Add setPrediction(...) to its rule and train again.")));
	*predictor = DatumGetByteaPCopy(dana_value(0, DANA_MODEL_PREDICTOR));
	*metadata = DatumGetJsonbPCopy(dana_value(0, DANA_MODEL_METADATA));
	parts = dana_model_weights(weights, true);
	dana_become_caller(before);
	return parts;
}

/* Loads the model that the call names, into the current memory context */
static void
load_model(FunctionCallInfo fcinfo, const char *reference, loaded_model *model)
{
	bytea		 *predictor;
	Datum		 *weights;
	int			  parts;
	Jsonb		 *metadata;
	dana_texts	  features;
	const char	 *predicts;
	dana_encoder *encoders;
	double		 *centres;
	uint32		 *words;
	const char	 *wrong;
	int			  count;

	parts = read_model(reference, &predictor, &weights, &metadata);
	features = dana_json_texts(metadata, "features");
	encoders = dana_encoders_read(metadata, &count);
	if (encoders != NULL && count != features.count)
		dana_error(DATA_CORRUPTED, "model \"%s\" has %d features and encodes %d", reference, features.count, count);
	predicts = dana_json_string(metadata, "predicts");
	model->probable = strcmp(predicts, "probability") == 0;
	model->several = strcmp(predicts, "numbers") == 0;
	model->finite = strcmp(dana_json_string(metadata, "nonfinite"), "keep") != 0;
	model->classes = dana_json_texts(metadata, "classes");
	if (!model->probable && strcmp(predicts, "score") != 0)
		model->classes.count = -1;
	words = palloc(Max(VARSIZE_ANY_EXHDR(predictor), 1)); /* aligned, which a bytea's data need not be */
	memcpy(words, VARDATA_ANY(predictor), VARSIZE_ANY_EXHDR(predictor));
	wrong = dana_predictor_load(words, VARSIZE_ANY_EXHDR(predictor), &model->program);
	if (wrong != NULL)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
						errmsg("the predictor of model \"%s\" is damaged: %s", reference, wrong),
						errhint("Train the model again.")));
	model->weights = palloc0(sizeof(dana_weights));
	model->memory = dana_weights_prepare(model->weights, &model->program, reference, weights, parts);
	pfree(predictor);
	model->centre = dana_centres_read(metadata, model->program.inputs, reference, &centres);
	dana_inputs_inspect(&model->features, fcinfo, reference, &features, encoders, centres, metadata);
	pfree(metadata);
	model->numbers = palloc(sizeof(dana_numbers) * Max(model->features.count, 1));
	model->sums = NULL;
	model->reported = false;
	strlcpy(model->name, reference, NAME_ROOM);
}

/* Drops the models of a query, to load their current versions */
static void
predict_forget(loaded_models *models)
{
	HASHCTL control = {.keysize = NAME_ROOM, .entrysize = sizeof(loaded_model), .hcxt = models->context};

	MemoryContextReset(models->context);
	models->last = NULL;
	models->table = hash_create("dana models", 32, &control, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
	models->view = current_view();
}

/* The model that the call names, if it is not the last one */
static loaded_model *
find_model(FunctionCallInfo fcinfo, const char *reference)
{
	loaded_models *models = fcinfo->flinfo->fn_extra;
	loaded_model  *found;

	if (models == NULL)
	{
		models = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof *models);
		models->context = AllocSetContextCreate(fcinfo->flinfo->fn_mcxt, "dana models", ALLOCSET_DEFAULT_SIZES);
		predict_forget(models);
		fcinfo->flinfo->fn_extra = models;
	}
	else if (hash_get_num_entries(models->table) >= CACHED_MODELS ||
			 MemoryContextMemAllocated(models->context, true) > CACHED_BYTES)
		predict_forget(models);
	found = hash_search(models->table, reference, HASH_FIND, NULL);
	if (found == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(models->context);
		loaded_model  model;

		load_model(fcinfo, reference, &model);
		MemoryContextSwitchTo(caller);
		found = hash_search(models->table, reference, HASH_ENTER, NULL);
		*found = model; /* after the last possible error */
	}
	return models->last = found;
}

/* The part of a model with weight `start`, and the dim that is its number of rows, or NULL */
static const char *
find_part(const char *model, int64 start, const char **dim)
{
	dana_identity  before = dana_become_owner();
	StringInfoData json;
	Jsonb		 **parameters;
	Jsonb		  *described, *dims;
	const char	  *part = "what it chooses from"; /* computed */
	int			   count;

	initStringInfo(&json);
	dana_model_find(model, before.user, true);
	dana_json_open(&json, NULL, '{');
	dana_json_object(&json, "parameters", DatumGetJsonbP(dana_value(0, DANA_MODEL_PARAMETERS)));
	dana_json_object(&json, "metadata", DatumGetJsonbP(dana_value(0, DANA_MODEL_METADATA)));
	dana_json_close(&json, '}');
	dana_become_caller(before);
	described = dana_json_parse(json.data);
	count = dana_json_objects(described, "parameters", &parameters);
	for (int i = 0; i < count; i++)
	{
		const int64 offset = dana_json_integer(parameters[i], "offset");

		if (start >= offset && start < offset + dana_json_integer(parameters[i], "size"))
			part = dana_json_string(parameters[i], "name");
	}
	dims = dana_json_member(dana_json_member(described, "metadata"), "row_dims");
	*dim = JB_ROOT_IS_OBJECT(dims) && !dana_json_is_null(dims, part) ? dana_json_string(dims, part) : NULL;
	return part;
}

/* The call's text for a feature, or for element `element` of it, in an error message */
static const char *
feature_name(const dana_inputs *features, int i, int element)
{
	const char *name = features->count == features->names.count ? quote_identifier(features->names.values[i])
																: psprintf("feature %d", i + 1);

	return element < 0 ? name : psprintf("%s[%d]", name, element + 1);
}

/* Maximum number of rows in a model: larger integers are not exact in binary32 */
#define MAX_ROWS (1 << 24)

/*
 * Raises an error that names the column that chose a row missing in a part of the model. Calls from schema dana are
 * internal statements, which the error's context would show, so it has none.
 */
static _Noreturn void
reject_row(FunctionCallInfo fcinfo, const loaded_model *model, const predictor_instruction *choice)
{
	const float	 number = model->memory[choice->operand[1].start];
	const uint32 rows = choice->operand[2].start;
	const char	*dim, *part = find_part(model->name, (int64)choice->operand[0].start - model->program.inputs, &dim);
	const char	*where = "", *from = "several columns", *out = ", with a WHERE or by the argument filter.", *more = "";
	bool		*needed = palloc0(Max(model->program.scratch, 1)), itself;
	uint32		 first, last;
	int			 element, other;

	dana_predictor_chooses(&model->program, choice, model->memory, needed, &first, &last, &itself);
	if (first <= last)
	{
		const int i = dana_inputs_at(&model->features, model->numbers, first, &element);

		if (i == dana_inputs_at(&model->features, model->numbers, last, &other))
			from = feature_name(&model->features, i, element == other ? element : -1);
		if (first == last)
			where = psprintf(" where %s is %.9g", from, model->memory[first]);
	}
	if (itself)
		out = psprintf(": WHERE %s BETWEEN 0 AND %u%s, or that text as the argument filter.", from, rows - 1,
					   number >= 0 && number < rows ? psprintf(" AND %s = trunc(%s)", from, from) : "");
	if (number >= rows && number == floorf(number) && number < MAX_ROWS)
		more = dim == NULL ? psprintf(" Or train with more rows of %s.", part)
						   : psprintf(" Or train with more of them: hyper => '{\"%s\": %.0f}', or more.", dim, number + 1);
	if (get_func_namespace(fcinfo->flinfo->fn_oid) == get_namespace_oid("dana", true))
		error_context_stack = NULL; /* a handler sets it again */
	ereport(ERROR, (errcode(ERRCODE_DATA_EXCEPTION),
					errmsg("model \"%s\" cannot predict%s: it chooses row %.9g of %s, which has rows 0 to %u",
						   model->name, where, number, part, rows - 1),
					itself ? 0 : errdetail("The rule computes the number of the row from %s.", from),
					errhint("Leave such rows out%s%s", out, more)));
}

static bool
are_finite(const float *numbers, uint32 count)
{
	for (uint32 i = 0; i < count; i++)
		if ((dn_bits(numbers[i]) & DN_EXPONENT) == DN_EXPONENT)
			return false;
	return true;
}

/*
 * Runs the program: a short one as a whole, so that the processor's mode is set and restored once; a long one
 * instruction by instruction, with interrupts handled in between, in the processor's usual mode. `as_trained`: skips a
 * row that a training leaves out for its numbers; returns whether the program was run.
 */
static bool
predict_run(FunctionCallInfo fcinfo, loaded_model *model, bool as_trained)
{
	const uint32 end = model->program.instructions;
	const uint32 step = model->program.work <= UNINTERRUPTED_WORK ? end : 1;
	unsigned	 mode = dn_enter();

	model->program.mode = mode;
	dana_inputs_write(&model->features, model->numbers, model->memory);
	if (as_trained && model->finite && !are_finite(model->memory, model->program.inputs))
	{
		dn_leave(mode);
		return false;
	}
	for (uint32 i = 0;;)
	{
		const predictor_instruction *wrong = dana_predictor_run(&model->program, model->memory, i, i + step);

		dn_leave(mode);
		if (wrong != NULL)
			reject_row(fcinfo, model, wrong);
		i += step;
		if (i >= end)
			return true;
		CHECK_FOR_INTERRUPTS();
		mode = dn_enter();
	}
}

/* Reports the first row with a category that the training did not have, once for a statement and a model */
static void
report_unseen(loaded_model *model)
{
	static char		   last[NAME_ROOM]; /* a statement may call several functions for a row */
	static TimestampTz last_in;
	const dana_inputs *features = &model->features;
	int				   i = 0;

	while (i < features->count && (features->nulls[i] || !dana_is_unseen(&features->encoders[i], &model->numbers[i])))
		i++;
	if (i == features->count)
		return;
	model->reported = true;
	if (last_in == GetCurrentStatementStartTimestamp() && strcmp(last, model->name) == 0)
		return;
	last_in = GetCurrentStatementStartTimestamp();
	strlcpy(last, model->name, NAME_ROOM);
	dana_notice(NOTICE, "A value may have been renamed or added since the training; such rows are predicted as of no "
						"category. Train again.",
				"a row has a category that model \"%s\" does not know, in column %s", model->name,
				features->names.values[i]);
}

/*
 * The numbers that a call's model predicts for its features, which follow the model, or for a row; NULL if a feature is
 * NULL. `left_out`, unless it is NULL, is set if there is no prediction because a training leaves out such a row.
 */
static float *
predict_row(FunctionCallInfo fcinfo, loaded_model **found, bool *left_out)
{
	text		 *reference;
	loaded_models *models = fcinfo->flinfo->fn_extra;
	loaded_model *model = NULL;
	int64		  features;
	float		 *result;

	*found = NULL;
	if (PG_ARGISNULL(0))
		return NULL;
	reference = PG_GETARG_TEXT_PP(0);
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
	*found = model;
	if (!dana_inputs_read(&model->features, fcinfo, model->name))
		return NULL;
	features = dana_inputs_prepare(&model->features, model->numbers);
	if (features < 0)
		return NULL;
	if (features != model->program.inputs)
		dana_reject_count(model->name, model->program.inputs, features);
	if (left_out == NULL && !model->reported && model->features.encoders != NULL)
		report_unseen(model);
	if (!predict_run(fcinfo, model, left_out != NULL))
		*left_out = true;
	result = model->memory + model->program.result;
	for (uint32 i = 0; i < model->program.width; i++)
		result[i] = dn_canonical(result[i]);
	return result;
}

/* A number of a prediction with the label's centre; without one -0 stays -0 */
static inline double
with_centre(double centre, float number)
{
	return centre == 0 ? number : number + centre;
}

/* Number of the predicted class, the first one in a tie; -1 if a number is NaN */
static int
chosen_class(const loaded_model *model, const float *result)
{
	int largest = 0;

	if (model->program.width == 1)
		return isnan(result[0]) ? -1 : result[0] >= (model->probable ? 0.5f : 0);
	for (int i = 0; i < model->program.width; i++)
	{
		if (isnan(result[i]))
			return -1;
		if (result[i] > result[largest])
			largest = i;
	}
	return largest;
}

/* The prediction of a call as one number; false: it is NULL */
static bool
predict_number(FunctionCallInfo fcinfo, double *number)
{
	loaded_model *model;
	const float	 *result = predict_row(fcinfo, &model, NULL);
	int			  class;

	if (model != NULL && model->several)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("model \"%s\" predicts %u numbers, and dana_predict() returns one", model->name,
							   model->program.width),
						errhint("dana_predict_array() returns all of them; (dana_predict_array(...))[1] is the first.")));
	if (result == NULL)
		return false;
	class = model->program.width == 1 ? 0 : chosen_class(model, result);
	*number = model->program.width == 1 ? with_centre(model->centre, result[0]) : class < 0 ? get_float8_nan() : class;
	return true;
}

/* dana_predict(model, features ...): the rule's prediction; for one number per class, the number of the largest */
DANA_FUNCTION(dana_predict)
{
	double number;

	if (!predict_number(fcinfo, &number))
		PG_RETURN_NULL();
	PG_RETURN_FLOAT4((float4)number);
}

/* dana_predict_double(model, features ...): the same, less its rounding to real where the label has a centre */
DANA_FUNCTION(dana_predict_double)
{
	double number;

	if (!predict_number(fcinfo, &number))
		PG_RETURN_NULL();
	PG_RETURN_FLOAT8(number);
}

/* dana_classify(model, features ...): the label of the predicted class; NULL if there is none */
DANA_FUNCTION(dana_classify)
{
	loaded_model *model;
	const float	 *result = predict_row(fcinfo, &model, NULL);
	int			  class = result == NULL ? -1 : chosen_class(model, result);

	if (model != NULL && model->classes.count < 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("model \"%s\" does not predict classes", model->name),
						errhint("A rule predicts classes with dana.output(classes=...). Use %s to get numbers.",
								model->several ? "dana_predict_array()" : "dana_predict()")));
	if (result == NULL || class < 0 || class >= model->classes.count)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(model->classes.values[class]));
}

/* A prediction's numbers as a real[]; with `both`, a probability of the second class becomes those of both classes */
static Datum
predicted_array(const loaded_model *model, const float *result, double centre, bool both)
{
	const int width = model->program.width;
	Datum	 *values = palloc(sizeof(Datum) * (width + 1));

	for (int i = 0; i < width; i++)
		values[i] = Float4GetDatum((float4)with_centre(centre, result[i]));
	if (both && width == 1)
	{
		values[0] = Float4GetDatum(1 - result[0]);
		values[1] = Float4GetDatum(result[0]);
	}
	return PointerGetDatum(construct_array(values, both ? Max(width, 2) : width, FLOAT4OID, sizeof(float4),
										   true, TYPALIGN_INT));
}

/* dana_probabilities(model, features ...): for each class, in the order of their numbers */
DANA_FUNCTION(dana_probabilities)
{
	loaded_model *model;
	const float	 *result = predict_row(fcinfo, &model, NULL);

	if (model != NULL && !model->probable)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("model \"%s\" does not predict probabilities", model->name),
						errdetail("Probabilities require a rule that predicts with softmax or, for two classes, sigmoid."),
						errhint(model->several ? "Use dana_predict_array() to get the numbers."
											   : "Use dana_classify() to get the class, dana_predict() to get the number.")));
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(predicted_array(model, result, 0, true));
}

/* $1: metadata of a model */
static dana_statement read_sums = DANA_STATEMENT(
	"SELECT ARRAY(SELECT b.value::float8 FROM jsonb_array_elements_text(c.made -> 'bases') WITH ORDINALITY AS b (value, n) "
	"ORDER BY b.n), "
	"ARRAY(SELECT v.value::float8 FROM jsonb_array_elements_text(c.made -> 'means') WITH ORDINALITY AS v (value, n) "
	"ORDER BY v.n), "
	"ARRAY(SELECT v.value::float8 FROM jsonb_array_elements(c.made -> 'values') WITH ORDINALITY AS s (value, n), "
	"jsonb_array_elements_text(s.value) WITH ORDINALITY AS v (value, n) ORDER BY s.n, v.n) "
	"FROM (SELECT $1 -> 'coefficients') AS c (made)",
	JSONBOID);

/* Numbers of a float8[] of the statement's row; returns how many */
static int
sums_numbers(int column, double **values)
{
	ArrayType *array = DatumGetArrayTypePCopy(dana_value(0, column));

	*values = (double *)ARR_DATA_PTR(array);
	return ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
}

/* Reads the sums of a model; an error if its prediction is not made of them */
static weighted_sums *
read_weighted_sums(const char *reference)
{
	dana_identity  before = dana_become_owner();
	weighted_sums *sums = palloc(sizeof *sums);
	Jsonb		  *metadata;
	Datum		   values[1];
	bool		   none;

	dana_model_find(reference, before.user, true);
	metadata = DatumGetJsonbPCopy(dana_value(0, DANA_MODEL_METADATA));
	none = dana_json_is_null(metadata, "coefficients");
	if (none)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("model \"%s\" does not predict a weighted sum of its features, so they have no contributions",
							   reference),
						errhint("dana_importance() shows which features any model with a label uses.")));
	values[0] = JsonbPGetDatum(metadata);
	(void)dana_read(&read_sums, values, NULL);
	sums->sums = sums_numbers(1, &sums->bases);
	sums->terms = sums_numbers(2, &sums->means);
	if (sums_numbers(3, &sums->values) != sums->sums * sums->terms)
		dana_error(DATA_CORRUPTED, "metadata.coefficients of model \"%s\" is malformed", reference);
	dana_become_caller(before);
	pfree(metadata);
	return sums;
}

/* Adds the rows of one sum: its base, then the contribution of each feature */
static void
add_contributions(ReturnSetInfo *results, const loaded_model *model, const char *label, int sum)
{
	const dana_inputs *features = &model->features;
	const double	  *coefficients = model->sums->values + (ptrdiff_t)sum * model->sums->terms;
	Datum			   values[] = {label == NULL ? (Datum)0 : CStringGetTextDatum(label), CStringGetTextDatum("(base)"),
								   Float8GetDatum(model->sums->bases[sum])};
	bool			   nulls[] = {label == NULL, false, false};
	int				   at = 0;

	dana_results_add(results, values, nulls);
	for (int i = 0; i < features->count; i++)
	{
		const int count = features->reals ? 1 : model->numbers[i].count;
		double	  total = 0;

		/* a value less its centre is exact, and so is that of a mean; their sum with a large centre is not */
		for (int k = at; k < at + count; k++)
			total += coefficients[k] *
				(model->memory[k] - (model->sums->means[k] - (features->centres != NULL ? features->centres[k] : 0)));
		at += count;
		values[1] = CStringGetTextDatum(features->count == features->names.count ? features->names.values[i]
																				  : psprintf("%d", i + 1));
		values[2] = Float8GetDatum(total);
		dana_results_add(results, values, nulls);
	}
}

/* dana_contributions(model, features ...): what each feature adds to each weighted sum of a linear model */
DANA_FUNCTION(dana_contributions)
{
	ReturnSetInfo *results = dana_results_begin(fcinfo);
	loaded_model  *model;
	const float	  *result = predict_row(fcinfo, &model, NULL);

	if (model == NULL)
		return (Datum)0;
	if (model->sums == NULL)
	{
		loaded_models *models = fcinfo->flinfo->fn_extra;
		MemoryContext  caller = MemoryContextSwitchTo(models->context);

		model->sums = read_weighted_sums(model->name);
		MemoryContextSwitchTo(caller);
	}
	if (result == NULL)
		return (Datum)0;
	if (model->sums->terms != (int)model->program.inputs)
		dana_error(DATA_CORRUPTED, "metadata.coefficients of model \"%s\" is malformed", model->name);
	for (int sum = 0; sum < model->sums->sums; sum++)
		add_contributions(results, model,
						  model->sums->sums == 1 ? NULL
						  : sum < model->classes.count ? model->classes.values[sum]
													   : psprintf("%d", sum + model->several),
						  sum);
	return (Datum)0;
}

/*
 * dana.dana_scored(model, features ...): as dana_predict_array(), less the label's centre; NaN for a row that the
 * training would have left out for NaN or an infinity in a feature
 */
DANA_FUNCTION(dana_scored)
{
	loaded_model *model;
	bool		  left_out = false;
	const float	 *result = predict_row(fcinfo, &model, &left_out);
	float		 *none;

	if (result == NULL)
		PG_RETURN_NULL();
	if (!left_out)
		PG_RETURN_DATUM(predicted_array(model, result, 0, false));
	none = palloc(sizeof(float) * model->program.width);
	for (uint32 i = 0; i < model->program.width; i++)
		none[i] = get_float4_nan();
	PG_RETURN_DATUM(predicted_array(model, none, 0, false));
}

/* dana_predict_array(model, features ...): all numbers of a prediction */
DANA_FUNCTION(dana_predict_array)
{
	loaded_model *model;
	const float	 *result = predict_row(fcinfo, &model, NULL);

	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(predicted_array(model, result, model->centre, false));
}
