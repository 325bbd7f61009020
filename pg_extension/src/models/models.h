/*
 * Rules, models and their history: tables dana.rule, dana.model, dana.run, dana.epoch.
 *
 * Each role has names of its own for models. A text names a model as [owner.]name[@version]: without an owner it is one
 * of the caller's, without a version the active one, else the highest.
 */
#pragma once

#include "portability/instr_time.h"

#include "base/dana.h"
#include "worker/session.h"

/* What a training leaves */
typedef struct dana_new_model
{
	const char *name;
	const char *rule;
	const char *backend;
	const char *query; /* that was trained on, or NULL */
	bool		unnamed; /* the model has the rule's name for want of another, and is not one of a group */
	const char *source; /* the table's name */
	Jsonb	   *result; /* the worker's RESULT */
	Jsonb	   *design; /* the worker's DESIGN */
	Jsonb	   *epochs; /* array of its EPOCHs */
	ArrayType  *weights;
	bytea	   *predictor; /* or NULL */
	instr_time	started; /* when the call began */
	double		wall_seconds;
} dana_new_model;

#define DANA_NAME_LIMIT 255 /* bytes of a model's name */

/* Raises an error unless this can be a model's name */
extern void dana_model_check_name(const char *name);

/* Columns of dana.model, by their numbers */
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
 * Finds a version, whose row is then the last result; raises an error where there is no such model, or none that the
 * caller may use, which are one and the same to it. `read_only`: as dana_read(). Called as the tables' owner.
 */
extern void dana_model_find(const char *reference, Oid caller, bool read_only);

/* The last result's row, as one of a type of schema dana; lasts as long as the memory context */
extern Datum dana_model_row(const char *type);

/* Whether a text names a version, as "name@2" does */
extern bool dana_model_names_version(const char *reference);

/* The reference to a version of what another one names, for the same caller: it may have models "m" and "owner.m" */
extern char *dana_model_version_of(const char *reference, int version);

#define DANA_WEIGHTS_PART (1 << 22) /* numbers of an array of dana.model and dana.weights at most */

/*
 * Copies pointers to the weights of the model that is the last result, an array for each part, the arrays of parts out of
 * line as they are; returns how many. The last result may be another one then.
 */
extern int dana_model_weights(Datum **parts, bool read_only);

/* The metadata of a model that the caller may use */
extern Jsonb *dana_model_metadata(const char *reference);

/* Appends what a training has to know of a model to start from, as a member; its weights, if there is a place for them */
extern void dana_model_append_start(StringInfo to, const char *reference, dana_raw *weights);

/* Texts of the classes of a model that the caller may use, and its rule; count -1: it has none */
extern dana_texts dana_model_classes(const char *reference, char **rule);

/* Stores model, run and epochs; returns a row of type dana.training */
extern Datum dana_model_store(const dana_new_model *model);
