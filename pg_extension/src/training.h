/*
 * Trainings: what one is asked for, within which limits it runs, how far it is; and those in the background.
 */
#pragma once

#include "storage/lock.h"
#include "utils/backend_progress.h"

#include "bounds.h"
#include "models.h"
#include "source.h"

/*
 * progress.c: how far a training is, for other sessions. Most of it stands in PostgreSQL's own progress counters
 * (backend_progress.h), which a failing transaction clears.
 */

typedef enum dana_progress_counter
{
	DANA_PROGRESS_PHASE, /* enum dana_progress_phase */
	DANA_PROGRESS_EPOCH, /* epochs that ended */
	DANA_PROGRESS_EPOCHS,
	DANA_PROGRESS_PAGE, /* pages sent in this epoch */
	DANA_PROGRESS_PAGES, /* 0: unknown */
	DANA_PROGRESS_CYCLES, /* over all epochs */
	DANA_PROGRESS_LOSS,	  /* the bits of a double */
	DANA_PROGRESS_HAS_LOSS,
	DANA_PROGRESS_STARTED, /* TimestampTz, as the three that follow */
	DANA_PROGRESS_FIRST_BEGAN, /* the first epoch, once the rule was compiled */
	DANA_PROGRESS_FIRST_ENDED, /* the first epoch, whose time is unlike the others' */
	DANA_PROGRESS_LAST_ENDED,  /* the last one so far */
	DANA_PROGRESS_CURVE,	   /* dsm_handle of the epochs */
	DANA_PROGRESS_COUNTERS
} dana_progress_counter;

typedef enum dana_progress_phase
{
	DANA_PHASE_COMPILING,
	DANA_PHASE_STREAMING,
	DANA_PHASE_TRAINING,
	DANA_PHASE_STORING,
	DANA_PHASE_WAITING, /* for other trainings to end: dana.max_runs */
	DANA_PHASE_LOOKING /* at labels and columns, before the worker is asked */
} dana_progress_phase;

/* Begins to tell of a training on a table, or on none */
extern void dana_progress_begin(Oid source);

extern void dana_progress(dana_progress_counter counter, int64 value);

/* An epoch ended: the worker's EPOCH */
extern void dana_progress_epoch(Jsonb *report);

/* No epoch will follow; for readers, too, whose transaction still sees the counters of the training */
extern void dana_progress_end_epochs(void);

/* training.c: the arguments of dana_train(), which that function alone declares, and the message that they become */

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

/*
 * classes.c: finds the classes of the label, unless they are given, for a rule that has some by its description. With
 * `assume` it may take them from some of the rows; then source->assumed says so, and whether that holds is to be asked
 * once all were streamed, or before rows are streamed as frames.
 */
extern void dana_classes_find(const dana_training *training, dana_source *source, Jsonb *description, bool assume);
extern bool dana_classes_hold(const dana_training *training, dana_source *source, Jsonb *description);

/*
 * categories.c: the columns whose numbers choose rows of models, what is to be told of them, and their largest numbers
 * where the worker wants to know them; once the source's features are chosen
 */
extern void dana_categories_find(const dana_training *training, dana_source *source, const dana_rule *rule);

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

/* train.c */

extern void dana_notices_define(void);

/*
 * Trains a rule on an open source. What is to be stored is left in `model`, which says when the call began. False: the
 * label's classes are not those that were assumed, and nothing was trained.
 */
extern bool dana_train_model(const dana_training *training, dana_source *source, const dana_rule *rule,
							 dana_new_model *model);

/* The whole of dana_train(): a row of type dana.training */
extern Datum dana_train_and_store(dana_training *training);

/* jobs.c, job_worker.c: calls in the background, each a row of dana.job_log and a background worker of PostgreSQL */

/* What the worker is told when it is registered (bgw_extra); the rest is in the row */
typedef struct dana_job
{
	int64		  id;
	Oid			  database;
	Oid			  owner;
	TransactionId starter; /* the transaction that wrote the row */
} dana_job;

/*
 * The lock that a job's worker holds, in ExclusiveLock, from before its starter's commit until it ends. Where nobody
 * holds it, nobody works on the job. It is the session's, so that a commit does not release it, and neither its tag
 * nor, unlike an advisory lock's, its method can be named in SQL.
 */
extern LOCKTAG dana_job_lock(int64 id);

/* The arguments of a call that can be made in the background; an error where it cannot, or not with these */
extern void dana_job_arguments(const char *function, Jsonb *given, dana_arguments *arguments);
