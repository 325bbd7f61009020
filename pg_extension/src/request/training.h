/*
 * The arguments of dana_train(), which are declared only there, and the message that they become.
 */
#pragma once

#include "base/arguments.h"
#include "base/dana.h"
#include "models/rules.h"
#include "rows/places.h"
#include "source/source.h"
#include "values/encode.h"
#include "worker/session.h"

typedef struct dana_training dana_training;

/* One of the groups that dana_train_groups() trains models for */
typedef struct dana_group_key
{
	const char *of;		   /* the name that was given; the model's name adds the key */
	Jsonb	   *key;
	const char *condition; /* SQL that is true for its rows */
} dana_group_key;

/* Members that are NULL were not given; training.c describes how each is filled */
struct dana_training
{
	dana_arguments arguments; /* all of them, for the ones that only the worker reads */
	char	  *rule;
	char	  *model;
	char	  *machine;
	char	  *label;
	dana_texts features;
	char	  *filter;
	char	  *nulls;
	Jsonb	  *preprocess;
	char	  *nonfinite;
	dana_texts classes;
	char	  *weight; /* column of the rows' weights */
	double	   test_size; /* 0: no rows are left out for dana_evaluate(), or those later than test_after */
	char	  *test_by;	  /* column that identifies the rows, or groups of them, that parts are made of */
	Jsonb	  *test_after;
	bool	   early_stopping;
	double	   validation_size; /* 0: the loss of the training rows chooses the epoch */
	char	  *calibrate; /* the method that fits probabilities to the rows for validation; or NULL */
	char	  *held_out; /* filter, or query, of rows that the loss is computed on after each epoch; or NULL */
	bool	   tried; /* some rows are not trained on; their categories count, too */
	dana_split split; /* of the rows into a test part and the others */
	int		   seed;
	int		   epochs; /* 0: the rule's number */
	char	  *warm_start_from;
	char	  *sync;	/* the rows are those of the table's shards: gather, batch or epoch; or NULL */
	char	  *whole_query; /* as given, including the rows that are left out, as `filter` does */
	dana_source_request rows; /* table or query; derived from the members above, and checked */
	const dana_group_key *group; /* or NULL */
	Jsonb	  *part; /* of a training on several servers, or NULL */
	bool	   leads; /* that part is without rows: those of the table are only looked at */
	Jsonb	  *known; /* of a part, or NULL: for the one that leads "found", what columns have in the rows of all parts,
					   * "key", their primary key, "parts" and "classes", how a test divides them; for others "preprocess",
					   * how it encodes features, as a model's metadata have it, and "held_out", a filter of its rows for
					   * validation */
	char	  *text; /* of the rule, or NULL: it is registered here */
	bool	   unnamed; /* the model is named after its rule because no name was given */
};

/* The policy for NULLs that a word means, or a number to replace them; `argument` is its name, for an error */
extern dana_null_policy dana_read_nulls(const char *argument, const char *word, double *number);

/* The training that a call of dana_train() asks for, checked */
extern void dana_training_parse(const dana_arguments *arguments, dana_training *training);

/*
 * The same for functions that train in other ways: rule and source are their first two arguments, the others members of
 * an object, their argument number `options`.
 */
extern void dana_training_from_call(FunctionCallInfo fcinfo, int options, dana_training *training);

/* The query, or else a filter, of those among `rows` that satisfy a condition; a filter may be NULL */
extern char *dana_training_rows(const dana_training *training, const char *condition, const char *rows);

/* Number of the column that the worker will use as the label; 0: it will report why there is none */
extern int dana_training_label(const dana_training *training, TupleDesc columns, Jsonb *description);

extern void dana_training_define(void);

/*
 * Sets, until the level ends, the settings that the query or filter depended on when a model with these metadata was
 * trained
 */
extern void dana_training_settings(Jsonb *metadata);

/* The table that a model with these metadata was trained on; an error if its owner has changed since */
extern Oid dana_trained_on(Jsonb *metadata);

/* dana.device: the FPGA that machines are made for, or NULL */
extern const char *dana_device(void);

/* Appends an argument of dana_train() as JSON has it */
extern void dana_training_append(StringInfo to, const dana_arguments *arguments, int number);

/* Raises an error if "sync" was given: for functions that train on rows of this server */
extern void dana_training_reject_sync(const dana_training *training);

/* Its rule, with the given hyperparameters, which are checked before a row is read */
extern dana_rule dana_training_rule(const dana_training *training);

/* The TRAIN message, for the text of a rule; `weights`, if not NULL, receives those of the model to start from */
extern StringInfo dana_training_request(const dana_training *training, const char *rule, dana_source *source,
										dana_raw *weights);
