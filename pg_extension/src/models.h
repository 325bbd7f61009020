/*
 * Models and their history: tables dana.model, dana.run, dana.epoch.
 */
#ifndef DANA_MODELS_H
#define DANA_MODELS_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "lib/stringinfo.h"
#include "portability/instr_time.h"
#include "utils/array.h"
#include "utils/jsonb.h"

#include "catalog.h"

/* What a training leaves */
typedef struct dana_new_model
{
	const char *name;
	const char *udf;
	const char *source; /* the table's name */
	const char *backend;
	Jsonb	   *result; /* the worker's RESULT */
	Jsonb	   *design; /* the worker's DESIGN */
	Jsonb	   *epochs; /* array of its EPOCHs */
	ArrayType  *weights;
	bytea	   *predictor; /* or NULL */
	instr_time	started; /* when the call began */
	double		wall_seconds;
} dana_new_model;

/* Raises an error unless the caller may train a model of this name */
extern void dana_model_check(const char *name);

/* Raises an error unless this can be a model's name */
extern void dana_model_check_name(const char *name);

/* Raises an error where a version of the model is not the caller's; returns how many owners there are, so 0 where there
 * is no such model. Called as the tables' owner. */
extern uint64 dana_model_check_owner(Oid caller, const char *name);

/* Appends the parameters and weights of a model that the caller may use, "name" or "name@version", as a JSON object */
extern void dana_model_append_weights(StringInfo to, const char *reference);

/* A statement that finds the version which "name" or "name@version" stands for; `columns` are its third and following */
#define DANA_MODEL_FIND(columns)                                                                                       \
	{                                                                                                                  \
		"SELECT owner, users, " columns " FROM dana.model WHERE name = $1 AND ($2 = 0 OR version = $2) "               \
		"ORDER BY active DESC, version DESC LIMIT 1",                                                                  \
			2, {TEXTOID, INT4OID}, NULL                                                                                \
	}

/*
 * Runs such a statement, by dana_run() or dana_read(); raises an error where there is no such model, or none that the
 * caller may use. Called as the tables' owner.
 */
extern void dana_model_find(dana_statement *find, const char *reference, Oid caller,
							uint64 (*run)(dana_statement *statement, Datum *values, const char *nulls));

/* Stores model, run and epochs; returns a row of type `training` */
extern Datum dana_model_store(const dana_new_model *model, TupleDesc training);

#endif /* DANA_MODELS_H */
