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

/* Splits "name@version"; version 0 where there is none */
extern char *dana_model_split(const char *reference, int *version);

/* Stores model, run and epochs; returns a row of type `training` */
extern Datum dana_model_store(const dana_new_model *model, TupleDesc training);

#endif /* DANA_MODELS_H */
