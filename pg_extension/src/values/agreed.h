/* Declarations of dana/cluster/agreed.py. Written by python -m dana.generated. */
#ifndef DANA_AGREED_H
#define DANA_AGREED_H

#define DANA_SHARD_PAGES 64 /* of a shard in its turn */
#define DANA_SHARD_LABELS 1001 /* different ones that are read of a shard */
#define DANA_SHARD_TEXTS 100000 /* different ones of a column that are read of a shard */
#define DANA_SHARD_KEYS 4096 /* those of least hash, which are compared with those of other shards */
#define DANA_SHARD_SAMPLE 1000 /* rows of a shard that an estimate is made from */
#define DANA_TEXT_BYTES 200 /* of a category at most */
#define DANA_MAX_DRAWN 100000 /* numbers of rows: of more, they alone decide which rows are held out */
#define DANA_VALIDATION_SIZE 0.1 /* of early_stopping */

/* What a message between parts of a training is, its first byte */
#define DANA_PART_INTRODUCTION 'I' /* the columns of the leader */
#define DANA_PART_COMMAND 'C' /* of the leader */
#define DANA_PART_ANSWER 'A' /* of a follower */
#define DANA_PART_MERGES 'M' /* what a follower merged */

/* Options of the leader alone; those that need all rows at one server, and what for */
#define DANA_LEADERS "model", "warm_start_from", "test_size", "test_by", "test_after", "validation_size", "early_stopping"
#define DANA_REJECTED {"calibrate", "rows for validation"}, {"preprocess", "an encoding of columns"}

#endif
