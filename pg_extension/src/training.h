/*
 * What a training is asked for: the arguments of dana_train(), which that function alone declares, and the message that
 * they become.
 */
#pragma once

#include "lib/stringinfo.h"

#include "arguments.h"
#include "source.h"

/* One of the groups that dana_train_groups() makes a model of */
typedef struct dana_group_key
{
	const char *of;		   /* the name that was asked for; the model's has the key behind it */
	const char *key;	   /* JSON object */
	const char *condition; /* SQL that is true of its rows */
} dana_group_key;

/* Members that are NULL were not given; how each is filled stands in training.c */
typedef struct dana_training
{
	dana_arguments arguments; /* all of them, for what the worker alone reads */
	char	  *rule;
	char	  *model;
	char	  *backend;
	char	  *label;
	dana_texts features;
	Oid		   source;
	char	  *query;
	char	  *filter;
	char	  *nulls;
	char	  *nonfinite;
	dana_texts classes;
	double	   test_size; /* 0: no rows are left out */
	int		   seed;
	int		   epochs; /* 0: as many as the rule says */
	char	  *warm_start_from;
	dana_source_request rows; /* what the members above say of them, checked */
	const dana_group_key *group; /* or NULL */
} dana_training;

/* The training that a call of dana_train() asks for, checked */
extern void dana_training_parse(const dana_arguments *arguments, dana_training *training);

/*
 * The same for functions that train in other ways: rule and source are their first two arguments, the others members of
 * an object, their argument number `options`.
 */
extern void dana_training_from_call(FunctionCallInfo fcinfo, int options, dana_training *training);

/* Leaves only the rows for which a condition holds */
extern void dana_training_restrict(dana_training *training, const char *condition);

/* The TRAIN message, for the text of a rule */
extern StringInfo dana_training_request(const dana_training *training, const char *rule, dana_source *source);
