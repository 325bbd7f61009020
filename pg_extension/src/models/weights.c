/*
 * Weights of stored models: uncompressed arrays in TOAST tables, one for each part, read in slices.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"

#include "base/dana.h"
#include "models/predictor.h"
#include "models/weights.h"
#include "numerics.h"

/* Weights that are loaded together: eight or nine chunks of a TOAST table; a part is a multiple of this */
#define BLOCK 4096

/* Header size of a one-dimensional array without NULLs, behind its length */
#define OVERHEAD (ARR_OVERHEAD_NONULLS(1) - VARHDRSZ)

static _Noreturn void
reject_weights(const char *reference, int64 count, uint32 wanted)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
					errmsg("model \"%s\" has %lld weights, but its predictor needs %u", reference, (long long)count, wanted),
					errhint("Train the model again.")));
}

ArrayType *
dana_weights_array(char *place, int64 count)
{
	ArrayType *array = memset(place, 0, ARR_OVERHEAD_NONULLS(1));

	SET_VARSIZE(array, ARR_OVERHEAD_NONULLS(1) + sizeof(float4) * count);
	array->ndim = 1;
	array->elemtype = FLOAT4OID;
	ARR_DIMS(array)[0] = (int)count;
	ARR_LBOUND(array)[0] = 1;
	return array;
}

/* Numbers of a part */
static int64
count_of(Datum part)
{
	const int64 bytes = (int64)toast_raw_datum_size(part) - ARR_OVERHEAD_NONULLS(1);

	return bytes < 0 ? 0 : bytes / (int64)sizeof(float4);
}

int64
dana_weights_count(const Datum *parts, int n_parts)
{
	int64 count = 0;

	for (int k = 0; k < n_parts; k++)
		count += count_of(parts[k]);
	return count;
}

/* Copies bytes of a stored array, counted from behind its length */
static void
copy_slice(Datum part, int64 start, void *to, Size size)
{
	struct varlena *slice = detoast_attr_slice((struct varlena *)DatumGetPointer(part), (int32)start, (int32)size);

	if (VARSIZE_ANY_EXHDR(slice) != size)
		dana_error(DATA_CORRUPTED, "the weights of a model end at byte %lld", (long long)(start + VARSIZE_ANY_EXHDR(slice)));
	memcpy(to, VARDATA_ANY(slice), size);
	pfree(slice);
}

void
dana_weights_copy(const Datum *parts, int n_parts, int64 first, int64 count, float *to)
{
	while (count > 0)
	{
		const int64 part = first / DANA_WEIGHTS_PART, from = first % DANA_WEIGHTS_PART;
		const int64 some = Min(count, DANA_WEIGHTS_PART - from);

		if (part >= n_parts)
			dana_error(DATA_CORRUPTED, "the weights of a model end at number %lld", (long long)first);
		copy_slice(parts[part], OVERHEAD + from * (int64)sizeof(float), to, some * sizeof(float));
		first += some;
		count -= some;
		to += some;
	}
}

/* Loads the missing ones of [first, first + count): blocks of an array in memory */
static void
bring_blocks(const dana_predictor *predictor, dana_weights *weights, uint32 first, uint32 count)
{
	for (uint32 block = first / BLOCK; count > 0 && block <= (first + count - 1) / BLOCK; block++)
	{
		const uint32 start = block * BLOCK;

		if (weights->brought[block])
			continue;
		dana_weights_copy(weights->parts, weights->n_parts, start, Min(BLOCK, predictor->weights - start),
						  weights->memory + start);
		weights->brought[block] = true;
	}
}

/* For a row that a prediction chose. The server's code, and an error, run in its own mode of the processor. */
static void
bring(const dana_predictor *predictor, uint32_t first, uint32_t count)
{
	dana_weights *weights = predictor->bringing;
	bool		  there = true;

	for (uint32 block = first / BLOCK; block <= (first + count - 1) / BLOCK; block++)
		there = there && weights->brought[block];
	if (!there)
	{
		dn_leave(predictor->mode);
		bring_blocks(predictor, weights, first, count);
		(void)dn_enter();
	}
}

/* Whether a part is a one-dimensional array of floats, and each but the last one is full */
static bool
sound(const Datum *parts, int n_parts, int k)
{
	ArrayType head;

	if (count_of(parts[k]) == 0)
		return false;
	copy_slice(parts[k], 0, (char *)&head + VARHDRSZ, sizeof head - VARHDRSZ);
	return head.ndim == 1 && head.dataoffset == 0 && head.elemtype == FLOAT4OID &&
		(k == n_parts - 1 || count_of(parts[k]) == DANA_WEIGHTS_PART);
}

float *
dana_weights_prepare(dana_weights *weights, dana_predictor *predictor, const char *reference, const Datum *parts,
					 int n_parts)
{
	float *memory = MemoryContextAllocHuge(CurrentMemoryContext, dana_predictor_memory(predictor) * sizeof(float));
	const int64 count = dana_weights_count(parts, n_parts);

	for (int k = 0; k < n_parts; k++)
		if (!sound(parts, n_parts, k) || count != predictor->weights)
			reject_weights(reference, count, predictor->weights);
	weights->parts = parts;
	weights->n_parts = n_parts;
	weights->memory = memory + predictor->inputs;
	weights->brought = palloc0(predictor->weights / BLOCK + 1);
	dana_predictor_prepare(predictor, memory, NULL);
	if (!VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(parts[0]))) /* few: they are in the model's row */
	{
		dana_weights_copy(parts, n_parts, 0, count, weights->memory);
		return memory;
	}
	for (uint32 i = 0; i < predictor->instructions; i++)
	{
		uint32_t first[3], behind[3];
		int		 ranges = dana_predictor_reads(predictor, i, first, behind);

		for (int k = 0; k < ranges; k++)
			bring_blocks(predictor, weights, first[k], behind[k] - first[k]);
	}
	predictor->bring = bring;
	predictor->bringing = weights;
	return memory;
}
