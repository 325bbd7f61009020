/*
 * The arguments of dana_train(), which that function alone declares, and the message that they become.
 */
#pragma once

#include "base/arguments.h"
#include "base/dana.h"
#include "models/rules.h"
#include "source/source.h"
#include "values/encode.h"
#include "worker/session.h"

typedef struct dana_training dana_training;

/* One of the groups that dana_train_groups() makes a model of */
typedef struct dana_group_key
{
	const char *of;		   /* the name that was asked for; the model's has the key behind it */
	Jsonb	   *key;
	const char *condition; /* SQL that is true of its rows */
} dana_group_key;

/* Members that are NULL were not given; how each is filled stands in training.c */
struct dana_training
{
	dana_arguments arguments; /* all of them, for what the worker alone reads */
	char	  *rule;
	char	  *model;
	char	  *backend;
	char	  *label;
	dana_texts features;
	char	  *filter;
	char	  *nulls;
	Jsonb	  *preprocess;
	char	  *nonfinite;
	dana_texts classes;
	char	  *weight; /* column of the rows' weights */
	double	   test_size; /* 0: no rows are left out */
	char	  *held_out; /* filter of those that are, or of a query a query; or NULL */
	char	  *tried;	 /* likewise rows that the model is tried on: their categories count, too */
	dana_texts key; /* of the table, by which they are chosen; count 0: by their place */
	int		   seed;
	int		   epochs; /* 0: as many as the rule says */
	char	  *warm_start_from;
	char	  *whole_query; /* before some of its rows were left out; the filter stays as it was given */
	dana_source_request rows; /* table or query; and what the members above say of them, checked */
	const dana_group_key *group; /* or NULL */
	bool	   unnamed; /* the model has the rule's name for want of another */
};

/* What a word says of NULLs, or the number that it is; `argument`, for an error, is where it was given */
extern dana_null_policy dana_read_nulls(const char *argument, const char *word, float *number);

/* The training that a call of dana_train() asks for, checked */
extern void dana_training_parse(const dana_arguments *arguments, dana_training *training);

/*
 * The same for functions that train in other ways: rule and source are their first two arguments, the others members of
 * an object, their argument number `options`.
 */
extern void dana_training_from_call(FunctionCallInfo fcinfo, int options, dana_training *training);

/* Leaves only the rows for which a condition holds */
extern void dana_training_restrict(dana_training *training, const char *condition);

/* Whether there are rows left out to judge its models by: of a table, not of its groups */
static inline bool
dana_training_held_out(const dana_training *training)
{
	return training->held_out != NULL && training->group == NULL;
}

extern void dana_training_define(void);

/* Sets for now what the words of its query or filter depended on when a model with these metadata was trained */
extern void dana_training_settings(Jsonb *metadata);

/* dana.device: the FPGA that machines are made for, or NULL */
extern const char *dana_device(void);

/* Its rule, which has the hyperparameters that are given: said before a row is read */
extern dana_rule dana_training_rule(const dana_training *training);

/* The TRAIN message, for the text of a rule; where `weights` has room, what they are of the model to start from */
extern StringInfo dana_training_request(const dana_training *training, const char *rule, dana_source *source,
										dana_raw *weights);
