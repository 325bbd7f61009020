/* Steps of a way, over all rows of a page: what way.c makes and pattern.c looks into. */
#ifndef DANA_SIMULATOR_STEP_H
#define DANA_SIMULATOR_STEP_H

#include <stdint.h>

enum kind
{
	/* values */
	LOAD, /* d = y bytes of the page at a + x, shifted and masked; all of them on the page */
	BITS, /* d = (a + x) >> shift & mask */
	ADD,  /* d = a + b + x */
	SUB,  /* d = a - b + x */
	MUL,  /* d = low half of (a + x) times low half of (b + y) */
	CLEAN, /* d = (a + x) & mask */
	POP,  /* d = one bits of a + x */
	/* conditions */
	EQ, /* a + x == b + y */
	NE,
	LT,
	GE
};

/* Registers rx and ry, which no row changes, are added to x and y; the last one is always zero */
struct sim_step
{
	uint8_t kind, shift, rx, ry;
	uint32_t x, y, mask;
	uint32_t *d;
	const uint32_t *a, *b;
};

#define NO_REGISTER SIM_REGISTERS

#endif
