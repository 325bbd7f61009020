/*
 * dana_holdout(): whether a row belongs to the part that is kept for a test; dana_fold(): to which of several parts. Both
 * depend on the row's place or key and on a seed, on nothing else, so a training and a test that name the same part and
 * seed never share a row.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "storage/itemptr.h"

#include "dana.h"
#include "holdout.h"

/* Casts, so that the types are exactly the declared ones, whatever functions of that name others may have made */
char *
dana_holdout_expression(const char *place, double part, int seed)
{
	return psprintf("%s(%s, %.17g::pg_catalog.float8, %d)", dana_extension_name("dana_holdout"), place, part, seed);
}

char *
dana_fold_expression(const char *place, int folds, int seed)
{
	return psprintf("%s(%s, %d, %d)", dana_extension_name("dana_fold"), place, folds, seed);
}

/* The upper 53 bits of a hash as a number in [0, 1) */
static double
number_of(const void *key, int length, int32 seed)
{
	return (hash_bytes_extended(key, length, (uint64)(uint32)seed) >> 11) * 0x1p-53;
}

static bool
held_out(const void *key, int length, double part, int32 seed)
{
	if (!(part >= 0 && part <= 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("the part that is held out must be from 0 to 1, not %g", part)));
	return number_of(key, length, seed) < part;
}

/* From 1; folds that divide one another are made of whole smaller ones */
static int32
fold_of(const void *key, int length, int32 folds, int32 seed)
{
	if (folds < 1)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("there must be at least 1 fold, not %d", folds)));
	return (int32)(number_of(key, length, seed) * folds) + 1;
}

static uint64
place_of(ItemPointer at)
{
	return (uint64)ItemPointerGetOffsetNumberNoCheck(at) << 32 | ItemPointerGetBlockNumberNoCheck(at);
}

/* dana_holdout(place tid, part, seed) */
DANA_FUNCTION(dana_holdout_place)
{
	uint64 at = place_of((ItemPointer)PG_GETARG_POINTER(0));

	PG_RETURN_BOOL(held_out(&at, sizeof at, PG_GETARG_FLOAT8(1), PG_GETARG_INT32(2)));
}

/* dana_holdout(key bigint, part, seed) */
DANA_FUNCTION(dana_holdout_integer)
{
	int64 key = PG_GETARG_INT64(0);

	PG_RETURN_BOOL(held_out(&key, sizeof key, PG_GETARG_FLOAT8(1), PG_GETARG_INT32(2)));
}

/* dana_holdout(key text, part, seed) */
DANA_FUNCTION(dana_holdout_text)
{
	text *key = PG_GETARG_TEXT_PP(0);

	PG_RETURN_BOOL(held_out(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key), PG_GETARG_FLOAT8(1), PG_GETARG_INT32(2)));
}

/* dana_fold(place tid, folds, seed) */
DANA_FUNCTION(dana_fold_place)
{
	uint64 at = place_of((ItemPointer)PG_GETARG_POINTER(0));

	PG_RETURN_INT32(fold_of(&at, sizeof at, PG_GETARG_INT32(1), PG_GETARG_INT32(2)));
}

/* dana_fold(key text, folds, seed) */
DANA_FUNCTION(dana_fold_text)
{
	text *key = PG_GETARG_TEXT_PP(0);

	PG_RETURN_INT32(fold_of(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key), PG_GETARG_INT32(1), PG_GETARG_INT32(2)));
}
