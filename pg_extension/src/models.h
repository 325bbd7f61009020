/*
 * Models and their history: tables dana.model, dana.run, dana.epoch.
 *
 * Each role has names of its own. A text names a model as [owner.]name[@version]: without an owner it is one of the
 * caller's, without a version the active one, else the highest.
 */
#pragma once

#include "lib/stringinfo.h"
#include "portability/instr_time.h"
#include "utils/array.h"
#include "utils/jsonb.h"

#include "catalog.h"

/* What a training leaves */
typedef struct dana_new_model
{
	const char *name;
	const char *rule;
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

/* Raises an error unless this can be a model's name */
extern void dana_model_check_name(const char *name);

/* A statement that finds a version; `columns` are its fifth and following, after owner, users, name and version */
#define DANA_MODEL_FIND(columns)                                                                                       \
	{                                                                                                                  \
		"SELECT owner, users, name, version, " columns " FROM dana.model WHERE owner = $1 AND name = $2 "              \
		"AND ($3 = 0 OR version = $3) ORDER BY active DESC, version DESC LIMIT 1",                                     \
			3, {OIDOID, TEXTOID, INT4OID}, NULL                                                                        \
	}
#define DANA_MODEL_COLUMNS 4

/*
 * Runs such a statement, by dana_run() or dana_read(); raises an error where there is no such model, or none that the
 * caller may use, which are one and the same to it. Called as the tables' owner.
 */
extern void dana_model_find(dana_statement *find, const char *reference, Oid caller,
							uint64 (*run)(dana_statement *statement, Datum *values, const char *nulls));

/* The reference to a version of what another reference names, for the same caller: it may have models "m" and "owner.m" */
extern char *dana_model_version_of(const char *reference, int version);

/* Appends the parameters and weights of a model that the caller may use as a member */
extern void dana_model_append_weights(StringInfo to, const char *key, const char *reference);

/* Stores model, run and epochs; returns a row of type dana.training */
extern Datum dana_model_store(const dana_new_model *model);
