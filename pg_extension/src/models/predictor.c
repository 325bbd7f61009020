/*
 * Predictors: check and evaluation. Each operation rounds on its own, as in training (numerics.h).
 */
#include "models/predictor.h"
#include "models/predictor_codes.h"
#include "numerics.h"

#include <string.h>


#define INSTRUCTION_WORDS (sizeof(predictor_instruction) / sizeof(uint32_t))

static inline bool
reduces(uint32_t code)
{
	return code >= PREDICTOR_SIGMA && code <= PREDICTOR_AMAX;
}

/* Number of operands of an operation; 0 for an invalid code */
static inline int
operand_count(uint32_t code)
{
#define OPERANDS(name, operands, ...) [PREDICTOR_##name] = operands,
	static const uint8_t operands[PREDICTOR_CODES] = {DANA_PREDICTOR_ELEMENTWISE(OPERANDS)
														  DANA_PREDICTOR_OTHERS(OPERANDS)};

	return code < PREDICTOR_CODES ? operands[code] : 0;
}

/* Extents of operand `k` of instruction `i`; false if it does not read one there */
static bool
operand_extents(const predictor_instruction *i, int k, uint32_t extents[3])
{
	if (k >= operand_count(i->code))
		return false;
	memcpy(extents, i->extent, sizeof i->extent);
	if (i->code == PREDICTOR_GATHER)
	{
		extents[0] = k == 0 ? i->operand[2].start : 1; /* all rows of the model; one index */
		if (k == 1)
			extents[1] = extents[2] = 1;
	}
	return true;
}

/* Checks one instruction; adds up its work and the memory that it needs */
static const char *
check_instruction(const predictor_instruction *i, uint64_t scratch_start, uint64_t end, dana_predictor *predictor)
{
	uint64_t total = 1;
	uint64_t out;

	if (operand_count(i->code) == 0)
		return "unknown operation";
	for (int axis = 0; axis < 3; axis++)
	{
		if (i->extent[axis] == 0 || i->extent[axis] > DANA_PREDICTOR_FLOATS)
			return "an axis without elements, or with too many";
		total *= i->extent[axis];
		if (total > DANA_PREDICTOR_FLOATS)
			return "too many elements";
	}
	out = total;
	if (reduces(i->code))
	{
		uint64_t room = (uint64_t)i->extent[1] * i->extent[2];

		out /= i->extent[1];
		if (room > predictor->reduction)
			predictor->reduction = (uint32_t)room;
	}
	if (i->out < scratch_start || i->out + out > end)
		return "a result outside scratch";
	for (int k = 0; k < 3; k++)
	{
		uint32_t extents[3];
		uint64_t last = i->operand[k].start;

		if (!operand_extents(i, k, extents))
		{
			/* the loops form its address even so */
			if (i->operand[k].stride[0] != 0 || i->operand[k].stride[1] != 0 || i->operand[k].stride[2] != 0 ||
				(i->operand[k].start != 0 && i->code != PREDICTOR_GATHER))
				return "an operand that is not used";
			continue;
		}
		for (int axis = 0; axis < 3; axis++)
		{
			if (extents[axis] == 0)
				return "a model without rows";
			/* so that the sum of three products stays below 2**58 */
			if (i->operand[k].stride[axis] > DANA_PREDICTOR_FLOATS || extents[axis] > DANA_PREDICTOR_FLOATS)
				return "a stride or an extent that is too large";
			last += (uint64_t)(extents[axis] - 1) * i->operand[k].stride[axis];
		}
		if (last >= end)
			return "an operand outside memory";
	}
	predictor->work += total;
	return NULL;
}

const char *
dana_predictor_load(const uint32_t *words, size_t length, dana_predictor *predictor)
{
	const predictor_instruction *instructions;
	uint64_t					 end;
	uint64_t					 scratch_start;

	memset(predictor, 0, sizeof *predictor);
	if (length % sizeof(uint32_t) != 0 || length < DANA_PREDICTOR_HEADER * sizeof(uint32_t))
		return "it is too short";
	if (words[0] != DANA_PREDICTOR_MAGIC)
		return "it is of another version";
	predictor->inputs = words[1];
	predictor->weights = words[2];
	predictor->constants = words[3];
	predictor->scratch = words[4];
	predictor->instructions = words[5];
	predictor->result = words[6];
	predictor->width = words[7];
	predictor->words = words + DANA_PREDICTOR_HEADER;
	scratch_start = (uint64_t)predictor->inputs + predictor->weights + predictor->constants;
	end = scratch_start + predictor->scratch;
	if (end > DANA_PREDICTOR_FLOATS || predictor->instructions > DANA_PREDICTOR_INSTRUCTIONS)
		return "it is too large";
	if (length / sizeof(uint32_t) !=
		DANA_PREDICTOR_HEADER + predictor->constants + (uint64_t)predictor->instructions * INSTRUCTION_WORDS)
		return "its length does not fit its header";
	if (predictor->width == 0 || (uint64_t)predictor->result + predictor->width > end)
		return "its result is outside memory";
	instructions = (const predictor_instruction *)(predictor->words + predictor->constants);
	for (uint32_t i = 0; i < predictor->instructions; i++)
	{
		const char *wrong = check_instruction(&instructions[i], scratch_start, end, predictor);

		if (wrong != NULL)
			return wrong;
	}
	return NULL;
}

size_t
dana_predictor_memory(const dana_predictor *p)
{
	return (size_t)p->inputs + p->weights + p->constants + p->scratch + p->reduction;
}

void
dana_predictor_prepare(const dana_predictor *p, float *memory, const float *weights)
{
	float *constants = memory + p->inputs + p->weights;

	memset(memory, 0, p->inputs * sizeof(float));
	if (weights != NULL)
		memcpy(memory + p->inputs, weights, p->weights * sizeof(float));
	memcpy(constants, p->words, p->constants * sizeof(float));
	memset(constants + p->constants, 0, ((size_t)p->scratch + p->reduction) * sizeof(float));
}

int
dana_predictor_reads(const dana_predictor *p, uint32_t i, uint32_t first[3], uint32_t behind[3])
{
	const predictor_instruction *instruction = (const predictor_instruction *)(p->words + p->constants) + i;
	const uint64_t end = (uint64_t)p->inputs + p->weights;
	int ranges = 0;

	for (int k = instruction->code == PREDICTOR_GATHER; k < 3; k++)
	{
		uint32_t extents[3];
		uint64_t last = instruction->operand[k].start;

		if (!operand_extents(instruction, k, extents))
			continue;
		for (int axis = 0; axis < 3; axis++)
			last += (uint64_t)(extents[axis] - 1) * instruction->operand[k].stride[axis];
		if (last < p->inputs || instruction->operand[k].start >= end)
			continue;
		first[ranges] = instruction->operand[k].start < p->inputs ? 0 : instruction->operand[k].start - p->inputs;
		behind[ranges++] = (uint32_t)(last < end ? last + 1 - p->inputs : p->weights);
	}
	return ranges;
}

/* Loops of an elementwise operation. The last axis is dense or repeated in nearly every program: those vectorise */
#define ELEMENTWISE(expression)                                                                                        \
	for (uint32_t x = 0; x < i->extent[0]; x++)                                                                        \
		for (uint32_t y = 0; y < i->extent[1]; y++)                                                                    \
		{                                                                                                              \
			const float *pa = a + x * i->operand[0].stride[0] + y * i->operand[0].stride[1];                           \
			const float *pb = b + x * i->operand[1].stride[0] + y * i->operand[1].stride[1];                           \
			const float *pc = c + x * i->operand[2].stride[0] + y * i->operand[2].stride[1];                           \
			const uint32_t sa = i->operand[0].stride[2];                                                               \
			const uint32_t sb = i->operand[1].stride[2];                                                               \
			const uint32_t sc = i->operand[2].stride[2];                                                               \
                                                                                                                       \
			if (sa == 1 && sb == 1)                                                                                    \
				for (uint32_t z = 0; z < n; z++)                                                                       \
				{                                                                                                      \
					const float A = pa[z], B = pb[z], C = pc[z * sc];                                                  \
					(void)B, (void)C;                                                                                  \
					out[z] = (expression);                                                                             \
				}                                                                                                      \
			else                                                                                                       \
				for (uint32_t z = 0; z < n; z++)                                                                       \
				{                                                                                                      \
					const float A = pa[z * sa], B = pb[z * sb], C = pc[z * sc];                                        \
					(void)B, (void)C;                                                                                  \
					out[z] = (expression);                                                                             \
				}                                                                                                      \
			out += n;                                                                                                  \
		}

static void
predictor_elementwise(const predictor_instruction *i, float *memory)
{
	const uint32_t n = i->extent[2];
	const float	  *a = memory + i->operand[0].start;
	const float	  *b = memory + i->operand[1].start;
	const float	  *c = memory + i->operand[2].start;
	float		  *out = memory + i->out;

#define ELEMENTWISE_CASE(name, operands, value) \
	case PREDICTOR_##name: \
		ELEMENTWISE(value) \
		break;
	switch (i->code)
	{
		DANA_PREDICTOR_ELEMENTWISE(ELEMENTWISE_CASE)
	}
}

#define JOIN(out, lower) \
	if (code == PREDICTOR_SIGMA) \
		for (size_t z = 0; z < joined; z++) \
			out[z] = dn_add(lower[z], upper[z]); \
	else if (code == PREDICTOR_PI) \
		for (size_t z = 0; z < joined; z++) \
			out[z] = dn_mul(lower[z], upper[z]); \
	else \
		for (size_t z = 0; z < joined; z++) \
			out[z] = dn_max(lower[z], upper[z])

/* One step of a fold: `joined` pairs */
static inline void
predictor_join(float *restrict out, const float *lower, const float *upper, size_t joined, uint32_t code)
{
	JOIN(out, lower);
}

/* The same in place; `upper` is behind the elements that are written */
static inline void
join_lanes(float *lanes, const float *restrict upper, size_t joined, uint32_t code)
{
	JOIN(lanes, lanes);
}

static inline uint32_t
largest_power_below(uint32_t n)
{
	return UINT32_C(1) << (31 - __builtin_clz(n - 1));
}

/* The language's fold: while n > 1, with h the largest power of two below n, x[i] takes in x[i + h], then n is h. */
static void
predictor_reduce(const predictor_instruction *i, float *memory, float *lanes)
{
	const predictor_operand *from = &i->operand[0];
	const uint32_t			 inner = i->extent[2];
	float					*out = memory + i->out;

	for (uint32_t x = 0; x < i->extent[0]; x++)
	{
		const float *start = memory + from->start + (size_t)x * from->stride[0];
		uint32_t	 n = i->extent[1];

		if (inner == 1 && n > 1 && from->stride[1] == 1)
		{
			/* contiguous, as in nearly every program: the first step needs no copy */
			const uint32_t half = largest_power_below(n);

			predictor_join(lanes, start, start + half, n - half, i->code);
			for (uint32_t y = n - half; y < half; y++)
				lanes[y] = dn_flush(start[y]);
			n = half;
		}
		else
			for (uint32_t y = 0; y < n; y++)
				for (uint32_t z = 0; z < inner; z++)
					lanes[(size_t)y * inner + z] =
						dn_flush(start[(size_t)y * from->stride[1] + (size_t)z * from->stride[2]]);
		while (n > 1)
		{
			const uint32_t half = largest_power_below(n);

			join_lanes(lanes, lanes + (size_t)half * inner, (size_t)(n - half) * inner, i->code);
			n = half;
		}
		memcpy(out, lanes, inner * sizeof(float));
		out += inner;
	}
}

/* A row of a model; false if there is no row of that number, which comes from the data */
static bool
predictor_gather(const dana_predictor *p, const predictor_instruction *i, float *memory)
{
	const predictor_operand *model = &i->operand[0];
	const float				 index = memory[i->operand[1].start];
	const size_t			 weights = p->inputs, end = weights + p->weights;
	size_t					 start, behind;

	/* in this order: the conversion of a number that is too large, or of a NaN, is undefined */
	if (!(index >= 0 && index < (float)DANA_PREDICTOR_FLOATS) || index != (float)(uint32_t)index ||
		(uint32_t)index >= i->operand[2].start)
		return false;
	start = model->start + (size_t)(uint32_t)index * model->stride[0];
	behind = start + (size_t)(i->extent[2] - 1) * model->stride[2] + 1;
	if (p->bring != NULL && behind > weights && start < end)
	{
		const size_t from = start < weights ? weights : start;

		p->bring(p, (uint32_t)(from - weights), (uint32_t)((behind < end ? behind : end) - from));
	}
	for (uint32_t z = 0; z < i->extent[2]; z++)
		memory[i->out + z] = memory[start + (size_t)z * model->stride[2]];
	return true;
}

/* Adds the source of an address that an instruction reads: a feature, or a value of scratch */
static void
need(const dana_predictor *p, uint64_t address, uint32_t *first, uint32_t *last, bool *needed)
{
	const uint64_t scratch = (uint64_t)p->inputs + p->weights + p->constants;

	if (address < p->inputs)
	{
		*first = address < *first ? (uint32_t)address : *first;
		*last = address > *last ? (uint32_t)address : *last;
	}
	else if (address >= scratch)
		needed[address - scratch] = true;
}

void
dana_predictor_chooses(const dana_predictor *p, const predictor_instruction *gather, const float *memory, bool *needed,
					   uint32_t *first, uint32_t *last, bool *itself)
{
	const predictor_instruction *begin = (const predictor_instruction *)(p->words + p->constants);
	const uint64_t scratch = (uint64_t)p->inputs + p->weights + p->constants;

	*first = UINT32_MAX;
	*last = 0;
	*itself = true;
	need(p, gather->operand[1].start, first, last, needed);
	for (const predictor_instruction *i = gather; i-- > begin;)
	{
		const uint64_t elements = (uint64_t)i->extent[0] * i->extent[2] * (reduces(i->code) ? 1 : i->extent[1]);
		const bool	   gathers = i->code == PREDICTOR_GATHER;
		bool		   wanted = false;

		for (uint64_t z = 0; z < elements; z++)
			wanted |= needed[i->out - scratch + z];
		if (!wanted)
			continue;
		*itself &= gathers;
		for (int k = 0; k < 3; k++)
		{
			const predictor_operand *from = &i->operand[k];
			uint64_t start = from->start;
			uint32_t extents[3];

			if (!operand_extents(i, k, extents))
				continue;
			if (gathers && k == 0) /* elements chosen from the row */
			{
				start += (uint64_t)memory[i->operand[1].start] * from->stride[0];
				extents[0] = 1;
			}
			for (uint32_t x = 0; x < extents[0]; x++)
				for (uint32_t y = 0; y < extents[1]; y++)
					for (uint32_t z = 0; z < extents[2]; z++)
						need(p,
							 start + (uint64_t)x * from->stride[0] + (uint64_t)y * from->stride[1] +
								 (uint64_t)z * from->stride[2],
							 first, last, needed);
		}
	}
	*itself &= *first == *last;
}

const predictor_instruction *
dana_predictor_run(const dana_predictor *p, float *memory, uint32_t first, uint32_t last)
{
	const predictor_instruction *instructions = (const predictor_instruction *)(p->words + p->constants);
	float						*lanes = memory + p->inputs + p->weights + p->constants + p->scratch;

	for (uint32_t k = first; k < last; k++)
	{
		const predictor_instruction *i = &instructions[k];

		if (reduces(i->code))
			predictor_reduce(i, memory, lanes);
		else if (i->code == PREDICTOR_GATHER)
		{
			if (!predictor_gather(p, i, memory))
				return i;
		}
		else
			predictor_elementwise(i, memory);
	}
	return NULL;
}
