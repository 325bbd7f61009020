/*
 * Weights of stored models: slices of an array that lies uncompressed in a TOAST table.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "utils/array.h"
#include "utils/datum.h"

#include "dana.h"
#include "numerics.h"
#include "weights.h"

/* Weights that are brought together: as many as eight or nine chunks of a TOAST table hold */
#define BLOCK 4096

/* Bytes of an array of one axis and no NULLs before its elements, behind its length */
#define OVERHEAD (ARR_OVERHEAD_NONULLS(1) - VARHDRSZ)

static _Noreturn void
refuse(const char *reference, int64 count, uint32 wanted)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
					errmsg("model \"%s\" has %lld weights, but its predictor needs %u", reference, (long long)count, wanted),
					errhint("Train the model again.")));
}

/* Copies bytes of a stored array, counted from behind its length */
static void
copy_slice(const dana_weights *weights, int64 start, void *to, Size size)
{
	struct varlena *slice = detoast_attr_slice(weights->stored, (int32)start, (int32)size);

	if (VARSIZE_ANY_EXHDR(slice) != size)
		dana_error(DATA_CORRUPTED, "the weights of a model end at byte %lld", (long long)(start + VARSIZE_ANY_EXHDR(slice)));
	memcpy(to, VARDATA_ANY(slice), size);
	pfree(slice);
}

/* Brings what is not there of [first, first + count): blocks of an array in memory */
static void
bring_blocks(const dana_predictor *predictor, dana_weights *weights, uint32 first, uint32 count)
{
	for (uint32 block = first / BLOCK; count > 0 && block <= (first + count - 1) / BLOCK; block++)
	{
		const uint32 start = block * BLOCK;

		if (weights->brought[block])
			continue;
		copy_slice(weights, OVERHEAD + (int64)start * sizeof(float), weights->memory + start,
				   Min(BLOCK, predictor->weights - start) * sizeof(float));
		weights->brought[block] = true;
	}
}

/* For a row that a prediction chose. What the server does, and an error, come in its own mode of the processor. */
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

float *
dana_weights_prepare(dana_weights *weights, dana_predictor *predictor, const char *reference, Datum array)
{
	struct varlena *given = (struct varlena *)DatumGetPointer(array);
	const Size		size = dana_predictor_memory(predictor) * sizeof(float);
	float		   *memory = MemoryContextAllocHuge(CurrentMemoryContext, size);
	struct varatt_external place;
	ArrayType		head;
	int				count;

	if (!VARATT_IS_EXTERNAL_ONDISK(given))
	{
		ArrayType *all = DatumGetArrayTypePCopy(array);

		count = ArrayGetNItems(ARR_NDIM(all), ARR_DIMS(all));
		if (ARR_ELEMTYPE(all) != FLOAT4OID || ARR_HASNULL(all) || count != predictor->weights)
			refuse(reference, count, predictor->weights);
		dana_predictor_prepare(predictor, memory, (float *)ARR_DATA_PTR(all));
		pfree(all);
		return memory;
	}
	VARATT_EXTERNAL_GET_POINTER(place, given);
	weights->stored = (struct varlena *)DatumGetPointer(datumCopy(array, false, -1));
	weights->memory = memory + predictor->inputs;
	weights->brought = palloc0(predictor->weights / BLOCK + 1);
	count = (place.va_rawsize - ARR_OVERHEAD_NONULLS(1)) / (int)sizeof(float);
	copy_slice(weights, 0, (char *)&head + VARHDRSZ, sizeof head - VARHDRSZ);
	if (head.ndim != 1 || head.dataoffset != 0 || head.elemtype != FLOAT4OID || count != predictor->weights)
		refuse(reference, count, predictor->weights);
	dana_predictor_prepare(predictor, memory, NULL);
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
