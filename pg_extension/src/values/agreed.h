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
#define DANA_PART_ALIVE 'L' /* all of it: a follower is at work */

/* Options of the leader alone; those that need all rows at one server, and what for */
#define DANA_LEADERS "model", "warm_start_from", "test_size", "test_by", "test_after", "validation_size", "early_stopping"
#define DANA_REJECTED {"calibrate", "rows for validation"}, {"preprocess", "an encoding of columns"}

/* What runs at the shards, for psprintf() */
#define DANA_SELECT_KEYS /* key, table */ \
	"SELECT pg_catalog.hashtextextended(ROW(%1$s)::text COLLATE \"C\", 0) AS hash FROM %2$s ORDER BY 1 LIMIT 4096"
#define DANA_SELECT_LABELS /* label, table, where */ \
	"SELECT DISTINCT pg_catalog.format('%%s', %1$s) AS label FROM %2$s WHERE %3$s LIMIT 1001"
#define DANA_SELECT_DRAWN /* row, table, where */ \
	"SELECT d.v[1] AS class, d.v[2] AS number, pg_catalog.count(*) AS count FROM (SELECT dana.dana_draws(%1$s) AS v FROM %2$s WHERE %3$s) AS d GROUP BY 1, 2 LIMIT 100001"
#define DANA_SELECT_ANY /* table, where, condition */ \
	"SELECT EXISTS (SELECT FROM %1$s WHERE %2$s AND %3$s) AS found"
#define DANA_SELECT_TEXTS /* column, table, where */ \
	"SELECT CASE WHEN pg_catalog.octet_length(g.v) OPERATOR(pg_catalog.>) 200 THEN pg_catalog.rpad(pg_catalog.hashtextextended(g.v, 0)::pg_catalog.text, 201) ELSE g.v END AS v, g.n AS n FROM (SELECT dana.dana_fixed_text(%1$s) COLLATE pg_catalog.\"C\" AS v, pg_catalog.count(*) AS n FROM %2$s WHERE %3$s GROUP BY 1 LIMIT 100001) AS g"
#define DANA_SELECT_NUMBERS /* numbers, table, where */ \
	"SELECT ARRAY[%1$s]::pg_catalog.float8[] AS numbers FROM %2$s WHERE %3$s"
#define DANA_NUMBERS_OF /* column */ \
	"pg_catalog.sum(dana.dana_number(%1$s)) FILTER (WHERE pg_catalog.abs(dana.dana_number(%1$s)) OPERATOR(pg_catalog.<=) 3.4e38::pg_catalog.float8), pg_catalog.count(dana.dana_number(%1$s)) FILTER (WHERE pg_catalog.abs(dana.dana_number(%1$s)) OPERATOR(pg_catalog.<=) 3.4e38::pg_catalog.float8), pg_catalog.bool_or(dana.dana_number(%1$s) IS NULL)::pg_catalog.int4, pg_catalog.max(dana.dana_number(%1$s) OPERATOR(pg_catalog.-) (86400::pg_catalog.float8 OPERATOR(pg_catalog.*) pg_catalog.floor(dana.dana_number(%1$s) OPERATOR(pg_catalog./) 86400::pg_catalog.float8))) FILTER (WHERE pg_catalog.abs(dana.dana_number(%1$s)) OPERATOR(pg_catalog.<=) 3.4e38::pg_catalog.float8)"

#endif
