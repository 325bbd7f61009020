/*
 * Models and their history: tables dana.model, dana.run, dana.epoch.
 */
#ifndef DANA_MODELS_H
#define DANA_MODELS_H

#include "postgres.h"

#include "access/tupdesc.h"
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
	double		wall_seconds;
} dana_new_model;

/* Raises an error unless the caller may train a model of this name */
extern void dana_model_check(const char *name);

/* Stores model, run and epochs; returns a row of type `training` */
extern Datum dana_model_store(const dana_new_model *model, TupleDesc training);

#endif /* DANA_MODELS_H */
