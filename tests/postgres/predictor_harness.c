/*
 * Runs a predictor outside PostgreSQL: as a library for comparison with the interpreter, as a program under the
 * sanitizers with one damaged predictor after another.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numerics.h"
#include "models/predictor.h"

/* Weights are brought one by one as they are asked for; others are NaN, which would be seen */
typedef struct store
{
	const float *weights;
	float		*memory;
} store;

static void
bring(const dana_predictor *predictor, uint32_t first, uint32_t count)
{
	const store *from = predictor->bringing;

	memcpy(from->memory + first, from->weights + first, count * sizeof(float));
}

/* Predicts `n` rows, `out` having room for each row's numbers; -1 where the program is refused, -2 where a row cannot be predicted */
int
predict_rows(const uint32_t *words, size_t length, const float *weights, uint32_t n_weights, const float *rows, uint32_t n,
			 float *out, const char **why)
{
	dana_predictor predictor;
	float		  *memory;
	int			   code = 0;

	*why = dana_predictor_load(words, length, &predictor);
	if (*why != NULL)
		return -1;
	if (predictor.weights != n_weights)
	{
		*why = "weights";
		return -1;
	}
	memory = malloc(dana_predictor_memory(&predictor) * sizeof(float));
	memset(memory, 0xff, dana_predictor_memory(&predictor) * sizeof(float));
	dana_predictor_prepare(&predictor, memory, NULL);
	predictor.bring = bring;
	predictor.bringing = &(store){weights, memory + predictor.inputs};
	for (uint32_t i = 0; i < predictor.instructions; i++)
	{
		uint32_t first[3], behind[3];

		for (int k = dana_predictor_reads(&predictor, i, first, behind) - 1; k >= 0; k--)
			bring(&predictor, first[k], behind[k] - first[k]);
	}
	for (uint32_t i = 0; i < n && code == 0; i++)
	{
		unsigned mode = dn_enter();

		memcpy(memory, rows + (size_t)i * predictor.inputs, predictor.inputs * sizeof(float));
		if (dana_predictor_run(&predictor, memory, 0, predictor.instructions) != NULL)
			code = -2;
		dn_leave(mode);
		for (uint32_t k = 0; k < predictor.width; k++)
			*out++ = dn_canonical(memory[predictor.result + k]);
	}
	free(memory);
	return code;
}

#ifdef FUZZ
/* Standard input: records of a uint32 length and a program. Prints how many were accepted. */
int
main(void)
{
	uint32_t length;
	int		 accepted = 0;

	while (fread(&length, sizeof length, 1, stdin) == 1)
	{
		uint32_t   *words = malloc(length + 1);
		dana_predictor predictor;

		if (fread(words, 1, length, stdin) != length)
			return 2;
		/* what evaluation would need is bounded here only to keep the run short */
		if (dana_predictor_load(words, length, &predictor) == NULL && dana_predictor_memory(&predictor) < 1 << 22 &&
			predictor.work < 1 << 24)
		{
			float	   *weights = calloc(predictor.weights + 1, sizeof(float));
			float	   *row = calloc(predictor.inputs + 1, sizeof(float));
			float	   *out = malloc(predictor.width * sizeof(float));
			const char *why;

			predict_rows(words, length, weights, predictor.weights, row, 1, out, &why);
			free(out);
			free(weights);
			free(row);
			accepted++;
		}
		free(words);
	}
	printf("%d\n", accepted);
	return 0;
}
#endif
