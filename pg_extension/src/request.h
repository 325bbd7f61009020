/*
 * The arguments of dana_train(), checked, and the message that they become.
 */
#ifndef DANA_REQUEST_H
#define DANA_REQUEST_H

#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"

#include "source.h"

/* One of the groups that dana_train_groups() makes a model of */
typedef struct dana_group_key
{
	const char *of;		   /* the name that was asked for; the model's has the key behind it */
	const char *key;	   /* JSON object */
	const char *condition; /* SQL that is true of its rows */
} dana_group_key;

typedef struct dana_train_call
{
	FunctionCallInfo	fcinfo;
	char			   *udf;
	char			   *backend;
	char			   *model;
	char			   *warm; /* model to start from, or NULL */
	int					features; /* how many are named; -1: none, the choice is the worker's */
	char			  **feature;
	char			   *label; /* or NULL */
	dana_source_request source;
	const dana_group_key *group; /* or NULL */
} dana_train_call;

/* What dana_explain() is asked besides the training */
typedef struct dana_explanation
{
	char *device;
	bool  search; /* for the best machine of the device */
	bool  json;
} dana_explanation;

/* Reads and checks the arguments of dana_train(); a function with `more` of them has these behind */
extern void dana_request_read(FunctionCallInfo fcinfo, int more, dana_train_call *call);

/* The elements of a text[], none of them NULL; returns how many, or -1 for NULL */
extern int dana_request_texts(FunctionCallInfo fcinfo, int number, const char *name, char ***texts);

/* The same for dana_explain(): the training that would be, which dana_request_build() takes, and what is asked of it */
extern void dana_request_read_explain(FunctionCallInfo fcinfo, dana_train_call *call, dana_explanation *wanted);

/* The TRAIN message */
extern StringInfo dana_request_build(const dana_train_call *call, const char *rule, dana_source *source);

#endif /* DANA_REQUEST_H */
