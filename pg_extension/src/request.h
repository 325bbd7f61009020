/*
 * The arguments of dana_train(), checked, and the message that they become.
 */
#ifndef DANA_REQUEST_H
#define DANA_REQUEST_H

#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"

#include "source.h"

typedef struct dana_train_call
{
	FunctionCallInfo	fcinfo;
	char			   *udf;
	char			   *backend;
	char			   *model;
	char			   *warm; /* model to start from, or NULL */
	dana_source_request source;
} dana_train_call;

/* What dana_explain() is asked besides the training */
typedef struct dana_explanation
{
	char *device;
	bool  search; /* for the best machine of the device */
	bool  json;
} dana_explanation;

/* Reads and checks the arguments */
extern void dana_request_read(FunctionCallInfo fcinfo, dana_train_call *call);

/* The same for dana_explain(): the training that would be, which dana_request_build() takes, and what is asked of it */
extern void dana_request_read_explain(FunctionCallInfo fcinfo, dana_train_call *call, dana_explanation *wanted);

/* The TRAIN message */
extern StringInfo dana_request_build(const dana_train_call *call, const char *rule, dana_source *source);

#endif /* DANA_REQUEST_H */
