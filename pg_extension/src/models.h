/*
 * Rules, models and their history: tables dana.rule, dana.model, dana.run, dana.epoch.
 *
 * Each role has names of its own for models. A text names a model as [owner.]name[@version]: without an owner it is one
 * of the caller's, without a version the active one, else the highest.
 */
#pragma once

#include "portability/instr_time.h"

#include "worker.h"

/* rules.c: a rule, in the current memory context; an error where there is none */
typedef struct dana_rule
{
	char  *text;
	Jsonb *description; /* the worker's, of its models, inputs and outputs */
} dana_rule;

extern dana_rule dana_rule_read(const char *name);

/* models.c */

/* What a training leaves */
typedef struct dana_new_model
{
	const struct dana_training *training;
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

/* places.c */

/* SQL that is true of rows that are held out; `place`: what tells them apart, "ctid" or an expression */
extern char *dana_holdout_expression(const char *place, double part, int seed);

/* The columns of a table's primary key; count 0: it has none that rows are chosen by */
extern dana_texts dana_key_of(Oid table);

/* SQL that is true of rows that are held out by such a key, or by ctid where it has no columns */
extern char *dana_holdout_of_key(const dana_texts *key, double part, int seed);

/* Appends what the model's metadata keep of it: member "test_key", or "test_places" for rows that the snapshot sees */
extern void dana_places_append(StringInfo to, Oid table, const dana_texts *key, Snapshot snapshot);

/* Whether rows are still where they were when a model was trained */
typedef struct dana_places
{
	bool		moved; /* some of them are not, or nobody knows */
	const char *later; /* SQL that is true of a row that was written since, by parameters $7 and $8: */
	Datum		first; /* xid of the first transaction that is later */
	Datum		running; /* xid[] of those that ran then */
} dana_places;

/* SQL that is true of the rows of a table that a training left out, by the model's metadata */
extern char *dana_places_read(Jsonb *metadata, Oid table, const char *model, dana_places *places);

/* Says of an evaluated part that it may be another one; `later` of its rows were written since */
extern void dana_places_tell(const dana_places *places, Oid table, const char *model, const char *part, int64 later,
							 int64 rows);
