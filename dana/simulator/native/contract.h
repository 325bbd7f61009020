/*
 * What hwgen/spec says, in C: numbers, and the structures through which Python hands a machine and a Bundle over.
 *
 * dana/simulator/native.py mirrors the structures; tests/simulator/test_contract.py compares everything here with
 * hwgen/spec. Constants of the cycle contract are not here: they come with struct sim_machine.
 */
#ifndef DANA_SIMULATOR_CONTRACT_H
#define DANA_SIMULATOR_CONTRACT_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_CLUSTER		  8
#define SIM_TEMPORARIES	  32
#define SIM_REGISTERS	  64
#define SIM_WHOLE_EPOCH	  UINT32_MAX
#define SIM_UNKNOWN_PAGE  UINT32_MAX
#define SIM_ENGINE_CODES  64
#define SIM_STRIDER_CODES 16

enum sim_opcode
{
	SIM_END = 0,
	SIM_MOV = 1,
	SIM_ADD = 2,
	SIM_SUB = 3,
	SIM_MUL = 4,
	SIM_MAX = 5,
	SIM_MIN = 6,
	SIM_LT = 7,
	SIM_GT = 8,
	SIM_LE = 9,
	SIM_GE = 10,
	SIM_EQ = 11,
	SIM_NEG = 12,
	SIM_ABS = 13,
	SIM_MOVC = 14,
	SIM_SETX = 15,
	SIM_LOW = 16,
	SIM_HIGH = 17,
	SIM_SIGMOID = 32,
	SIM_GAUSSIAN = 33,
	SIM_EXP = 34,
	SIM_LOG = 35,
	SIM_SQRT = 36,
	SIM_DIV = 37
};

enum sim_source
{
	SIM_MEMORY = 0,
	SIM_LANE_XOR = 1,
	SIM_THREAD_XOR = 2
};

enum sim_tuple_mask
{
	SIM_MASK_NONE = 0,
	SIM_MASK_PAIR = 1,
	SIM_MASK_SINGLE = 2
};

enum sim_section
{
	SIM_INIT,
	SIM_TUPLE,
	SIM_MERGE,
	SIM_PUSH,
	SIM_BATCH,
	SIM_EPOCH,
	SIM_SECTIONS
};

enum sim_strider_opcode
{
	SIM_READB = 0,
	SIM_EXTRB = 1,
	SIM_WRITEB = 2,
	SIM_EXTRBI = 3,
	SIM_CLN = 4,
	SIM_INS = 5,
	SIM_AD = 6,
	SIM_SUBTRACT = 7,
	SIM_MULTIPLY = 8,
	SIM_BENTR = 9,
	SIM_BEXIT = 10,
	SIM_BEQ = 11,
	SIM_BNE = 12,
	SIM_BLT = 13,
	SIM_JMP = 14,
	SIM_CTL = 15
};

enum sim_control
{
	SIM_CTL_END = 0,
	SIM_CTL_SKIP = 1,
	SIM_CTL_FAIL = 2,
	SIM_CTL_POP = 3
};

enum sim_condition
{
	SIM_COND_EQ = 0,
	SIM_COND_NE = 1,
	SIM_COND_LT = 2,
	SIM_COND_GE = 3
};

enum sim_fault
{
	SIM_FAULT_NONE = 0,
	SIM_FAULT_OUT_OF_PAGE = 1,
	SIM_FAULT_STACK = 10,
	SIM_FAULT_BAD_INSTRUCTION = 11,
	SIM_FAULT_RUNAWAY = 12,
	SIM_FAULT_INDEX = 14,
	SIM_FAULT_TUPLE_PARTS = 15
};

enum sim_column_type
{
	SIM_FLOAT4 = 0,
	SIM_FLOAT8 = 1,
	SIM_INT2 = 2,
	SIM_INT4 = 3,
	SIM_INT8 = 4,
	SIM_BOOL = 5
};

/* hwgen.spec.config.MachineConfig and hwgen.spec.cycles */
struct sim_machine
{
	int32_t threads, clusters, striders, page_size, scratch_depth, tuple_depth, program_depth, strider_depth;
	int32_t descriptor_depth, index_depth, crossed, queue_depth, page_beats, link_latency;
	int32_t result_latency, index_latency, section_start, min_instruction, round_start;
	int32_t strider_start, strider_bound, unpack_stages, unpack_latency, page_release;
	int32_t strider_cycles[SIM_STRIDER_CODES];
	int32_t special_latency[SIM_ENGINE_CODES], special_interval[SIM_ENGINE_CODES]; /* 0: the machine has none */
};

/* hwgen.spec.engine.Instruction, in the order of its FIELDS */
struct sim_instruction
{
	int32_t op, wait, inner, outer;
	int32_t dst, dst_inner, dst_outer, dst_level;
	int32_t a, a_tuple, a_inner, a_outer, a_level;
	int32_t b, b_tuple, b_inner, b_outer;
	int32_t source, distance, mask, tail_a, tail_b, tail, scalar;
	int32_t a_index, dst_index;
};

/* hwgen.spec.strider.Instruction */
struct sim_strider_instruction
{
	int32_t op, a, b, c;
};

/* hwgen.spec.columns.Column, in the order of its FIELDS, then what follows from it */
struct sim_column
{
	int32_t count, row, lane, type, scalar, first, last, follows;
	int32_t bytes; /* on the page */
	int32_t beats; /* cycles of the unpacker */
	int32_t place; /* float of the first element from the tuple's first */
	bool bad;	   /* a BAD_INSTRUCTION when it is used */
};

/* Scratchpad rows of a hwgen.spec.bundle.Symbol */
struct sim_symbol_rows
{
	int32_t row, rows;
};

/* hwgen.spec.bundle.Bundle */
struct sim_bundle
{
	const struct sim_instruction *program;
	const struct sim_strider_instruction *strider;
	const struct sim_column *columns;
	const uint32_t *constants; /* SIM_TEMPORARIES words */
	const uint32_t *image;	   /* [image_rows][lanes] */
	const struct sim_symbol_rows *symbols;
	int32_t n_program, n_strider, n_columns, image_rows, n_symbols;
	int32_t sections[SIM_SECTIONS]; /* -1: none */
	int32_t group, tuple_rows, level_stride, levels;
	uint32_t batch;
};

/* Why a Bundle was refused; dana/simulator/machine.py has the words for it */
struct sim_problem
{
	int32_t kind;	  /* enum sim_problem_kind */
	int32_t section;  /* of engine instructions */
	int32_t position; /* instruction or descriptor */
	int64_t found, limit;
};

enum sim_problem_kind
{
	SIM_FITS = 0,
	SIM_NO_MEMORY,
	SIM_BAD_SETTING,	   /* position: enum sim_setting */
	SIM_NO_END,			   /* a section runs past the program */
	SIM_BAD_FIELD,		   /* found: index of the field in engine.FIELDS */
	SIM_DST_OUTSIDE,	   /* found: row, limit: rows */
	SIM_A_OUTSIDE,
	SIM_B_OUTSIDE,
	SIM_TOO_SHORT,		   /* found: cycles, limit: MIN_INSTRUCTION */
	SIM_WRITES_COLLIDE,	   /* found: cycle from the section's start */
	SIM_RESULTS_OUTSTAND,  /* found: cycles that END's wait is short of */
	SIM_COLUMN_OUTSIDE,	   /* found: row, limit: tuple rows */
	SIM_NO_INDEX,		   /* found: entries that it needs, limit: INDEX_DEPTH */
	SIM_INDEX_UNSET,	   /* found: entries that it uses, limit: entries that the last SETX set */
	SIM_INDEX_EARLY,	   /* found: cycles short of INDEX_LATENCY */
	SIM_INDEX_OVERLAPS,	   /* a program with SETX reads a row before it is visible */
	SIM_NO_FUNCTION,	   /* found: the operation */
	SIM_NO_CROSSING		   /* an exchange of two operands, or one that chooses */
};

enum sim_setting
{
	SIM_GROUP,		  /* found: tuples of a thread */
	SIM_HALVES,		  /* found: rows of both halves of tuple memory, limit: TUPLE_DEPTH */
	SIM_BATCH_SIZE,
	SIM_IMAGE,		  /* found: rows, limit: SCRATCH_DEPTH */
	SIM_PROGRAM_SIZE, /* found: instructions, limit: PROGRAM_DEPTH */
	SIM_STRIDER_SIZE,
	SIM_DESCRIPTORS,
	SIM_NO_TUPLE,	  /* no tuple section */
	SIM_NO_PUSH,	  /* a merge section without a push section */
	SIM_LEVELS,
	SIM_SYMBOL,		  /* found: rows that one needs, limit: SCRATCH_DEPTH */
	SIM_SEVERAL_ROUNDS /* a batch of several rounds without a merge section; found: batch, limit: tuples of a round */
};

/* hwgen.spec.counters.EpochCounters */
struct sim_counters
{
	uint64_t cycles, tuples, skipped, engine_busy, merging, waiting_for_engine, waiting_for_pages;
	uint32_t fault, fault_page, fault_pointer;
};

#endif
