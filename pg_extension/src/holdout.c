/*
 * dana_holdout(): whether a row belongs to the part that is kept for a test. It depends on the row's place or key and on
 * a seed, on nothing else, so a training and a test that name the same part and seed never share a row.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "fmgr.h"
#include "storage/itemptr.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(dana_holdout_place);
PG_FUNCTION_INFO_V1(dana_holdout_integer);
PG_FUNCTION_INFO_V1(dana_holdout_text);

/* The hash's upper 53 bits as a number in [0, 1) */
static bool
held_out(const void *key, int length, double part, int32 seed)
{
	uint64 hash = hash_bytes_extended(key, length, (uint64)(uint32)seed);

	if (!(part >= 0 && part <= 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("the part that is held out must be from 0 to 1, not %g", part)));
	return (hash >> 11) * 0x1p-53 < part;
}

/* dana_holdout(place tid, part, seed) */
Datum
dana_holdout_place(PG_FUNCTION_ARGS)
{
	ItemPointer place = (ItemPointer)PG_GETARG_POINTER(0);
	uint32		key[2] = {ItemPointerGetBlockNumberNoCheck(place), ItemPointerGetOffsetNumberNoCheck(place)};

	PG_RETURN_BOOL(held_out(key, sizeof key, PG_GETARG_FLOAT8(1), PG_GETARG_INT32(2)));
}

/* dana_holdout(key bigint, part, seed) */
Datum
dana_holdout_integer(PG_FUNCTION_ARGS)
{
	int64 key = PG_GETARG_INT64(0);

	PG_RETURN_BOOL(held_out(&key, sizeof key, PG_GETARG_FLOAT8(1), PG_GETARG_INT32(2)));
}

/* dana_holdout(key text, part, seed) */
Datum
dana_holdout_text(PG_FUNCTION_ARGS)
{
	text *key = PG_GETARG_TEXT_PP(0);

	PG_RETURN_BOOL(held_out(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key), PG_GETARG_FLOAT8(1), PG_GETARG_INT32(2)));
}
