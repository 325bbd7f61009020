/*
 * Rules, models and their history: tables dana.rule, dana.model, dana.run, dana.epoch.
 *
 * Each role has its own namespace of models. A reference is [owner.]name[@version]: without an owner it means the
 * caller's model; without a version the active one, else the highest.
 */
#pragma once

#include "portability/instr_time.h"

#include "base/dana.h"
#include "worker/session.h"

/* Results of a training */
typedef struct dana_new_model
{
	const char *name;
	const char *rule;
	const char *machine;
	const char *query; /* the table that was trained on, or NULL */
	bool		checkpoints; /* its training may have left one */
	bool		unnamed; /* the model is named after its rule because no name was given, and is not one of a group */
	const char *source; /* the table's name */
	Jsonb	   *result; /* the worker's RESULT */
	Jsonb	   *design; /* the worker's DESIGN */
	Jsonb	   *epochs; /* array of its EPOCHs */
	ArrayType  *weights;
	bytea	   *predictor; /* or NULL */
	instr_time	started; /* when the call began */
	double		wall_seconds;
} dana_new_model;

#define DANA_NAME_LIMIT 255 /* maximum length of a model's name in bytes */

/* Raises an error unless this is a valid name for a model */
extern void dana_model_check_name(const char *name);

/* Columns of dana.model, by number */
enum
{
	DANA_MODEL_OWNER = 1,
	DANA_MODEL_NAME,
	DANA_MODEL_VERSION,
	DANA_MODEL_RULE = 5,
	DANA_MODEL_USERS = 8,
	DANA_MODEL_PARAMETERS,
	DANA_MODEL_WEIGHTS,
	DANA_MODEL_PREDICTOR,
	DANA_MODEL_METADATA
};

/*
 * Finds a version; its row is the last result. Raises the same error if the model does not exist and if the caller may
 * not use it. `read_only`: as dana_read(). Called as the tables' owner.
 */
extern void dana_model_find(const char *reference, Oid caller, bool read_only);

/* The last result's row, as one of a type of schema dana; lives as long as the memory context */
extern Datum dana_model_row(const char *type);

/* Whether a text names a version, as "name@2" does */
extern bool dana_model_names_version(const char *reference);

/*
 * The reference to a version of the model that another reference names, for the same caller, who may have models "m"
 * and "owner.m"
 */
extern char *dana_model_version_of(const char *reference, int version);

/*
 * Copies pointers to the weights of the model that is the last result: one array for each part, without detoasting.
 * Returns the number of parts, and may replace the last result.
 */
extern int dana_model_weights(Datum **parts, bool read_only);

/* The metadata of a model that the caller may use */
extern Jsonb *dana_model_metadata(const char *reference);

/* Appends a member with what a training needs of a model to start from; its weights, if `weights` is not NULL */
extern void dana_model_append_start(StringInfo to, const char *reference, dana_raw *weights);

/* Texts of the classes of a model that the caller may use, and its rule; count -1: it has none */
extern dana_texts dana_model_classes(const char *reference, char **rule);

/* Stores model, run and epochs; returns a row of type dana.training */
extern Datum dana_model_store(const dana_new_model *model);
